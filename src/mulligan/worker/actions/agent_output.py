"""Parse what an agent prints as JSON: its answer, and the usage that it reports.

The output is one object, a list of objects, or one object per line. A path such as `usage.input_tokens` is looked up in
the last object that has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import msgspec

from mulligan.core.model.agents.spending import parse_cost, parse_count, plain_cost

# The number of tokens that a price is for.
PRICED_TOKENS = 1_000_000
# The key for the prices of all other models.
ANY_MODEL = "default"
MODEL_CHARS_MAX = 200


class Field(msgspec.Struct, frozen=True):
    """Where a value is: a path, and the values that other paths of the same object must have."""

    path: str
    where: dict[str, Any] = {}


class Form(msgspec.Struct, frozen=True):
    """Where an answer and its usage are. Several fields for tokens are added up."""

    content: Field | None = None
    tokens: tuple[Field, ...] = ()
    input_tokens: tuple[Field, ...] = ()
    output_tokens: tuple[Field, ...] = ()
    cost: Field | None = None
    calls: Field | None = None
    turns: Field | None = None
    model: Field | None = None
    error: Field | None = None


class Prices(msgspec.Struct, frozen=True):
    """US dollars per million tokens."""

    input: Decimal
    output: Decimal


class Reading(msgspec.Struct, frozen=True):
    """What was read: the answer, the usage, and the error if the agent reports one."""

    content: str
    used: dict[str, Any]
    error: str = ""


_CLAUDE_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
# `claude -p --output-format json`, or `stream-json`: its last line is the same.
CLAUDE = Form(
    content=Field("result", {"type": "result"}),
    input_tokens=tuple(Field(f"usage.{name}", {"type": "result"}) for name in _CLAUDE_INPUT),
    output_tokens=(Field("usage.output_tokens", {"type": "result"}),),
    cost=Field("total_cost_usd"),
    turns=Field("num_turns"),
    model=Field("modelUsage"),
    error=Field("is_error"),
)
# `codex exec --json`. Its input tokens include cached ones.
CODEX = Form(
    content=Field("item.text", {"type": "item.completed", "item.type": "agent_message"}),
    input_tokens=(Field("usage.input_tokens", {"type": "turn.completed"}),),
    output_tokens=(Field("usage.output_tokens", {"type": "turn.completed"}),),
    error=Field("error.message", {"type": "turn.failed"}),
)
FORMS = {"claude": CLAUDE, "codex": CODEX}


def parse_objects(printed: str) -> list[dict[str, Any]]:
    """Return the JSON objects that were printed; none if it is not JSON."""
    try:
        whole = msgspec.json.decode(printed)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _lines(printed)
    return [one for one in (whole if isinstance(whole, list) else [whole]) if isinstance(one, dict)]


def _lines(printed: str) -> list[dict[str, Any]]:
    """Return one object per line. Other lines are skipped: programs print warnings."""
    found = []
    for line in printed.splitlines():
        if line.startswith("{"):
            try:
                found.append(msgspec.json.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
    return found


def read(form: Form, printed: str, model: str, prices: dict[str, Prices]) -> Reading | None:
    """Read what was printed by a form; None if the answer is not where the form says."""
    messages = parse_objects(printed)
    content = _value(form.content, messages)
    error = _value(form.error, messages)
    if content is None and not error:
        return None
    text = content if isinstance(content, str) else "" if content is None else msgspec.json.encode(content).decode()
    return Reading(text, _used(form, messages, model, prices), _error(error, text))


def _error(value: Any, content: str) -> str:
    if not value:
        return ""
    return value if isinstance(value, str) else content or "the agent says that it has failed"


def _used(form: Form, messages: list[dict[str, Any]], model: str, prices: dict[str, Prices]) -> dict[str, Any]:
    figures = {
        "input_tokens": _sum(form.input_tokens, messages),
        "output_tokens": _sum(form.output_tokens, messages),
        "tokens": _sum(form.tokens, messages),
        "calls": parse_count(_value(form.calls, messages)),
        "turns": parse_count(_value(form.turns, messages)),
        "model": _model(_value(form.model, messages)) or model or None,
        "cost": _value(form.cost, messages),
    }
    return priced({name: value for name, value in figures.items() if value is not None}, prices)


def priced(used: dict[str, Any], prices: dict[str, Prices]) -> dict[str, Any]:
    """Return the usage with the sum of tokens, and the cost: as reported, otherwise by the price list."""
    figures = dict(used)
    amount = parse_cost(figures.pop("cost", None))
    parts = [figures[name] for name in ("input_tokens", "output_tokens") if name in figures]
    if parts and "tokens" not in figures:
        figures["tokens"] = sum(parts)
    price = prices.get(str(figures.get("model", "")), prices.get(ANY_MODEL))
    if amount is None and parts and price is not None:
        total = figures.get("input_tokens", 0) * price.input + figures.get("output_tokens", 0) * price.output
        amount = parse_cost(total / PRICED_TOKENS)
    return figures if amount is None else {**figures, "cost": plain_cost(amount)}


def _sum(fields: Iterable[Field], messages: list[dict[str, Any]]) -> int | None:
    counts = [number for field in fields if (number := parse_count(_value(field, messages))) is not None]
    return sum(counts) if counts else None


def _model(value: Any) -> str:
    """Return the model's name; the names of all models for an object with their usage."""
    if isinstance(value, dict):
        value = ", ".join(value)
    return value[:MODEL_CHARS_MAX] if isinstance(value, str) else ""


def _value(field: Field | None, messages: list[dict[str, Any]]) -> Any:
    if field is None:
        return None
    for message in reversed(messages):
        if all(_at(message, path) == value for path, value in field.where.items()):
            value = _at(message, field.path)
            if value is not None:
                return value
    return None


def _at(value: Any, path: str) -> Any:
    for name in path.split("."):
        if isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, dict):
            value = value.get(name)
        else:
            return None
    return value

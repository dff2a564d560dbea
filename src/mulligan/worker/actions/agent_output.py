"""What an agent prints as JSON: where its answer stands in it, and what it says that it has used.

It is one object, a list of objects, or one object a line. A path such as `usage.input_tokens` is looked up in the last
object that has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import msgspec

from mulligan.core.model.spending import parse_cost, parse_count, plain_cost

# A price is for so many tokens.
PRICED_TOKENS = 1_000_000
# The prices of a model that has none of its own.
ANY_MODEL = "default"
MODEL_CHARS_MAX = 200


class Field(msgspec.Struct, frozen=True):
    """Where a value stands: a path, and what other paths of the same object must say."""

    path: str
    where: dict[str, Any] = {}


class Form(msgspec.Struct, frozen=True):
    """Where an answer and its figures stand. Of several fields for tokens the sum counts."""

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
    """US dollars for a million tokens."""

    input: Decimal
    output: Decimal


class Reading(msgspec.Struct, frozen=True):
    """What was read: the answer, what was used, and what went wrong, if the agent says so."""

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
# `codex exec --json`. Its count of input tokens has those in it that were cached.
CODEX = Form(
    content=Field("item.text", {"type": "item.completed", "item.type": "agent_message"}),
    input_tokens=(Field("usage.input_tokens", {"type": "turn.completed"}),),
    output_tokens=(Field("usage.output_tokens", {"type": "turn.completed"}),),
    error=Field("error.message", {"type": "turn.failed"}),
)
FORMS = {"claude": CLAUDE, "codex": CODEX}


def objects(printed: str) -> list[dict[str, Any]]:
    """The JSON objects that were printed; none where it is no JSON."""
    try:
        whole = msgspec.json.decode(printed)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _lines(printed)
    return [one for one in (whole if isinstance(whole, list) else [whole]) if isinstance(one, dict)]


def _lines(printed: str) -> list[dict[str, Any]]:
    """One object a line. A line that is none is passed over: programs print warnings."""
    found = []
    for line in printed.splitlines():
        if line.startswith("{"):
            try:
                found.append(msgspec.json.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
    return found


def read(form: Form, printed: str, model: str, prices: dict[str, Prices]) -> Reading | None:
    """What was printed, read by a form; None where the answer does not stand where it should."""
    found = objects(printed)
    content = _value(form.content, found)
    error = _value(form.error, found)
    if content is None and not error:
        return None
    text = content if isinstance(content, str) else "" if content is None else msgspec.json.encode(content).decode()
    return Reading(text, _used(form, found, model, prices), _error(error, text))


def _error(said: Any, content: str) -> str:
    if not said:
        return ""
    return said if isinstance(said, str) else content or "the agent says that it has failed"


def _used(form: Form, found: list[dict[str, Any]], model: str, prices: dict[str, Prices]) -> dict[str, Any]:
    figures = {
        "input_tokens": _sum(form.input_tokens, found),
        "output_tokens": _sum(form.output_tokens, found),
        "tokens": _sum(form.tokens, found),
        "calls": parse_count(_value(form.calls, found)),
        "turns": parse_count(_value(form.turns, found)),
        "model": _model(_value(form.model, found)) or model or None,
        "cost": _value(form.cost, found),
    }
    return priced({name: value for name, value in figures.items() if value is not None}, prices)


def priced(used: dict[str, Any], prices: dict[str, Prices]) -> dict[str, Any]:
    """The figures with all tokens added up, and with the cost: as it was reported, else by the price list."""
    found = dict(used)
    amount = parse_cost(found.pop("cost", None))
    parts = [found[name] for name in ("input_tokens", "output_tokens") if name in found]
    if parts and "tokens" not in found:
        found["tokens"] = sum(parts)
    price = prices.get(str(found.get("model", "")), prices.get(ANY_MODEL))
    if amount is None and parts and price is not None:
        total = found.get("input_tokens", 0) * price.input + found.get("output_tokens", 0) * price.output
        amount = parse_cost(total / PRICED_TOKENS)
    return found if amount is None else {**found, "cost": plain_cost(amount)}


def _sum(fields: Iterable[Field], found: list[dict[str, Any]]) -> int | None:
    counts = [number for field in fields if (number := parse_count(_value(field, found))) is not None]
    return sum(counts) if counts else None


def _model(said: Any) -> str:
    """Its name; of an object with what each model has used, their names."""
    if isinstance(said, dict):
        said = ", ".join(said)
    return said[:MODEL_CHARS_MAX] if isinstance(said, str) else ""


def _value(field: Field | None, found: list[dict[str, Any]]) -> Any:
    if field is None:
        return None
    for one in reversed(found):
        if all(_at(one, path) == wanted for path, wanted in field.where.items()):
            value = _at(one, field.path)
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

"""`budget`: what the agents of a step or of a run may spend."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from mulligan.core.model.actions import traits_of
from mulligan.core.model.agents.spending import parse_cost
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import Budget, Command, all_commands
from mulligan.language.keys.value_schemas import Fields, Key, Record, Value, whole
from mulligan.language.text.nodes import Source

TOKENS_MAX = 10**15
_TOKENS = lazy_regex(r"([0-9][0-9_]*(?:\.[0-9]+)?) ?([kM]?)")
_POWERS = {"": 1, "k": 1_000, "M": 1_000_000}


def tokens(value: Any) -> int:
    """The number in `200000`, `200_000`, `200k` or `1.5M`. ValueError for anything else, including 0."""
    found = _TOKENS.fullmatch(value) if isinstance(value, str) else None
    number = Decimal(found[1].replace("_", "")) * _POWERS[found[2]] if found else value
    is_whole = isinstance(number, Decimal) or type(number) is int
    if not is_whole or number != int(number) or not 1 <= number <= TOKENS_MAX:
        raise ValueError(value)
    return int(number)


def parse_dollars(value: Any) -> Decimal:
    """The amount in `2.50` or `$2.50`. ValueError for anything else, including 0."""
    found = parse_cost(value.removeprefix("$") if isinstance(value, str) else value)
    if not found:
        raise ValueError(value)
    return found


BUDGET = Record(
    "budget",
    {
        "tokens": Key(
            Value(
                "a number of tokens such as 200000 or 200k",
                tokens,
                {
                    "anyOf": [
                        {"type": "integer", "minimum": 1, "maximum": TOKENS_MAX},
                        {"type": "string", "pattern": f"^(?:{_TOKENS.pattern})$"},
                    ]
                },
            ),
            "how many tokens they may use, input and output together",
        ),
        "cost": Key(
            Value(
                "an amount of US dollars such as 2.50",
                parse_dollars,
                {
                    "anyOf": [
                        {"type": "number", "exclusiveMinimum": 0},
                        {"type": "string", "pattern": r"^\$?[0-9]+(?:\.[0-9]+)?$"},
                    ]
                },
            ),
            "how many US dollars they may cost",
        ),
        "calls": Key(whole(1, 1_000_000_000), "how often they may be called"),
        "tool_calls": Key(whole(1, 1_000_000_000), "how many tools they may call"),
    },
)


def read_budget(form: Fields, source: Source) -> Budget | None:
    """The budget. If it limits nothing, note it and return None."""
    if form.node.entries:
        return Budget(**form.values) if form.values else None
    hint = "say how much: {tokens: 200000, cost: 2.50, calls: 20}"
    source.note(source.refuse("budget", "the budget limits nothing", form.node, hint=hint))
    return None


def warn_of_idle_budget(fields: Fields, found: Iterable[Command], owner: str, source: Source) -> None:
    """Warn about a budget without agents."""
    actions = (traits_of(command.action) for command in all_commands(found))
    if not any(traits.is_agent or traits.calls_run or traits.is_program for traits in actions):
        message = f"{owner} has a budget, but no agent to spend it"
        hint = "a budget is for agents: 'timeout' bounds time, 'resources' memory"
        source.warn("idle_budget", message, fields.key("budget"), hint=hint)


# -- on a command line -----------------------------------------------------------------------------------------------

_GIVEN = lazy_regex(r"(?:(?P<step>.+)\.)?(?P<what>tokens|cost|calls|tool_calls)=(?P<value>.+)")


def parse_budgets(words: Iterable[str]) -> dict[str, Budget]:
    """Parse `cost=5` and `review.tokens=50k` into budgets by step ("" is the run). ValueError with a bad word."""
    found: dict[str, dict[str, Any]] = {}
    for word in words:
        parts = _GIVEN.fullmatch(word)
        if parts is None:
            raise ValueError(word)
        try:
            value = BUDGET.keys[parts["what"]].schema.convert(_number(parts["value"]))  # type: ignore[attr-defined]
        except ValueError:
            raise ValueError(word) from None
        found.setdefault(parts["step"] or "", {})[parts["what"]] = value
    return {step: Budget(**limits) for step, limits in found.items()}


def _number(text: str) -> Any:
    return int(text) if text.isascii() and text.isdigit() else text

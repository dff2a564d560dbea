"""What agents spend: calls, tokens and money, as numbers that add up exactly.

Money is in US dollars, as providers report it or computed from tokens by a price list. It is decimal everywhere, so
that a sum of cents is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from mulligan.core.model.workflow import Budget

CURRENCY = "USD"
# Larger values are ignored; a billionth of a dollar is less than the price of any token.
_COST_BELOW = Decimal(10) ** 9
_SMALLEST = Decimal("1e-9")
_COUNT_BELOW = 2**53


class Spent(msgspec.Struct, frozen=True, omit_defaults=True):
    """What agents have spent so far. None: not reported."""

    calls: int = 0
    tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: Decimal | None = None
    tool_calls: int = 0

    def __bool__(self) -> bool:
        return self != NOTHING_SPENT

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.calls + other.calls,
            _sum(self.tokens, other.tokens),
            input_tokens=_sum(self.input_tokens, other.input_tokens),
            output_tokens=_sum(self.output_tokens, other.output_tokens),
            cost=_sum(self.cost, other.cost),
            tool_calls=self.tool_calls + other.tool_calls,
        )

    def __sub__(self, other: Spent) -> Spent:
        """What was spent since `other`, which is an earlier sum."""
        return Spent(
            self.calls - other.calls,
            _difference(self.tokens, other.tokens),
            input_tokens=_difference(self.input_tokens, other.input_tokens),
            output_tokens=_difference(self.output_tokens, other.output_tokens),
            cost=_difference(self.cost, other.cost),
            tool_calls=self.tool_calls - other.tool_calls,
        )

    @property
    def as_usage(self) -> dict[str, Any]:
        """As the usage of an attempt, without unknown values."""
        figures = {
            "calls": self.calls or None,
            "tokens": self.tokens,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost": None if self.cost is None else plain_cost(self.cost),
            "tool_calls": self.tool_calls or None,
        }
        return {name: value for name, value in figures.items() if value is not None}


NOTHING_SPENT = Spent()
# The keys of an attempt's usage that are about agents; the others were measured.
FIGURES = frozenset(Spent.__struct_fields__)


def _sum(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return one + other


def _difference(later: Any, earlier: Any) -> Any:
    return later if later is None or earlier is None else (later - earlier) or None


def spent_from_usage(usage: Mapping[str, Any]) -> Spent:
    """What agents spent, from the usage of an attempt. Values that are not numbers are ignored."""
    return Spent(
        parse_count(usage.get("calls")) or 0,
        parse_count(usage.get("tokens")),
        input_tokens=parse_count(usage.get("input_tokens")),
        output_tokens=parse_count(usage.get("output_tokens")),
        cost=parse_cost(usage.get("cost")),
        tool_calls=parse_count(usage.get("tool_calls")) or 0,
    )


def parse_count(value: Any) -> int | None:
    """A reported number of tokens or calls; None if it is not valid."""
    try:
        return int(value) if not isinstance(value, bool | str) and 0 <= value < _COUNT_BELOW else None
    except (TypeError, ValueError):
        return None


def parse_cost(value: Any) -> Decimal | None:
    """A reported amount of money, from a number or text; None if it is not valid."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        found = Decimal(str(value).strip())
    except InvalidOperation:
        return None
    return _normalize(found) if found.is_finite() and 0 <= found < _COST_BELOW else None


def _normalize(amount: Decimal) -> Decimal:
    """The amount without trailing zeros, and never as `1E+1`."""
    found = amount.quantize(_SMALLEST).normalize()
    return found if found.as_tuple().exponent <= 0 else found.quantize(Decimal(1))  # type: ignore[operator]


def plain_cost(amount: Decimal) -> str:
    """`0.62`: the exact amount, for programs."""
    return f"{_normalize(amount):f}"


def spent_json(spent: Spent) -> dict[str, Any] | None:
    """As `--json` shows it; None if nothing was spent. Money is text, so that no reader rounds it."""
    if not spent:
        return None
    return {
        "calls": spent.calls,
        "tokens": spent.tokens,
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "cost": None if spent.cost is None else plain_cost(spent.cost),
        "currency": CURRENCY,
        "tool_calls": spent.tool_calls,
    }


# -- formatting --------------------------------------------------------------------------------------------------------


def format_dollars(amount: Decimal) -> str:
    """`$0.62`, `$0.0034`: to the cent; below a dollar with up to four digits."""
    if 0 < amount < Decimal("0.0001"):
        return "less than $0.0001"
    if amount >= 1:
        return f"${amount.quantize(Decimal('0.01')):,f}"
    text = f"{amount.quantize(Decimal('0.0001')):f}".rstrip("0")
    whole, _, part = text.partition(".")
    return f"${whole}.{part:0<2}"


def format_spent(spent: Spent) -> str:
    """`3 calls, 41,200 tokens, $0.62`, without unknown values; "" if nothing was spent."""
    if not spent:
        return ""
    found = [format_amount("calls", spent.calls)] if spent.calls else []
    found += [format_amount("tokens", spent.tokens)] if spent.tokens is not None else []
    found += [format_amount("cost", spent.cost)] if spent.cost is not None else []
    found += [format_amount("tool_calls", spent.tool_calls)] if spent.tool_calls else []
    return ", ".join(found)


def format_amount(what: str, value: Any) -> str:
    """`$0.62`, `41,200 tokens`, `1 call`, `5 tool calls`."""
    if what == "cost":
        return format_dollars(value)
    words = what.replace("_", " ")
    return f"{value:,} {words if value != 1 else words[:-1]}"


def format_limits(budget: Budget | None) -> str:
    """`20 calls, $2.00`; "" without a budget."""
    return "" if budget is None else ", ".join(format_amount(what, limit) for what, limit in budget.limits.items())


def format_raised_budgets(budgets: Mapping[str, Budget]) -> str:
    """`, agents may spend $5.00, those of 'review' 20 calls`; "" if nothing was raised."""
    found = [format_limits(budgets[""])] if "" in budgets else []
    found += [f"those of '{step}' {format_limits(budget)}" for step, budget in budgets.items() if step]
    return f", agents may spend {', '.join(found)}" if found else ""

"""What agents have spent and may spend, as plain data and in words; and budgets as a command line gives them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mulligan.core.model.spending import in_words, reported
from mulligan.core.model.workflow import Budget
from mulligan.errors import InputInvalid
from mulligan.language.budgets import parse_budgets

__all__ = ["budget_in_words", "read_budgets", "spent_in_words"]


def read_budgets(words: Iterable[str]) -> dict[str, Budget]:
    """`cost=5` and `review.tokens=50k` as budgets by step, "" for the run."""
    try:
        return parse_budgets(words)
    except ValueError as error:
        raise InputInvalid(
            f"'{error}' is no budget", hint="write it like cost=5, tokens=200k or calls=20; of one step: STEP.cost=5"
        ) from None


def budget_in_words(shown: Mapping[str, Any]) -> str:
    """`20 calls, $2.00`, of what is shown as data."""
    return in_words(reported(shown))


def spent_in_words(shown: dict[str, Any] | None) -> str:
    """`3 calls, 41,200 tokens, $0.62`, of what is shown as data; "" where nothing was spent."""
    return "" if shown is None else in_words(reported(shown))

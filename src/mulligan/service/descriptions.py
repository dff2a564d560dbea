"""Failures, artifacts, budgets and spending in words, of what results hold as plain data."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mulligan.core.model.artifacts import KEY, is_artifact
from mulligan.core.model.failure import Failure
from mulligan.core.model.formatting import format_size, strip_control_characters
from mulligan.core.model.spending import format_spent, spent_from_usage
from mulligan.history.phrases import describe_failure, last_lines


def summarize_failure(failure: Mapping[str, Any]) -> str:
    """A failure that is shown as data, in a few words."""
    return describe_failure(_failure(failure))


def failure_tail(failure: Mapping[str, Any]) -> tuple[str, ...]:
    """What the attempt wrote last that failed with this; none where `summarize_failure` says it all."""
    return last_lines(_failure(failure))


def _failure(shown: Mapping[str, Any]) -> Failure:
    return Failure(
        shown["code"],
        shown["message"] or "",
        exit_code=shown["exit_code"],
        signal=shown["signal"],
        details=shown["details"],
        trace=shown.get("trace") or "",
    )


def message_lines(failure: Mapping[str, Any]) -> list[str]:
    """What a failed command said last, line by line, fit for a terminal."""
    return strip_control_characters(failure["message"] or "").splitlines()


def describe_budget(shown: Mapping[str, Any]) -> str:
    """`20 calls, $2.00`, of what is shown as data."""
    return format_spent(spent_from_usage(shown))


def describe_spending(shown: dict[str, Any] | None) -> str:
    """`3 calls, 41,200 tokens, $0.62`, of what is shown as data; "" where nothing was spent."""
    return "" if shown is None else format_spent(spent_from_usage(shown))


def describe_artifact(value: Any) -> str:
    """A reference as a person wants to know it: `3.2MiB, in .mulligan/artifacts/…`; "" for any other value."""
    if not is_artifact(value):
        return ""
    told = value[KEY] if isinstance(value[KEY], dict) else {}
    path = told.get("path", "")
    where = _from_here(path) if path else f"the store: {told.get('name', '')}"
    return f"{format_size(told.get('size', 0))}, in {where}"


def _from_here(path: str) -> str:
    """As one would type it: relative where it is below this folder."""
    here = os.getcwd() + os.sep
    return path[len(here) :] if path.startswith(here) else path

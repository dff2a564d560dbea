"""Failures, artifacts, budgets and spending in words, of what results hold as plain data."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from mulligan.core.model.agents.spending import format_spent, spent_from_usage
from mulligan.core.model.artifacts import DROPPED, KEY, holds_reference, is_artifact, is_object_place
from mulligan.core.model.failure import Failure
from mulligan.core.model.text.artifact_words import describe_file, with_files_described
from mulligan.core.model.text.formatting import format_size, strip_control_characters
from mulligan.history.phrases import describe_failure, last_lines


def summarize_failure(failure: Mapping[str, Any]) -> str:
    """A failure in a few words."""
    return describe_failure(_failure(failure))


def failure_tail(failure: Mapping[str, Any]) -> tuple[str, ...]:
    """The last lines that the failed attempt wrote; none if `summarize_failure` has them all."""
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
    """The lines of the message of a failure, without control characters."""
    return strip_control_characters(failure["message"] or "").splitlines()


def describe_budget(shown: Mapping[str, Any]) -> str:
    """A budget: `20 calls, $2.00`."""
    return format_spent(spent_from_usage(shown))


def describe_spending(shown: Mapping[str, Any] | None) -> str:
    """What agents spent: `3 calls, 41,200 tokens, $0.62`; "" if nothing."""
    return "" if shown is None else format_spent(spent_from_usage(shown))


def describe_artifact(value: Any) -> str:
    """A reference to an artifact: `3.2MiB, in .mulligan/artifacts/…`; "" for any other value.

    That to a file says what it is: `table 1,000 × 5 (parquet, 12KiB), in …`.
    """
    if not is_artifact(value):
        return ""
    reference = value[KEY] if isinstance(value[KEY], dict) else {}
    if reference.get("format") == DROPPED:
        return describe_file(value)
    path = reference.get("path", "")
    # A kept file has its step as `place`, and the place of its object as `bucket`.
    places = (reference.get("bucket", ""), reference.get("place", ""))
    place = next((one for one in places if is_object_place(str(one))), None)
    where = _from_here(path) if path else f"{place + '/' if place else 'the store: '}{reference.get('name', '')}"
    return f"{describe_file(value) or format_size(reference.get('size', 0))}, in {where}"


def describe_value(value: Any) -> str:
    """A value as JSON in one line, with words in place of what is stored beside the log."""
    if is_artifact(value):
        return describe_artifact(value)
    if not holds_reference(value):
        return json.dumps(value)
    return strip_control_characters(json.dumps(with_files_described(value), ensure_ascii=False))


def _from_here(path: str) -> str:
    """Relative, if it is below the current folder."""
    here = os.getcwd() + os.sep
    return path[len(here) :] if path.startswith(here) else path

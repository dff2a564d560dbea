"""What comes of a question, from what came of its parts: an answer, a part of one, or the failure that counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mulligan import StepError
from mulligan_nl2sql.failures import RULES, bounded
from mulligan_nl2sql.planning.failures import REFUSED

# Some parts are missing, and the user wants all or nothing.
INCOMPLETE = "ANSWER_INCOMPLETE"
_DETAILS_SHOWN = ("words", "candidates")
_RETRYABLE = frozenset(code.value for code, rule in RULES.items() if rule.is_retryable)


class Missing(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A part of the question without an answer, or a database that could not be read."""

    database: str
    code: str
    message: str
    severity: str = "error"
    # What it was asked; empty: its schema could not be read.
    question: str = ""
    details: dict[str, Any] = {}

    @property
    def is_refusal(self) -> bool:
        return self.code == REFUSED


def unread_databases(failures: Sequence[dict[str, Any]]) -> tuple[Missing, ...]:
    """The failures of a map over databases."""
    return tuple(
        Missing(
            database=one["item"]["name"],
            code=one["code"],
            message=one["message"],
            severity=one.get("severity", "error"),
        )
        for one in failures
    )


def failed_scans(failures: Sequence[dict[str, Any]]) -> tuple[Missing, ...]:
    """The failures of a map over scans. Of a scan, the failure inside counts, and the last one if there are several."""
    found = []
    for one in failures:
        inner = (one.get("failures") or [one])[-1]
        details = {name: value for name in _DETAILS_SHOWN if (value := (inner.get("details") or {}).get(name))}
        found.append(
            Missing(
                database=one["item"]["database"],
                question=one["item"]["question"],
                code=inner["code"],
                message=inner["message"],
                severity=inner.get("severity", "error"),
                details=details,
            )
        )
    return tuple(found)


def judge(answered: int, missing: Sequence[Missing], *, is_strict: bool) -> None:
    """StepError if there is no answer, or if parts are missing that must not be."""
    if answered and not (missing and is_strict):
        return
    if answered:
        message = f"{describe(missing)}; without --strict, the rest would be the answer"
        raise StepError(INCOMPLETE, bounded(message), retryable=False)
    raise failure_of(missing)


def failure_of(missing: Sequence[Missing], more: str = "") -> StepError:
    """The failure that says most: a refusal only if nothing else went wrong."""
    real = [one for one in missing if not one.is_refusal]
    chosen = (real or list(missing))[0]
    message = chosen.message if len(missing) == 1 else describe(missing)
    details: dict[str, Any] = {"database": chosen.database}
    if not real:
        for name in _DETAILS_SHOWN:
            if values := [value for one in missing for value in one.details.get(name, ())]:
                details[name] = list(dict.fromkeys(values))
    return StepError(
        chosen.code,
        bounded(f"{message}{f'; {more}' if more else ''}"),
        severity=chosen.severity,
        retryable=chosen.code in _RETRYABLE,
        details=details,
    )


def describe(missing: Sequence[Missing]) -> str:
    """What is missing and why, for people."""
    return "; ".join(_describe_one(one) for one in missing)


def _describe_one(one: Missing) -> str:
    what = "refused" if one.is_refusal else f"failed with {one.code}" if one.question else f"was not read: {one.code}"
    return f"{one.database} {what}: {one.message}"


def refusal(message: str, words: Sequence[str] = ()) -> StepError:
    """A refusal of the whole question."""
    details = {"words": list(words)} if words else {}
    return StepError(REFUSED, bounded(message), retryable=False, details=details)

"""Why a failure got no retry: each rule of the place, and why it granted none. Shown to the person who decides."""

from __future__ import annotations

import msgspec

from mulligan.core.deciding.conditions import describe_rule, matching_rule, rule_mismatch
from mulligan.core.model.failure import Failure
from mulligan.core.model.workflow import Command
from mulligan.core.state.state import RecoveryProgress
from mulligan.history.phrases import describe_cap


class RetryReason(msgspec.Struct, frozen=True):
    """A rule that granted nothing: its number in the file, what it looks for, and why it was of no use."""

    rule: int
    looks_for: str
    reason: str


def why_not(spec: Command, climb: RecoveryProgress, failure: Failure) -> list[RetryReason]:
    """Of each rule, in the order of the file, why it granted no retry for this failure."""
    chosen = matching_rule(spec.rules, failure)
    return [
        RetryReason(index + 1, describe_rule(rule), _reason(spec, climb, failure, index, chosen))
        for index, rule in enumerate(spec.rules)
    ]


def _reason(spec: Command, climb: RecoveryProgress, failure: Failure, index: int, chosen: int | None) -> str:
    if climb.verdict == "rules_not_asked":
        return "rules do not apply after a rerun"
    if index == chosen:
        return _spent(spec, climb, index)
    return rule_mismatch(spec.rules[index], failure) or _overruled(failure, chosen)


def _overruled(failure: Failure, chosen: int | None) -> str:
    """Why a rule that matches was not the one that was used."""
    if chosen is None:
        names = "its code or its class" if failure.exceptions else "its code"
        return f"{failure.code} is fatal: only a rule that names {names} retries it"
    return f"rule {chosen + 1} was used instead"


def _spent(spec: Command, climb: RecoveryProgress, index: int) -> str:
    """Why the rule that was used granted no retry."""
    if climb.verdict == "attempts_exhausted":
        return f"max_attempts reached, {climb.tries} of {spec.max_attempts}"
    if climb.verdict == "rule_attempts_exhausted":
        return f"its max_attempts reached, {climb.tries} of {spec.rules[index].max_attempts}"
    if climb.verdict == "deadline_passed":
        return "the deadline leaves no time for a retry"
    if cap := describe_cap(climb.verdict, spec.rules[index]):
        return cap
    return f"used up, {climb.retries.get(index, 0)} of {spec.rules[index].max_retries}"

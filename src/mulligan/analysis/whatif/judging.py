"""Whether the recorded outcome of an attempt is what it would have been under another definition."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import msgspec

from mulligan.analysis.whatif.attempt_names import Circumstances
from mulligan.analysis.whatif.recording import RecordedAttempt
from mulligan.core.deciding.classify import LIMIT, PAST_DEADLINE, TOO_LONG, exceeded_limit
from mulligan.core.deciding.workers.resource_usage import attempt_limits
from mulligan.core.evolve.evolve_places import is_engine_action
from mulligan.core.model import events as e
from mulligan.core.model.failure import failure, number_or_zero
from mulligan.core.model.workflow import Command
from mulligan.core.state.state import Place

# Why an outcome is not certain: the step runs something else; with other values; sooner after the failure than then;
# with other limits of memory or time; after another repair; it never happened; nothing like it was ever recorded.
Doubt = Literal[
    "", "other_action", "other_values", "sooner", "other_limits", "other_repair", "never_happened", "unknown"
]

# A retry that comes this much sooner than the recorded one is not the same retry.
SOONER_SECONDS, SOONER_SHARE = 1.0, 0.1


class Judgement(msgspec.Struct, frozen=True):
    """What the record says about an attempt: nothing (`end` is None), a fact (no doubt), or a guess."""

    end: e.AttemptSucceeded | e.AttemptFailed | e.AttemptLost | e.AttemptInterrupted | e.AttemptCancelled | None
    seconds: float
    doubt: Doubt = ""

    @property
    def is_recorded(self) -> bool:
        return self.end is not None


def judge(
    recorded: RecordedAttempt | None,
    place: Place,
    *,
    circumstances: Circumstances,
    failed_at: datetime | None,
    at: datetime,
    deadline: datetime | None = None,
    may_differ: bool = True,
) -> Judgement:
    """What is known about the attempt that was just scheduled at `place`, at the time `at`; `deadline` of its visit.

    `may_differ`: whether its definition may be another one than that of the recorded attempt.
    """
    if recorded is None or recorded.seconds is None:
        return Judgement(None, 0.0, "never_happened")
    if recorded.circumstances != circumstances:
        return Judgement(None, 0.0, "other_repair")
    end, seconds = recorded.end, recorded.seconds
    doubt: Doubt = ""
    # Also for an attempt that the run ended: it took at least as long as it was left to run.
    if (deadline, at) != (recorded.deadline, recorded.scheduled_at) and not is_engine_action(place.spec):
        limited = _under_its_deadline(recorded, place, deadline, at + timedelta(seconds=recorded.wait_seconds))
        if limited is not None:
            return limited
    if may_differ and recorded.spec != place.spec:
        limited = _under_its_limits(recorded, place)
        if limited is not None:
            return limited
        if end is not None and _what_runs(recorded.spec) != _what_runs(place.spec):
            doubt = "other_action"
        elif _lacks_memory(recorded, place):
            doubt = "other_limits"
    if end is None:
        return Judgement(None, 0.0, "never_happened")
    if not doubt and _has_other_values(recorded, place):
        doubt = "other_values"
    if not doubt and _is_sooner(recorded, failed_at, at):
        doubt = "sooner"
    return Judgement(end, seconds, doubt)


def _under_its_limits(recorded: RecordedAttempt, place: Place) -> Judgement | None:
    """What another limit makes of the recorded outcome; None if it changes nothing."""
    if is_engine_action(place.spec):
        # Its limits are timers of the run.
        return None
    limits, end = attempt_limits(place), recorded.end
    assert recorded.seconds is not None
    is_timeout = isinstance(end, e.AttemptFailed) and exceeded_limit(end.failure) == "timeout"
    adjusted = recorded.circumstances.adjusted
    had = (adjusted.timeout if adjusted is not None else None) or recorded.spec.timeout
    if is_timeout and had != limits.timeout and (limits.timeout is None or limits.timeout > recorded.seconds):
        return Judgement(None, 0.0, "other_limits")
    if limits.timeout is not None and limits.timeout < recorded.seconds and limits.timeout != had:
        found = failure("TIMEOUT", TOO_LONG, details={LIMIT: "timeout", "timeout": limits.timeout})
        return Judgement(e.AttemptFailed(place.key, place.attempt, found), limits.timeout)
    if isinstance(end, e.AttemptFailed) and end.failure.code == "OUT_OF_MEMORY":
        given = number_or_zero(end.failure.details.get("memory"))
        if given and (limits.memory is None or limits.memory > given):
            return Judgement(None, 0.0, "other_limits")
    return None


def _under_its_deadline(
    recorded: RecordedAttempt, place: Place, deadline: datetime | None, started_at: datetime
) -> Judgement | None:
    """What another deadline, or less time until it, makes of the recorded outcome; None if it changes nothing."""
    end = recorded.end
    assert recorded.seconds is not None
    left = None if deadline is None else max(0.0, (deadline - started_at).total_seconds())
    if isinstance(end, e.AttemptFailed) and exceeded_limit(end.failure) == "deadline":
        if left is None or left > recorded.seconds + SOONER_SECONDS:
            return Judgement(None, 0.0, "other_limits")
        return Judgement(end, left)
    if left is None or left >= recorded.seconds:
        return None
    found = failure("TIMEOUT", PAST_DEADLINE, details={LIMIT: "deadline"})
    return Judgement(e.AttemptFailed(place.key, place.attempt, found), left)


def _lacks_memory(recorded: RecordedAttempt, place: Place) -> bool:
    """Whether the attempt used more memory than it would be given."""
    usage = recorded.end.usage if isinstance(recorded.end, e.AttemptSucceeded) else {}
    limit = attempt_limits(place).memory
    return limit is not None and number_or_zero(usage.get("peak_memory")) > limit


def _has_other_values(recorded: RecordedAttempt, place: Place) -> bool:
    """Whether a recorded value is another one. Older releases recorded fewer."""
    return any(place.bindings.get(name) != value for name, value in recorded.bindings.items())


def _is_sooner(recorded: RecordedAttempt, failed_at: datetime | None, at: datetime) -> bool:
    """Whether it comes sooner after the failure: what was wrong may have needed that time to pass."""
    if failed_at is None or recorded.failed_at is None or recorded.circumstances.kind == "entered":
        return False
    then = (recorded.scheduled_at - recorded.failed_at).total_seconds()
    now = (at - failed_at).total_seconds()
    return now < then - max(SOONER_SECONDS, SOONER_SHARE * then)


def _what_runs(spec: Command) -> tuple[object, ...]:
    """What determines the outcome of one attempt, without the policy about it."""
    files = spec.reads, spec.writes, spec.file_paths
    return spec.action, spec.env, spec.cwd, spec.capture, files, spec.tools, spec.session

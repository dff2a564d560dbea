"""In a phrase: where a history goes another way than its log, and why a run cannot be decided again."""

from __future__ import annotations

from collections.abc import Iterable

from mulligan.analysis.whatif.attempt_names import failure_kind
from mulligan.analysis.whatif.played_history import Divergence
from mulligan.core.model import events as e
from mulligan.core.model.failure import Failure
from mulligan.core.model.place_keys import step_name

# What says most about a decision, in the words of `explain`.
_PHRASES: dict[type[e.Fact], str] = {
    e.RetryScheduled: "retried",
    e.HandlerStarted: "handled",
    e.StepParked: "parked",
    e.StepCompleted: "completed",
    e.CommandCompleted: "completed",
    e.CommandFailed: "failed",
    e.ItemFailed: "failed",
    e.ItemCompleted: "completed",
    e.StepSkipped: "skipped",
    e.StepCancelled: "cancelled",
    e.AttemptCancelled: "cancelled",
    e.AttemptStopping: "stopped",
    e.StepClassified: "decided",
    e.LoopFired: "visited again",
    e.LoopTaken: "visited again",
    e.StepPutBack: "visited again",
    e.StepReplaced: "replaced by its remediation",
    e.RunCompleted: "the run completes",
    e.RunFailed: "the run fails",
    e.RunCancelled: "the run is cancelled",
}
_OF_THE_RUN = (e.RunCompleted, e.RunFailed, e.RunCancelled, e.RunStopping)
_FAILED = (e.AttemptFailed, e.ResultRejected, e.AttemptLost)


def why(divergence: Divergence, now: Iterable[e.Entry], then: Iterable[e.Entry], failure: Failure | None) -> str:
    """`retried instead of parked after exit code 11`; "runs into its timeout"."""
    if divergence.what == "child":
        return "a run that it calls goes another way"
    if divergence.what == "outcome":
        return "ends otherwise with these limits, commands or values"
    # A timer fired where none did: nothing corresponds to it.
    done, instead = _phrase(now), "" if divergence.then is None else _phrase(then)
    after = f" after {failure_kind(failure).text}" if failure is not None else ""
    if not done:
        return _LATER.get(instead, f"not {instead}" if instead else "goes on") + after
    if not instead:
        return f"{_SOONER.get(done, done)}{after}"
    return f"{done}{after}, in another way" if done == instead else f"{done} instead of {instead}{after}"


# When what happened then does not happen at that time, and when something happens before anything did.
_LATER = {
    "tried again": "tried again later",
    "completed": "goes on for longer",
    "decided": "waits longer for a decision",
    "timed out": "has more time",
    "stopped": "has more time",
    "the run times out": "the run has more time",
}
_SOONER = {"tried again": "tried again sooner", "completed": "goes on for less time", "decided": "decided sooner"}


def _phrase(entries: Iterable[e.Entry]) -> str:
    """What a turn does, by its first fact that says so."""
    for entry in entries:
        fact = entry.fact
        if isinstance(fact, e.StepFailed):
            if fact.route.is_sent:
                return f"routed to '{fact.route.to}'"
            return "allowed to fail" if fact.is_allowed else "failed"
        if isinstance(fact, e.RunStopping):
            return "the run is stopped" if fact.cause != "timed_out" else "the run times out"
        if isinstance(fact, e.AttemptScheduled):
            return "started" if fact.cause == "entered" else "tried again"
        if isinstance(fact, e.AttemptFailed) and fact.failure.code == "TIMEOUT":
            return "timed out"
        if found := _PHRASES.get(type(fact)):
            return found
    return ""


def step_of(divergence: Divergence) -> str:
    """The step at which the histories part; "" if it is the run as a whole."""
    fact = divergence.now or divergence.then
    if divergence.place:
        return step_name(divergence.place)
    if fact is None or isinstance(fact, _OF_THE_RUN):
        return ""
    return step_name(getattr(fact, "step", "") or getattr(fact, "place", ""))


def failure_before(divergence: Divergence, entries: list[e.Entry], end: int) -> Failure | None:
    """The failure that the first other decision is about: the last one of its step in the same turn."""
    step = step_of(divergence)
    for entry in reversed(entries[max(0, end - 50) : end]):
        if isinstance(entry.fact, _FAILED) and step_name(entry.fact.place) == step:
            return getattr(entry.fact, "failure", None)
        if entry.caused_by == 0:
            return None
    return None


def undecided_reason(code: str, detail: str) -> str:
    """Why a run cannot be decided again."""
    return _REASONS[code].format(detail)


_REASONS = {
    "step_gone": "step '{}' ran, and is not in the file",
    "revised": "its definition was corrected for round {}: what this file does after that is not known",
    "nothing_known": "nothing is recorded about {}",
    "unknown_event": "event {} cannot be decided again",
    "endless": "it has not ended after {} events",
    "other_workflow": "it is a run of '{}'",
    "faked": "steps were faked in it: {}",
    "inputs": "{}",
    "continued": "run {}, which it called, had several rounds, and its definition has changed",
    "not_reproduced": "it does not go the recorded way with its own definition either, from event {} on",
    "forked": "it goes on from an event of run {}, with what had happened there",
    "program": "the code of program '{}' decides what follows, and is not run again; to check changed code against "
    "recorded runs: the fixture 'replay_program' of pytest",
    "artifact": "{}",
    "not_started": "it has not started",
}

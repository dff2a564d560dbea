"""Count how often each rung was tried, how often it worked and how long it took, from facts alone. Part of `evolve`.

    retry    one per rule. Tried: it reserved a retry. Worked: the attempt it granted completed what had failed.
             Time: from the reservation to that attempt's end, script and delay included.
    script   one per rule that has one. Tried: it was started. Worked: it succeeded. Time: its own.
    handle   one per strategy. Tried: its commands were started. Worked: it completed what had failed (recovery and
             fallback; custom, if it returned completed; with `rerun`, if the rerun did), or its commands succeeded
             (cleanup). Time: from its start until that was known.
    triage   Tried: a step was parked. Worked: it was classified as retry, and that attempt completed it.
             Time: until it was classified.
    triager  one per agent that decided. Tried: its decision was applied. Worked: it was right: after `retry` that
             attempt completed the step; after `fail` nobody ran the step again in another round (see `overruled`).
    overruled  one per agent. Tried: somebody ran a step again that the agent had let fail.
    suggested  one per agent. Tried: it suggested a verdict that was not applied. Worked: a person decided the same.
    unanswered  one per agent. Tried: it gave no valid answer.
    route    one per target. Tried: a failure was routed there. Worked: that visit completed, or failed and was handled
             in turn. Time: from the failure until that was known.

A rung that is cut off by stopping was tried and did not work. A rung is judged once, by its first outcome, not by what
later rungs, visits or rounds did. Items and commands are counted together under the step that they belong to.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from mulligan.core.model import events as e
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import AGENT_PREFIX
from mulligan.core.state.state import Place, State, Tally, TriageDecision
from mulligan.errors import CodecError

# Item and attempt numbers are left out of the keys, so that the number of tallies is bounded by the workflow.
# Calls of tools are counted together.
_NUMBERS = lazy_regex(r"\[\d+\]|(?<=\.tool)@\d+\.\d+|(?<=\.model)@\d+\.\d+|(?<=\.tool_list)@\d+\.\d+|@\d+")
_NONE = Tally()
_TRIED = Tally(tried=1)

_replace = msgspec.structs.replace


def tally_key(place: str, rung: str, what: str | int = "") -> str:
    """The key of a tally: `build:retry:0`, `check.0:handle:recovery` (of the first command of its items)."""
    return f"{_NUMBERS.sub('', place)}:{rung}:{what}"


def parse_tally_key(key: str) -> tuple[str, tuple[str, ...], str, str]:
    """The parts of a tally's key: the step, the path to the command below it, the rung, and its detail."""
    if key.count(":") != 2:
        raise CodecError(f"a row of the tables cannot be read: '{key[:100]}' is not the key of a tally")
    place, rung, what = key.split(":")
    step, *below = place.split(".")
    return step, tuple(below), rung, what


def _add(state: State, key: str, more: Tally) -> None:
    state.put(state.tallies, key, state.tallies.get(key, _NONE) + more)


def _judge(worked: bool, since: datetime, at: datetime) -> Tally:
    return Tally(worked=int(worked), judged=1, seconds=(at - since).total_seconds())


# -- what a place tries: one thing at a time -------------------------------------------------------------------------


def _begin(state: State, place_key: str, key: str, at: datetime) -> None:
    """Count a rung as tried. If another one was being tried, it did not work."""
    _end(state, place_key, at, worked=False)
    place = state.touch(place_key)
    place.climb = _replace(place.climb, trying=key, trying_since=at)
    _add(state, key, _TRIED)


def _end(state: State, place_key: str, at: datetime, *, worked: bool, is_cut_off: bool = False) -> None:
    """End the rung that the place was trying, if any. Only triage is tried after its time was counted."""
    climb = state.places[place_key].climb
    if not climb.trying:
        return
    since = climb.trying_since
    _add(state, climb.trying, Tally(worked=int(worked)) if since is None else _judge(worked, since, at))
    if since is None and (agent := _deciding_agent(climb.ruling, "retry")):
        # A cancelled attempt says nothing about the decision.
        judged = Tally() if is_cut_off else Tally(worked=int(worked), judged=1)
        _add(state, tally_key(place_key, "triager", agent), judged)
    state.touch(place_key).climb = _replace(climb, trying="", trying_since=None)


def _retry_scheduled(state: State, fact: e.RetryScheduled, entry: e.Entry) -> None:
    _begin(state, fact.place, tally_key(fact.place, "retry", fact.rule), entry.at)
    if fact.has_script:
        _add(state, tally_key(fact.place, "script", fact.rule), _TRIED)


def _attempt_failed(state: State, fact: e.AttemptFailed | e.ResultRejected, entry: e.Entry) -> None:
    _end(state, fact.place, entry.at, worked=False)


def _handler_started(state: State, fact: e.HandlerStarted, entry: e.Entry) -> None:
    _begin(state, fact.place, tally_key(fact.place, "handle", fact.strategy), entry.at)


def _handler_succeeded(state: State, fact: e.HandlerSucceeded, entry: e.Entry) -> None:
    """Judge a cleanup, and a custom handler that gives up. Others are judged by how the place ends."""
    if fact.strategy == "cleanup":
        _end(state, fact.place, entry.at, worked=True)
    elif fact.strategy == "custom" and fact.output["status"] != "completed":
        _end(state, fact.place, entry.at, worked=False)


def _handler_failed(state: State, fact: e.HandlerFailed, entry: e.Entry) -> None:
    _end(state, fact.place, entry.at, worked=False)


def _command_ended(state: State, fact: Any, entry: e.Entry) -> None:
    worked = type(fact) is e.CommandCompleted
    _end(state, fact.place, entry.at, worked=worked)
    if fact.role == "script":
        since = state.places[fact.place].entered_at
        _add(state, tally_key(fact.parent, "script", fact.index), _judge(worked, since, entry.at))


def _step_parked(state: State, fact: e.StepParked, entry: e.Entry) -> None:
    _begin(state, fact.step, tally_key(fact.step, "triage"), entry.at)


def _step_classified(state: State, fact: e.StepClassified, entry: e.Entry) -> None:
    """Count the waiting time. Whether triage worked is judged by the next attempt."""
    climb = state.places[fact.step].climb
    if agent := agent_name(fact.by):
        # Letting a step fail is right until somebody runs the step again.
        decided = Tally(tried=1, worked=1, judged=1) if fact.verdict == "fail" else _TRIED
        _add(state, tally_key(fact.step, "triager", agent), decided)
    elif not fact.is_default and climb.suggestion is not None and climb.suggestion.verdict is not None:
        followed = Tally(worked=int(climb.suggestion.verdict == fact.verdict), judged=1)
        _add(state, tally_key(fact.step, "suggested", climb.suggestion.agent), followed)
    if climb.trying_since is not None:
        _add(state, climb.trying, _judge(False, climb.trying_since, entry.at))
        trying = climb.trying if fact.verdict == "retry" else ""
        state.touch(fact.step).climb = _replace(climb, trying=trying, trying_since=None)


def _triage_suggested(state: State, fact: e.TriageSuggested, entry: e.Entry) -> None:
    _add(state, tally_key(fact.step, "unanswered" if fact.verdict is None else "suggested", fact.agent), _TRIED)


def _run_reopened(state: State, fact: e.RunReopened, entry: e.Entry) -> None:
    """Whoever runs a step again that an agent let fail overrules the agent."""
    if not state.tallies:
        return
    for place in (state.places[name] for name in fact.put_back if name in state.places):
        ruling = place.climb.ruling
        if place.status == "failed" and (agent := _deciding_agent(ruling, "fail")) and _is_last(place):
            _add(state, tally_key(place.key, "triager", agent), Tally(worked=-1))
            _add(state, tally_key(place.key, "overruled", agent), _TRIED)


def _is_last(place: Place) -> bool:
    return place.climb.ruling is not None and place.climb.ruling.attempt == place.attempt


def agent_name(by: str) -> str:
    """The agent that decided, by the name of whoever decided; "" if that was no agent. Safe in the key of a tally."""
    name = by.removeprefix(AGENT_PREFIX) if by.startswith(AGENT_PREFIX) else ""
    return name.replace(":", "_")


def _deciding_agent(ruling: TriageDecision | None, verdict: str) -> str:
    return agent_name(ruling.by) if ruling is not None and ruling.verdict == verdict else ""


# -- routes -------------------------------------------------------------------------------------


def _step_completed(state: State, fact: e.StepCompleted, entry: e.Entry) -> None:
    _end(state, fact.step, entry.at, worked=True)
    if state.routed or state.calls:
        _close_routes(state, fact.step, fact.visit, entry.at, worked=True)


def _step_failed(state: State, fact: e.StepFailed, entry: e.Entry) -> None:
    """Count the route. If the failure is routed on, failures routed here may still be handled in turn."""
    _end(state, fact.step, entry.at, worked=False)
    is_routed = fact.route.is_sent
    if is_routed:
        _add(state, tally_key(fact.step, "route", fact.route.to or ""), _TRIED)
    if not is_routed or fact.is_allowed:
        _close_routes(state, fact.step, fact.visit, entry.at, worked=False)


def _step_cancelled(state: State, fact: e.StepCancelled, entry: e.Entry) -> None:
    _end(state, fact.step, entry.at, worked=False, is_cut_off=True)
    # A waiting step has ended its last visit, which was judged then.
    if state.places[fact.step].is_active:
        _close_routes(state, fact.step, fact.visit, entry.at, worked=False)


def _close_routes(state: State, step: str, visit: int, at: datetime, *, worked: bool) -> None:
    """Judge the routes of all failures that were routed to this visit, directly or through others."""
    ended = [(step, visit)]
    while ended:
        target, number = ended.pop()
        for record in state.failures_routed_to(target, number):
            # Not if a loop or a later round rerouted the failure, or the visit that it was routed to was skipped.
            if record.target_visit == number and not record.is_closed and not record.is_target_skipped:
                _add(state, tally_key(record.step, "route", target), _judge(worked, record.at, at))
                if not record.is_allowed:
                    ended.append((record.step, record.visit))


# Called before the fact is applied. A place that never failed costs one lookup.
TALLY_HANDLERS: dict[type[e.Fact], Callable[[State, Any, e.Entry], None]] = {
    e.RetryScheduled: _retry_scheduled,
    e.AttemptFailed: _attempt_failed,
    e.ResultRejected: _attempt_failed,
    e.HandlerStarted: _handler_started,
    e.HandlerSucceeded: _handler_succeeded,
    e.HandlerFailed: _handler_failed,
    e.CommandCompleted: _command_ended,
    e.CommandFailed: _command_ended,
    e.CommandCancelled: _command_ended,
    e.StepParked: _step_parked,
    e.StepClassified: _step_classified,
    e.TriageSuggested: _triage_suggested,
    e.RunReopened: _run_reopened,
    e.StepCompleted: _step_completed,
    e.StepFailed: _step_failed,
    e.StepCancelled: _step_cancelled,
}

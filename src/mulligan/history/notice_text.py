"""What a notice says: what happened to a run, what failed, and which rung of the ladder did what about it.

It is written with the fact, from the state of that moment. Whoever sends it adds what to type and where to click.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Literal

import msgspec

from mulligan.core.deciding.rounds.rounds import needs_force
from mulligan.core.deciding.workers.resource_usage import ran_short
from mulligan.core.evolve.tallies import parse_tally_key
from mulligan.core.model import events as e
from mulligan.core.model.failure import Failure
from mulligan.core.model.text.formatting import escape_unprintable, format_duration, format_time, pluralize, single_line
from mulligan.core.model.workflow import END, NoticeKind
from mulligan.core.notices.due_notices import DueNotice
from mulligan.core.state.scope import approval_of
from mulligan.core.state.state import FailureRecord, Place, State
from mulligan.core.state.verdict import dropped_outputs, open_failures, unhandled
from mulligan.history.evidence import NOTICE_LINES_MAX, evidence_lines, evidence_of
from mulligan.history.item_names import PlaceNames
from mulligan.history.phrases import PARKED_FOR, describe_failure, describe_suggestion
from mulligan.history.route_outcomes import describe_outcome, format_times

# How many failures a notice lists, and how much it quotes of a message that asks for an approval.
FAILURES_MAX, MESSAGE_CHARS_MAX = 10, 500
# What a person is asked for: a verdict, an approval, to look at a run that a bug has paused.
Request = Literal["", "triage", "approval", "pause"]


class NoticeFailure(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step that failed: how, and what was done about it."""

    step: str
    what: str
    code: str = ""
    # What each rung did: "retried twice", "its recovery handler ran without success".
    answer: str = ""


class NoticeBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """A notice as data."""

    event: NoticeKind | Literal["test", "worker_trouble"]
    # One line that says it all.
    title: str
    at: datetime
    run_id: int = 0
    workflow: str = ""
    # The run that called it, if it is a child run.
    parent_run_id: int | None = None
    round: int = 1
    # The position of the event in the log of the run.
    seq: int = 0
    status: str = ""
    step: str = ""
    request: Request = ""
    # Further lines: what an approval asks, why the run failed, when a default applies.
    details: tuple[str, ...] = ()
    failures: tuple[NoticeFailure, ...] = ()
    # How many there are if not all are listed.
    failures_count: int = 0
    # A failed step ran out of memory or time, so that `retry --adjust` helps.
    has_run_out: bool = False
    # Another round is refused without `--force`: what could not be undone would run again.
    needs_force: bool = False
    # The display name of the step, if it is a command of an item: `check[web]`.
    name: str = ""


def notice_body(state: State, notice: DueNotice) -> NoticeBody:
    """The body of a notice, from the state after the turn of its fact."""
    run, fact = state.run, notice.entry.fact
    title, step, request, details = _words(state, notice, fact)
    names = PlaceNames()
    failures = [*_failures(state, notice.kind)]
    return NoticeBody(
        event=notice.kind,
        title=f"{_run_name(state)} {title}",
        at=notice.entry.at,
        run_id=run.run_id,
        workflow=state.workflow.name,
        parent_run_id=run.parent_run_id,
        round=run.round,
        seq=notice.entry.seq,
        status=str(run.status),
        step=step,
        request=request,
        details=tuple(details),
        failures=tuple(failures[:FAILURES_MAX]),
        failures_count=len(failures) if len(failures) > FAILURES_MAX else 0,
        name=name if (name := names.name(state, step)) != step else "",
        has_run_out=notice.kind == "failed" and any(ran_short(record.failure) for record in unhandled(state)),
        needs_force=notice.kind == "failed" and needs_force(state),
    )


def _run_name(state: State) -> str:
    run = state.run
    called = f", called by run {run.parent_run_id}" if run.parent_run_id is not None else ""
    return f"run {run.run_id} of {state.workflow.name}{called}"


def _words(state: State, notice: DueNotice, fact: e.Fact) -> tuple[str, str, Request, list[str]]:
    """The rest of the title, the step, what is asked for, and further lines."""
    if isinstance(fact, e.StepParked):
        return (
            f"waits for a decision about '{fact.step}': {describe_failure(fact.failure)}",
            fact.step,
            "triage",
            [*_parked_details(state, fact)],
        )
    if isinstance(fact, e.TriageSuggested):
        return _suggested(state, fact)
    if isinstance(fact, e.AttemptStarted):
        name = PlaceNames().name(state, fact.place)
        return f"waits for an approval: '{name}'", fact.place, "approval", [*_asked(state.places[fact.place])]
    if isinstance(fact, e.RunPaused):
        return "is paused because of a bug in Mulligan", "", "pause", [_line(fact.reason)]
    if isinstance(fact, e.RunLate):
        return f"is late: it has lasted longer than {format_duration(fact.after)}", "", "", [*_active(state)]
    assert isinstance(fact, e.RunCompleted | e.RunFailed)
    reasons = [_line(fact.reason)] if fact.reason else []
    if isinstance(fact, e.RunFailed):
        first = next(unhandled(state), None)
        why = f": '{first.step}' {describe_failure(first.failure)}" if first else ""
        return f"failed{why}", first.step if first else "", "", reasons
    title = {"degraded": "completed, degraded", "recovered": "completed after failures"}.get(notice.kind, "completed")
    names = PlaceNames()
    reasons += [
        f"the output of '{names.name(state, key)}' was too large to be kept"
        for key in islice(dropped_outputs(state), FAILURES_MAX)
    ]
    return title, "", "", reasons


def _line(text: str) -> str:
    return escape_unprintable(single_line(text).strip())[:MESSAGE_CHARS_MAX]


def _suggested(state: State, fact: e.TriageSuggested) -> tuple[str, str, Request, list[str]]:
    """A decision that the triager has left to a person."""
    failure = state.places[fact.step].failure
    about = f": {describe_failure(failure)}" if failure is not None else ""
    details = [_line(describe_suggestion(fact)), *_parked_details(state, fact)]
    return f"waits for a decision about '{fact.step}'{about}", fact.step, "triage", details


def _parked_details(state: State, fact: e.StepParked | e.TriageSuggested) -> Iterator[str]:
    if isinstance(fact, e.StepParked):
        yield f"parked: {PARKED_FOR.get(fact.reason, _line(fact.reason))}"
    if rungs := ", ".join(_rungs(state, fact.step)):
        yield rungs
    policy = state.step(fact.step).triage
    if fact.due is not None and policy is not None:
        yield f"without a decision by {format_time(fact.due)}: {policy.default}"


def _asked(place: Place) -> Iterator[str]:
    asked = approval_of(place)
    if message := _line(str(asked.get("message") or "")):
        yield message
    for piece in evidence_of(asked):
        yield from evidence_lines(piece, NOTICE_LINES_MAX)
    if place.due is not None:
        yield f"without an answer by {format_time(place.due)}: {asked.get('default') or 'refuse'}"


def _active(state: State) -> Iterator[str]:
    """What a late run is at."""
    active = [step for step in state.steps() if step.is_active]
    shown = ", ".join(f"'{step.key}' is {step.status}" for step in active[:FAILURES_MAX])
    more = f" and {pluralize(len(active) - FAILURES_MAX, 'other step')}" if len(active) > FAILURES_MAX else ""
    if shown:
        yield f"{shown}{more}"


# -- what failed -----------------------------------------------------------------------------------------------------


def _failures(state: State, kind: NoticeKind) -> Iterator[NoticeFailure]:
    """The failures that a notice lists: those that fail the run or, after a good end, all that there were."""
    if kind == "failed":
        records = [*unhandled(state), *(record for record in open_failures(state) if record.step == END)]
        yield from (_failure(state, record) for record in records)
    elif kind in ("degraded", "recovered"):
        yield from _all_failures(state)


def _all_failures(state: State) -> Iterator[NoticeFailure]:
    # The last failure of each step.
    records = {record.step: record for record in (*state.failures, *state.recoveries)}
    yield from (_failure(state, record) for record in records.values())
    retried = dict.fromkeys(parse_tally_key(key)[0] for key in state.tallies)
    for step in retried:
        if step not in records and (place := state.places.get(step)) is not None:
            answer = ", ".join([*_rungs(state, step), f"then {place.status}"])
            yield _listed(step, place.failure, answer)


def _failure(state: State, record: FailureRecord) -> NoticeFailure:
    ending = "recovered" if record.recovered_by else describe_outcome(state, record)[0]
    return _listed(record.step, record.failure, ", ".join([*_rungs(state, record.step), ending]))


def _listed(step: str, failure: Failure | None, answer: str) -> NoticeFailure:
    if failure is None:
        return NoticeFailure(step, "failed", answer=answer)
    return NoticeFailure(step, describe_failure(failure), failure.code, answer)


def _rungs(state: State, step: str) -> Iterator[str]:
    """What each rung did about the failures of a step and of its items and commands, in all rounds."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for key, tally in state.tallies.items():
        owner, _, rung, what = parse_tally_key(key)
        if owner == step:
            named = (rung, what if rung == "handle" else "")
            tried, worked = found.get(named, (0, 0))
            found[named] = (tried + tally.tried, worked + tally.worked)
    for (rung, what), (tried, worked) in found.items():
        ending = "" if worked else " without success"
        if rung == "retry":
            yield f"retried{format_times(tried)}{ending}"
        elif rung == "script":
            yield f"its recovery script ran{format_times(tried)}{ending}"
        elif rung == "handle":
            yield f"its {what} handler ran{format_times(tried)}{ending}"

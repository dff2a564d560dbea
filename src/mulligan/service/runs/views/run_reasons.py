"""Why a run is as it is: what failed and how each failure was handled, in words, and the next sensible action."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from mulligan.core.deciding.programs import has_let_through
from mulligan.core.deciding.workers.resource_usage import ran_short
from mulligan.core.model.text.formatting import pluralize, single_line
from mulligan.core.model.workflow import END
from mulligan.core.state.state import State
from mulligan.history.phrases import describe_failure
from mulligan.history.route_outcomes import ENDINGS, Ending, FailureOutcome, describe_outcome, format_times
from mulligan.history.story import StoryWriter
from mulligan.history.views import Wait
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.views.failure_summary import OUTCOMES
from mulligan.service.runs.views.report.visits import FailedVisits, ItemFailures, VisitFailure
from mulligan.service.runs.views.run_list import RunLine, WaitReason
from mulligan.service.runs.views.run_view import RunView

# The log of a run with more events is not read for the ladders of its failures: the page of a step has them.
LADDER_EVENTS_MAX = 5_000
# How many failures are put into order; and how many are given.
SORTED_MAX, GIVEN_MAX = 5_000, 30
# How many kinds of failures of items stand in the headline.
CAUSES_MAX = 3

NextAction = Literal["decide", "approve", "resume", "resume_step", "retry", "workers", "none"]
_PERSON = ("triage", "approval")
# What a run waits for if it moves without a person: something that runs, that a worker takes, or that is due.
_MOVES = frozenset({"task", "worker", "breaker", "retry", "timer", "loop"})
# What a run waits for, where only a person can move it; the first of them that holds.
_ASKED = {"triage": "waits for a decision", "approval": "waits for an approval", "step_pause": "waits to be resumed"}
_OUTSIDE = ("retry", "timer", "loop", "breaker", "child")


class CodeCount(msgspec.Struct, frozen=True):
    """How many steps failed with a code, and how many of these failures nothing has handled."""

    code: str
    count: int
    unhandled: int


class FailureOverview(msgspec.Struct, frozen=True):
    """The failures of a run, unhandled ones first. `total`: how many there are."""

    visits: list[VisitFailure]
    total: int
    unhandled: int
    codes: list[CodeCount]
    # How many of them wait for a decision.
    parked: int = 0
    # What the items of map steps failed with; only where the log is short.
    items: list[ItemFailures] = []
    # The program that failed with the failure of one of its calls.
    program: str = ""


class RunReason(msgspec.Struct, frozen=True):
    """The headline of a run: what is the matter, why, what was tried, and what can be done."""

    tone: Literal["good", "bad", "now", "ask", "idle"]
    title: str
    # The message of the failure, or what it waits for; what was tried; what else there is.
    why: str = ""
    tried: str = ""
    more: str = ""
    # The step that it is about; "" for the run. And the run that has the step: this one, or one that it called.
    step: str = ""
    run_id: int = 0
    action: NextAction = "none"
    # Whether the steps that failed ran out of memory or time.
    has_run_out: bool = False


def run_failures(reader: RunReader, state: State) -> FailureOverview:
    """What failed and how it was handled; with ladders, if the log is short."""
    kinds: list[ItemFailures] = []
    visits = list(_visits(reader, state, kinds))
    # A program fails with what it does not catch: that comes first.
    program = state.graph.program
    visits.sort(key=lambda one: (OUTCOMES.index(one.outcome), one.step == program))
    counts = Counter(visit.code for visit in visits)
    # A parked step waits for a decision: whether its failure is handled is not known yet.
    parked = {place.key for place in state.places.values() if place.status == "pending_failed"}
    unhandled = Counter(
        visit.code for visit in visits if visit.outcome == FailureOutcome.UNHANDLED and visit.step not in parked
    )
    codes = [CodeCount(code, count, unhandled[code]) for code, count in counts.items()]
    return FailureOverview(
        visits=visits[:GIVEN_MAX],
        total=len(visits),
        unhandled=unhandled.total(),
        parked=len(parked),
        items=kinds,
        program=program if program and state.places and has_let_through(state.places[program]) else "",
        codes=sorted(codes, key=lambda one: (-one.unhandled, -one.count)),
    )


def _visits(reader: RunReader, state: State, kinds: list[ItemFailures]) -> Iterator[VisitFailure]:
    if not state.places:
        return
    if state.run.seq <= LADDER_EVENTS_MAX:
        run_id, found = state.run.run_id, FailedVisits()
        writer = StoryWriter(reader.first_workflow(run_id), reader.called(run_id))
        for entry in reader.events(run_id):
            if entry.seq <= state.run.seq:
                found.update(entry, writer.lines_for(entry))
        yield from (visit for visit in found.failed_visits(state) if not visit.is_item)
        kinds += found.item_failures()
        return
    for record in state.failures[-SORTED_MAX:]:
        tried = f"retried{format_times(record.retries_used)}, " if record.retries_used else ""
        ending = describe_outcome(state, record)
        yield _visit(record.step, record.visit, record.failure, record.at, ending, tried)
    for place in state.places.values():
        if place.role == "step" and place.failure is not None and not place.has_ended:
            yield _visit(place.key, place.visit, place.failure, None, ENDINGS[place.status])


def _visit(step: str, visit: int, failure: Any, at: Any, ending: Ending, tried: str = "") -> VisitFailure:
    return VisitFailure(
        unit=step,
        step=step,
        visit=visit,
        round=1,
        at=at or failure.at,
        what=describe_failure(failure),
        code=failure.code,
        message=failure.message,
        answer=tried + ending[0],
        outcome=ending[1],
        failures=1,
        rungs=[],
        lines=[],
        has_run_out=ran_short(failure),
    )


# -- the headline ----------------------------------------------------------------------------------------------------


def waits_only_for_a_person(line: RunLine) -> str:
    """What a run waits for that only a person can move: `waits for a decision`; "" if it moves by itself."""
    kinds = {one.kind for one in line.waiting_for}
    if line.status != "running" or kinds & _MOVES:
        return ""
    return next((words for kind, words in _ASKED.items() if kind in kinds), "")


def explain_run(head: RunView, failures: FailureOverview, line: RunLine) -> RunReason:
    """The headline of a run. `head`: as `RunDetails.head` gives it. `line`: as the list of runs shows it."""
    waits = [wait for wait in head.waiting_for if wait.kind in _PERSON]
    open_ = [visit for visit in failures.visits if visit.outcome == FailureOutcome.UNHANDLED and visit.step != END]
    if head.status in ("running", "paused") and waits:
        return _waits_for_a_person(head, waits, failures)
    # A run that this one called, and that asks a person.
    below = next((one for one in line.waiting_for if one.kind in _PERSON and one.run_id != line.run_id), None)
    if head.status in ("running", "paused") and below:
        return _called_run_waits(below)
    if head.status == "paused":
        return _paused(head)
    if head.status == "failed":
        return _failed(head, open_, failures)
    if head.status == "cancelled":
        reason = f": {head.reason}" if head.reason else ""
        left = head.step_count - head.step_counts.get("completed", 0)
        return RunReason(
            "idle", f"Cancelled{reason}", more=f"{pluralize(left, 'step')} did not complete", action="retry"
        )
    if head.status == "completed":
        return _completed(head, failures)
    held = next((one for one in line.waiting_for if one.kind == "step_pause"), None)
    if held and waits_only_for_a_person(line):
        return _held(head, held)
    return _running(head, open_, failures, line)


def explain_line(line: RunLine) -> RunReason:
    """The headline of a large run that is not loaded yet: what the list knows of it, without what was tried."""
    asked = next((one for one in line.waiting_for if one.kind in _PERSON), None)
    if asked is not None:
        if asked.run_id != line.run_id:
            return _called_run_waits(asked)
        step, is_approval = asked.place.partition(".")[0], asked.kind == "approval"
        title = f"'{asked.name or step}' {'' if is_approval else 'failed and '}{_ASKED[asked.kind]}"
        return RunReason("ask", title, asked.text, step=step, action="approve" if is_approval else "decide")
    reason = f": {line.reason}" if line.reason else ""
    if line.status == "paused":
        return _paused(line)
    if line.status == "cancelled":
        return RunReason("idle", f"Cancelled{reason}", action="retry")
    if line.status == "completed":
        return RunReason("good", "Completed, degraded" if line.degraded else "Completed")
    failure, is_over = line.failure, line.status == "failed"
    if failure is None:
        return RunReason("bad", f"Failed{reason}", action="retry") if is_over else RunReason("now", "Running")
    others = f"{pluralize(failure.count - 1, 'other step')} failed too" if failure.count > 1 else ""
    title = f"'{failure.step}' failed{'' if is_over else ' while the run goes on'}, and nothing handled it"
    action: NextAction = "retry" if is_over else "none"
    return RunReason("bad", title, failure.text, more=others, step=failure.step, action=action)


def _paused(run: RunView | RunLine) -> RunReason:
    reason = f": {run.reason}" if run.reason else ""
    return RunReason("ask", f"Paused{reason}", "Nothing new starts until it is resumed.", action="resume")


def _called_run_waits(asked: WaitReason) -> RunReason:
    step = asked.place.partition(".")[0]
    is_approval = asked.kind == "approval"
    return RunReason(
        tone="ask",
        title=f"'{asked.name or step}' of run {asked.run_id}, which this run called, {_ASKED[asked.kind]}",
        why="" if is_approval else asked.text,
        step=step,
        run_id=asked.run_id,
        action="approve" if is_approval else "decide",
    )


def _held(head: RunView, held: WaitReason) -> RunReason:
    step = held.place.partition(".")[0]
    said = next((wait.text for wait in head.waiting_for if wait.kind == "step_pause"), "")
    why = f"It waits for {said}." if said else "Nothing else runs until it is resumed."
    return RunReason(
        tone="ask", title=f"'{step}' is paused", why=why, step=step, run_id=held.run_id, action="resume_step"
    )


def _waits_for_a_person(head: RunView, waits: list[Wait], failures: FailureOverview) -> RunReason:
    first = waits[0]
    step = first.place.partition(".")[0]
    same = [wait for wait in waits if wait.kind == first.kind]
    others = f" and {pluralize(len(same) - 1, 'other step')}" if len(same) > 1 else ""
    rest = len(waits) - len(same)
    noun = "parked step" if first.kind == "approval" else "approval"
    more = f"{pluralize(rest, noun)} {'waits' if rest == 1 else 'wait'} for a person too" if rest else ""
    visit = next((one for one in failures.visits if one.step == step), None)
    if first.kind == "approval":
        return RunReason(
            "ask",
            f"'{first.shown_place}'{others} waits for an approval",
            first.text,
            more=more,
            step=step,
            action="approve",
        )
    title = f"'{step}' failed{others and f', as did {others[5:]}'} and waits for a decision"
    why = f"{visit.what}" if visit else first.text
    return RunReason("ask", title, why, _tried(visit), more, step=step, action="decide")


def _failed(head: RunView, open_: list[VisitFailure], failures: FailureOverview) -> RunReason:
    if not open_:
        return RunReason("bad", f"Failed: {head.reason}" if head.reason else "Failed", action="retry")
    first = open_[0]
    has_ended_program = bool(failures.program) and first.step != failures.program
    others = failures.unhandled - 1 - has_ended_program
    causes = _causes(failures, first)
    skipped = head.step_counts.get("skipped", 0) + head.step_counts.get("cancelled", 0)
    more = [f"{pluralize(others, 'other step')} failed too"] if others > 0 else []
    more += [f"program '{failures.program}' failed with it"] if has_ended_program else []
    more += [f"{pluralize(skipped, 'step')} did not run because of it"] if skipped else []
    return RunReason(
        tone="bad",
        title=f"'{first.step}' failed, and nothing handled it",
        why=f"{first.what}: {causes}" if causes else first.what,
        tried=_tried(first),
        more="; ".join(more),
        step=first.step,
        action="retry",
        has_run_out=any(visit.has_run_out for visit in open_),
    )


def _causes(failures: FailureOverview, visit: VisitFailure) -> str:
    """What the items of a map step failed with, the most frequent first: `7 × EXIT_NONZERO 11: …; 1 × TIMEOUT`."""
    found = next((one for one in failures.items if (one.step, one.visit) == (visit.step, visit.visit)), None)
    return "; ".join(f"{count:,} × {what}" for what, count in found.kinds[:CAUSES_MAX]) if found else ""


def _tried(visit: VisitFailure | None) -> str:
    """What the rungs of the ladder did, or why they did nothing."""
    if visit is None:
        return ""
    words = [rung.said for rung in visit.rungs if rung.said and rung.outcome != "unasked"]
    return single_line("; ".join(words)) or visit.answer


def _completed(head: RunView, failures: FailureOverview) -> RunReason:
    if not failures.total:
        done = head.step_counts.get("completed", 0)
        skipped = head.step_counts.get("skipped", 0)
        why = f"{pluralize(done, 'step')} completed" + (f", {skipped:,} skipped" if skipped else "")
        # Without a failure, this alone degrades a run.
        more = "Degraded: an output was too large to be kept." if head.degraded else ""
        return RunReason("good", "Completed, degraded" if more else "Completed", why, more=more)
    first = failures.visits[0]
    title = "Completed, degraded" if head.degraded else "Completed"
    more = "Degraded: a failure on the way was recovered, handled or allowed." if head.degraded else ""
    why = f"{pluralize(failures.total, 'step')} failed on the way; '{first.step}': {first.answer}"
    return RunReason("good", title, why, more=more, step=first.step)


def _running(head: RunView, open_: list[VisitFailure], failures: FailureOverview, line: RunLine) -> RunReason:
    counts = head.step_counts
    done = counts.get("completed", 0) + counts.get("skipped", 0) + counts.get("failed", 0)
    progress = f"{done:,} of {pluralize(head.step_count, 'step')} done"
    stuck = next((wait for wait in head.waiting_for if wait.is_impossible), None)
    if stuck is not None:
        step = stuck.place.partition(".")[0]
        return RunReason("bad", f"No worker can take '{step}'", stuck.text, more=progress, step=step, action="workers")
    if head.driver is None and not head.parent_run_id and not counts.get("running"):
        text = "Nothing is running this run now. The next free worker or server continues it."
        return RunReason("ask", "Nobody drives this run", text, more=progress, action="workers")
    if open_:
        first = open_[0]
        title = f"Running, but '{first.step}' failed and nothing handled it"
        return RunReason("bad", title, first.what, _tried(first), more=progress, step=first.step)
    now = next((visit for visit in failures.visits if visit.outcome == FailureOutcome.IN_PROGRESS), None)
    if now is not None:
        title = f"Running; '{now.step}' failed, {now.answer}"
        tried = _tried(now) if now.rungs else ""
        return RunReason("now", title, now.what, tried, more=progress, step=now.step)
    if event := _waits_for_an_event(head, line):
        is_alone = not {one.kind for one in line.waiting_for} & _MOVES
        return RunReason("now", "Waits for an event" if is_alone else "Running", event, more=progress)
    # What runs or is ready is in the numbers below; what it waits for besides is worth saying.
    waits = next((wait for wait in head.waiting_for if wait.kind in _OUTSIDE), None)
    why = f"'{waits.place}' waits for {waits.text}" if waits and waits.place else ""
    return RunReason("now", "Running", why, more=progress)


def _waits_for_an_event(head: RunView, line: RunLine) -> str:
    """Who waits for which event, in the run or in one that it called, and how it is sent; "" if nothing does."""
    waits = [wait for wait in head.waiting_for if wait.kind == "event"]
    if waits:
        first, others = waits[0], f" and {pluralize(len(waits) - 1, 'other')}" if len(waits) > 1 else ""
        how = f"mulligan send {head.run_id} {shlex.quote(first.event)} VALUE"
        return f"'{first.shown_place}'{others} {'wait' if others else 'waits'} for {first.text}. To send it: {how}"
    below = next((one for one in line.waiting_for if one.kind == "event" and one.run_id != line.run_id), None)
    if below is None:
        return ""
    return f"'{below.name or below.place}' of run {below.run_id}, which this run called, waits for an event."

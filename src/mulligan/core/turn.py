"""A turn: one report comes in, and facts follow until there are no more.

`follow` yields the entries one by one, so that a very large turn can be written in pieces. `turn` collects them: call
`state.commit()` after they are durable, `state.rollback()` if they were not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain

from mulligan.core import ordinary
from mulligan.core.deciding.admit import admit
from mulligan.core.deciding.converge import converge
from mulligan.core.deciding.fact_dispatch import decide
from mulligan.core.deciding.lifecycle import Facts
from mulligan.core.evolve.evolve_run import evolve
from mulligan.core.model import events as e
from mulligan.core.model.graph import Graph
from mulligan.core.model.kept_history import kept_history
from mulligan.core.model.reports import CallsMade, Report, RunRequested, TaskEnded, TaskStarted, TimerFired
from mulligan.core.model.workflow import Workflow
from mulligan.core.state.deadlines import is_time_up
from mulligan.core.state.scope import DecisionContext, Evaluator
from mulligan.core.state.state import State
from mulligan.errors import Refused


def turn(state: State, report: Report, evaluator: Evaluator) -> list[e.Entry]:
    """All entries that follow from a report. On any error the state is unchanged."""
    state.begin()
    try:
        return list(follow(state, report, evaluator))
    except BaseException:
        state.rollback()
        raise


def follow(state: State, report: Report, evaluator: Evaluator) -> Iterator[e.Entry]:
    """Yield entries depth first: all that follows from a fact is applied before its cause yields the next one."""
    if isinstance(report, TaskEnded | CallsMade) and (end := ordinary.end_step(state, report, evaluator)) is not None:
        return chain(end.entries, follow_rest(end))
    return follow_at_length(state, report, evaluator)


def follow_at_length(state: State, report: Report, evaluator: Evaluator) -> Iterator[e.Entry]:
    """`follow` for every report: fact by fact."""
    if isinstance(report, RunRequested) and report.history:
        return _continue_history(state, report, evaluator)
    # Times in the log never go back, whatever the clock of the reporter does.
    now = DecisionContext(state, max(report.at, state.run.at), evaluator)
    return follow_facts(now, admit(now, report))


def follow_rest(end: ordinary.OrdinaryEnd) -> Iterator[e.Entry]:
    """What follows at length from the end of an ordinary step, of which the first part is in the state."""
    return chain.from_iterable(follow_facts(end.now, facts, cause) for facts, cause in end.rest)


def report_before(state: State, report: Report) -> TimerFired | None:
    """What must be reported before this: that the time of the run is up, if it is. So nothing else starts after that.

    A task that was started is no exception: it runs, and is stopped with the run.
    """
    if isinstance(report, TaskStarted) or not is_time_up(state, max(report.at, state.run.at)):
        return None
    return TimerFired(report.at, "run", "", state.run.round)


def follow_facts(now: DecisionContext, facts: Facts, cause: int = 0) -> Iterator[e.Entry]:
    """Yield the entries of a turn that begins with these facts, in place of those that a report brings."""
    state = now.state
    run, rested_at = state.run, -1
    # Generators that wait until everything that follows from their last fact is applied.
    stack: list[tuple[Facts, int]] = []
    while True:
        for fact in facts:
            entry = e.Entry(run.seq + 1, now.at, cause, fact)  # type: ignore[arg-type]
            evolve(state, entry)
            yield entry
            consequences = decide(now, fact)
            if consequences is not None:
                stack.append((facts, cause))
                facts, cause = consequences, entry.seq
                break
        else:
            if stack:
                facts, cause = stack.pop()
                continue
            # Nothing more follows: a loop or `end` may be next. Repeated until `converge` yields nothing, and skipped
            # if it cannot yield anything: a step is active, no loop waits, there is no `max_parallel`, and it
            # was not resumed for some steps only. That is nearly every turn.
            is_busy = run.active and not run.loops and state.workflow.max_parallel is None and run.stepping is None
            if rested_at == run.seq or is_busy:
                return
            rested_at = cause = run.seq
            facts = converge(now)


def end_by_force(
    state: State, by: str, reason: str, at: datetime, started: e.RunStarted | None = None
) -> Iterator[e.Entry]:
    """End the run at once, without asking what follows: nothing is cleaned up or undone, and no step changes.

    For a run that meets a bug of ours whatever is reported to it. One that could not even start has failed: `started`
    is how its log begins.
    """
    run, at = state.run, max(at, state.run.at)
    facts: list[e.Fact] = [e.RunCancelled(run.round, False, reason=reason)]
    if started is not None:
        facts = [started, e.RunFailed(1, False, reason=reason)]
    elif run.status == "paused" or run.stop is None or run.stop.cause != "cancelled":
        facts = [e.RunStopping("cancelled", now=True, by=by, reason=reason), *facts]
    for fact in facts:
        entry = e.Entry(run.seq + 1, at, 0, fact)  # type: ignore[arg-type]
        evolve(state, entry)
        yield entry


def refused_report(state: State, report: Report, reason: str, at: datetime) -> e.Entry:
    """Record that a report could not be processed. It changes nothing."""
    place, attempt = getattr(report, "place", ""), getattr(report, "attempt", 0) or 0
    by = str(getattr(report, "by", ""))
    fact = e.ReportRefused(place, attempt, reason, report=type(report).__name__, by=by)
    entry = e.Entry(state.run.seq + 1, max(at, state.run.at), 0, fact)
    evolve(state, entry)
    return entry


def _continue_history(state: State, request: RunRequested, evaluator: Evaluator) -> Iterator[e.Entry]:
    """A fork begins with what another run has decided: nothing of it is decided again. Then the fork goes on."""
    if state.run.status != "new":
        raise Refused(f"run {state.run.run_id} has already started")
    for entry in kept_history(request):
        evolve(state, entry)
        yield entry
    now = DecisionContext(state, max(request.at, state.run.at), evaluator)
    yield from follow_facts(now, admit(now, request))


def fold(workflow: Workflow, entries: Iterable[e.Entry], graph: Graph | None = None) -> State:
    """The state that a log describes, by `evolve` alone: nothing is decided again."""
    state = State(workflow, graph)
    for entry in entries:
        evolve(state, entry)
    return state

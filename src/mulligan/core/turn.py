"""A turn: one report comes in, and facts follow until nothing more does.

`follow` yields the entries one by one, so that a very large turn can be written in pieces; `turn` collects them
and can be taken back: `state.commit()` once they are durable, `state.rollback()` if they never were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mulligan.core.deciding.admit import admit
from mulligan.core.deciding.converge import converge
from mulligan.core.deciding.decide import decide
from mulligan.core.deciding.lifecycle import Facts
from mulligan.core.evolve.evolve import evolve
from mulligan.core.model import events as e
from mulligan.core.model.graph import Graph
from mulligan.core.model.reports import Report
from mulligan.core.model.workflow import Workflow
from mulligan.core.state.scope import Evaluator, Now
from mulligan.core.state.state import State


def turn(state: State, report: Report, evaluator: Evaluator) -> list[e.Entry]:
    """What a report brings about. On any error nothing has happened."""
    state.begin()
    try:
        return list(follow(state, report, evaluator))
    except BaseException:
        state.rollback()
        raise


def follow(state: State, report: Report, evaluator: Evaluator) -> Iterator[e.Entry]:
    """Depth first: what follows from a fact is true before its cause is asked for the next one."""
    run, rested_at = state.run, -1
    # The log's clock never goes back, whatever the reporter's does.
    now = Now(state, max(report.at, run.at), evaluator)
    # Below the facts being asked for: those that wait until everything that follows from their last one is true.
    stack: list[tuple[Facts, int]] = []
    facts, cause = admit(now, report), 0
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
            # At rest: `end` or a loop may be next. Asked again until it has nothing to say, and not at all where it
            # cannot have: a step is active, no loop waits and no step is held back. That is nearly every turn.
            if rested_at == run.seq or (run.active and not run.loops and state.workflow.max_parallel is None):
                return
            rested_at = cause = run.seq
            facts = converge(now)


def fold(workflow: Workflow, entries: Iterable[e.Entry], graph: Graph | None = None) -> State:
    """The state that a log describes: `evolve` alone, nothing is decided again."""
    state = State(workflow, graph)
    for entry in entries:
        evolve(state, entry)
    return state

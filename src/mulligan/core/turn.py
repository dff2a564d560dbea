"""A turn: one report comes in, and facts follow until nothing more does.

`follow` yields the entries one by one, so that a very large turn can be written in pieces; `turn` collects them
and can be taken back: `state.commit()` once they are durable, `state.rollback()` if they never were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from . import events as e
from .admit import admit
from .converge import at_rest
from .decide import decide
from .evolve import evolve
from .graph import Graph
from .reports import Report
from .scope import Evaluator, Now
from .state import State
from .workflow import Workflow


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
    # The log's clock never goes back, whatever the reporter's does.
    now = Now(state, max(report.at, state.run.at), evaluator)
    stack: list[tuple[Iterator[e.Fact], int]] = [(admit(now, report), 0)]
    while True:
        while stack:
            facts, cause = stack[-1]
            fact = next(facts, None)
            if fact is None:
                stack.pop()
                continue
            entry = e.Entry(state.run.seq + 1, now.at, cause, fact)  # type: ignore[arg-type]
            evolve(state, entry)
            yield entry
            consequences = decide(now, fact)
            if consequences is not None:
                stack.append((consequences, entry.seq))
        # At rest: `end` or a loop may be next. Asked again until it has nothing to say.
        rest = at_rest(now)
        fact = next(rest, None)
        if fact is None:
            return
        stack.append((chain((fact,), rest), state.run.seq))


def fold(workflow: Workflow, entries: Iterable[e.Entry], graph: Graph | None = None) -> State:
    """The state that a log describes: `evolve` alone, nothing is decided again."""
    state = State(workflow, graph)
    for entry in entries:
        evolve(state, entry)
    return state

"""Fill a store with runs that have a past, quickly: through the real core and the store's own door, without processes.

    python filling.py ENDED WAITING [KIND]        in the home and the store of the environment

An ended run has three steps, of which one failed once and was retried; a waiting one waits for an approval, or (KIND
`timer`) for a time that is a day away.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mulligan.core.effects import effects as fx
from mulligan.core.effects.snapshot import changes
from mulligan.core.model import reports as r
from mulligan.core.model.graph import Graph
from mulligan.core.model.outcome import Outcome
from mulligan.core.state.state import State
from mulligan.core.turn import follow
from mulligan.language import load_text
from mulligan.ports import Commit, NewRun, Store, Turn, WorkerRecord
from mulligan.service.home import find_home, this_host
from mulligan.service.runs.changes.prepared_runs import Prepared, prepare
from mulligan.testing.history import Answers

BATCH = 500
WORKER = "filler"
USAGE = {"wall_seconds": 0.25, "cpu_seconds": 0.21, "peak_memory": 12 << 20}
WORKFLOWS = {
    "ended": """
name: nightly
order: sequential
steps:
  - {step: fetch, shell: ./fetch.sh, retry: {max_retries: 2, delay: 0s}, resources: {memory: 256MiB}}
  - {step: transform, shell: ./transform.sh}
  - {step: load, shell: ./load.sh}
""",
    "approval": """
name: release
order: sequential
steps:
  - {step: build, shell: ./build.sh}
  - {step: ask, approve: {message: "May it go out?"}}
  - {step: deploy, shell: ./deploy.sh}
""",
    "timer": """
name: tomorrow
order: sequential
steps:
  - {step: prepare, shell: ./prepare.sh}
  - {step: rest, wait: 1d}
  - {step: finish, shell: ./finish.sh}
""",
}


def fill(store: Store, kind: str, count: int) -> None:
    """This many more runs of one kind."""
    prepared = prepare(load_text(WORKFLOWS[kind]), {}, Path.cwd())
    graph = Graph(prepared.workflow)
    store.register(WorkerRecord(WORKER, this_host(), 1))
    for begin in range(0, count, BATCH):
        now = datetime.now(UTC)
        new = [_new(prepared, now) for _ in range(min(BATCH, count - begin))]
        turns = store.create(new, WORKER)
        requests = {message.run_id: message.id for message in store.inbox([one.run_id for one in turns])}
        store.commit([_past(one, graph, requests[one.run_id], now) for one in turns])
    store.retire(WORKER)


def _new(prepared: Prepared, now: datetime) -> NewRun:
    request = r.RunRequested(now, 0, {}, prepared.version, by="bench", cwd=str(prepared.cwd))
    return NewRun(prepared.data, prepared.version, prepared.workflow.name, request)


def _past(held: Turn, graph: Graph, request: int, now: datetime) -> Commit:
    """Write everything that a run did as one commit: until it ended, or waits."""
    state = State(graph.workflow, graph)
    state.begin()
    entries, timers = [], []
    reports: deque[r.Report] = deque([r.RunRequested(now, held.run_id, by="bench")])
    while reports:
        for entry in follow(state, reports.popleft(), Answers()):
            entries.append(entry)
            for effect in fx.effects(state, entry.fact):
                reports.extend(_answers(effect, now))
                timers += [effect] if isinstance(effect, fx.SetTimer) and effect.due > now else []
    status, has_ended = state.run.status, state.run.status == "completed"
    return Commit(
        turn=held,
        after=0,
        entries=entries,
        rows=changes(state),
        status=status,
        round=1,
        at=now,
        degraded=state.run.degraded,
        timers=timers,
        drained=[(request, None)],
        is_last=has_ended,
    )


def _answers(effect: Any, now: datetime) -> Iterator[r.Report]:
    """What the world says to an effect: every task starts and ends; the first attempt at `fetch` fails."""
    if isinstance(effect, fx.QueueTask):
        is_bad = effect.place == "fetch" and effect.attempt == 1
        outcome = Outcome(exit_code=1, stderr_tail="connection reset by peer") if is_bad else Outcome()
        yield r.TaskStarted(now, effect.place, effect.attempt, WORKER, "bench")
        yield r.TaskEnded(now, effect.place, effect.attempt, outcome, usage=USAGE)
    elif isinstance(effect, fx.SetTimer) and effect.due <= now:
        yield r.TimerFired(now, effect.kind, effect.place, effect.number)


if __name__ == "__main__":
    ended, waiting, kind = int(sys.argv[1]), int(sys.argv[2]), (sys.argv[3:] or ["approval"])[0]
    opened = find_home().open()
    # Runs that wait are the oldest: a search for them cannot stop at the newest.
    fill(opened, kind, waiting)
    fill(opened, "ended", ended)
    opened.close()

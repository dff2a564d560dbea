"""A run of many steps with a past, and a future: the real core and the store's own door, without processes.

Sixteen tasks run at a time, on a clock of its own. One step in a hundred fails at first, one in three hundred for good.
"""

from __future__ import annotations

import heapq
from collections import deque
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zlib import crc32

from mulligan.core.effects import effects as fx
from mulligan.core.effects.snapshot import changes
from mulligan.core.model import reports as r
from mulligan.core.model.graph import Graph
from mulligan.core.model.outcome import Outcome
from mulligan.core.state.state import State
from mulligan.core.turn import follow
from mulligan.language import load_text
from mulligan.ports import Commit, NewRun, Store, WorkerRecord
from mulligan.service.home import this_host
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.testing.history import Answers

WORKER, SLOTS = "simulated", 16
# Of a chain; each chain begins at once.
CHAIN = 20


def workflow_text(steps: int) -> str:
    """Chains of twenty steps. A failure is retried once, and allowed."""
    lines = ["name: sweep", "steps:"]
    for number in range(steps):
        needs = f", needs: [s{number - 1:06}]" if number % CHAIN else ""
        lines.append(
            f"  - {{step: s{number:06}, shell: ./work.sh {number}, retry: {{max_retries: 1, delay: 0s}}, "
            f"continue_on_error: true{needs}}}"
        )
    return "\n".join(lines) + "\n"


class SimulatedRun:
    """One run that moves on when it is told to."""

    def __init__(self, store: Store, steps: int) -> None:
        self._store = store
        prepared = prepare(load_text(workflow_text(steps)), {}, Path.cwd())
        graph = Graph(prepared.workflow)
        self._state = State(graph.workflow, graph)
        self._clock = datetime.now(UTC) - timedelta(seconds=steps / 4)
        store.register(WorkerRecord(WORKER, this_host(), 1))
        request = r.RunRequested(self._clock, 0, {}, prepared.version, by="bench", cwd=str(prepared.cwd))
        new = NewRun(prepared.data, prepared.version, prepared.workflow.name, request)
        (self._turn,) = store.create([new], WORKER)
        self.run_id = self._turn.run_id
        self._drained = [(message.id, None) for message in store.inbox([self.run_id])]
        self._queue: deque[fx.QueueTask] = deque()
        self._ends: list[tuple[datetime, int, fx.QueueTask]] = []
        self._reports: deque[r.Report] = deque([r.RunRequested(self._clock, self.run_id, by="bench")])
        self._seq = self._number = 0

    def advance(self, tasks: int) -> int:
        """Let so many tasks end, and write what follows as one commit. Returns how many ended."""
        self._state.begin()
        entries, ended = [], 0
        while True:
            while self._reports:
                for entry in follow(self._state, self._reports.popleft(), Answers()):
                    entries.append(entry)
                    for effect in fx.effects(self._state, entry.fact):
                        self._take(effect)
            while self._queue and len(self._ends) < SLOTS:
                task = self._queue.popleft()
                self._number += 1
                seconds = 0.3 + crc32(task.place.encode()) % 900 / 250
                heapq.heappush(self._ends, (self._clock + timedelta(seconds=seconds), self._number, task))
                self._reports.append(r.TaskStarted(self._clock, task.place, task.attempt, WORKER, "bench"))
            if self._reports:
                continue
            if ended >= tasks or not self._ends:
                break
            self._clock, _, task = heapq.heappop(self._ends)
            self._reports.append(r.TaskEnded(self._clock, task.place, task.attempt, _outcome(task), usage={}))
            ended += 1
        commit = Commit(
            turn=self._turn,
            after=self._seq,
            entries=entries,
            rows=changes(self._state),
            status=self._state.run.status,
            round=1,
            at=self._clock,
            degraded=self._state.run.degraded,
            drained=self._drained,
            is_last=self._state.run.status == "completed",
        )
        self._store.commit([commit])
        self._state.commit()
        self._seq, self._drained = self._state.run.seq, []
        return ended

    def _take(self, effect: fx.Effect) -> None:
        if isinstance(effect, fx.QueueTask):
            self._queue.append(effect)
        elif isinstance(effect, fx.EnterMore):
            self._reports.append(r.StartsDue(self._clock, effect.begin))
        elif isinstance(effect, fx.SetTimer):
            self._reports.append(r.TimerFired(max(self._clock, effect.due), effect.kind, effect.place, effect.number))


def _outcome(task: fx.QueueTask) -> Outcome:
    chance = crc32(task.place.encode()) % 300
    is_bad = chance == 7 or (chance % 100 == 3 and task.attempt == 1)
    return Outcome(exit_code=3, stderr_tail="connection reset by peer") if is_bad else Outcome()

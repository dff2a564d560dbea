"""One run with many steps or items, quickly: through the real core and the store's own door, without processes.

    python many.py KIND COUNT        in the home and the store of the environment

`fan`: so many steps and one that needs them, all completed. `cut`: the same, of which a tenth has completed, a tenth is
queued, and the others were not entered: `resume` continues it. `map`: one step with so many items, all completed.
`plain`: so many steps without needs that are no matrix, of which every thousandth failed.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mulligan.core.effects import effects as fx
from mulligan.core.effects.snapshot import changes
from mulligan.core.effects.tasks import make_task
from mulligan.core.model import reports as r
from mulligan.core.model.events import Entry
from mulligan.core.model.graph import Graph
from mulligan.core.model.outcome import Outcome
from mulligan.core.state.state import State
from mulligan.core.turn import follow
from mulligan.language import load_text
from mulligan.ports import Commit, NewRun, Store, Turn, WorkerRecord
from mulligan.service.home import find_home, this_host
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.testing.history import Answers

WORKER = "filler"
EVENTS_PER_COMMIT = 5_000
USAGE = {"wall_seconds": 0.002, "cpu_seconds": 0.001, "peak_memory": 3 << 20}
FAN = """\
name: fan
steps:
  - step: "s_{{i}}"
    matrix: {{i: 1..{count}}}
    shell: "true"
  - {{step: join, needs: [{{matrix: s}}], shell: "true"}}
"""
MAP = """\
name: map
steps:
  - step: each
    map: {{over: {{shell: seq {count}, capture: lines}}, as: item}}
    do: [{{shell: "true"}}]
"""


def _plain(count: int) -> str:
    steps = "".join(f'  - {{step: s_{number}, shell: "true"}}\n' for number in range(count))
    return f"name: plain\nfail_fast: never\nsteps:\n{steps}"


class Grown:
    """A run as it grows: its state, and what of it is not written yet."""

    def __init__(self, store: Store, text: str, answer: Callable[[str], tuple[Outcome, Any]]) -> None:
        # `answer`: how the task of a place ends, and its output.
        self.store, self._answer = store, answer
        self.now = datetime.now(UTC)
        prepared = prepare(load_text(text), {}, Path.cwd())
        graph = Graph(prepared.workflow)
        self.state = State(graph.workflow, graph)
        request = r.RunRequested(self.now, 0, {}, prepared.version, by="bench", cwd=str(Path.cwd()))
        store.register(WorkerRecord(WORKER, this_host(), 1))
        new = NewRun(prepared.data, prepared.version, prepared.workflow.name, request)
        self.turn: Turn = store.create([new], WORKER)[0]
        self._drained = [(store.inbox([self.turn.run_id])[0].id, None)]
        self._entries: list[Entry] = []
        self._written_seq = 0
        # What the world does not do any more, once so many attempts have ended.
        self._queued: dict[str, int] = {}
        self.ended = 0

    def grow(self, ended_max: int, entered_max: int) -> None:
        """End so many tasks, enter at most so many first steps, and leave the rest as it is."""
        self.state.begin()
        reports: deque[r.Report] = deque([r.RunRequested(self.now, self.turn.run_id, by="bench")])
        starts: deque[int] = deque()
        while reports or starts:
            if not reports:
                begin = starts.popleft()
                if begin < entered_max:
                    reports.append(r.StartsDue(self.now, begin))
                continue
            self._tell(reports, starts, ended_max)
            if len(self._entries) > EVENTS_PER_COMMIT:
                self._write()
                self.state.begin()
        # The last turn of a run that has ended may be written already, and with it the turn was given back.
        if self._entries or self._queued:
            self._write(is_last=True)
        if self.state.run.status == "running":
            self.store.release([self.turn])
        self.store.retire(WORKER)

    def _tell(self, reports: deque[r.Report], starts: deque[int], ended_max: int) -> None:
        self.now += timedelta(microseconds=50)
        for entry in follow(self.state, reports.popleft(), Answers()):
            self._entries.append(entry)
            for effect in fx.effects(self.state, entry.fact):
                if isinstance(effect, fx.EnterMore):
                    starts.append(effect.begin)
                elif isinstance(effect, fx.QueueTask) and self.ended >= ended_max:
                    self._queued[effect.place] = effect.attempt
                elif isinstance(effect, fx.QueueTask):
                    self.ended += 1
                    place, attempt = effect.place, effect.attempt
                    reports.append(r.TaskStarted(self.now, place, attempt, WORKER, "bench"))
                    outcome, output = self._answer(place)
                    reports.append(r.TaskEnded(self.now, place, attempt, outcome, output=output, usage=USAGE))

    def _write(self, *, is_last: bool = False) -> None:
        run = self.state.run
        written = Commit(
            turn=self.turn,
            after=self._written_seq,
            entries=self._entries,
            rows=changes(self.state),
            status=run.status,
            round=1,
            at=run.at,
            degraded=run.degraded,
            reason=run.reason,
            queued=[make_task(self.state, place) for place in self._queued] if is_last else [],
            is_last=run.status != "running",
        )
        written.drained, self._drained = self._drained, []
        self.store.commit([written])
        self.state.commit()
        self._entries, self._written_seq = [], run.seq


def make(store: Store, kind: str, count: int) -> None:
    """One run of that kind."""
    good, bad = Outcome(), Outcome(exit_code=1, stderr_tail="connection reset by peer")
    if kind == "map":
        listed = [str(number) for number in range(1, count + 1)]
        Grown(store, MAP.format(count=count), lambda place: (good, listed if "lister" in place else None)).grow(
            count + 1, 1
        )
    elif kind == "plain":
        Grown(store, _plain(count), lambda place: (bad if place.endswith("000") else good, None)).grow(count, count)
    else:
        part = count // 10 if kind == "cut" else count + 1
        Grown(store, FAN.format(count=count), lambda place: (good, None)).grow(part, 2 * part)


if __name__ == "__main__":
    opened = find_home().open()
    make(opened, sys.argv[1], int(sys.argv[2]))
    opened.close()

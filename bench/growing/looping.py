"""One run with a long log, quickly: a step that a loop visits again and again, through the real core and the store.

    python looping.py EVENTS        in the home and the store of the environment

Its last visit is queued and not begun, and the condition of its loop does not hold after it: `resume` ends the run.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from mulligan.core.effects import effects as fx
from mulligan.core.effects.snapshot import changes
from mulligan.core.effects.tasks import make_task
from mulligan.core.model import reports as r
from mulligan.core.model.events import Entry
from mulligan.core.model.graph import Graph
from mulligan.core.state.state import State
from mulligan.core.turn import follow
from mulligan.language import load_text
from mulligan.ports import Commit, NewRun, Store, Turn, WorkerRecord
from mulligan.service.home import find_home, this_host
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.testing.history import Answers

WORKER = "filler"
EVENTS_PER_COMMIT = 5_000
WORKFLOW = """
name: poll
steps:
  - step: poll
    shell: "true"
    max_visits: 1000000
    next: [{to: poll, when: steps.poll.visits < 0}]
"""


class Looping:
    """The run as it grows: its state, and what of it is not written yet."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = datetime.now(UTC)
        prepared = prepare(load_text(WORKFLOW), {}, Path.cwd())
        graph = Graph(prepared.workflow)
        self.state = State(graph.workflow, graph)
        request = r.RunRequested(self.now, 0, {}, prepared.version, by="bench", cwd=str(Path.cwd()))
        store.register(WorkerRecord(WORKER, this_host(), 1))
        self.turn: Turn = store.create([NewRun(prepared.data, prepared.version, "poll", request)], WORKER)[0]
        self.drained = [(store.inbox([self.turn.run_id])[0].id, None)]
        self.entries: list[Entry] = []
        self.written_seq = 0

    def grow(self, events: int) -> None:
        """Visit after visit until there are so many events; the last one waits in the queue."""
        self.state.begin()
        queued = self._tell(r.RunRequested(self.now, self.turn.run_id, by="bench"))
        while self.state.run.seq < events:
            place, attempt = queued
            self._tell(r.TaskStarted(self.now, place, attempt, WORKER, "bench"))
            queued = self._tell(r.TaskEnded(self.now, place, attempt))
            if len(self.entries) > EVENTS_PER_COMMIT:
                self._write()
                self.state.begin()
        self._write(is_last=True)
        self.store.release([self.turn])
        self.store.retire(WORKER)

    def _tell(self, report: r.Report) -> tuple[str, int]:
        """What follows; the task that it queues, if any."""
        queued = ("", 0)
        for entry in follow(self.state, report, Answers()):
            self.entries.append(entry)
            for effect in fx.effects(self.state, entry.fact):
                if isinstance(effect, fx.QueueTask):
                    queued = (effect.place, effect.attempt)
        return queued

    def _write(self, *, is_last: bool = False) -> None:
        run = self.state.run
        queued = [make_task(self.state, "poll")] if is_last else []
        written = Commit(
            turn=self.turn,
            after=self.written_seq,
            entries=self.entries,
            rows=changes(self.state),
            status=run.status,
            round=1,
            at=self.now,
            queued=queued,
        )
        written.drained, self.drained = self.drained, []
        self.store.commit([written])
        self.state.commit()
        self.entries, self.written_seq = [], run.seq


if __name__ == "__main__":
    opened = find_home().open()
    Looping(opened).grow(int(sys.argv[1]))
    opened.close()

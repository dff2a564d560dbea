"""A tiny engine for one run: drain the inbox, take the turn, commit, all or nothing. For simulations only.

What it knows of the run is its own: after an error it takes its turn back and reads what was written meanwhile;
after a crash it is made anew from the log.
"""

from __future__ import annotations

from ..core import effects as fx
from ..core.events import Entry
from ..core.evolve import evolve
from ..core.reports import Report
from ..core.scope import Evaluator
from ..core.turn import fold, follow
from ..errors import Conflict, InputInvalid, NotFound, Refused
from ..ports import Clock, fault
from .store import Commit, MemoryStore, StoreFailed

# More than any small workflow can bring about at once: a turn that gets here does not end.
ENTRIES_PER_TURN_MAX = 10_000


class Engine:
    """Drives one run in a store. Several may drive the same run: the store lets one write at a time."""

    def __init__(self, name: str, run_id: int, store: MemoryStore, clock: Clock, evaluator: Evaluator) -> None:
        self.name = name
        self.run_id = run_id
        self.store = store
        self.clock = clock
        self.evaluator = evaluator
        self.refusals = 0
        self.state = fold(store.workflow(run_id), store.log(run_id))

    def take_turn(self, reports_max: int) -> bool:
        """Answer the oldest reports with one commit. False if it came to nothing: they are still in the inbox."""
        turn = self.store.take_turn(self.run_id, self.name, self.clock.now())
        if turn is None:
            return False
        self.catch_up()
        messages = self.store.inbox(self.run_id)[:reports_max]
        fault("before_turn")
        self.state.begin()
        try:
            entries, effects = self._answer([message.report for message in messages])
            fault("before_commit")
            drained = tuple(message.id for message in messages)
            self.store.commit(turn, Commit(entries, effects, drained, self.state))
        except (StoreFailed, Conflict):
            self.state.rollback()
            self.catch_up()
            return False
        except BaseException:
            self.state.rollback()
            raise
        fault("after_commit")
        self.state.commit()
        self.store.release_turn(turn)
        fault("after_drain")
        return True

    def _answer(self, reports: list[Report]) -> tuple[list[Entry], list[fx.Effect]]:
        entries: list[Entry] = []
        effects: list[fx.Effect] = []
        for report in reports:
            try:
                for entry in follow(self.state, report, self.evaluator):
                    entries.append(entry)
                    effects.extend(fx.effects(self.state, entry.fact))
                    if len(entries) > ENTRIES_PER_TURN_MAX:
                        raise AssertionError(f"promise 10: one turn has brought {len(entries)} facts, and goes on")
            except (Refused, NotFound, InputInvalid):
                # A verb that makes no sense is refused at the door, before it has changed anything.
                self.refusals += 1
        return entries, effects

    def catch_up(self) -> None:
        """Read what others have written since."""
        for entry in self.store.log(self.run_id, after=self.state.run.seq):
            evolve(self.state, entry)

    def restart(self) -> None:
        """All that was in memory is lost."""
        self.state = fold(self.store.workflow(self.run_id), self.store.log(self.run_id), self.state.graph)

    @property
    def is_current(self) -> bool:
        return self.state.run.seq == len(self.store.row(self.run_id).log)

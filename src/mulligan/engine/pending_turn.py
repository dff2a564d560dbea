"""What a turn of a run has gathered, and the reports that wait for one."""

from __future__ import annotations

from collections import deque

import msgspec

from mulligan.core.deciding.workers.breaker import Guard, GuardedOutcome
from mulligan.core.effects import effects as fx
from mulligan.core.effects.tasks import Task
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.program_calls import Delivery
from mulligan.ports import Answer, ChildReport, NewRun


class QueuedReport(msgspec.Struct, frozen=True):
    """A report that waits for the run's next turn: from its inbox or, with a token, from a task of this worker."""

    report: r.Report
    message_id: int | None = None
    is_asking: bool = False
    token: int | None = None
    # The guard of that task.
    guard: Guard | None = None
    # Why it is refused without being processed: it crashed a turn.
    refusal: str = ""


class PendingTurn(msgspec.Struct):
    """What the open turn has gathered."""

    after: int
    entries: list[e.Entry] = []
    # Tasks that this turn has scheduled, by place: not assigned yet, left to any worker.
    fresh: dict[str, Task] = {}
    queued: dict[str, Task] = {}
    # Tasks that our executor takes, by place and attempt. Each starts when the turn is written.
    taken: dict[tuple[str, int], Task] = {}
    # Place and attempt of tasks that an earlier turn has queued and this one takes, in order.
    claimed: list[tuple[str, int]] = []
    stopped: list[fx.StopTask] = []
    timers: list[fx.SetTimer] = []
    children: list[NewRun] = []
    outgoing: list[tuple[int, r.Report]] = []
    child_reports: list[ChildReport] = []
    ended: list[int] = []
    # The programs that go on in their turns, by the token of the task, with the ends that they get.
    going_on: dict[int, tuple[Delivery, ...]] = {}
    counted: list[GuardedOutcome] = []
    drained: list[tuple[int, Answer | None]] = []
    processed: list[QueuedReport] = []
    # Whether nothing has happened but ends of ordinary steps, whose next tasks our executor takes.
    is_ordinary: bool = True
    # Batches of first steps by their first index: entered by this turn, and left for later turns.
    entered: list[int] = []
    starts: list[int] = []
    # Reports that follow in the same turn: a timer that is due already, a task that our executor takes.
    next: deque[r.Report] = msgspec.field(default_factory=deque)
    is_last: bool = False

    @property
    def has_only_ends(self) -> bool:
        """Whether it has nothing but ends of ordinary steps, and tasks that they have scheduled."""
        if not (self.is_ordinary and self.entries) or self.is_last or self.drained or self.counted:
            return False
        return not (self.queued or self.stopped or self.timers or self.children or self.outgoing or self.child_reports)

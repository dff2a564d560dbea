"""Getting tasks for the executor: from the queues of our own runs, or by asking the store for leases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import Protocol

from msgspec.structs import replace

from mulligan.core.deciding.breaker import Guard
from mulligan.core.effects.lease_rules import has_time_for
from mulligan.core.effects.tasks import Task
from mulligan.core.model.reports import Report
from mulligan.engine.run_driver import RunDriver
from mulligan.engine.worker_expiry import other_workers
from mulligan.engine.workflow_cache import WorkflowCache
from mulligan.errors import StoreUnavailable
from mulligan.ports import Clock, Commit, Lease, Offer, TaskCapacity, TaskQueue, WorkerRegistry

# How many runs are asked in a round of the loop whether a task of theirs fits: there may be thousands.
CLAIMS_MAX = 200
# How often a shared store is asked for tasks without a sign that it has any.
LEASE_AGAIN_SECONDS = 0.2
# How soon a shared store is asked again for tasks ahead of a slot after it had too few.
AHEAD_AGAIN_SECONDS = 0.02
# How often in a row our own tasks may take all capacity while tasks in the store wait.
ROUNDS_WITHOUT_ROOM_MAX = 2


class LeasePacing:
    """When to ask the store for leases: after tasks were queued, or when more capacity is free than last time."""

    def __init__(self, clock: Clock, *, is_shared: bool) -> None:
        self._clock = clock
        self.may_have_tasks = True
        self.has_more_room = False
        # In a local file the question costs next to nothing.
        self._seconds = LEASE_AGAIN_SECONDS if is_shared else 0.0
        self._asked_at = 0.0
        # When to ask again for tasks ahead of a slot.
        self._ahead_at = 0.0
        self._rounds_without_room = 0

    def note_no_room(self) -> None:
        """Count a round in which our own tasks left no capacity to ask for more."""
        self._rounds_without_room += 1

    @property
    def comes_first(self) -> bool:
        """Whether to ask before our own tasks take the capacity, so that tasks in the store do not starve."""
        return self._rounds_without_room >= ROUNDS_WITHOUT_ROOM_MAX

    def is_due(self, *, may_have_others: bool) -> bool:
        # A task that did not fit before may fit when another one has ended: worth a question now and then.
        has_waited = self._clock.monotonic() - self._asked_at >= self._seconds
        return self.may_have_tasks or (self.has_more_room and may_have_others and has_waited)

    @property
    def may_ask_ahead(self) -> bool:
        """Whether to ask for tasks ahead of a slot: not again and again while too few tasks wait for that."""
        return self._clock.monotonic() >= self._ahead_at

    def note_none_ahead(self) -> None:
        """Note that there was nothing to lease ahead."""
        self._ahead_at = self._clock.monotonic() + AHEAD_AGAIN_SECONDS

    def note_asked(self, *, may_have_more: bool) -> None:
        self._asked_at, self.has_more_room, self.may_have_tasks = self._clock.monotonic(), False, may_have_more
        self._rounds_without_room = 0


class _Store(TaskQueue, WorkerRegistry, Protocol):
    """What has tasks, and knows who else takes them."""


class TaskSupply:
    """Decides where tasks come from.

    If no other worker takes tasks from the store (`is_alone`), the tasks of our runs are ours without asking. Tasks
    with a breaker are always leased from the store, and so are all tasks that other workers may take.
    """

    def __init__(
        self,
        store: _Store,
        executor: TaskCapacity | None,
        name: str,
        workflows: WorkflowCache,
        clock: Clock,
        *,
        is_shared: bool,
        expects_others: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._expects_others = expects_others
        self._executor = executor
        self._name = name
        self._workflows = workflows
        self._is_shared = is_shared
        self.is_alone = not is_shared
        # Whether it was ever otherwise: who has gone may come again.
        self._had_others = is_shared
        # Whether the store has named others since `set_alone` has said that there are none.
        self._found_others = False
        self.is_draining = False
        self.pacing = LeasePacing(clock, is_shared=is_shared)
        # Drivers whose runs have queued tasks that wait for capacity.
        self._queuing: dict[int, RunDriver] = {}
        # The last small task that did not fit: of those that compute, and of those that wait for another machine.
        self._rejected: Task | None = None
        self._rejected_waiting: Task | None = None

    def add(self, driver: RunDriver) -> None:
        """Note the queued tasks of a run that we have begun to drive."""
        if self.is_alone:
            driver.requeue(self._store.queued_tasks(driver.run_id))
            self._queuing[driver.run_id] = driver

    def note_queue(self, driver: RunDriver) -> None:
        """Note that the driver's queue may have grown."""
        if driver.queue:
            self._queuing[driver.run_id] = driver

    def forget(self, run_id: int) -> None:
        self._queuing.pop(run_id, None)

    def forget_all(self) -> None:
        self._queuing.clear()

    @property
    def has_waiting_tasks(self) -> bool:
        """Whether a task of a run that is not paused waits for capacity."""
        return any(driver.queue and not driver.is_paused for driver in self._queuing.values())

    def set_alone(self, is_alone: bool, drivers: Iterable[RunDriver]) -> None:
        """Set whether other workers may take tasks. A worker may appear at any time: then a commit is a Conflict."""
        if is_alone == self.is_alone:
            return
        self.is_alone, self._found_others = is_alone, False
        self._had_others = self._had_others or not is_alone
        self.pacing.may_have_tasks = True
        self._queuing.clear()
        for driver in drivers:
            driver.is_alone = is_alone
            driver.queue.clear()
            self.add(driver)

    def note_found_others(self, drivers: Iterable[RunDriver]) -> None:
        """Leave queued tasks to the store if `has_others` has found others."""
        if self._found_others:
            self.set_alone(False, drivers)

    def has_others(self) -> bool:
        """Whether other workers take tasks from the store now: one may have come since `is_alone` was set.

        Asked before we take, or fail, what is ours only if we are alone, such as a task that belongs to another host.
        """
        if self.is_alone and not self._found_others:
            try:
                workers = self._store.workers()
            except StoreUnavailable:
                return True  # it is asked again
            self._found_others = bool(other_workers(workers, self._name, is_shared=self._is_shared))
        return not self.is_alone or self._found_others

    def others_take_part(self) -> bool:
        """Whether other workers take tasks from the store, did while we were here, or may join.

        Asked before a task fails because no worker can take it: one that died may be started again.
        """
        if self._had_others or self.has_others():
            return True
        try:
            self._had_others = self._expects_others()
        except StoreUnavailable:
            return True  # it is asked again
        return self._had_others

    def note_conflict(self, drivers: Iterable[RunDriver]) -> None:
        """Note that another worker has written: in a shared store it may take tasks."""
        if self._is_shared:
            self.set_alone(False, drivers)

    def claim(self, now: datetime, crashed: Callable[[RunDriver, Exception], None]) -> list[RunDriver]:
        """Let our runs start queued tasks that fit now. Return the drivers that were asked."""
        claimed: list[RunDriver] = []
        if not self._queuing or not self._may_start or not self.is_alone or self._is_full(self._rejected):
            return claimed
        is_full_for_waiting = self._is_full(self._rejected_waiting)
        for driver in list(islice(self._queuing.values(), CLAIMS_MAX)):
            if is_full_for_waiting and driver.queue.has_only_waiting:
                continue
            try:
                rejected = driver.claim_tasks(now)
            except Exception as error:
                crashed(driver, error)
                continue
            claimed.append(driver)
            if not driver.queue:
                del self._queuing[driver.run_id]
            if rejected is not None and rejected.is_small and rejected.waits:
                self._rejected_waiting, is_full_for_waiting = rejected, True
            elif rejected is not None and rejected.is_small:
                self._rejected = rejected
                break
        return claimed

    @property
    def _may_start(self) -> bool:
        return self._executor is not None and not self.is_draining

    def _is_full(self, rejected: Task | None) -> bool:
        """Whether a small task that did not fit still does not: then no other task fits either."""
        assert self._executor is not None
        if rejected is None or self._executor.fits(rejected) or (self.is_alone and self._executor.may_hold(rejected)):
            return False
        # If this worker ends before the task might, that says nothing about others.
        return has_time_for(rejected, self._executor.offer().seconds_left)

    def lease(self, root_run_id: int | None) -> list[Lease] | None:
        """Ask the store for tasks that fit, if it is worth it; None if it was not asked.

        A shared store gives tasks of any run, and so does one with workers of other hosts. Otherwise only tasks with a
        breaker have to be leased.
        """
        offer = self._offer()
        if offer is None:
            return None
        is_guarded = self.is_alone and not self._is_shared
        leases = self._store.lease(self._name, offer, root_run_id=root_run_id, is_guarded=is_guarded)
        self._note_leases(offer, leases)
        return leases

    def report_and_lease(
        self, ended: Sequence[tuple[int, Report, Guard | None]], root_run_id: int | None
    ) -> tuple[bool, list[Lease]] | None:
        """Report ended tasks to a shared store and ask it for the next ones, at once; None if it was not asked.

        And whether the turn of one of their runs may be free.
        """
        offer = self._offer() if self._is_shared else None
        if offer is None:
            return None
        is_free, leases = self._store.report_and_lease(self._name, ended, offer, root_run_id=root_run_id)
        self._note_leases(offer, leases)
        return is_free, leases

    def _offer(self) -> Offer | None:
        """What to ask the store for; None if it is not worth it."""
        may_have_others = self._workflows.has_breakers or not self.is_alone
        if not self._may_start or not self.pacing.is_due(may_have_others=may_have_others):
            return None
        assert self._executor is not None
        offer = self._executor.offer()
        if self.is_alone or not self.pacing.may_ask_ahead:
            # Alone, the tasks of our own runs are ours without asking.
            offer = replace(offer, ahead=0) if offer.ahead else offer
        if self.is_alone and offer.lacks:
            # Nobody else could have the folder: it is gone, and its tasks fail here.
            offer = replace(offer, lacks=())
        if offer.tasks_max < 1 and offer.ahead < 1:
            self.pacing.note_no_room()
            return None
        return offer

    def _note_leases(self, offer: Offer, leases: Sequence[Lease]) -> None:
        if offer.ahead and len(leases) <= offer.tasks_max:
            self.pacing.note_none_ahead()
        self.pacing.note_asked(may_have_more=len(leases) >= offer.tasks_max)

    def note_commit(self, commit: Commit) -> None:
        """Note whether a commit leaves tasks for us in the store."""
        # A task that waits for a breaker may pass when the breaker's probe has ended.
        is_guarded = self._workflows.has_breakers and bool(commit.queued or commit.counted or commit.is_last)
        if is_guarded or (commit.queued and not self.is_alone):
            self.pacing.may_have_tasks = True

"""The tasks of one engine: leased, running, and ended until their runs or the store have the report."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from mulligan.core.deciding.workers.breaker import Guard
from mulligan.core.model.program_calls import Delivery
from mulligan.core.model.reports import CallsMade, LeaseExpired, Report, TaskEnded, TaskInterrupted
from mulligan.engine.change_watch import ChangeWatch
from mulligan.errors import StaleLease, StoreUnavailable
from mulligan.ports import Clock, Commit, EngineExecutor, Lease, StopRequest, TaskQueue, fault_point

# In leases: how long the loop is held up, by a store that answers slowly, before it may have missed heartbeats; and how
# long after it went on a task that was killed for that may be reported. A supervisor kills at two thirds of a lease
# after the last heartbeat.
HELD_UP_LEASES, KILLED_LEASES = 1 / 3, 2 / 3
# How often in a row a task of one place is spared for that. A task may be what holds everything up.
SPARED_MAX = 3

# Reports ended tasks and leases the next ones: see `TaskSupply.report_and_lease`.
ReportAndLease = Callable[[Sequence[tuple[int, Report, Guard | None]]], tuple[bool, list[Lease]] | None]


class TasksInFlight:
    """Leases and their executor. An engine without an executor has none.

    `check` raises if results may no longer be written. `send_heartbeat` raises if the worker has expired.
    """

    def __init__(
        self,
        *,
        store: TaskQueue,
        clock: Clock,
        name: str,
        executor: EngineExecutor | None,
        send_heartbeat: Callable[[], object],
        check: Callable[[], None],
        changes: ChangeWatch,
        lease_seconds: float,
        may_give_back: Callable[[], bool] = lambda: False,
    ) -> None:
        self.executor = executor
        # Whether other workers may be able to run what we cannot.
        self._may_give_back = may_give_back
        self._store = store
        self._clock = clock
        self._name = name
        self._send_heartbeat = send_heartbeat
        self._check = check
        self._changes = changes
        self._lease_seconds = lease_seconds
        # When the loop last had the tasks that have ended, and until when those that were killed meanwhile are spared.
        self._collected_at = clock.monotonic()
        self._spared_until = float("-inf")
        # How often in a row tasks were spared, by run and place.
        self._spared: dict[tuple[int, str], int] = {}
        # By run, place and attempt.
        self._leases: dict[tuple[int, str, int], Lease] = {}
        # Ended tasks whose reports have not reached their run or the store.
        self._ended: deque[tuple[Lease, Report]] = deque()
        # Programs that have reported what they have called in the middle of a turn, and wait: by token.
        self.mid_turn: dict[int, Lease] = {}
        # Reports that runs had when the store became unavailable, by token, until we know what was written.
        self._kept: dict[int, Report] = {}

    def __len__(self) -> int:
        return len(self._leases)

    @property
    def run_ids(self) -> set[int]:
        """The runs whose tasks we have."""
        return {run_id for run_id, _, _ in self._leases}

    @property
    def is_done(self) -> bool:
        """Whether nothing runs, and all reports have been passed on."""
        return not (self._leases or self._ended)

    # -- starting and stopping ---------------------------------------------------------------------------------------

    def reserve_and_start(self, leases: Sequence[Lease]) -> None:
        """Run tasks that the store has leased to us."""
        self._renew_stale_heartbeat(leases)
        for lease in leases:
            assert self.executor is not None
            self.executor.reserve(lease.task)
        self._start(leases)

    def start(self, leases: Sequence[Lease]) -> None:
        """Run tasks whose capacity is reserved."""
        self._renew_stale_heartbeat(leases)
        self._start(leases)

    def _renew_stale_heartbeat(self, leases: Sequence[Lease]) -> None:
        """Send a heartbeat before starting tasks if the last one is old: the leases may be void by now."""
        if leases and self.executor is not None and self.executor.must_renew:
            self._send_heartbeat()

    def _start(self, leases: Sequence[Lease]) -> None:
        if not leases:
            return
        assert self.executor is not None
        for lease in leases:
            self._leases[lease.task.run_id, lease.task.place, lease.task.attempt] = lease
        fault_point("after_lease")
        self.executor.start(leases)

    def stop(self, commits: Iterable[Commit]) -> None:
        """Stop our tasks that these commits have stopped."""
        for commit in commits:
            for stop in commit.stopped:
                lease = self._leases.get((commit.turn.run_id, stop.place, stop.attempt))
                if lease is not None and self.executor is not None:
                    self.executor.stop(lease.token, stop.grace_seconds)

    def stop_requested(self, stops: Iterable[StopRequest]) -> None:
        """Stop our tasks that other workers have stopped."""
        if self.executor is not None:
            for stop in stops:
                self.executor.stop(stop.token, stop.grace_seconds)

    # -- ended tasks -------------------------------------------------------------------------------------------------

    def collect(self, timeout: float, gather_seconds: float) -> bool:
        """Take in ended tasks, waiting up to `timeout` for the first. False if there was none.

        If a commit takes long, wait `gather_seconds` more for tasks that may share it.
        """
        ended = self._collect(timeout)
        if not ended:
            return False
        fault_point("before_report")
        self._ended.extend(ended)
        if gather_seconds:
            self._gather(self._clock.monotonic() + gather_seconds)
        return True

    def _collect(self, timeout: float) -> list[tuple[Lease, Report]]:
        if self.executor is None:
            return []
        now = self._clock.monotonic()
        if now - self._collected_at >= HELD_UP_LEASES * self._lease_seconds:
            self._spared_until = now + KILLED_LEASES * self._lease_seconds
        ended = self.executor.collect(timeout)
        self._collected_at = self._clock.monotonic()
        found: list[tuple[Lease, Report]] = []
        for lease, report in ended:
            if type(report) is not TaskEnded or report.outcome.lacks_folder:
                report = self._give_back(self._spare_if_held_up(lease, report))
            elif self._spared:
                self._spared.pop((lease.task.run_id, lease.task.place), None)
            found.append((lease, report))
        return found

    def _give_back(self, report: Report) -> Report:
        """Report a task as interrupted if its folder is not on our host: a worker that has it takes it."""
        if not isinstance(report, TaskEnded) or not report.outcome.lacks_folder or not self._may_give_back():
            return report
        return TaskInterrupted(report.at, report.place, report.attempt, reason=report.outcome.message)

    def _spare_if_held_up(self, lease: Lease, report: Report) -> Report:
        """Report a task that was killed while the loop was held up as interrupted: no heartbeat could be sent."""
        place_key = (lease.task.run_id, lease.task.place)
        if not isinstance(report, LeaseExpired) or self._collected_at >= self._spared_until:
            self._spared.pop(place_key, None)
            return report
        self._spared[place_key] = times = self._spared.get(place_key, 0) + 1
        return _spare(lease, report) if times <= SPARED_MAX else report

    def _gather(self, until: float) -> None:
        while len(self._ended) < len(self._leases) and (left := until - self._clock.monotonic()) > 0:
            more = self._collect(left)
            if not more:
                return
            self._ended.extend(more)

    def take_ended(self) -> Iterator[tuple[Lease, Report]]:
        """Each ended task. It is removed when the next one is requested, so that an error loses none."""
        while self._ended:
            lease, report = self._ended[0]
            yield self._ended[0]
            if type(report) is CallsMade:
                self.mid_turn[lease.token] = lease
            else:
                self._leases.pop((lease.task.run_id, lease.task.place, lease.task.attempt), None)
            self._ended.popleft()

    def answer(self, going_on: Mapping[int, Sequence[Delivery]], ended: Iterable[int]) -> None:
        """What programs have called is written: they go on in their turns, or these have ended."""
        assert self.executor is not None
        for token in ended:
            self._end_turn(token)
        for token, ends in going_on.items():
            if self.mid_turn.pop(token, None) is not None:
                self.executor.go_on(token, ends)

    def _end_turn(self, token: int) -> None:
        lease = self.mid_turn.pop(token, None)
        if lease is not None and self.executor is not None:
            self._leases.pop(_key(lease), None)
            self.executor.end_turn(token)

    def report_except(
        self, run_ids: Collection[int], report_and_lease: ReportAndLease = lambda ended: None
    ) -> list[Lease]:
        """Put the reports of ended tasks into the inboxes of their runs, except of these, which get theirs directly.

        All in one transaction, which may lease the next tasks: return those. The reports are removed here once it is
        written, so that an error loses none.
        """
        if not self._ended or (len(self._ended) == 1 and self._ended[0][0].task.run_id in run_ids):
            return []
        if all(lease.task.run_id in run_ids for lease, _ in self._ended):
            return []
        for index, (lease, report) in enumerate(self._ended):
            if lease.task.run_id not in run_ids:
                self._ended[index] = lease, self._whole(lease.token, report)
        others = [(lease, report) for lease, report in self._ended if lease.task.run_id not in run_ids]
        self._check()
        ended = [(lease.token, report, lease.task.guard) for lease, report in others]
        # With tasks of our own runs to answer first, these must not take their slots.
        done = report_and_lease(ended) if len(others) == len(self._ended) else None
        is_free, leases = (self._store.report_all(ended), []) if done is None else done
        if is_free:
            # No worker has the run: it is ours to continue.
            self._changes.request()
        for lease, _ in others:
            self._leases.pop(_key(lease), None)
        self._ended = deque(one for one in self._ended if one[0].task.run_id in run_ids)
        return leases

    def _whole(self, token: int, report: Report) -> Report:
        """The report of a turn that ends here: a program goes on in it only if its calls are recorded at once."""
        if type(report) is not CallsMade:
            return report
        self.mid_turn.pop(token, None)
        if self.executor is not None:
            self.executor.end_turn(token)
        return report.as_end

    def send_report(self, token: int, report: Report, guard: Guard | None) -> None:
        """Put the report of an ended task into the inbox of its run."""
        self._check()
        report = self._whole(token, report)
        # If no worker has the run, it is ours to continue.
        self._changes.request()
        try:
            self._store.report(token, report, guard=guard)
        except StaleLease:
            # The task was given to another worker: our result does not count.
            return

    # -- outages of the store ----------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        """Let time pass. Tasks that end meanwhile are kept."""
        if self.executor is None:
            time.sleep(seconds)
        else:
            # A broken connection is always readable: it would wake us again and again.
            self.executor.watch(None)
            try:
                ended = self.executor.collect(seconds)
                self._ended.extend((lease, self._give_back(_spare(lease, report))) for lease, report in ended)
            except StoreUnavailable:
                pass  # the executor waits for the store as well

    def keep(self, reports: Mapping[int, Report]) -> None:
        """Keep reports that may not be written, by token. The store may fail again before that is known."""
        self._kept.update(reports)

    def recover(self) -> None:
        """Continue with the leases that the store says are ours.

        Pass on reports that were not written, and start tasks that an unanswered commit has given us.
        """
        unwritten = {**self._kept, **{lease.token: report for lease, report in self._ended}}
        self._restore({lease.token: lease for lease in self._store.leases_of(self._name)}, unwritten)

    def _restore(self, leases: Mapping[int, Lease], unwritten: Mapping[int, Report]) -> None:
        self._kept.clear()
        for token in self.mid_turn.keys() - unwritten.keys():
            self._end_turn(token)
        unwritten = {token: self._whole(token, report) for token, report in unwritten.items()}
        self._leases = {_key(lease): lease for lease in leases.values()}
        self._ended = deque((leases[token], report) for token, report in unwritten.items() if token in leases)
        if self.executor is not None:
            known = {*unwritten, *(lease.token for lease in self.executor.running)}
            self._start_except_stopped([lease for token, lease in leases.items() if token not in known])

    def _start_except_stopped(self, leases: Sequence[Lease]) -> None:
        """Run tasks that were leased to us a while ago. Do not begin those that we would have to stop at once."""
        stops = self._store.stop_requests(self._name) if leases else ()
        stopped = {stop.token for stop in stops if stop.grace_seconds is not None}
        now = self._clock.now()
        for task, lease in ((lease.task, lease) for lease in leases if lease.token in stopped):
            self._ended.append((lease, TaskInterrupted(now, task.place, task.attempt)))
        self.reserve_and_start([lease for lease in leases if lease.token not in stopped])


def _spare(lease: Lease, report: Report) -> Report:
    """Report a task that was killed because no heartbeat could be sent as interrupted, not as lost.

    It runs again without spending one of its reruns, which are for tasks that take their worker down. A task whose
    loss counts as a failure is still reported as lost.
    """
    if isinstance(report, LeaseExpired) and not lease.task.is_careful:
        return TaskInterrupted(report.at, report.place, report.attempt)
    return report


def _key(lease: Lease) -> tuple[int, str, int]:
    return lease.task.run_id, lease.task.place, lease.task.attempt

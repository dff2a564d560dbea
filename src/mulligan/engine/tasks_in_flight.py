"""The tasks that are in our hands: leased, running, and ended until their runs or the store know it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from mulligan.core.model.reports import LeaseExpired, Report, TaskInterrupted
from mulligan.errors import StoreUnavailable
from mulligan.ports import Clock, Commit, EngineExecutor, Lease, Stopped, fault_point


class TasksInFlight:
    """What our hands have to do; an engine without hands has nothing. `beat` asks whether we are still believed in."""

    def __init__(self, executor: EngineExecutor | None, clock: Clock, beat: Callable[[], None]) -> None:
        self.executor = executor
        self._clock = clock
        self._beat = beat
        # By run, place and attempt.
        self._leases: dict[tuple[int, str, int], Lease] = {}
        # What has ended, until it has reached its run or the store.
        self._ended: deque[tuple[Lease, Report]] = deque()
        # What their runs were told while the store went away: by its lease's token, until the store is asked again.
        self._kept: dict[int, Report] = {}

    @property
    def has_leases(self) -> bool:
        return bool(self._leases)

    @property
    def is_done(self) -> bool:
        """Nothing runs, and everything that has ended was told."""
        return not (self._leases or self._ended)

    # -- starting and stopping ---------------------------------------------------------------------------------------

    def reserve_and_start(self, leases: Sequence[Lease]) -> None:
        """Run tasks that the store gave us."""
        self._be_sure_of(leases)
        for lease in leases:
            assert self.executor is not None
            self.executor.reserve(lease.task)
        self._start(leases)

    def start(self, leases: Sequence[Lease]) -> None:
        """Run tasks that room was kept for."""
        self._be_sure_of(leases)
        self._start(leases)

    def _be_sure_of(self, leases: Sequence[Lease]) -> None:
        """Who was kept from work for long after it was given to him asks first whether it still is his."""
        if leases and self.executor is not None and self.executor.must_renew:
            self._beat()

    def _start(self, leases: Sequence[Lease]) -> None:
        if not leases:
            return
        assert self.executor is not None
        self._leases.update((_key(lease), lease) for lease in leases)
        fault_point("after_lease")
        self.executor.start(leases)

    def stop(self, commits: Iterable[Commit]) -> None:
        """End what these commits have stopped, where it is ours."""
        for commit in commits:
            for stop in commit.stopped:
                lease = self._leases.get((commit.turn.run_id, stop.place, stop.attempt))
                if lease is not None and self.executor is not None:
                    self.executor.stop(lease.token, stop.grace_seconds)

    def stop_asked(self, stops: Iterable[Stopped]) -> None:
        """End what others have stopped."""
        for stop in stops:
            assert self.executor is not None
            self.executor.stop(stop.token, stop.grace_seconds)

    # -- what has ended ----------------------------------------------------------------------------------------------

    def collect(self, timeout: float, seconds_more: float) -> bool:
        """Take in what has ended, waiting up to `timeout` for the first; whether there was any.

        Where a commit takes long, others that are about to end may share it: `seconds_more` are spent on them.
        """
        ended = self.executor.collect(timeout) if self.executor is not None else []
        if not ended:
            return False
        fault_point("before_report")
        self._ended.extend(ended)
        if seconds_more:
            self._gather(self._clock.monotonic() + seconds_more)
        return True

    def _gather(self, until: float) -> None:
        assert self.executor is not None
        while len(self._ended) < len(self._leases) and (left := until - self._clock.monotonic()) > 0:
            more = self.executor.collect(left)
            if not more:
                return
            self._ended.extend(more)

    def ended(self) -> Iterator[tuple[Lease, Report]]:
        """Each that has ended. It is forgotten when the next one is asked for: an error on the way loses none."""
        while self._ended:
            lease, _ = self._ended[0]
            yield self._ended[0]
            self._leases.pop(_key(lease), None)
            self._ended.popleft()

    # -- while the store is away, and after --------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        """Let time pass. What ends meanwhile is kept."""
        if self.executor is None:
            time.sleep(seconds)
        else:
            # A connection that has broken can always be read: it would wake us without end.
            self.executor.watch(None)
            try:
                self._ended.extend((lease, _spared(lease, report)) for lease, report in self.executor.collect(seconds))
            except StoreUnavailable:
                pass  # they wait for it as we do

    def keep(self, told: Mapping[int, Report]) -> None:
        """What runs were told, and may not have been written. The store may go away again before that is known."""
        self._kept.update(told)

    def untold(self) -> dict[int, Report]:
        """What has ended and may have been told to nobody, by its lease's token."""
        return {**self._kept, **{lease.token: report for lease, report in self._ended}}

    def go_on(self, held: Iterable[Lease], untold: Mapping[int, Report]) -> None:
        """By what the store says we hold: tell what is untold, start what a commit without an answer gave us."""
        leases = {lease.token: lease for lease in held}
        self._kept.clear()
        self._leases = {_key(lease): lease for lease in leases.values()}
        self._ended = deque((leases[token], report) for token, report in untold.items() if token in leases)
        if self.executor is not None:
            known = {*untold, *(lease.token for lease in self.executor.running)}
            self.reserve_and_start([lease for token, lease in leases.items() if token not in known])


def _spared(lease: Lease, report: Report) -> Report:
    """What was killed because no heartbeat could be sent goes again, and spends none of its reruns after a loss.

    Those are for a task that takes its worker with it. Where to lose the task is to fail, it is still lost.
    """
    if isinstance(report, LeaseExpired) and not lease.task.is_careful:
        return TaskInterrupted(report.at, report.place, report.attempt)
    return report


def _key(lease: Lease) -> tuple[int, str, int]:
    return lease.task.run_id, lease.task.place, lease.task.attempt

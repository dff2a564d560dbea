"""The heartbeats of one worker: what a suspended host, or a clock that is set, says about others."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.workflow import encode, version
from mulligan.engine.engine import Engine
from mulligan.engine.heartbeat import HeartbeatSender, WorkerExpired
from mulligan.language import load_text
from mulligan.language.expressions import Cel
from mulligan.ports import Lease, NewRun, WorkerRecord
from mulligan.store.clock import ProcessClock
from mulligan.testing.clock import JumpingClock
from mulligan.testing.fake_executor import FakeExecutor
from mulligan.testing.memory.memory_store import MemoryStore

LEASE = 30.0
EVERY = LEASE / 6


class Host:
    """A host with one worker, which is registered. While the host is suspended its monotonic clock stands still."""

    def __init__(self) -> None:
        self.common = JumpingClock()
        self.suspended = 0.0
        self.clock = ProcessClock(self.common.now, self.common.monotonic, self._awake)
        self.store = MemoryStore(clock=self.common, is_shared=True)
        self.store.register(WorkerRecord("w", "h", 1, "lock", 1.0))
        self.heartbeats = HeartbeatSender(self.store, self.clock, "w", None, LEASE)

    def _awake(self) -> float:
        return self.common.monotonic() - self.suspended

    def beat_for(self, seconds: float) -> None:
        for _ in range(int(seconds / EVERY)):
            self.common.advance(EVERY)
            self.heartbeats.send()

    def suspend(self, seconds: float) -> None:
        self.common.advance(seconds)
        self.suspended += seconds


@pytest.fixture
def host() -> Host:
    return Host()


def test_a_worker_judges_others_after_a_lease_of_heartbeats(host: Host) -> None:
    host.beat_for(LEASE)
    assert not host.heartbeats.may_expire_others

    host.beat_for(EVERY)
    assert host.heartbeats.may_expire_others


def test_a_suspended_host_was_cut_off(host: Host) -> None:
    host.beat_for(2 * LEASE)

    host.suspend(3600)
    assert not host.heartbeats.may_expire_others

    host.heartbeats.send()
    assert not host.heartbeats.may_expire_others


@pytest.mark.parametrize("step", [-7200, -20, 20, 7200])
def test_a_clock_that_is_set_makes_no_gap(host: Host, step: float) -> None:
    host.beat_for(2 * LEASE)

    host.clock.set(host.clock.now() + timedelta(seconds=step))
    host.beat_for(EVERY)

    assert host.heartbeats.may_expire_others


def test_a_clock_that_is_set_back_hides_no_suspend(host: Host) -> None:
    host.beat_for(2 * LEASE)

    host.suspend(3600)
    host.clock.set(host.clock.now() - timedelta(seconds=3600))
    host.heartbeats.send()

    assert not host.heartbeats.may_expire_others


def test_a_worker_that_others_took_for_dead_is_told(host: Host) -> None:
    host.store.expire("w", is_dead=True)

    with pytest.raises(WorkerExpired):
        host.heartbeats.send()


# -- tasks that were killed because no heartbeat came ----------------------------------------------------------------

CAREFUL = "steps: [{step: a, shell: make a, on_lost: fail}]"
RERUN = "steps: [{step: a, shell: make a}]"


class Watched(FakeExecutor):
    """A supervisor kills everything if no heartbeat has come for two thirds of a lease."""

    def __init__(self, name: str, clock: JumpingClock) -> None:
        super().__init__(name, clock, ends=lambda task: None)
        self.renewed_at = clock.monotonic()
        self._killed: list[tuple[Lease, r.Report]] = []

    def renew(self, at: float) -> None:
        self._kill_if_late()
        self.renewed_at = at

    def collect(self, timeout: float | None) -> list[tuple[Lease, r.Report]]:
        self._kill_if_late()
        killed, self._killed = self._killed, []
        return [*killed, *super().collect(timeout)]

    def _kill_if_late(self) -> None:
        if self.clock.monotonic() - self.renewed_at < LEASE * 2 / 3:
            return
        for lease in list(self.running):
            task = lease.task
            self._killed.append((lease, r.LeaseExpired(self.clock.now(), task.place, task.attempt, "w")))
            del self._running[lease.token]
            self.reserved -= task.cpus


class SlowWorker:
    """A worker whose store answers, but may take its time."""

    def __init__(self, text: str) -> None:
        self.clock = JumpingClock()
        self.store = MemoryStore(clock=self.clock, is_shared=True)
        self.store.register(WorkerRecord("w", "here", 1, "lock", 4.0))
        executor = Watched("w", self.clock)
        self.engine = Engine(self.store, self.clock, Cel({}), "w", executor, lease_seconds=LEASE)
        workflow = load_text(text)
        data = encode(workflow)
        request = r.RunRequested(self.clock.now(), 0, {}, version(data))
        new = NewRun(data, request.version, workflow.name, request)
        (turn,) = self.store.create([new], "w")
        self.engine.begin([turn], [new])
        self.run_id = turn.run_id
        self.go_on(EVERY)

    def go_on(self, seconds: float) -> None:
        """Run the loop for so long, with its heartbeats."""
        for _ in range(int(seconds / EVERY)):
            self.clock.advance(EVERY)
            self.engine.heartbeats.send()
            self.engine.tick(0.0)
            self.engine.tick(0.0)

    def hold_up(self, seconds: float) -> None:
        """The next heartbeat is accepted, after so long."""
        self.clock.advance(seconds)
        self.go_on(EVERY)

    def count(self, kind: type[e.Fact]) -> int:
        return sum(isinstance(entry.fact, kind) for entry in self.store.log(self.run_id))


def test_a_task_that_was_killed_while_the_store_was_slow_is_not_lost() -> None:
    worker = SlowWorker(RERUN)

    worker.hold_up(LEASE * 0.8)

    assert (worker.count(e.AttemptLost), worker.count(e.AttemptInterrupted)) == (0, 1)
    assert worker.count(e.AttemptStarted) == 2


def test_a_task_that_holds_everything_up_again_and_again_is_lost() -> None:
    worker = SlowWorker(RERUN)

    for _ in range(4):
        worker.hold_up(LEASE * 0.8)

    assert (worker.count(e.AttemptInterrupted), worker.count(e.AttemptLost)) == (3, 1)


def test_a_task_whose_loss_counts_is_lost_to_a_slow_store_too() -> None:
    worker = SlowWorker(CAREFUL)

    worker.hold_up(LEASE * 0.8)

    assert (worker.count(e.AttemptLost), worker.count(e.AttemptInterrupted)) == (1, 0)

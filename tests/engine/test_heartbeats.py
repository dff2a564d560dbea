"""The heartbeats of one worker: what a suspended host, or a clock that is set, says about others."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mulligan.engine.heartbeat import HeartbeatSender, WorkerExpired
from mulligan.ports import WorkerRecord
from mulligan.store.clock import ProcessClock
from mulligan.store.memory import MemoryStore
from mulligan.testing.clock import JumpingClock

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

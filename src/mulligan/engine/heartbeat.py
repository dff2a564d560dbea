"""The heartbeats of one worker, and whether it may judge other workers by theirs."""

from __future__ import annotations

from datetime import datetime

from mulligan.core.deciding.workers.expiry_permission import first_heartbeat
from mulligan.errors import MulliganError
from mulligan.ports import Clock, TaskRunner, WorkerRegistry


class WorkerExpired(MulliganError):
    """This worker has expired: other workers have its leases and turns."""

    code = "worker.buried"


class HeartbeatSender:
    """Sends heartbeats, which renew running tasks. The worker was registered a moment ago."""

    def __init__(
        self, store: WorkerRegistry, clock: Clock, name: str, executor: TaskRunner | None, lease_seconds: float
    ) -> None:
        self._store = store
        self._clock = clock
        self._name = name
        self._executor = executor
        self._lease_seconds = lease_seconds
        self._series = first_heartbeat(clock.elapsed())

    def send(self) -> datetime:
        """Send a heartbeat, and return the store's time. `WorkerExpired` if it comes too late."""
        sent_at, renewed_at = self._clock.elapsed(), self._clock.monotonic()
        taken_at = self._store.record_heartbeat(self._name)
        if taken_at is None:
            raise WorkerExpired(f"worker '{self._name}' has expired: it sent no heartbeat in time")
        self._series = self._series.after_heartbeat(sent_at, self._clock.elapsed(), self._lease_seconds)
        if self._executor is not None:
            self._executor.renew(renewed_at)
        return taken_at

    @property
    def may_expire_others(self) -> bool:
        """Whether an old heartbeat proves that its worker is dead: not if ours did not reach the store either."""
        return self._series.may_expire_others(self._clock.elapsed(), self._lease_seconds)

"""The heartbeats of one worker: they say that it is alive, and whether it may take others for dead by theirs."""

from __future__ import annotations

from mulligan.core.deciding.heartbeats import first_heartbeat
from mulligan.errors import MulliganError
from mulligan.ports import Clock, Executor, Store


class WorkerExpired(MulliganError):
    """This worker was taken for dead: its leases and turns are others' now."""

    code = "worker.buried"


class HeartbeatSender:
    """Of a worker that was registered just now. Without hands it runs nothing, and no task is renewed."""

    def __init__(self, store: Store, clock: Clock, name: str, executor: Executor | None, lease_seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._name = name
        self._executor = executor
        self._lease_seconds = lease_seconds
        self._series = first_heartbeat(clock.elapsed())

    def beat(self) -> None:
        """Say that we are alive. `WorkerExpired` if nobody believed it any more."""
        sent, renewed_at = self._clock.elapsed(), self._clock.monotonic()
        if not self._store.beat(self._name):
            raise WorkerExpired(f"worker '{self._name}' was taken for dead: it did not answer in time")
        self._series = self._series.after_heartbeat(sent, self._clock.elapsed(), self._lease_seconds)
        if self._executor is not None:
            self._executor.renewed(renewed_at)

    @property
    def may_expire_others(self) -> bool:
        """Whether an old heartbeat says that its worker is dead: not where ours did not reach the store either."""
        return self._series.may_expire_others(self._clock.elapsed(), self._lease_seconds)

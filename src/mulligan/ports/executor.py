"""What an engine needs to run tasks, split by user, and the clock. `Executor` is the sum."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from mulligan.core.effects.tasks import Task
from mulligan.core.model.program_calls import Delivery
from mulligan.core.model.reports import Report
from mulligan.ports.records import Lease, Offer


class Clock(Protocol):
    def now(self) -> datetime:
        """The time in UTC. It advances evenly while a process is alive, even if the wall clock is set."""

    def stepped(self) -> timedelta:
        """How far the wall clock is ahead of `now`: negative if behind, zero if it was not set."""

    def monotonic(self) -> float:
        """Seconds since some moment, to measure durations. It never jumps."""

    def elapsed(self) -> float:
        """Seconds since some moment, including those for which the host was suspended. It cannot be set."""


class TaskCapacity(Protocol):
    """The capacity to run tasks: what is free, what is reserved, what is too large."""

    name: str
    host: str

    def fits(self, task: Task) -> bool:
        """Whether one more task like this fits now, given what is reserved."""

    def may_hold(self, task: Task) -> bool:
        """Whether it may be taken before a slot is free for it, if no other worker could run it meanwhile."""

    def can_ever_fit(self, task: Task) -> bool:
        """Whether it would fit if nothing else ran."""

    def missing_resources(self, task: Task) -> str:
        """The resources that the task needs and this worker does not have, in words."""

    def offer(self) -> Offer:
        """The free capacity."""

    def reserve(self, task: Task) -> None:
        """Keep capacity for a task that is about to be leased."""

    def host_of(self, task: Task) -> str:
        """The host on which a task runs whose capacity is reserved."""

    def unreserve(self, task: Task) -> None:
        """Free the capacity of a task that was not leased after all."""

    def end_turn(self, token: int) -> None:
        """Free the capacity of a program that has reported `CallsMade` and may not go on. Twice is as once."""


class TaskRunner(Protocol):
    """Runs leased tasks and reports how they ended. A program may report `CallsMade` before, and then waits."""

    def start(self, leases: Iterable[Lease]) -> None:
        """Run these tasks, whose capacity is reserved. A task that cannot be started is reported as ended."""

    def stop(self, token: int, grace_seconds: float | None) -> None:
        """SIGTERM, grace, SIGKILL; None lets the task finish. A task that does not run is ignored."""

    def go_on(self, token: int, ends: Sequence[Delivery]) -> None:
        """Let a program go on that has reported what it has called, with the ends that it waits for."""

    def watch(self, fd: int | None) -> None:
        """Make `collect` return when this descriptor is readable, too. Replaces the one before; None for no other."""

    def collect(self, timeout: float | None) -> list[tuple[Lease, Report]]:
        """The tasks that have ended, waiting up to `timeout` for the first. May return early with nothing."""

    def renew(self, at: float) -> None:
        """Let running tasks continue: the heartbeat sent `at` that time of `Clock.monotonic` was accepted."""

    @property
    def must_renew(self) -> bool:
        """Whether the last heartbeat is too old to start a task before the next one."""

    @property
    def running(self) -> Collection[Lease]: ...


class EngineExecutor(TaskCapacity, TaskRunner, Protocol):
    """What an engine needs."""


class Executor(EngineExecutor, Protocol):
    """Everything: the process that drives the engine also ends it."""

    @property
    def trouble(self) -> str:
        """What is wrong with the machine, so that no more tasks are started; "" if nothing is."""

    def stop_all(self, grace_seconds: float) -> None:
        """Stop all tasks; each is reported as `TaskInterrupted`."""

    def drop_all(self) -> None:
        """Kill all tasks at once and forget them: their leases are void."""

    @property
    def is_busy(self) -> bool:
        """Whether a task runs. One that has ended and waits for the store does not count, unlike in `running`."""

    def close(self) -> None: ...

"""The breakers inside one transaction of a store: which tasks they admit, and how they have changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from mulligan.core.deciding.workers.breaker import (
    CLOSED,
    Admission,
    Circuit,
    Guard,
    GuardedOutcome,
    admission,
    count_from_outside,
    count_outcome,
    open_circuit_outcome,
    set_limit,
    start_probe,
)
from mulligan.core.effects.tasks import Task
from mulligan.core.model.reports import TaskEnded
from mulligan.ports import Lease
from mulligan.store.encoding import micros

# Stands for the token of a probe whose lease is not written yet.
_TO_COME = 0
NONE_RUNNING: Mapping[str, int] = MappingProxyType({})


class BreakerTransaction:
    """Starts with the breakers by name, the names of those with a running probe, and how many tasks run behind each."""

    def __init__(
        self,
        now: datetime,
        circuits: Mapping[str, Circuit],
        probing: Iterable[str] = (),
        running: Mapping[str, int] = NONE_RUNNING,
    ) -> None:
        self.now = now
        self.circuits = dict(circuits)
        # Tasks that leave the queue, each with the report to its run.
        self.refused: list[tuple[Task, TaskEnded]] = []
        # How many tasks were not admitted.
        self.rejected = 0
        self._before = dict(circuits)
        self._probing = set(probing)
        self._running = dict(running)
        # Breakers that let no more tasks run at once: what came later must not overtake what waits.
        self._full: set[str] = set()
        # Breakers of which a task has ended.
        self._left: set[str] = set()

    def admits(self, task: Task) -> bool:
        """Whether the task may be leased now. While one task is the probe, the others wait."""
        guard = task.guard
        if guard is None:
            return True
        circuit = self.circuits[guard.name] = set_limit(self.circuits.get(guard.name, CLOSED), guard)
        found = "wait" if guard.name in self._full else self._admission(circuit, guard)
        if found == "wait" and circuit.status == "closed":
            self._full.add(guard.name)
        if found == "refuse" and circuit.retry_at is not None:
            outcome = open_circuit_outcome(guard, circuit.retry_at)
            self.refused.append((task, TaskEnded(self.now, task.place, task.attempt, outcome)))
        if found == "probe":
            self._probing.add(guard.name)
            self.circuits[guard.name] = start_probe(circuit, _TO_COME)
        is_passing = found in ("go", "probe")
        self.rejected += not is_passing
        self._running[guard.name] = self._running.get(guard.name, 0) + is_passing
        return is_passing

    def _admission(self, circuit: Circuit, guard: Guard) -> Admission:
        is_probe_alive, running = guard.name in self._probing, self._running.get(guard.name, 0)
        return admission(circuit, guard, self.now, is_probe_alive=is_probe_alive, running=running)

    def holds(self, guard: Guard) -> bool:
        """Whether its tasks wait now. Nothing is changed."""
        return self._admission(self.circuits.get(guard.name, CLOSED), guard) == "wait"

    def note_leases(self, leases: Iterable[Lease]) -> None:
        """Note the leases of the admitted tasks: a probe is identified by its token."""
        guarded = ((lease.token, lease.task.guard.name) for lease in leases if lease.task.guard is not None)
        for token, name in guarded:
            if self.circuits[name].probe == _TO_COME:
                self.circuits[name] = start_probe(self.circuits[name], token)

    def count_outcomes(self, counted: Iterable[GuardedOutcome]) -> None:
        """Count the outcomes that this transaction accepts."""
        for one in counted:
            name = one.guard.name
            self._left.add(name)
            self.circuits[name] = count_outcome(self.circuits.get(name, CLOSED), one, self.now)

    def count_from_outside(self, one: GuardedOutcome) -> None:
        """Count the outcome of something that is no task of the store."""
        circuit = self.circuits.get(one.guard.name, CLOSED)
        self.circuits[one.guard.name] = count_from_outside(circuit, one, self.now)

    @property
    def changed(self) -> dict[str, Circuit]:
        """The breakers to be written, including those that were never asked before."""
        return {name: new for name, new in self.circuits.items() if self._before.get(name) != new}

    @property
    def may_admit_others(self) -> bool:
        """Whether waiting workers should be notified: a status has changed, or one task less runs behind a limit."""
        has_room = any(self._before.get(name, CLOSED).max_running is not None for name in self._left)
        return has_room or any(
            self._before.get(name, CLOSED).status != new.status for name, new in self.changed.items()
        )


# -- rows ------------------------------------------------------------------------------------------------------------


_UNGUARDED = ("", "")


def breaker_columns(task: Task) -> tuple[str, str]:
    """The columns of a task's row: its breaker, and what the task does while that is open."""
    return _UNGUARDED if task.guard is None else (task.guard.name, task.guard.rules.when_open)


def breaker_row(name: str, circuit: Circuit) -> tuple[Any, ...]:
    """A breaker as a row of its table."""
    retry_at = None if circuit.retry_at is None else micros(circuit.retry_at)
    return name, circuit.status, circuit.failures, retry_at, circuit.probe, circuit.max_running

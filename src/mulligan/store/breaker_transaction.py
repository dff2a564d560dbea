"""The breakers inside one transaction of a store: which tasks they admit, and how they have changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from mulligan.core.deciding.breaker import (
    CLOSED,
    Circuit,
    Guard,
    GuardedOutcome,
    admission,
    count_from_outside,
    count_outcome,
    open_circuit_outcome,
    start_probe,
)
from mulligan.core.effects.tasks import Task
from mulligan.core.model.reports import TaskEnded
from mulligan.ports import Lease
from mulligan.store.encoding import micros

# Stands for the token of a probe whose lease is not written yet.
_TO_COME = 0


class BreakerTransaction:
    """Starts with the breakers by name, and the names of those with a running probe."""

    def __init__(self, now: datetime, circuits: Mapping[str, Circuit], probing: Iterable[str] = ()) -> None:
        self.now = now
        self.circuits = dict(circuits)
        # Tasks that leave the queue, each with the report to its run.
        self.refused: list[tuple[Task, TaskEnded]] = []
        # How many tasks were not admitted.
        self.rejected = 0
        self._before = dict(circuits)
        self._probing = set(probing)

    def admits(self, task: Task) -> bool:
        """Whether the task may be leased now. While one task is the probe, the others wait."""
        guard = task.guard
        if guard is None:
            return True
        circuit = self.circuits.setdefault(guard.name, CLOSED)
        found = admission(circuit, guard, self.now, is_probe_alive=guard.name in self._probing)
        if found == "refuse" and circuit.retry_at is not None:
            outcome = open_circuit_outcome(guard, circuit.retry_at)
            self.refused.append((task, TaskEnded(self.now, task.place, task.attempt, outcome)))
        if found == "probe":
            self._probing.add(guard.name)
            self.circuits[guard.name] = start_probe(circuit, _TO_COME)
        is_passing = found in ("go", "probe")
        self.rejected += not is_passing
        return is_passing

    def holds(self, guard: Guard) -> bool:
        """Whether its tasks wait now. Nothing is changed."""
        circuit = self.circuits.get(guard.name, CLOSED)
        return admission(circuit, guard, self.now, is_probe_alive=guard.name in self._probing) == "wait"

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
    def has_status_change(self) -> bool:
        """Whether waiting workers should be notified."""
        return any(self._before.get(name, CLOSED).status != new.status for name, new in self.changed.items())


# -- rows ------------------------------------------------------------------------------------------------------------


_UNGUARDED = ("", "")


def breaker_columns(task: Task) -> tuple[str, str]:
    """The columns of a task's row: its breaker, and what the task does while that is open."""
    return _UNGUARDED if task.guard is None else (task.guard.name, task.guard.rules.when_open)


def breaker_row(name: str, circuit: Circuit) -> tuple[Any, ...]:
    """A breaker as a row of its table."""
    retry_at = None if circuit.retry_at is None else micros(circuit.retry_at)
    return name, circuit.status, circuit.failures, retry_at, circuit.probe

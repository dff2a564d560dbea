"""A store that fails on purpose: any call may fail before or after it is done, take long, or crash the process.

A FaultPlan decides; without a fault a call goes straight through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

from mulligan.errors import StoreUnavailable
from mulligan.ports import RunLists, ServerRecords, Store
from mulligan.testing.faults import Crash

# What may happen to a call.
FAULTS = ("lost_call", "lost_answer", "busy", "slow", "late", "crash_before", "crash_after", "meanwhile")


class FaultPlan(Protocol):
    def next_fault(self, method: str) -> str:
        """Return the fault for the next call of this method, one of `FAULTS`, or ""."""

    def run_others(self) -> None:
        """Let other processes act before the caller gets its answer."""

    def delay(self) -> None:
        """Let a long time pass."""

    def run_while_locked(self, call: Callable[[], Any]) -> Any:
        """Make the call while another connection holds the lock."""


def with_faults(store: Store, fault_plan: FaultPlan) -> Store:
    """Wrap a store with these faults."""
    return cast(Store, _FaultyStore(store, fault_plan))


class _FaultyPart:
    """Any part of a store, each of whose methods may fail."""

    def __init__(self, store: Any, fault_plan: FaultPlan) -> None:
        self._store = store
        self._fault_plan = fault_plan

    def __getattr__(self, method: str) -> Callable[..., Any]:
        """Create the wrapper of a method once."""
        original, fault_plan = getattr(self._store, method), self._fault_plan

        def call(*args: Any, **named: Any) -> Any:
            kind = fault_plan.next_fault(method)
            if not kind:
                return original(*args, **named)
            return _MET[kind](fault_plan, method, lambda: original(*args, **named))

        setattr(self, method, call)
        return call


class _FaultyStore(_FaultyPart):
    def __init__(self, store: Store, fault_plan: FaultPlan) -> None:
        super().__init__(store, fault_plan)
        self.is_shared = store.is_shared
        self.artifacts = store.artifacts

    @property
    def server_records(self) -> ServerRecords:
        return cast(ServerRecords, _FaultyPart(self._store.server_records, self._fault_plan))

    @property
    def lists(self) -> RunLists:
        return cast(RunLists, _FaultyPart(self._store.lists, self._fault_plan))


Ask = Callable[[], Any]


def _unavailable() -> StoreUnavailable:
    return StoreUnavailable("the store does not answer")


def _lost_call(fault_plan: FaultPlan, method: str, call: Ask) -> Any:
    raise _unavailable()


def _lost_answer(fault_plan: FaultPlan, method: str, call: Ask) -> Any:
    call()
    raise _unavailable()


def _busy(fault_plan: FaultPlan, method: str, call: Ask) -> Any:
    return fault_plan.run_while_locked(call)


def _slow(fault_plan: FaultPlan, method: str, call: Ask) -> Any:
    fault_plan.delay()
    fault_plan.run_others()
    return call()


def _late(fault_plan: FaultPlan, method: str, call: Ask) -> Any:
    """Make the call at once, and delay the answer until much may have changed."""
    found = call()
    fault_plan.delay()
    fault_plan.run_others()
    return found


def _crash_before(fault_plan: FaultPlan, method: str, call: Ask) -> Any:
    raise Crash(f"before {method}")


def _crash_after(fault_plan: FaultPlan, method: str, call: Ask) -> Any:
    call()
    raise Crash(f"after {method}")


def _meanwhile(fault_plan: FaultPlan, method: str, call: Ask) -> Any:
    fault_plan.run_others()
    found = call()
    fault_plan.run_others()
    return found


_MET: dict[str, Callable[[FaultPlan, str, Ask], Any]] = {
    "lost_call": _lost_call,
    "lost_answer": _lost_answer,
    "busy": _busy,
    "slow": _slow,
    "late": _late,
    "crash_before": _crash_before,
    "crash_after": _crash_after,
    "meanwhile": _meanwhile,
}

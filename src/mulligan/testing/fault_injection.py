"""The store in between: any call may fail, before it was done or after, take long, or be somebody's last.

What happens is the sky's to say; in good weather a call goes straight through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

from mulligan.errors import StoreUnavailable
from mulligan.ports import Store
from mulligan.testing.faults import Crash

# What may happen to a call.
FAULTS = ("lost_call", "lost_answer", "busy", "slow", "late", "crash_before", "crash_after", "meanwhile")


class FaultPlan(Protocol):
    def next_fault(self, method: str) -> str:
        """What happens to the next call of this method: one of `WEATHER`, or nothing."""

    def run_others(self) -> None:
        """Others act, before the caller has its answer."""

    def delay(self) -> None:
        """A long time passes."""

    def run_while_locked(self, call: Callable[[], Any]) -> Any:
        """The call, while somebody else has the store."""


def with_faults(store: Store, fault_plan: FaultPlan) -> Store:
    """The same store, under this sky."""
    return cast(Store, _FaultyStore(store, fault_plan))


class _FaultyStore:
    def __init__(self, store: Store, fault_plan: FaultPlan) -> None:
        self._store = store
        self._fault_plan = fault_plan
        self.is_shared = store.is_shared
        self.artifacts = store.artifacts

    def __getattr__(self, method: str) -> Callable[..., Any]:
        """Found once for each method, and kept."""
        original, fault_plan = getattr(self._store, method), self._fault_plan

        def call(*args: Any, **named: Any) -> Any:
            kind = fault_plan.next_fault(method)
            if not kind:
                return original(*args, **named)
            return _MET[kind](fault_plan, method, lambda: original(*args, **named))

        setattr(self, method, call)
        return call


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
    """It was done at once; the answer comes when much may have changed."""
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

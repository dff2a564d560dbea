"""The store in between: any call may fail, before it was done or after, take long, or be somebody's last.

What happens is the sky's to say; in good weather a call goes straight through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

from ..errors import StoreUnavailable
from ..ports import Store
from .faults import Crash

# What may happen to a call.
WEATHER = ("lost_call", "lost_answer", "busy", "slow", "late", "crash_before", "crash_after", "meanwhile")


class Sky(Protocol):
    def strikes(self, method: str) -> str:
        """What happens to the next call of this method: one of `WEATHER`, or nothing."""

    def meanwhile(self) -> None:
        """Others act, before the caller has its answer."""

    def hold_up(self) -> None:
        """A long time passes."""

    def while_busy(self, call: Callable[[], Any]) -> Any:
        """The call, while somebody else has the store."""


def weathered(store: Store, sky: Sky) -> Store:
    """The same store, under this sky."""
    return cast(Store, _Weathered(store, sky))


class _Weathered:
    def __init__(self, store: Store, sky: Sky) -> None:
        self._store = store
        self._sky = sky
        self.is_shared = store.is_shared
        self.artifacts = store.artifacts

    def __getattr__(self, method: str) -> Callable[..., Any]:
        """Found once for each method, and kept."""
        ask, sky = getattr(self._store, method), self._sky

        def call(*args: Any, **named: Any) -> Any:
            kind = sky.strikes(method)
            if not kind:
                return ask(*args, **named)
            return _MET[kind](sky, method, lambda: ask(*args, **named))

        setattr(self, method, call)
        return call


Ask = Callable[[], Any]


def _away() -> StoreUnavailable:
    return StoreUnavailable("the store does not answer")


def _lost_call(sky: Sky, method: str, ask: Ask) -> Any:
    raise _away()


def _lost_answer(sky: Sky, method: str, ask: Ask) -> Any:
    ask()
    raise _away()


def _busy(sky: Sky, method: str, ask: Ask) -> Any:
    return sky.while_busy(ask)


def _slow(sky: Sky, method: str, ask: Ask) -> Any:
    sky.hold_up()
    sky.meanwhile()
    return ask()


def _late(sky: Sky, method: str, ask: Ask) -> Any:
    """It was done at once; the answer comes when much may have changed."""
    found = ask()
    sky.hold_up()
    sky.meanwhile()
    return found


def _crash_before(sky: Sky, method: str, ask: Ask) -> Any:
    raise Crash(f"before {method}")


def _crash_after(sky: Sky, method: str, ask: Ask) -> Any:
    ask()
    raise Crash(f"after {method}")


def _meanwhile(sky: Sky, method: str, ask: Ask) -> Any:
    sky.meanwhile()
    found = ask()
    sky.meanwhile()
    return found


_MET: dict[str, Callable[[Sky, str, Ask], Any]] = {
    "lost_call": _lost_call,
    "lost_answer": _lost_answer,
    "busy": _busy,
    "slow": _slow,
    "late": _late,
    "crash_before": _crash_before,
    "crash_after": _crash_after,
    "meanwhile": _meanwhile,
}

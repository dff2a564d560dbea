"""What a program calls besides its steps: `gather`, `sleep`, `wait_event`, `now`, `random`, `uuid4`, and `approve`.

A module of the user imports this in a warm child, too: standard library only until a program runs.
"""

from __future__ import annotations

from mulligan.flows.context import outside_program, running_program
from mulligan.flows.static_types import overload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping
    from datetime import datetime
    from typing import Any, Literal, TypeVar
    from uuid import UUID

    from mulligan.flows.retries import Duration
    from mulligan.programs.errors import StepFailed

    A = TypeVar("A")
    B = TypeVar("B")
    C = TypeVar("C")
    D = TypeVar("D")
    R = TypeVar("R")


def _running(what: str) -> Any:
    found = running_program()
    if found is None:
        outside_program(what)
    return found


@overload
def gather(calls: Iterable[Coroutine[Any, Any, R]], /, *, failures: Literal["raise"] = "raise") -> list[R]: ...
@overload
def gather(calls: Iterable[Coroutine[Any, Any, R]], /, *, failures: Literal["return"]) -> list[R | StepFailed]: ...
@overload
def gather(one: Coroutine[Any, Any, A], /, *, failures: Literal["raise"] = "raise") -> tuple[A]: ...
@overload
def gather(
    one: Coroutine[Any, Any, A], two: Coroutine[Any, Any, B], /, *, failures: Literal["raise"] = "raise"
) -> tuple[A, B]: ...
@overload
def gather(
    one: Coroutine[Any, Any, A],
    two: Coroutine[Any, Any, B],
    three: Coroutine[Any, Any, C],
    /,
    *,
    failures: Literal["raise"] = "raise",
) -> tuple[A, B, C]: ...
@overload
def gather(
    one: Coroutine[Any, Any, A],
    two: Coroutine[Any, Any, B],
    three: Coroutine[Any, Any, C],
    four: Coroutine[Any, Any, D],
    /,
    *,
    failures: Literal["raise"] = "raise",
) -> tuple[A, B, C, D]: ...
@overload
def gather(*calls: Coroutine[Any, Any, R], failures: Literal["raise"] = "raise") -> list[R]: ...
@overload
def gather(*calls: Coroutine[Any, Any, R], failures: Literal["return"]) -> list[R | StepFailed]: ...


def gather(*calls: Any, failures: Literal["raise", "return"] = "raise", **others: Any) -> Any:
    """Run calls beside each other, wait for all, and return their results in the order of the calls.

        counts = gather(load.call(part) for part in parts)
        east, west = gather(load.call("east"), load.call("west"))

    If calls fail, the first failure in this order is raised when all have ended; its `failures` has the others. With
    `failures="return"` each failure stands in the list instead. In an `async def` program it is awaited.
    """
    if others:
        name = next(iter(others))
        raise TypeError(f"mulligan.gather has no '{name}'; failures=\"return\" puts failures into the list")
    if failures not in ("raise", "return"):
        raise ValueError(f"'failures' must be 'raise' or 'return', not {failures!r}")
    return _running("mulligan.gather").gather(calls, returns_failures=failures == "return")


class _Sleep:
    """`sleep("30s")`: wait, also for months; the process of the program ends meanwhile."""

    __name__ = "sleep"

    def __call__(self, duration: Duration, /) -> Any:
        """Wait that long: `"30s"`, `"8h"`, a number of seconds or a `timedelta`. In an `async def` it is awaited."""
        running = _running("mulligan.sleep")
        return running.perform(running.prepare_sleep(duration))

    def call(self, duration: Duration, /) -> Coroutine[None, None, None]:
        """A wait that has not started, for `gather` or to be awaited."""
        call: Coroutine[None, None, None] = _running("mulligan.sleep.call").prepare_sleep(duration)
        return call

    def __repr__(self) -> str:
        return "<function mulligan.sleep>"


sleep = _Sleep()
# What is given for the default of an event by who gives none.
_NONE: Any = object()


class _WaitEvent:
    """`wait_event("paid")`: wait for an event that somebody sends; the process of the program ends meanwhile."""

    __name__ = "wait_event"

    def __call__(
        self,
        name: str,
        /,
        *,
        timeout: Duration | None = None,
        default: Any = _NONE,
        schema: Mapping[str, Any] | None = None,
        key: str = "",
    ) -> Any:
        """Wait for an event of this name and return its value: one that came early is there already.

        If none has come in time, the call fails with TIMEOUT, or returns the `default`. `schema` is a JSON Schema: an
        event that does not match it is refused. In an `async def` it is awaited.
        """
        running = _running("mulligan.wait_event")
        others = {} if default is _NONE else {"default": default}
        return running.perform(running.prepare_event(name, timeout, schema, key, others))

    def call(
        self,
        name: str,
        /,
        *,
        timeout: Duration | None = None,
        default: Any = _NONE,
        schema: Mapping[str, Any] | None = None,
        key: str = "",
    ) -> Coroutine[None, None, Any]:
        """A wait that has not started, for `gather` or to be awaited."""
        running = _running("mulligan.wait_event.call")
        others = {} if default is _NONE else {"default": default}
        call: Coroutine[None, None, Any] = running.prepare_event(name, timeout, schema, key, others)
        return call

    def __repr__(self) -> str:
        return "<function mulligan.wait_event>"


wait_event = _WaitEvent()


def now() -> datetime:
    """The time, in UTC. It is recorded, so a replay gets the same."""
    from datetime import datetime

    running = _running("mulligan.now")
    return datetime.fromisoformat(running.value("now", running.wall_time))


def publish_state(**values: Any) -> None:
    """Say how far the program is: `publish_state(done=3, of=12)`. `show`, the dashboard and `run.state` have it.

    Each call replaces the values that it names. Small values that can be written as JSON; they decide nothing.
    """
    _running("mulligan.publish_state").publish(values)


def random() -> float:
    """A number from 0 up to 1. It is recorded, so a replay gets the same."""
    import random as chance

    number: float = _running("mulligan.random").value("random", chance.random)
    return number


def uuid4() -> UUID:
    """A new id. It is recorded, so a replay gets the same."""
    import uuid

    return uuid.UUID(_running("mulligan.uuid4").value("uuid4", lambda: str(uuid.uuid4())))

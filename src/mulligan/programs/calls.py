"""Calls of a program, their branches, and the tasks of an asynchronous program.

A call has an identity: its branch, and its ordinal in that branch. The branch is the program, or one of its parts that
run beside each other: a gathered call, a task of asyncio. So an edit in one branch renumbers no other.
"""

from __future__ import annotations

from mulligan.core.model.program_calls import BRANCH_CHARS_MAX
from mulligan.flows.static_types import Generic
from mulligan.programs.errors import ProgramError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, Protocol, TypeVar

    from mulligan.flows.context import Site
    from mulligan.programs.messages import CallFailure, CallKind

    R = TypeVar("R")

    class CallingProgram(Protocol):
        """What a call knows of the program that makes it: the event loop is that of an asynchronous one."""

        loop: Any
        prepared: dict[int, Prepared]
        forgotten: list[Prepared]

        def next_serial(self) -> int: ...

else:
    R = None

# How much the name of a call and its key add to a branch.
KEYED_CHARS_MAX = 300


class Branch:
    """Numbers its calls, and the branches that begin in it."""

    __slots__ = ("_branches", "_calls", "_keys", "path")

    def __init__(self, path: str = "") -> None:
        self.path = path
        self._calls = 0
        self._branches = 0
        self._keys: set[str] = set()

    @property
    def has_calls(self) -> bool:
        return bool(self._calls or self._branches or self._keys)

    def next_call(self) -> int:
        self._calls += 1
        return self._calls - 1

    def next_branch(self) -> Branch:
        self._branches += 1
        number = self._branches - 1
        path = f"{self.path}.{number}" if self.path else str(number)
        if len(path) > BRANCH_CHARS_MAX - KEYED_CHARS_MAX:
            hint = "write a loop, or let a part of it be a program of its own, which this one calls"
            raise ProgramError("tasks are nested too deep, each begun by the one before", hint=hint, code="LOOP_LIMIT")
        return Branch(path)

    def keyed(self, name: str, key: str) -> Branch:
        """The branch of a call that has a key: the same whatever else is called here."""
        segment = f"{name}={key}".replace("/", "%2F")
        if segment in self._keys:
            raise ProgramError(
                f"'{name}' is called twice with the key '{key}'", hint="a key names one call: put the round into it"
            )
        self._keys.add(segment)
        return Branch(f"{self.path}/{segment}")


def has_key(path: str) -> bool:
    """Whether this is the branch of a call with a key."""
    return "/" in path


class Prepared:
    """What is known of a call that was prepared, whether or not anybody still has it."""

    __slots__ = ("name", "site")

    def __init__(self, name: str, site: Site) -> None:
        self.name = name
        self.site = site


class Outcome:
    """How a call has ended: with JSON, or with a failure."""

    __slots__ = ("failure", "output")

    def __init__(self, output: Any, failure: CallFailure | None) -> None:
        self.output = output
        self.failure = failure


class Call(Generic[R]):
    """A call of a step that a program has prepared: give it to `gather`, or await it. It starts then, and once."""

    __slots__ = (
        *("_machine", "_steps", "arguments", "branch", "definition", "digest", "future", "key", "kind"),
        *("name", "ordinal", "outcome", "position", "read", "run", "serial", "site"),
    )

    def __init__(
        self,
        machine: CallingProgram,
        *,
        name: str,
        arguments: bytes,
        digest: str,
        definition: Callable[[], Any] | None,
        site: Site,
        read: Callable[[Any], Any] | None = None,
        run: Callable[[], Any] | None = None,
        key: str = "",
    ) -> None:
        self._machine = machine
        self.name = name
        self.arguments = arguments
        self.digest = digest
        # Makes the definition, when the call turns out to be new.
        self.definition = definition
        self.site = site
        # Makes the result of the output.
        self.read = read
        # Of an inline step: what runs it.
        self.run = run
        self.kind: CallKind = "step" if run is None else "inline"
        self.key = key
        self.branch: str | None = None
        self.ordinal = 0
        self.position: tuple[int, int] | None = None
        self.outcome: Outcome | None = None
        self.future: Any = None
        self._steps: Any = None
        self.serial = machine.next_serial()

    def __repr__(self) -> str:
        return f"<call of {self.name}>"

    def __del__(self) -> None:
        # Nobody has it any more, so it can never start: see `Machine.refuse_forgotten`.
        forgotten = self._machine.prepared.pop(self.serial, None)
        if forgotten is not None:
            self._machine.forgotten.append(forgotten)

    def _refuse_use(self, *_others: object) -> Any:
        """Whoever computes with a call has forgotten to await it."""
        hint = (
            "give it to gather, or call the step without .call"
            if self._machine.loop is None
            else "write await before it"
        )
        raise ProgramError(f"the call of '{self.name}' is used as if it were its result", hint=hint)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse_use
    __floordiv__ = __mod__ = __lt__ = __le__ = __gt__ = __ge__ = __getitem__ = __contains__ = _refuse_use
    __bool__ = __len__ = __iter__ = __int__ = __float__ = __index__ = __str__ = _refuse_use

    def __getattr__(self, name: str) -> Any:
        message = f"the call of '{self.name}' has no '{name}': it is not its result"
        if self._machine.loop is not None and not name.startswith("__"):
            message += "; write await before it"
        raise AttributeError(message)

    def __hash__(self) -> int:
        """The same in each process, so that a set of calls has the same order in a replay."""
        return self.serial

    def __eq__(self, other: object) -> bool:
        return self is other

    @property
    def is_started(self) -> bool:
        return self.branch is not None

    @property
    def id(self) -> tuple[str, int]:
        return self.branch or "", self.ordinal

    # As a coroutine: asyncio makes a task of it.

    def __await__(self) -> Generator[Any, Any, R]:
        if self._steps is not None:
            raise ProgramError(f"the call of '{self.name}' is used twice", hint="call the step again")
        return self._started_steps()  # type: ignore[no-any-return]

    def send(self, value: Any) -> Any:
        return self._started_steps().send(value)

    def throw(self, *error: Any) -> Any:
        self._machine.prepared.pop(self.serial, None)
        return self._started_steps().throw(*error)

    def close(self) -> None:
        self._machine.prepared.pop(self.serial, None)
        if self._steps is not None:
            self._steps.close()

    def _started_steps(self) -> Any:
        if self._steps is None:
            loop = self._machine.loop
            if loop is None:
                hint = "write the program as 'async def', or call the step without .call"
                raise ProgramError(
                    f"the call of '{self.name}' is awaited in a program that is a plain 'def'", hint=hint
                )
            self._steps = loop.awaiting(self)
        return self._steps

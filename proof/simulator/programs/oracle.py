"""What a program has to come to: what the same function comes to that is run plainly, or without an interruption.

- Run plainly: no machine, no event loop; a call returns what it has come to in the log. Only of programs that do not
  observe in which order calls end.
- Without an interruption: one machine from the beginning to the end, which is told one end after the other, in the
  order of the log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any

from mulligan.core.effects.program_history import ProgramHistory, clock_begin
from mulligan.core.model import events as e
from mulligan.core.model.actions import PROGRAM as PROGRAM_KIND
from mulligan.core.model.failure import failure
from mulligan.core.model.program_calls import Delivery
from mulligan.core.state.program_progress import RecordedCall
from mulligan.core.state.state import Place, State
from mulligan.programs import messages as m
from mulligan.programs.call_values import read_result
from mulligan.programs.calls import Branch, Call, Outcome, has_key
from mulligan.programs.conversion import deliveries_of, history_of
from mulligan.programs.errors import ProgramError, Stopped
from mulligan.programs.errors import StepFailed as StepFailedError
from mulligan.programs.machine import Machine, as_exception
from mulligan.programs.running import run_function
from proof.simulator.programs.drawing import RandomProgram, program_of
from proof.simulator.programs.interpreting import Interpreter, drive, function_of

_Identity = tuple[str, int]


class _Ends:
    """How the calls of a program have ended, as far as it was told, in the order of the log."""

    def __init__(self, state: State) -> None:
        program = state.places[state.graph.program]
        assert program.program is not None
        self.is_edited = state.run.revision is not None
        self.told = program.program.delivered
        self.calls = {(call.branch, call.ordinal): call for call in state.calls.values()}
        keyed = {label: call for label, call in state.calls.items() if has_key(call.branch)}
        recorded = m.decode_history(history_of(ProgramHistory(keyed, []))).calls
        self.with_keys = {(one.id.branch, one.id.ordinal): one for one in recorded}
        ended = sorted(
            (place.delivery[0], call, place)
            for label, call in state.calls.items()
            if call.kind != "value" and (place := state.places[label]).delivery is not None
        )
        self.ends = {
            (call.branch, call.ordinal): _end(call, place) for number, call, place in ended if number <= self.told
        }

    def in_order(self) -> list[m.Delivery]:
        return [end for identity, end in self.ends.items() if self.calls[identity].kind != "inline"]


def _end(call: RecordedCall, place: Place) -> m.Delivery:
    """How a call has ended, without the help of what tells the program."""
    is_done = place.status == "completed"
    found = None if is_done else place.failure if place.status == "failed" else None
    if not is_done and found is None:
        found = failure("CANCELLED", f"the step was {place.status}")
    assert place.delivery is not None
    at = place.delivery[1].timestamp()
    one = Delivery(call.branch, call.ordinal, place.key, place.output if is_done else None, found, at)
    return deliveries_of([one])[0]


def promise_16_a_program_comes_to_what_its_function_comes_to(state: State, fact: e.ProgramEnded) -> None:
    """A program that has ended has done what it does when nothing interrupts it."""
    action = state.places[fact.place].spec.action
    if action is None or action.kind != PROGRAM_KIND or "seed" not in action.params:
        return
    if fact.failure is not None and fact.failure.code == "TIMEOUT":
        return  # it waited for too long
    program, ends = program_of(action.params), _Ends(state)
    said = _uninterrupted(program, ends, clock_begin(state.places[fact.place]))
    _compare("without an interruption", _of(said), _of_log(fact))
    plain = _plain(program, ends)
    if plain is not None:
        _compare("plainly", plain, _of_log(fact))


def _of_log(fact: e.ProgramEnded) -> tuple[Any, ...]:
    return fact.how, fact.output, "" if fact.failure is None else fact.failure.code


def _of(said: m.Ended) -> tuple[Any, ...]:
    return said.how, said.output, "" if said.failure is None else said.failure.code


def _compare(how: str, found: tuple[Any, ...], recorded: tuple[Any, ...]) -> None:
    if found != recorded:
        raise AssertionError(f"promise 16: a program has come to {recorded}; run {how} it comes to {found}")


# -- without an interruption -------------------------------------------------------------------------------------------


def _uninterrupted(program: RandomProgram, ends: _Ends, begun: float) -> m.Ended:
    machine = _FromLog(_Log(), ends, begun)
    try:
        said = run_function(machine, function_of(program), {})
    except Stopped:
        raise AssertionError(
            "promise 16: a program has ended, and without an interruption it waits for a call"
        ) from None
    others = machine.made.keys() ^ ends.calls.keys()
    if ends.is_edited:
        # Calls with a key outlive an edit that removes them.
        others -= {identity for identity in ends.calls if has_key(identity[0])}
    if others:
        other = sorted(others)
        raise AssertionError(f"promise 16: without an interruption the program makes other calls: {other}")
    for identity, digest in machine.made.items():
        if digest != ends.calls[identity].digest:
            raise AssertionError(f"promise 16: without an interruption call {identity} has other arguments")
    return said


class _Log:
    """The way to an engine that knows the log: the machine takes what it needs from it."""

    def exchange(self, message: m.Idle) -> m.Deliver:
        raise Stopped

    def replayed(self) -> None: ...

    def arm(self) -> None: ...

    def disarm(self) -> None: ...

    def differs(self, difference: Any) -> None: ...

    def wall_time(self) -> float:
        return 0.0

    def define(self, thing: Any) -> m.StepDefinition:
        return m.StepDefinition("", b"")

    def define_sleep(self) -> m.StepDefinition:
        return m.StepDefinition("", b"")

    def define_approval(self, given: Collection[str]) -> m.StepDefinition:
        return m.StepDefinition("", b"")

    def define_event_wait(self, given: Collection[str], schema: Mapping[str, Any] | None) -> m.StepDefinition:
        return m.StepDefinition("", b"")


class _FromLog(Machine):
    """Takes values and ends of calls from the log, each when it is asked for."""

    def __init__(self, link: _Log, ends: _Ends, begun: float) -> None:
        super().__init__(link, at=begun)
        # What it has called, with the digests of the arguments.
        self.made: dict[_Identity, str] = {}
        self._ends = ends
        if ends.is_edited:
            # Of calls with a key it depends on the log which of them an edited program makes anew.
            self._is_edited, self._recorded = True, ends.with_keys
        self._left = ends.in_order()

    def chance(self) -> None:
        """Recorded, like every value."""

    def value(self, name: str, make: Any) -> Any:
        branch = self.current_branch()
        identity = branch.path, branch.next_call()
        self.made[identity] = ""
        recorded = self._ends.calls.get(identity)
        if recorded is None or recorded.name != name:
            raise Stopped
        return recorded.output

    def start(self, call: Call[Any], branch: Branch, position: tuple[int, int] | None = None) -> None:
        super().start(call, branch, position)
        self.made[call.id] = m.digest_of(call.arguments)

    def _run_inline(self, call: Call[Any], *, is_new: bool) -> None:
        end = self._ends.ends.get(call.id)
        if end is None:
            raise Stopped
        self._open.pop(call.id, None)
        call.outcome = Outcome(end.output, end.failure)

    def exchange(self, *, goes_on: bool = False) -> None:
        for at, one in enumerate(self._left):
            if (one.id.branch, one.id.ordinal) in self.made:
                del self._left[at]
                self._take([one])
                return
        self.broken = Stopped()
        raise self.broken


# -- plainly -----------------------------------------------------------------------------------------------------------


class _Observes(Exception):
    """The program observes the order in which calls end."""


class _NotEnded(Exception):
    """The program waits for a call that has not ended."""


def _plain(program: RandomProgram, ends: _Ends) -> tuple[Any, ...] | None:
    """What the function comes to that is run plainly; None if it observes the order in which calls end."""
    run = _Plain(ends)
    try:
        output = drive(run.whole(program.block))
    except _Observes:
        return None
    except StepFailedError as failed:
        return "raised", None, failed.code
    except ValueError:
        return "raised", None, "EXCEPTION"
    except _NotEnded as error:
        raise AssertionError(f"promise 16: a program has ended, and run plainly it waits for {error}") from None
    return "returned", output, ""


class _Plain(Interpreter):
    """Calls come to what is in the log. It numbers them itself."""

    def __init__(self, ends: _Ends) -> None:
        super().__init__(is_async=False)
        self._ends = ends
        self._calls = self._branches = 0
        self._keys: set[tuple[int, str]] = set()

    def _next(self) -> _Identity:
        self._calls += 1
        return "", self._calls - 1

    def _end_of(self, identity: _Identity) -> Any:
        end = self._ends.ends.get(identity)
        if end is None:
            raise _NotEnded(identity)
        if end.failure is not None:
            raise as_exception(end.failure, "")
        return read_result(end.output, None, {}, "")

    async def call(self, which: int, x: int, key: str = "") -> Any:
        if not key:
            return self._end_of(self._next())
        if (which, key) in self._keys:
            raise ProgramError("used twice")
        self._keys.add((which, key))
        branch = f"/s{which}={key}"
        made = (at for at, call in self._ends.calls.items() if at[0] == branch and call.arguments == {"x": x})
        return self._end_of(next(made, (branch, 0)))

    async def gather(self, which: list[int], x: int, *, returns_failures: bool) -> list[Any]:
        found: list[Any] = []
        for identity in list(self._of_gather(len(which))):
            try:
                found.append(self._end_of(identity))
            except StepFailedError as failed:
                found.append(failed)
        failures = [one for one in found if isinstance(one, StepFailedError)]
        if failures and not returns_failures:
            raise failures[0]
        return found

    def _of_gather(self, count: int) -> Iterator[_Identity]:
        for _ in range(count):
            self._branches += 1
            yield str(self._branches - 1), 0

    async def sleep(self, seconds: int) -> None:
        self._end_of(self._next())

    async def approve(self, seconds: int) -> Any:
        return self._end_of(self._next())

    async def event(self, seconds: int, *, has_default: bool) -> Any:
        return self._end_of(self._next())

    def now(self) -> float:
        return datetime.fromisoformat(self._value()).timestamp()

    def chance(self, name: str) -> Any:
        return self._value()

    def _value(self) -> Any:
        identity = self._next()
        if identity not in self._ends.calls:
            raise _NotEnded(identity)
        return self._ends.calls[identity].output

    def _started(self, which: list[int], *, is_caught: bool = True) -> Any:
        raise _Observes

    async def _group(self, which: list[int], number: int, is_caught: bool) -> None:
        raise _Observes

    _shared = _drop = _timeout = _group

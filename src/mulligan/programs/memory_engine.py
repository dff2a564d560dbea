"""An engine for one program in memory: calls end as fakes say or run their plain functions, and time jumps.

It speaks the same messages as the real one, so what a program does here it does there. There is no ladder: what a fake
or a function raises is what is left of it when no retry, handler or person could help.
"""

from __future__ import annotations

import heapq
import inspect
import json
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn

from mulligan.flows.flow import FlowCall
from mulligan.language.text.suggestions import closest
from mulligan.programs import messages as m
from mulligan.programs.call_labels import CallLabels
from mulligan.programs.call_values import storable
from mulligan.programs.errors import FakesRefused, Nondeterministic, NotStorable, ProgramError, Stopped
from mulligan.programs.failures import failure_of
from mulligan.programs.inline_steps import run_inline
from mulligan.programs.machine import APPROVE, SLEEP, WAIT_EVENT, seconds_of
from mulligan.programs.program import Program
from mulligan.values.annotations import ArgumentRefused

BEGIN = datetime(2030, 1, 1, tzinfo=UTC).timestamp()
NEVER = float("inf")
_NO_END = object()


def _typed(thing: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments as the step gets them, by its annotations."""
    function = getattr(thing, "fn", None)
    if function is None:
        return arguments
    from mulligan.values.decoding import convert_arguments

    return convert_arguments(function, arguments)


class After:
    """What a call ends with, and how long it takes: `after("30s", 5)`."""

    def __init__(self, duration: Any, end: Any = None) -> None:
        self.seconds = seconds_of(duration, "after")
        self.end = end


def after(duration: Any, end: Any = None) -> After:
    """In `fakes`: the call ends with `end` after that time. An exception is raised, a function is called.

    A function that is a fake may return it, too: `lambda mirror: after("2s" if mirror == "east" else "3s", mirror)`.
    """
    return After(duration, end)


class MemoryEngine:
    """The engine of one program. `fakes` are by the name of a step: a value, an exception, a function, an iterator.

    A fake that is a function gets those arguments of the call that it has parameters for. One that is an iterator
    gives the end of one call after the other. A step without a fake runs its plain function if `real` has its name, or
    is True, and is refused otherwise. `approve` needs a fake: True, False, or None if nobody answers; so does
    `wait_event`: the value of the event, or None if nobody sends one.
    """

    def __init__(
        self,
        fakes: Mapping[str, Any] | None = None,
        *,
        real: bool | Collection[str] = True,
        history: m.History | None = None,
    ) -> None:
        self.fakes = dict(fakes or {})
        self.real = real
        # Why the fakes do not fit the program; and the names that were called.
        self.problem: FakesRefused | None = None
        self.called: set[str] = set()
        self.now = BEGIN
        self.calls: list[m.RecordedCall] = []
        self.deliveries: list[m.Delivery] = []
        # By identity: the arguments of each call.
        self.arguments: dict[m.CallId, dict[str, Any]] = {}
        # When calls end, in order, with the number in which they were made; those that have none wait for ever.
        self._due: list[tuple[float, int, m.Delivery]] = []
        self._open: set[m.CallId] = set()
        self._things: dict[str, Any] = {}
        self._labels = CallLabels(history=history)
        self._turn = 1
        if history is not None:
            self._load(history)

    def _load(self, history: m.History) -> None:
        """Go on with a run that has come so far. What was in flight is lost, and begins again when it is asked for."""
        self.calls.extend(history.calls)
        self.deliveries.extend(history.deliveries)
        self.now = max([self.now, *(one.at for one in history.deliveries)])

    @property
    def history(self) -> m.History:
        """What is recorded."""
        return m.History(tuple(self.calls), tuple(self.deliveries))

    # -- the link of the machine

    def exchange(self, message: m.Idle) -> m.Deliver:
        self.take(message)
        self._turn += 1
        return m.Deliver(turn=self._turn, deliveries=self.ends() if message.wants_ends else ())

    def replayed(self) -> None:
        """Nothing was held back."""

    def arm(self) -> None:
        """There is no limit."""

    def disarm(self) -> None:
        """There is no limit."""

    def differs(self, difference: Nondeterministic) -> None:
        """The machine raises it."""

    def wall_time(self) -> float:
        return self.now

    def define(self, thing: Any) -> m.StepDefinition:
        digest = f"{thing.name}@{id(thing)}"
        self._things[digest] = thing
        return m.StepDefinition(digest, b"")

    def define_sleep(self) -> m.StepDefinition:
        return m.StepDefinition(SLEEP, b"")

    def define_approval(self, given: Collection[str]) -> m.StepDefinition:
        return m.StepDefinition(APPROVE, b"")

    def define_event_wait(self, given: Collection[str], schema: Mapping[str, Any] | None) -> m.StepDefinition:
        return m.StepDefinition(WAIT_EVENT, b"")

    # -- what it decides

    def take(self, message: m.Idle | m.Ended) -> None:
        """Record what the program has called, and let it begin."""
        for call in message.calls:
            self._record(call)
            if call.kind == "inline":
                self._end(call, 0.0, call.output, call.failure)
            elif call.kind == "step" and isinstance(message, m.Idle):
                self._begin(call)
        for identity in message.cancelled:
            self._open.discard(identity)

    def _record(self, call: m.Call) -> None:
        label = self._labels.add(call.id, call.name, key=call.key, kind=call.kind, digest=call.digest)
        self.arguments[call.id] = json.loads(call.arguments)
        self.calls.append(
            m.RecordedCall(
                id=call.id,
                name=call.name,
                label=label,
                kind=call.kind,
                definition=call.definition,
                digest=call.digest,
                file=call.file,
                line=call.line,
                output=call.output if call.kind == "value" else None,
                arguments=call.arguments,
            )
        )

    def _begin(self, call: m.Call) -> None:
        arguments = self.arguments[call.id]
        if call.definition == SLEEP:
            self._end(call, float(arguments["seconds"]))
        elif call.definition == APPROVE:
            self._approve(call, arguments)
        elif call.definition == WAIT_EVENT:
            self._send(call, arguments)
        else:
            seconds, output, failure = self._outcome(call.name, self._things[call.definition], arguments)
            self._end(call, seconds, output, failure)

    def _end(self, call: m.Call, seconds: float, output: Any = None, failure: m.CallFailure | None = None) -> None:
        self._open.add(call.id)
        if seconds != NEVER:
            delivery = m.Delivery(id=call.id, label=self.calls[-1].label, output=output, failure=failure)
            heapq.heappush(self._due, (self.now + seconds, len(self.calls), delivery))

    def _approve(self, call: m.Call, arguments: dict[str, Any]) -> None:
        if APPROVE not in self.fakes:
            self.refuse(f"nobody answers {arguments['prompt']!r}", "give an answer: fakes={'approve': True}")
        given = {"prompt": arguments["prompt"]}
        seconds, answer, failure = self._fake(APPROVE, self.fakes[APPROVE], given)
        if answer is True:
            answer = {"approved": True, "by": "test", "reason": ""}
        if failure is None and answer is False:
            failure = m.CallFailure(code="APPROVAL_REFUSED", message="refused", retryable=False)
        if failure is None and answer is None:
            seconds = arguments.get("timeout", NEVER)
            failure = m.CallFailure(code="APPROVAL_EXPIRED", message="nobody has answered in time", retryable=False)
        self._end(call, seconds, None if failure is not None else answer, failure)

    def _send(self, call: m.Call, arguments: dict[str, Any]) -> None:
        """An event is sent to the program, or none in time."""
        name = arguments["event"]
        if WAIT_EVENT not in self.fakes:
            hint = f"give it a value: fakes={{'wait_event': lambda event: …}}; None if nobody sends '{name}'"
            self.refuse(f"nobody sends the event '{name}'", hint)
        seconds, value, failure = self._fake(WAIT_EVENT, self.fakes[WAIT_EVENT], {"event": name})
        if failure is None and value is None:
            seconds = arguments.get("timeout", NEVER)
            if "default" in arguments:
                value = arguments["default"]
            else:
                failure = m.CallFailure(code="TIMEOUT", message=f"no event '{name}' came in time", retryable=True)
        self._end(call, seconds, None if failure is not None else value, failure)

    def outcome_of_inline(self, thing: Any, arguments: dict[str, Any]) -> tuple[Any, m.CallFailure | None] | None:
        """What an inline step ends with; None if it runs. The program stands still meanwhile."""
        if thing.name not in self.fakes and self._is_real(thing.name):
            return None
        seconds, output, failure = self._outcome(thing.name, thing, arguments)
        self.now += seconds
        return output, failure

    def _outcome(self, name: str, thing: Any, arguments: dict[str, Any]) -> tuple[float, Any, m.CallFailure | None]:
        self.called.add(name)
        is_program = isinstance(thing, Program)
        if name in self.fakes:
            seconds, output, failure = self._fake(name, self.fakes[name], arguments, thing)
            return seconds, {"result": output} if is_program else output, failure
        if is_program:  # its steps have the same fakes
            return self.run_program(thing, arguments)
        if isinstance(thing, FlowCall):
            self.refuse(f"the flow '{name}' has no fake", f"say what it returns: fakes={{'{name}': …}}")
        if not self._is_real(name):
            meant = closest(name, [one for one in self.fakes if one not in self.called])
            hint = f"give it one, fakes={{'{name}': …}}, or let its function run: real=['{name}']"
            self.refuse(f"the step '{name}' has no fake", f"is '{meant}' meant for it?" if meant else hint)
        return self._fake(name, lambda **given: run_inline(thing.fn, given), arguments, thing)

    def _is_real(self, name: str) -> bool:
        self.called.add(name)
        return self.real if isinstance(self.real, bool) else name in self.real

    def refuse(self, message: str, hint: str) -> NoReturn:
        """Stop: a test of a program is wrong, which is no failure of the program."""
        self.problem = FakesRefused(f"{message}; {hint}" if hint else message)
        raise Stopped

    def run_program(self, program: Any, inputs: dict[str, Any]) -> tuple[float, Any, m.CallFailure | None]:
        """How long a program that is called takes, and what it ends with."""
        self.refuse(f"the program '{program.name}' has no fake", "")

    def _fake(
        self, name: str, fake: Any, arguments: dict[str, Any], thing: Any = None
    ) -> tuple[float, Any, m.CallFailure | None]:
        """How long the call takes, and what it ends with."""
        seconds, end, is_called = 0.0, fake, False
        try:
            if isinstance(end, Iterator):
                end = next(end, _NO_END)
                if end is _NO_END:
                    self.refuse(f"the fake of '{name}' has no further end", "it is called more often than expected")
            while True:
                if isinstance(end, After):
                    seconds, end = seconds + end.seconds, end.end
                elif isinstance(end, BaseException) or (isinstance(end, type) and issubclass(end, BaseException)):
                    raise end
                elif callable(end) and not is_called:
                    is_called = True
                    end = run_inline(end, self._arguments_for(name, end, _typed(thing, arguments)))
                else:
                    return seconds, storable(end, f"what the fake of '{name}' returns"), None
        except ArgumentRefused as refusal:
            return seconds, None, m.CallFailure("INPUT_INVALID", str(refusal), retryable=False)
        except NotStorable as refusal:
            self.refuse(refusal.message, refusal.hint)
        except Exception as error:
            return seconds, None, failure_of(error)

    def _arguments_for(self, name: str, function: Any, arguments: dict[str, Any]) -> dict[str, Any]:
        """Those arguments of a call that a function has parameters for."""
        try:
            signature = inspect.signature(function)
        except (ValueError, TypeError):
            return arguments
        parameters = signature.parameters.values()
        if any(one.kind is one.VAR_KEYWORD for one in parameters):
            return arguments
        given = {key: value for key, value in arguments.items() if key in signature.parameters}
        try:
            signature.bind(**given)
        except TypeError as error:
            shown = ", ".join(f"'{key}'" for key in arguments)
            self.refuse(f"the fake of '{name}' is called with its arguments by name: {error}", f"there are {shown}")
        return given

    def ends(self) -> tuple[m.Delivery, ...]:
        """The next end of a call that is wanted: now, or at the time to which the clock jumps."""
        while self._due:
            due, _, delivery = heapq.heappop(self._due)
            if delivery.id in self._open:
                self._open.discard(delivery.id)
                self.now = max(self.now, due)
                return (self.deliver(delivery),)
        raise ProgramError("the program waits for an answer that nobody gives")

    def is_undoable(self, call: m.RecordedCall) -> bool:
        """Whether the step of a call has an undo."""
        thing: Any = self._things.get(call.definition)
        recovery = getattr(thing, "recovery", None)
        return recovery is not None and ("undo" in recovery.callbacks or "undo" in thing.keys)

    def deliver(self, delivery: m.Delivery) -> m.Delivery:
        found = m.Delivery(delivery.id, delivery.label, delivery.output, delivery.failure, self.now)
        self.deliveries.append(found)
        return found


class NoEngine(MemoryEngine):
    """Nothing new ends: a program that runs over what is recorded is stopped when it waits for more."""

    def exchange(self, message: m.Idle) -> m.Deliver:
        raise Stopped

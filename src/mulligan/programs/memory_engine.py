"""An engine for one program in memory: calls end as fakes say or run their plain functions, and time jumps.

It speaks the same messages as the real one, so what a program does here it does there. There is no ladder: what a fake
or a function raises is what is left of it when no retry, handler or person could help.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from mulligan.flows.flow import FlowCall
from mulligan.programs import messages as m
from mulligan.programs.call_values import storable
from mulligan.programs.errors import Nondeterministic, ProgramError
from mulligan.programs.failures import failure_of
from mulligan.programs.machine import APPROVE, SLEEP, run_inline, seconds_of

BEGIN = datetime(2030, 1, 1, tzinfo=UTC).timestamp()
NEVER = float("inf")


class After:
    """What a call ends with, and how long it takes: `after("30s", 5)`."""

    def __init__(self, duration: Any, end: Any = None) -> None:
        self.seconds = seconds_of(duration, "after")
        self.end = end


def after(duration: Any, end: Any = None) -> After:
    """In `fakes`: the call ends with `end` after that time. An exception is raised, a function is called."""
    return After(duration, end)


class MemoryEngine:
    """The engine of one program. `fakes` are by the name of a step: a value, an exception, a function, an iterator.

    A fake that is a function gets the arguments of the call by name. One that is an iterator gives the end of one call
    after the other. A step without a fake runs its plain function. `approve` needs a fake: True, False, or None if
    nobody answers.
    """

    def __init__(self, fakes: Mapping[str, Any] | None = None, *, history: m.History | None = None) -> None:
        self.fakes = dict(fakes or {})
        self.now = BEGIN
        self.calls: list[m.RecordedCall] = []
        self.deliveries: list[m.Delivery] = []
        # By identity: the arguments of each call.
        self.arguments: dict[m.CallId, dict[str, Any]] = {}
        # When calls end, in order, with the number in which they were made; those that have none wait for ever.
        self._due: list[tuple[float, int, m.Delivery]] = []
        self._open: set[m.CallId] = set()
        self._things: dict[str, Any] = {}
        self._numbers: dict[str, int] = {}
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
        return m.Deliver(turn=self._turn, deliveries=() if message.goes_on else self.ends())

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

    def define_approval(self, *, has_timeout: bool) -> m.StepDefinition:
        return m.StepDefinition(APPROVE, b"")

    # -- what it decides

    def take(self, message: m.Idle | m.Ended) -> None:
        """Record what the program has called, and let it begin."""
        for call in message.calls:
            self._record(call)
            if call.kind == "inline":
                self._end(call, 0.0, call.output, call.failure)
            elif call.kind == "step":
                self._begin(call)
        for identity in message.cancelled:
            self._open.discard(identity)

    def _record(self, call: m.Call) -> None:
        number = self._numbers[call.name] = self._numbers.get(call.name, 0) + 1
        label = f"{call.name}#{call.key}" if call.key else call.name if number == 1 else f"{call.name}#{number}"
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
            )
        )

    def _begin(self, call: m.Call) -> None:
        arguments = self.arguments[call.id]
        if call.definition == SLEEP:
            self._end(call, float(arguments["seconds"]))
        elif call.definition == APPROVE:
            self._approve(call, arguments)
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
            message = f"nobody answers {arguments['prompt']!r}"
            raise ProgramError(message, hint="give an answer: fakes={'approve': True}")
        seconds, answer, failure = self._fake(self.fakes[APPROVE], {"prompt": arguments["prompt"]})
        if failure is None and answer is False:
            failure = m.CallFailure(code="APPROVAL_REFUSED", message="refused", retryable=False)
        if failure is None and answer is None:
            seconds = arguments.get("timeout", NEVER)
            failure = m.CallFailure(code="APPROVAL_EXPIRED", message="nobody has answered in time", retryable=False)
        self._end(call, seconds, None if failure is not None else answer, failure)

    def _outcome(self, name: str, thing: Any, arguments: dict[str, Any]) -> tuple[float, Any, m.CallFailure | None]:
        if name in self.fakes:
            return self._fake(self.fakes[name], arguments)
        if hasattr(thing, "is_async"):  # a program, whose steps have the same fakes
            return self.run_program(thing, arguments)
        if isinstance(thing, FlowCall):
            raise ProgramError(f"the flow '{name}' has no fake", hint=f"say what it returns: fakes={{'{name}': …}}")
        from mulligan.values.decoding import convert_arguments

        return self._fake(lambda **given: run_inline(thing.fn, convert_arguments(thing.fn, given)), arguments)

    def run_program(self, program: Any, inputs: dict[str, Any]) -> tuple[float, Any, m.CallFailure | None]:
        """How long a program that is called takes, and what it ends with."""
        raise ProgramError(f"the program '{program.name}' has no fake")

    def _fake(self, fake: Any, arguments: dict[str, Any]) -> tuple[float, Any, m.CallFailure | None]:
        """How long the call takes, and what it ends with."""
        seconds, end = 0.0, fake
        try:
            if isinstance(end, Iterator):
                end = next(end)
            if isinstance(end, After):
                seconds, end = end.seconds, end.end
            if isinstance(end, BaseException) or (isinstance(end, type) and issubclass(end, BaseException)):
                raise end
            if callable(end):
                end = end(**arguments)
            return seconds, storable(end, "what a fake returns"), None
        except StopIteration:
            raise ProgramError("a fake has no further end", hint="it is called more often than expected") from None
        except ProgramError:
            raise
        except Exception as error:
            return seconds, None, failure_of(error)

    def ends(self) -> tuple[m.Delivery, ...]:
        """The next end of a call that is wanted: now, or at the time to which the clock jumps."""
        while self._due:
            due, _, delivery = heapq.heappop(self._due)
            if delivery.id in self._open:
                self._open.discard(delivery.id)
                self.now = max(self.now, due)
                return (self.deliver(delivery),)
        raise ProgramError("the program waits for an answer that nobody gives")

    def deliver(self, delivery: m.Delivery) -> m.Delivery:
        found = m.Delivery(delivery.id, delivery.label, delivery.output, delivery.failure, self.now)
        self.deliveries.append(found)
        return found

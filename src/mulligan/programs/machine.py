"""What runs below a program: its calls, their identity, the comparison with what is recorded, and deliveries.

The program runs until it needs the end of a call. Then it is idle, and gets one end, in the order of the log. So what
it does depends on nothing but its code, its arguments and the log, and a replay leads to the same calls.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NoReturn, Protocol

from mulligan.core.model.artifacts import KEY, KEY_AS_JSON
from mulligan.core.model.program_calls import PUBLISHED_BYTES_MAX, key_problem
from mulligan.core.model.run_data import name_problem
from mulligan.flows.context import Site, call_site
from mulligan.flows.flow import FlowCall
from mulligan.flows.retries import Retry
from mulligan.programs import messages as m
from mulligan.programs.call_labels import CallLabels
from mulligan.programs.call_values import (
    as_stored,
    check_returned,
    encode_arguments,
    given_arguments,
    read_result,
    reader_of,
    storable_defaults,
)
from mulligan.programs.calls import Branch, Call, Outcome, Prepared, has_key
from mulligan.programs.differences import AskedCall, difference_of_call, difference_of_missing
from mulligan.programs.errors import Nondeterministic, ProgramError, Rejected, StepFailed, Stopped
from mulligan.programs.inline_steps import InlineEnvironment, failure_of_step, is_end_of_step, run_inline

_REJECTED = ("APPROVAL_REFUSED", "APPROVAL_EXPIRED")
TOO_MANY, UNAWAITED = "LOOP_LIMIT", "UNAWAITED"
# How often what a program publishes is written while it goes on in its turn.
PUBLISHED_SECONDS = 1.0
SLEEP, APPROVE, WAIT_EVENT = "sleep", "approve", "wait_event"
SHOWN_KEY_MAX = 100


class Link(Protocol):
    """The way to the engine."""

    def exchange(self, message: m.Idle) -> m.Deliver:
        """Say that the program is idle; return the answer. It may never return."""

    def replayed(self) -> None:
        """The program has come as far as it was: from here on everything is new."""

    def arm(self) -> None:
        """The program runs from here on: its processor time is limited until it calls something."""

    def disarm(self) -> None:
        """The code of the program does not run: an inline step does."""

    def differs(self, difference: Nondeterministic) -> None:
        """The program asks for something else than what is recorded. A process ends here, without unwinding."""

    def wall_time(self) -> float:
        """The time, in seconds since 1970."""

    def define(self, thing: Any) -> m.StepDefinition:
        """The definition of a step, a program or a flow."""

    def define_sleep(self) -> m.StepDefinition: ...

    def define_approval(self, given: Collection[str]) -> m.StepDefinition: ...

    def define_event_wait(self, given: Collection[str], schema: Mapping[str, Any] | None) -> m.StepDefinition: ...


class Machine:
    """One program that runs. `loop` is that of an asynchronous program, otherwise None."""

    def __init__(
        self,
        link: Link,
        *,
        turn: int = 1,
        history: m.History | None = None,
        calls_max: int = m.CALLS_MAX_DEFAULT,
        at: float = 0.0,
        files: dict[str, str] | None = None,
        step: str = "",
        seen: int | None = None,
    ) -> None:
        self._link = link
        self.turn = turn
        self.now = at
        self.calls_max = calls_max
        self.root = Branch()
        self.loop: Any = None
        # The running inline step; nothing is called from inside of it.
        self.is_inline = False
        # From the first inline step on.
        self._environment: InlineEnvironment | None = None
        self.broken: BaseException | None = None
        self._files = files or {}
        self._serials = itertools.count()
        self._count = 0
        # What was prepared and has not started; what has started and has not ended.
        self.prepared: dict[int, Prepared] = {}
        # What was prepared, and nobody has any more.
        self.forgotten: list[Prepared] = []
        self._open: dict[tuple[str, int], Call[Any]] = {}
        self._outgoing: list[m.Call] = []
        self._definitions: list[m.StepDefinition] = []
        self._known_definitions: set[str] = set()
        self._cancelled: list[m.CallId] = []
        self._queue: deque[m.Delivery] = deque()
        # By identity: what is recorded and was not asked for yet, and how inline steps have ended.
        self._recorded: dict[tuple[str, int], m.RecordedCall] = {}
        self._inline_ends: dict[tuple[str, int], m.Delivery] = {}
        # The ends of recorded calls that were not asked for when their turn came; and those that are asked for now.
        self._early: dict[tuple[str, int], m.Delivery] = {}
        self._early_asked: deque[m.Delivery] = deque()
        self._inline: set[tuple[str, int]] = set()
        self._functions: dict[int, _Known] = {}
        self._replayed = 0
        self._is_edited = False
        self._labels = CallLabels(step, history)
        # What the program has published, what of it was sent, and when.
        self.published: dict[str, Any] = {}
        self._sent: dict[str, Any] = {}
        self._sent_at = float("-inf")
        self.is_replaying = history is not None
        # Whether all that is recorded was called, but calls with a key.
        self._has_replayed = False
        if history is not None:
            self._load(history, seen)
        self._site: Site | None = None

    def _load(self, history: m.History, seen: int | None) -> None:
        self._recorded = {(one.id.branch, one.id.ordinal): one for one in history.calls}
        self._inline = {identity for identity, one in self._recorded.items() if one.kind == "inline"}
        self._is_edited = history.is_edited
        self._take(history.deliveries)
        ends = len(history.deliveries)
        # With the first end that is new to it the program is where it was; without one, with the last.
        self._replayed = ends if seen is None else min(seen + 1, ends)

    # -- calls

    def next_serial(self) -> int:
        return next(self._serials)

    def call(self, thing: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a step, a program or a flow. In an asynchronous program it is awaited."""
        return self.perform(self.prepare(thing, args, kwargs))

    def perform(self, call: Call[Any]) -> Any:
        """The result of a call; in an asynchronous program the call itself, to be awaited."""
        if self.loop is not None:
            return call
        self.start(call, self.root)
        return self.finish(call)

    def prepare(self, thing: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call[Any]:
        """A call of a step, a program or a flow that has not started."""
        name = thing.name
        if self.is_inline:
            raise ProgramError(f"'{name}' is called inside an inline step", hint="only the program itself calls steps")
        what, known = f"'{name}'", self._known(thing)
        bound = {**known.defaults, **thing.bind(args, kwargs)}
        run = partial(self._run_as_step, thing.fn) if thing.is_inline else None
        return self.prepare_named(
            name,
            bound,
            what=what,
            definition=lambda: self._definition(thing),
            read=self._reader(thing, known),
            run=run,
            key=thing.call_key,
        )

    def prepare_named(
        self,
        name: str,
        arguments: dict[str, Any],
        *,
        what: str,
        definition: Callable[[], m.StepDefinition] | None = None,
        read: Callable[[Any], Any] | None = None,
        run: Callable[[bytes], Any] | None = None,
        key: str = "",
    ) -> Call[Any]:
        """A call with a name of its own, such as a sleep. `run`: of an inline step, with its arguments as JSON."""
        self.refuse_forgotten()
        if key and (problem := key_problem(key)):
            hint = "write key=key.replace('/', '-')" if "/" in key else "a short name, a number or a digest will do"
            raise ProgramError(f"the key {key[:SHOWN_KEY_MAX]!r} of {what} {problem}", hint=hint)
        encoded = encode_arguments(arguments, what)
        call: Call[Any] = Call(
            self,
            name=name,
            arguments=encoded,
            digest=m.digest_of(encoded),
            definition=definition,
            site=call_site(),
            read=read,
            run=None if run is None else partial(run, encoded),
            key=key,
        )
        self.prepared[call.serial] = Prepared(name, call.site)
        return call

    def refuse_forgotten(self) -> None:
        """Refuse a call that can never start, before anything else does: it may be the question whether to go on."""
        if self.broken is not None:
            raise self.broken
        if self.forgotten:
            self.broken = self._unstarted(self.forgotten[0])
            raise self.broken

    def refuse_unstarted(self) -> None:
        """The program has returned: a call that was prepared and given to nobody is a mistake."""
        self.refuse_forgotten()
        for prepared in self.prepared.values():
            raise self._unstarted(prepared)

    def _unstarted(self, prepared: Prepared) -> ProgramError:
        what = f"the call of '{prepared.name}' ({shown_site(prepared.site)})"
        if self.loop is not None:
            return ProgramError(f"{what} was never awaited", hint="write await before it", code=UNAWAITED)
        hint = "give it to gather, or call the step without .call"
        return ProgramError(f"{what} was never started", hint=hint, code=UNAWAITED)

    def publish(self, values: dict[str, Any]) -> None:
        """What people see of the program while it runs: these values take the place of those with their names."""
        published = {**self.published, **values}
        encoded = encode_arguments(published, "publish_state")
        if KEY_AS_JSON in encoded:
            raise ProgramError(f"publish_state keeps no value with the key '{KEY}', which is reserved for artifacts")
        size = len(encoded)
        if size > PUBLISHED_BYTES_MAX:
            message = f"publish_state keeps at most {PUBLISHED_BYTES_MAX:,} bytes, and these values have {size:,}"
            raise ProgramError(message, hint="publish numbers and short texts; results are outputs of steps")
        # As JSON has it, and as it is now: the program may change what it has given.
        self.published = json.loads(encoded)

    def _news(self, *, is_due: bool) -> dict[str, Any] | None:
        """What is published and was not sent yet; while the program goes on in its turn, once a second."""
        if self.published == self._sent or not (is_due or time.monotonic() - self._sent_at >= PUBLISHED_SECONDS):
            return None
        self._sent, self._sent_at = self.published, time.monotonic()
        return self._sent

    def prepare_sleep(self, duration: Any) -> Call[None]:
        """A wait of a duration as a user writes it."""
        return self.prepare_seconds(seconds_of(duration, "sleep"))

    def prepare_seconds(self, seconds: float) -> Call[None]:
        return self.prepare_named(
            SLEEP, {"seconds": seconds}, what="sleep", definition=self._link.define_sleep, read=_nothing
        )

    def approve(
        self,
        *texts: str,
        timeout: Any = None,
        key: str = "",
        evidence: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> Any:
        """A question to a person, and the answer; in an asynchronous program it is awaited."""
        if len(texts) != 1 or others:
            given = f"'{next(iter(others))}'" if others else f"{len(texts)} texts"
            hint = 'write approve("publish it?", timeout="8h")'
            takes = "approve in a program takes one text, 'timeout', 'evidence' and 'key'"
            raise ProgramError(f"{takes}, and gets {given}", hint=hint)
        return self.perform(self.prepare_approval(texts[0], timeout, evidence, key))

    def prepare_approval(self, prompt: str, timeout: Any, evidence: Mapping[str, Any] | None, key: str) -> Call[Any]:
        arguments: dict[str, Any] = {"prompt": prompt}
        if timeout is not None:
            arguments["timeout"] = seconds_of(timeout, "approve")
        if evidence is not None:
            if not isinstance(evidence, Mapping):
                raise ProgramError("'evidence' of approve has names", hint='write evidence={"sales": rows}')
            arguments["evidence"] = dict(evidence)
        given = tuple(arguments)
        return self.prepare_named(
            APPROVE,
            arguments,
            what="approve",
            definition=lambda: self._link.define_approval(given),
            key=key,
        )

    def prepare_event(
        self, name: str, timeout: Any, schema: Mapping[str, Any] | None, key: str, others: Mapping[str, Any]
    ) -> Call[Any]:
        """A wait for an event. `others`: its default, if it has one."""
        if not isinstance(name, str) or (problem := name_problem(name)):
            said = problem if isinstance(name, str) else 'the name of an event is a text: wait_event("paid")'
            raise ProgramError(f"{name!r} is not the name of an event", hint=said)
        if timeout is None and others:
            raise ProgramError("wait_event has 'default' without 'timeout'", hint='add timeout="3d"')
        if schema is not None:
            from mulligan.core.deciding.json_schema import schema_problem

            if problem := schema_problem(schema):
                raise ProgramError(f"'schema' of wait_event is not valid: {problem}")
        arguments: dict[str, Any] = {"event": name, **others}
        if timeout is not None:
            arguments["timeout"] = seconds_of(timeout, "wait_event")
        given = tuple(arguments)
        return self.prepare_named(
            WAIT_EVENT,
            arguments,
            what="wait_event",
            definition=lambda: self._link.define_event_wait(given, schema),
            key=key,
        )

    def _reader(self, thing: Any, known: _Known) -> Callable[[Any], Any] | None:
        """What makes the result of a call of its output."""
        if isinstance(thing, FlowCall):
            return thing.read
        read = known.read
        return _of_child(read) if hasattr(thing, "__mulligan_workflow__") else read

    def _known(self, thing: Any) -> _Known:
        """What calls of the same function have in common."""
        found = self._functions.get(id(thing.fn))
        if found is None:
            found = self._functions[id(thing.fn)] = _Known(thing)
        return found

    def _definition(self, thing: Any) -> m.StepDefinition:
        """The definition of a step: made once, however many objects `options` makes."""
        keys = _shown_keys(thing)
        known = self._known(thing).definitions
        if keys not in known:
            # With the thing itself: so what `keys` has the addresses of stays alive.
            known[keys] = thing, self._link.define(thing)
        return known[keys][1]

    def start(self, call: Call[Any], branch: Branch, position: tuple[int, int] | None = None) -> None:
        """Give the call its identity, compare it with what is recorded, and let it begin if it is new."""
        self.refuse_forgotten()
        self.prepared.pop(call.serial, None)
        if call.is_started:
            raise ProgramError(f"the call of '{call.name}' is used twice", hint="call the step again")
        self._site = call.site
        self._count_call()
        own = branch.keyed(call.name, call.key) if call.key else branch
        call.branch, call.ordinal, call.position = own.path, own.next_call(), position
        while self._is_edited and call.key and (other := self._recorded.get(call.id)):
            if other.is_same(call.kind, call.name, call.digest):
                break
            # A call with a key outlives an edit. With other arguments it is another call.
            call.ordinal = own.next_call()
        self._open[call.id] = call
        recorded = self._recorded.pop(call.id, None)
        if recorded is not None and self._is_kept(recorded, call):
            if call.id in self._early:
                self._early_asked.append(self._early.pop(call.id))
        else:
            recorded = None
            self._say_replayed()
            if call.run is None:
                self._send(call)
        if call.run is not None:
            self._run_inline(call, is_new=recorded is None)

    def _count_call(self) -> None:
        self._count += 1
        if self._count > self.calls_max:
            hint = "let a part of them be a program of its own, which this one calls"
            if self.calls_max < m.CALLS_MAX:
                hint += f"; or @program(calls={m.CALLS_MAX})"
            raise ProgramError(
                f"the program has made {self.calls_max} calls, which is its limit", hint=hint, code=TOO_MANY
            )

    def _is_kept(self, recorded: m.RecordedCall, call: Call[Any]) -> bool:
        """Whether it is the call that is recorded. Otherwise the program differs, unless it is being corrected."""
        self._compare(recorded, asked_call(call))
        return True

    def _compare(self, recorded: m.RecordedCall, asked: AskedCall) -> None:
        if not recorded.is_same(asked.kind, asked.name, asked.digest):
            self._differ(difference_of_call(recorded, asked))

    def _differ(self, difference: Nondeterministic) -> NoReturn:
        self.broken = difference
        self._link.differs(difference)
        raise difference

    def _send(self, call: Call[Any]) -> None:
        identity = m.CallId(*call.id)
        self._labels.add(identity, call.name, key=call.key, kind=call.kind, digest=call.digest)
        self._say(call, identity)

    def _say(
        self,
        call: Call[Any],
        identity: m.CallId,
        output: Any = None,
        failure: m.CallFailure | None = None,
        seconds: float = 0.0,
    ) -> None:
        definition = ""
        if call.definition is not None:
            made = call.definition()
            definition = made.digest
            if definition not in self._known_definitions:
                self._known_definitions.add(definition)
                self._definitions.append(made)
        self._outgoing.append(
            m.Call(
                id=identity,
                name=call.name,
                kind=call.kind,
                definition=definition,
                arguments=call.arguments,
                digest=call.digest,
                file=call.site.file,
                line=call.site.line,
                key=call.key,
                position=call.position,
                output=output,
                failure=failure,
                seconds=seconds,
            )
        )

    def cancel(self, call: Call[Any]) -> None:
        """The program does not want the call any more."""
        if self._open.pop(call.id, None) is not None:
            self._cancelled.append(m.CallId(*call.id))

    def finish(self, call: Call[Any]) -> Any:
        """Wait for a call and return its result."""
        while call.outcome is None:
            self._site = call.site
            self.deliver_next()
        return self.result(call)

    def result(self, call: Call[Any]) -> Any:
        """The result of a call that has ended, or its failure as an exception."""
        outcome = call.outcome
        assert outcome is not None
        if outcome.failure is not None:
            raise as_exception(outcome.failure, call.name)
        return read_result(outcome.output, call.read, self._files, f"'{call.name}'")

    # -- several calls

    def gather(self, calls: tuple[Any, ...], *, returns_failures: bool) -> Any:
        """Start all calls, wait for all, return their results in order. `calls`: each, or one iterable with all."""
        given: Iterable[Any] = calls
        if len(calls) == 1 and not isinstance(calls[0], Call):
            given = calls[0] if hasattr(calls[0], "__iter__") else (self._checked(calls[0]),)
        wanted: list[Call[Any]] = []
        try:
            wanted.extend(self._checked(one) for one in itertools.islice(given, self.calls_max + 1))
        except BaseException:
            for call in wanted:
                self.prepared.pop(call.serial, None)
            raise
        if len(wanted) > self.calls_max:
            hint = "is this a generator that never ends?"
            raise ProgramError(f"gather is given more than {self.calls_max} calls", hint=hint, code=TOO_MANY)
        if self.loop is not None:
            return self.loop.gather_calls(wanted, returns_failures=returns_failures)
        self.start_all(wanted, self.root)
        for call in wanted:
            while call.outcome is None:
                self._site = call.site
                self.deliver_next()
        return self.results(wanted, returns_failures=returns_failures)

    def start_all(self, calls: list[Call[Any]], branch: Branch) -> None:
        for at, call in enumerate(calls):
            self.start(call, branch if call.key else branch.next_branch(), (at, len(calls)))

    def results(self, calls: list[Call[Any]], *, returns_failures: bool) -> list[Any]:
        """The results in order; the first failure in this order is raised, with the others in `failures`."""
        found: list[Any] = []
        failures: list[StepFailed] = []
        for call in calls:
            try:
                found.append(self.result(call))
            except StepFailed as failed:
                found.append(failed)
                failures.append(failed)
        if failures and not returns_failures:
            first = failures[0]
            first.failures = tuple(failures[1:])
            raise first
        return found

    def _checked(self, call: Any) -> Call[Any]:
        if isinstance(call, Call):
            return call
        hint = "write gather(clean.call(row) for row in rows), not clean(row), which has run already"
        raise ProgramError(f"gather takes calls, and this is of type '{type(call).__name__}'", hint=hint)

    # -- values and inline steps

    def value(self, name: str, make: Callable[[], Any]) -> Any:
        """A value of the clock or of chance: made once, recorded, and the same in each replay."""
        if self.broken is not None:
            raise self.broken
        if self.is_inline:
            raise ProgramError(f"mulligan.{name} is called inside an inline step", hint="use that of Python there")
        self._count_call()
        branch, site = self.current_branch(), call_site()
        identity = branch.path, branch.next_call()
        recorded = self._recorded.pop(identity, None)
        if recorded is not None:
            self._compare(recorded, AskedCall("value", name, site))
            return recorded.output
        output = self._make_value(make)
        self._say_replayed()
        self._labels.add(m.CallId(*identity), name, kind="value")
        self._outgoing.append(
            m.Call(id=m.CallId(*identity), name=name, kind="value", file=site.file, line=site.line, output=output)
        )
        return output

    def _make_value(self, make: Callable[[], Any]) -> Any:
        return make()

    def wall_time(self) -> str:
        return datetime.fromtimestamp(self._link.wall_time(), UTC).isoformat()

    def current_branch(self) -> Branch:
        return self.root if self.loop is None else self.loop.current_branch()

    def _run_inline(self, call: Call[Any], *, is_new: bool) -> None:
        """Run it here unless that is recorded; its end is recorded before the program goes on.

        If it has failed, a worker runs it again as its ladder says, like any other step.
        """
        self._inline.add(call.id)
        if is_new:
            if self._outgoing:
                self.exchange(goes_on=True)  # what was called before is recorded before this step touches the world
            self._attempt_inline(call)
        while (end := self._inline_ends.pop(call.id, None)) is None:
            self.exchange()
        self._count_replayed()
        self._open.pop(call.id, None)
        call.outcome = Outcome(end.output, end.failure)

    def _run_as_step(self, function: Callable[..., Any], encoded: bytes) -> Any:
        """Run an inline step with what a worker would give it: what it changes of that is not seen by the program."""
        arguments = given_arguments(function, encoded, self._files)
        result = copy_context().run(run_inline, function, arguments)
        check_returned(function, result)
        return result

    def _attempt_inline(self, call: Call[Any]) -> None:
        """Run it, and say what came of it."""
        began, identity = time.monotonic(), m.CallId(*call.id)
        label = self._labels.next(identity, call.name, key=call.key, kind="inline", digest=call.digest)
        output, failure = self._end_inline(call, label)
        seconds = time.monotonic() - began
        self._labels.take(label, call.name)
        self._say(call, identity, output, failure, seconds)
        self.exchange(goes_on=failure is None)

    def _end_inline(self, call: Call[Any], label: str) -> tuple[Any, m.CallFailure | None]:
        """Run it here; return its output, or its failure."""
        assert call.run is not None
        environment = self._environment = self._environment or InlineEnvironment()
        self.is_inline = True
        self._link.disarm()
        try:
            environment.enter(label, *self._labels.counts(label))
            return as_stored(call.run(), call.read, f"'{call.name}'", self._files), None
        except BaseException as error:
            if not is_end_of_step(error):
                raise
            return None, failure_of_step(error)
        finally:
            environment.leave()
            self.is_inline = False
            self._link.arm()

    # -- deliveries

    def deliver_next(self) -> None:
        """Give the program the next end of a call; wait until there is one."""
        if not self._queue and not self._early_asked:
            self.finish_replay()
            if not self._open:
                message = "the program waits for something that no call will end"
                raise ProgramError(message, hint="await a call, asyncio.sleep or a task that awaits one")
            while not self._queue:
                self.exchange()
        self._link.arm()
        delivery = self._early_asked.popleft() if self._early_asked else self._queue.popleft()
        self.now = max(self.now, delivery.at)
        self._count_replayed()
        identity = delivery.id.branch, delivery.id.ordinal
        call = self._open.pop(identity, None)
        if call is None:
            if identity in self._recorded:
                self._early[identity] = delivery
            return  # or the program has cancelled it
        call.outcome = Outcome(delivery.output, delivery.failure)
        if call.future is not None:
            call.future()

    def _count_replayed(self) -> None:
        """The program gets an end of a call. With the last one that is recorded it has come as far as it was."""
        self._replayed -= 1
        if self._replayed <= 0 and self.is_replaying:
            self._say_replayed()

    def _say_replayed(self) -> None:
        if self.is_replaying:
            self.is_replaying = False
            self._link.replayed()

    def finish_replay(self) -> None:
        """All recorded ends were delivered: what was recorded must have been called by now."""
        self._say_replayed()
        if self._has_replayed:
            return
        self._has_replayed = True
        for identity, recorded in self._recorded.items():
            if not has_key(identity[0]):  # a call with a key may come later: it is kept when the program is edited
                self._differ(difference_of_missing(recorded, self._site))

    def finish_replay_at_end(self, end: str) -> None:
        """The program ends: nothing that is recorded may be left, but calls with a key that an edit has removed."""
        for identity, recorded in self._recorded.items():
            if not (self._is_edited and has_key(identity[0])):
                self._differ(difference_of_missing(recorded, self._site, end=end))

    def exchange(self, *, goes_on: bool = False) -> None:
        """Send what is new, and take what has ended. `goes_on`: the program only waits until it is recorded."""
        self.refuse_forgotten()
        site = self._site
        idle = m.Idle(
            turn=self.turn,
            definitions=tuple(self._definitions),
            calls=tuple(self._outgoing),
            cancelled=tuple(self._cancelled),
            at=shown_site(site) if site is not None else "",
            goes_on=goes_on,
            published=self._news(is_due=not goes_on),
        )
        self._definitions, self._outgoing, self._cancelled = [], [], []
        try:
            reply = self._link.exchange(idle)
        except Stopped as stopped:
            self.broken = stopped
            raise
        self.turn = reply.turn
        if reply.files:
            self._files.update(reply.files)
        self._take(reply.deliveries)
        self._link.arm()

    def _take(self, deliveries: Iterable[m.Delivery]) -> None:
        for one in deliveries:
            identity = one.id.branch, one.id.ordinal
            if identity in self._inline:
                self._inline_ends[identity] = one
            else:
                self._queue.append(one)

    def ended(self, how: m.EndedAs, output: Any = None, failure: m.CallFailure | None = None, at: str = "") -> m.Ended:
        """The last message: with everything that was not said yet."""
        return m.Ended(
            turn=self.turn,
            how=how,
            output=output,
            failure=failure,
            definitions=tuple(self._definitions),
            calls=tuple(self._outgoing),
            cancelled=tuple(self._cancelled),
            at=at,
            published=self._news(is_due=True),
        )


class _Known:
    """What is known of a function that is called: how its results are read, its defaults, its definitions by keys."""

    __slots__ = ("defaults", "definitions", "fn", "read")

    def __init__(self, thing: Any) -> None:
        self.fn = thing.fn  # stays alive, so that its identity is not that of another
        self.read = reader_of(thing.fn)
        self.defaults = storable_defaults(thing.fn)
        self.definitions: dict[str, tuple[Any, m.StepDefinition]] = {}


def asked_call(call: Call[Any]) -> AskedCall:
    """What is compared of a call."""
    return AskedCall(call.kind, call.name, call.site, call.digest, call.arguments)


def _shown_keys(thing: Any) -> str:
    keys = thing.keys
    if not isinstance(keys, dict):
        return ""
    shown = []
    for name, one in keys.items():
        value = one[0] if isinstance(one, tuple) else one
        shown.append(f"{name}={getattr(value, 'keys', value) if isinstance(value, Retry) else value!r}")
    return "\n".join(shown)


def _of_child(read: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """Reads the one output of the run of another program."""

    def value(outputs: Any) -> Any:
        found = outputs.get("result") if isinstance(outputs, dict) else outputs
        return found if read is None else read(found)

    return value


def _nothing(_output: Any) -> None:
    return None


def seconds_of(duration: Any, what: str) -> float:
    """The seconds of `"30s"`, a number or a `timedelta`; raise ProgramError for anything else."""
    from mulligan.core.model.text.durations import parse_duration

    try:
        return parse_duration(duration.total_seconds() if isinstance(duration, timedelta) else duration)
    except (ValueError, OverflowError, TypeError):
        hint = 'write "30s", "8h", a number of seconds or a timedelta'
        raise ProgramError(f"{what} needs a duration, and this is {duration!r}", hint=hint) from None


def shown_site(site: Site) -> str:
    """Where something was called, for people: "nightly.py:14"."""
    return f"{site.file.rpartition('/')[2]}:{site.line}"


def as_exception(failure: m.CallFailure, name: str) -> StepFailed:
    """What a program gets for a failure of a call."""
    kind = Rejected if failure.code in _REJECTED else StepFailed
    return kind(
        failure.code,
        failure.message,
        severity=failure.severity,
        retryable=failure.retryable,
        details=failure.details,
        trace=failure.trace,
        exit_code=failure.exit_code,
        step=failure.step or name,
        attempt=failure.attempt,
        exceptions=failure.exceptions,
    )

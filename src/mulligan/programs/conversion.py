"""What the core says of a program and its process does, each in the words of the other."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from mulligan.core.effects.program_history import ProgramHistory
from mulligan.core.model.artifacts import KEY_AS_JSON
from mulligan.core.model.failure import TRACE_CHARS_MAX, Failure, bounded_exceptions, bounded_traceback, failure
from mulligan.core.model.program_calls import Delivery, ProgramCall, TurnEnd
from mulligan.core.model.workflow import Step
from mulligan.core.state.program_progress import RecordedCall
from mulligan.programs import messages as m

# How much of the arguments of a call goes into a history, to say which of them differs.
ARGUMENTS_BYTES_MAX = 1000


def deliveries_of(ends: Iterable[Delivery]) -> tuple[m.Delivery, ...]:
    """The ends of calls, as a program gets them."""
    return tuple(map(_delivery, ends))


def begin_of(params: Mapping[str, Any], home: str, **fields: Any) -> m.Begin:
    """The first message to a process, from the parameters of the action. `home`: the folder of the run."""
    file = os.path.join(home, params["file"]) if "file" in params else ""
    folder = os.path.join(home, params["import_from"]) if "import_from" in params else os.path.dirname(file)
    return m.Begin(
        call=params["call"],
        source=params.get("source", ""),
        file=file,
        import_from=folder,
        inputs=params.get("args", {}),
        calls_max=params.get("calls", m.CALLS_MAX_DEFAULT),
        **fields,
    )


def _delivery(one: Delivery) -> m.Delivery:
    found = one.failure
    return m.Delivery(
        m.CallId(one.branch, one.ordinal),
        one.label,
        output=one.output,
        failure=None if found is None else call_failure_of(found),
        at=one.at,
    )


def call_failure_of(found: Failure) -> m.CallFailure:
    """A failure, as a program gets it."""
    return m.CallFailure(
        found.code,
        found.message,
        severity=found.severity,
        retryable=found.retryable,
        details=found.details,
        trace=found.trace,
        exit_code=found.exit_code,
        step=found.step,
        attempt=found.attempt,
        exceptions=found.exceptions,
    )


def _recorded_calls(history: ProgramHistory) -> Iterator[m.RecordedCall]:
    for label, call in history.calls.items():
        arguments, long = _short_arguments(call)
        yield m.RecordedCall(
            m.CallId(call.branch, call.ordinal),
            call.name,
            label,
            kind=call.kind,
            definition=call.definition,
            digest=call.digest,
            file=call.file,
            line=call.line,
            output=call.output,
            arguments=arguments,
            long_arguments=long,
        )


def _short_arguments(call: RecordedCall) -> tuple[bytes, tuple[str, ...]]:
    """The arguments of a call as JSON, and the names of those that are long, or stored as files."""
    data = msgspec.json.encode(call.arguments)
    if len(data) <= ARGUMENTS_BYTES_MAX and KEY_AS_JSON not in data:
        return data, ()
    each = {name: msgspec.json.encode(value) for name, value in call.arguments.items()}
    limit = ARGUMENTS_BYTES_MAX // len(each)
    long = tuple(name for name, value in each.items() if len(value) > limit or KEY_AS_JSON in value)
    return msgspec.json.encode({name: call.arguments[name] for name in each if name not in long}), long


def history_of(found: ProgramHistory) -> bytes:
    """The file with a history."""
    return m.encode(recorded_history(found))


def recorded_history(found: ProgramHistory) -> m.History:
    """The same for a program that runs in this process."""
    calls, ends = tuple(_recorded_calls(found)), tuple(map(_delivery, found.deliveries))
    return m.History(calls, ends, is_edited=found.is_edited, dropped=tuple(_dropped_calls(found)))


def _dropped_calls(history: ProgramHistory) -> Iterator[m.DroppedCall]:
    for label, call in history.dropped.items():
        identity = m.CallId(call.branch, call.ordinal)
        yield m.DroppedCall(identity, label, call.visit, call.attempt, call.digest, call.has_result)


def turn_end_of(said: m.FromProgram) -> TurnEnd:
    """What the core gets: the definitions and arguments are read, so that it gets no bytes."""
    calls = tuple(map(_call, said.calls))
    if not isinstance(said, m.Ended) and not (said.definitions or said.cancelled):
        # Nearly all turns.
        return TurnEnd(said.turn, calls=calls, at=said.at, goes_on=said.goes_on, published=said.published)
    return TurnEnd(
        said.turn,
        definitions={one.digest: msgspec.json.decode(one.step, type=Step) for one in said.definitions},
        calls=calls,
        cancelled=tuple((one.branch, one.ordinal) for one in said.cancelled),
        at=said.at,
        goes_on=isinstance(said, m.Idle) and said.goes_on,
        published=said.published,
        how=said.how if isinstance(said, m.Ended) else "",
        failure=_failure(said.failure) if isinstance(said, m.Ended) else None,
        call=said.failure.step if isinstance(said, m.Ended) and said.failure is not None else "",
    )


def _call(call: m.Call) -> ProgramCall:
    arguments: dict[str, Any] = msgspec.json.decode(call.arguments, type=dict)
    return ProgramCall(
        call.id.branch,
        call.id.ordinal,
        call.name,
        kind=call.kind,
        definition=call.definition,
        arguments=arguments,
        digest=call.digest,
        file=call.file,
        line=call.line,
        key=call.key,
        position=call.position,
        output=call.output,
        failure=None if call.failure is None else _failure(call.failure),
        seconds=call.seconds,
    )


def _failure(found: m.CallFailure | None) -> Failure | None:
    if found is None:
        return None
    return failure(
        found.code,
        found.message,
        severity=found.severity,
        retryable=found.retryable,
        exit_code=found.exit_code,
        details=found.details,
        trace=found.trace[-TRACE_CHARS_MAX:],
        exceptions=bounded_exceptions(found.exceptions),
        traceback=bounded_traceback(found.traceback),
    )

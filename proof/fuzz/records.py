"""Targets that are our own records: events, rows, references; what a task leaves in files and on its pipe."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any

import msgspec

from mulligan.core.deciding.classify import classify
from mulligan.core.deciding.end_status import parse_end_output
from mulligan.core.deciding.report_checks import check_report
from mulligan.core.effects.snapshot import Row, changes, read_place, read_tally, restore
from mulligan.core.evolve.evolve_run import evolve
from mulligan.core.model import artifacts, codec
from mulligan.core.model import reports as r
from mulligan.core.model.actions import PROGRAM
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.program_calls import ProgramCall, TurnEnd
from mulligan.core.model.workflow import Action
from mulligan.core.model.workflow import decode as decode_workflow
from mulligan.core.model.workflow import encode as encode_workflow
from mulligan.core.state.state import State
from mulligan.core.turn import fold, turn
from mulligan.errors import ArtifactDamaged, CodecError, InputInvalid, NotFound, Refused
from mulligan.store import columns
from mulligan.testing.history import Answers, History, edge, handler, retry, step, workflow
from mulligan.worker.child.warm_child import ChildDisconnected, ChildProtocolError, ChildUse, WarmChild
from mulligan.worker.outputs import outputs
from mulligan.worker.supervisor.frames import FrameDecoder, encode_frame
from proof.simulator import hostile_reports

from .sentences import require, require_whole

# Messages as a worker and its supervisor send them.
SAID = [("run", 1, ["bash", "-c", "make"], {"A": "é"}, None, 1.5, 2**40), ("renew",), ("ended", 1, 0, b"\0" * 300)]
ANSWER = b'{"number":1,"cpu":0.1,"peak":1,"out":0,"err":0,"output":{"a":[1,"\xc3\xa4"]}}'


@cache
def history() -> History:
    """A run with something of everything in its tables: it retries, handles, routes, comes back and ends."""
    flow = workflow(
        step("a", rules=retry(1)),
        step("b", needs=["a"], on_failure=handler()),
        step("c", next=[edge("d", "failure", then="rerun")]),
        step("d"),
    )
    return History(flow).start({"x": 1}).fail("a").ok("a").fail("b").ok("b.on_failure@1.0").fail("c").ok("d").ok("c")


@cache
def rows() -> tuple[Row, ...]:
    """All that was written of it, from its first event to its last."""
    state = State(history().state.workflow)
    state.begin()
    for entry in history().log:
        evolve(state, entry)
    return tuple(row for row in changes(state) if row[3] is not None)


def event(data: bytes) -> None:
    """A line of a log: an entry that is the same after it was written again, or a CodecError."""
    try:
        entry = codec.decode(data)
    except CodecError as error:
        require_whole(error)
        return
    require(codec.decode(codec.encode(entry)) == entry, "an event is another after it was written")


def report(data: bytes) -> None:
    """A report that a hostile client could send, by chance of the bytes: refused, or what follows can be written."""
    state = history().state.copy()
    kinds = (*hostile_reports.FROM_PEOPLE, *hostile_reports.FROM_WORKERS)
    found = hostile_reports.HostileReports.about(random.Random(data), state).one(kinds)
    try:
        check_report(found)
        turn(state, msgspec.structs.replace(found, at=state.run.at), Answers())
    except (Refused, NotFound, InputInvalid) as error:
        require_whole(error)
        return
    changes(state)


@cache
def program() -> History:
    """A run of a program that has made two calls, one of which has ended, and whose next turn has begun."""
    called = step("load", action=Action("python", {"call": "m:load"}))
    run = History(workflow(step("p", action=Action(PROGRAM, {"call": "m:p"})))).start()
    run.report(r.TaskStarted(run.clock, "p", 1, "w1", "h1", 1))
    calls = tuple(ProgramCall("", number, "load", definition="d") for number in range(2))
    run.report(r.TaskEnded(run.clock, "p", 1, turn=TurnEnd(1, {"d": called}, calls))).ok("load")
    return run.report(r.TaskStarted(run.clock, "p", 1, "w1", "h1", 2))


def said_turn(data: bytes) -> None:
    """What a hostile worker could say of a turn of a program, by chance of the bytes: refused, or it can be written."""
    run, chance = program(), random.Random(data)
    state = run.state.copy()
    plain = hostile_reports.HostileReports(chance, ["p", "load", "load#2", "d", "d"]).plain(TurnEnd)
    plain["turn"] = 2
    for call in plain.get("calls", ()):
        # Mostly as a call is; what else is said of it is by chance.
        call |= {"definition": "d"} if chance.random() < 0.8 else {}
        call |= {"name": chance.choice(("load", "p", "end"))} if chance.random() < 0.8 else {}
    try:
        said = msgspec.json.decode(msgspec.json.encode(plain), type=TurnEnd)
        found = chance.choice((r.TaskEnded, r.TaskEnded, r.CallsMade))(state.run.at, "p", 1, turn=said)
        check_report(found)
        entries = turn(state, found, Answers())
    except (msgspec.MsgspecError, OverflowError, InputInvalid):
        return
    written = [codec.decode(codec.encode(one)) for one in (*run.log, *entries)]
    require(fold(run.state.workflow, written) == state, "a run of a program is another after it was written")


def kept_workflow(data: bytes) -> None:
    """A workflow as a store keeps it: the same after it was kept again, or a CodecError."""
    try:
        found = decode_workflow(data)
    except CodecError as error:
        require_whole(error)
        return
    require(decode_workflow(encode_workflow(found)) == found, "a workflow is another after it was kept")


def row(data: bytes) -> None:
    """The tables of a run, one row of which is other than it was (the first byte says which): a state or CodecError."""
    number = data[0] % len(rows()) if data else 0
    kind, key, tag, _ = rows()[number]
    damaged = [*rows()[:number], (kind, key, tag, data[1:]), *rows()[number + 1 :]]
    for read in (
        lambda: restore(history().state.workflow, damaged),
        lambda: read_tally(data[1:]),
        lambda: read_place(key, data[1:]),
    ):
        try:
            read()
        except CodecError as error:
            require_whole(error)


def row_seeds() -> list[bytes]:
    return [bytes([number]) + (data or b"") for number, (_, _, _, data) in enumerate(rows())]


def event_seeds() -> list[bytes]:
    return [codec.encode(entry) for entry in history().log]


def workflow_seeds() -> list[bytes]:
    return [encode_workflow(history().state.workflow)]


def reference(data: bytes) -> None:
    """Any JSON in which something may look like a reference to an artifact."""
    try:
        value = outputs.decode_json(data, "it")
    except outputs.OutputInvalid:
        return
    artifacts.holds_reference(value)
    for found in artifacts.references(value):
        try:
            artifact = artifacts.parse_reference(found)
        except ArtifactDamaged as error:
            require_whole(error)
            continue
        artifacts.run_id_of(artifact.name)
        require(".." not in artifact.name.split("/") and artifact.name[0] != "/", "a name that leads elsewhere")
    artifacts.replace_references(value, lambda found: None)


def written(data: bytes) -> None:
    """What a task has written to its output, to `$MULLIGAN_OUTPUT` and to `$MULLIGAN_ERROR`; and what `end` says."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path, nowhere = os.path.join(folder, "written"), os.path.join(folder, "none")
        with open(path, "wb") as file:
            file.write(data)
        for out, side, capture in (
            (path, nowhere, "text"),
            (path, nowhere, "lines"),
            (path, nowhere, "json"),
            (nowhere, path, "text"),
        ):
            _captured(out, side, capture)
        reported, problem = outputs.read_reported_errors(path)
    msgspec.json.encode(parse_end_output(data.decode("utf-8", "replace")))
    failure, warnings = classify(Outcome(exit_code=0, reported=reported, report_error=problem))
    for found in filter(None, (failure, *warnings)):
        msgspec.json.encode(found)


def _captured(out: str, side: str, capture: str) -> None:
    try:
        value = outputs.read_output(out, side, capture)
    except (outputs.OutputInvalid, outputs.OutputNotKept) as problem:
        require(bool(str(problem)), "no word about why an output cannot be taken")
        return
    require(msgspec.json.decode(msgspec.json.encode(value)) == value, "an output is another after it was kept")


def frames(data: bytes) -> None:
    """Messages arrive as they were sent, however the stream is cut: at each of these bytes."""
    stream, found, reader, at = b"".join(map(encode_frame, SAID)), [], FrameDecoder(), 0
    for size in [*data, len(stream)]:
        found += reader.feed(stream[at : at + size])
        at += size
    require(found == SAID, "messages that were never sent")


def answer(data: bytes) -> None:
    """What a warm child says, or a step of a user's that writes to what is ours: an answer, or raving."""
    child = WarmChild(1, ChildUse("v", "python"), "/nowhere")
    theirs: Any = child._theirs
    try:
        child._number = 1
        theirs.sendall(data[:100_000])
        theirs.shutdown(1)
        while child.receive() is None:
            pass
    except (ChildProtocolError, ChildDisconnected):
        pass
    finally:
        child.close()
        theirs.close()


def answer_seeds() -> list[bytes]:
    return [len(body).to_bytes(4, "little") + body for body in (ANSWER, b"{}", b"[]", ANSWER[:20])]


def references() -> list[bytes]:
    found = artifacts.make_reference(artifacts.describe_artifact("17/build/1/2/output.json", b"{}", "json"))
    return [
        msgspec.json.encode(value)
        for value in (found, [found, {"a": found}], {"a": 1}, {"$artifact": {"name": "../x"}})
    ]


# Rows as the tables of a store hold them, each with what reads it.
_RUN = [1, "nightly", "abc", "running", 1, 7, 10**15, 10**15, 0, "", None, "", 0, 1, "host.1", "ann"]
_ROWS: list[tuple[Callable[[Sequence[Any]], object], list[Any]]] = [
    (columns.run_from, _RUN),
    (columns.waiting_from, [1, "build", "parked", 1]),
    (columns.breaker_from, ["net", "open", 3, 10**15, 0]),
    (columns.circuit_from, ["net", "half_open", 3, 10**15, 5]),
    (columns.message_from, [1, 1, b'{"type":"PauseRequested","at":"2026-01-01T00:00:00Z"}', 0]),
    (partial(columns.turn_from, holder="host.1"), [1, 2]),
    (partial(columns.lease_from, worker="host.1"), [b"{}", 2]),
    (columns.stopped_from, [1, 2.5]),
    (columns.kept_row, [1, "build", b"\x00"]),
    (columns.lately_row, [1, b"\x00"]),
    (columns.timer_row, [1, "retry", "build", 2]),
    (columns.queued_row, ["build", 1]),
]


def stored_row(data: bytes) -> None:
    """A row of a store's tables with one changed column: it decodes, or raises a CodecError."""
    read, row = _ROWS[data[0] % len(_ROWS) if data else 0]
    column = data[1] % len(row) if len(data) > 1 else 0
    value: Any = data[2:]
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        value = msgspec.msgpack.decode(data[2:])
    try:
        found = read([*row[:column], value, *row[column + 1 :]])
    except CodecError as error:
        require_whole(error)
        return
    if isinstance(found, msgspec.Struct):
        fields = {name: getattr(found, name) for name in found.__struct_fields__}
        with suppress(msgspec.ValidationError):
            require(msgspec.convert(fields, type(found)) == found, "a row is another than what was read of it")
            return
        require(False, "what was read of a row has a field of another type")


def stored_rows() -> list[bytes]:
    values: tuple[Any, ...] = (None, True, -1, 2**63 - 1, 1.5, float("nan"), "text", b"\xff", [], {})
    encoded = [msgspec.msgpack.encode(value) for value in values]
    places = [(table, column) for table, (_, row) in enumerate(_ROWS) for column in range(len(row))]
    return [bytes(place) + one for place in places for one in encoded]

"""The processes of programs that are rehearsed: each turn of a play is a message to one, and a branch has copies.

A program is code of the user, which may do anything: it runs in a process of its own, which is killed when it does not
answer in time.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from datetime import datetime

import msgspec

from mulligan.analysis.coverage.programs.rehearsal import (
    InlineCall,
    InlineEnds,
    Misbehaved,
    NoEnd,
    ProgramTurns,
    TurnSaid,
)
from mulligan.core.effects.program_history import program_history, program_turn
from mulligan.core.model.program_calls import ProgramTurn
from mulligan.core.model.workflow import Step
from mulligan.core.state.scope import fill_params
from mulligan.core.state.state import Place, State
from mulligan.programs import messages as m
from mulligan.programs.conversion import begin_of, call_failure_of, deliveries_of, recorded_history, turn_end_of
from mulligan.programs.process import endless_message
from mulligan.programs.rehearsal_process import (
    AskInline,
    Copied,
    Copy,
    InlineEnd,
    Said,
    Start,
    ToRehearsal,
    decode_from_rehearsal,
    frame,
)

# How long a program may take between two messages, whatever it does meanwhile; its modules are imported in that time.
ANSWER_SECONDS = 60.0
# The processor time that it may use, if `@program(timeout=…)` says nothing else.
TURN_SECONDS = 5.0
# How many programs are kept as they were before their first turn ended: a play from the start goes on with a copy.
BEGUN_MAX = 16
MESSAGE_BYTES_MAX = 64 << 20


class _Process:
    """A process in which a program is rehearsed, and how far it is."""

    def __init__(self, sock: socket.socket, pid: int) -> None:
        self._sock = sock
        self.pid = pid
        # How many ends of calls it knows, and how many calls it has said.
        self.known = self.calls = 0
        # What it has said, and was not asked for yet.
        self.said: m.Idle | m.Ended | AskInline | None = None
        self.returns_nothing: frozenset[str] = frozenset()
        self.warnings: tuple[str, ...] = ()
        self.at = ""

    def send(self, message: ToRehearsal, fd: int = -1) -> None:
        data = frame(message)
        try:
            self._sock.settimeout(ANSWER_SECONDS)
            if fd >= 0:
                sent = socket.send_fds(self._sock, [data], [fd])
                data = data[sent:]
            self._sock.sendall(data)
        except OSError:
            return  # it has ended: `receive` says so

    def receive(self) -> Said | Copied:
        """What it says. Misbehaved if it says nothing, or what nobody understands."""
        try:
            size = int.from_bytes(self._exactly(m.LENGTH_BYTES), "big")
            if size > MESSAGE_BYTES_MAX:
                raise Misbehaved("the program passes too much to a call", self.at)
            found: Said | Copied = decode_from_rehearsal(self._exactly(size))
            return found
        except TimeoutError:
            raise Misbehaved(f"the program calls nothing within {ANSWER_SECONDS:g}s", self.at) from None
        except (EOFError, OSError):
            raise Misbehaved("the process of the program ends by itself", self.at) from None
        except msgspec.MsgspecError:
            raise Misbehaved("the process of the program says something invalid", self.at) from None

    def _exactly(self, size: int) -> bytes:
        self._sock.settimeout(ANSWER_SECONDS)
        data = bytearray()
        while len(data) < size:
            more = self._sock.recv(min(size - len(data), 1 << 16))
            if not more:
                raise EOFError
            data += more
        return bytes(data)

    def listen(self) -> m.Idle | m.Ended | AskInline:
        """The next thing that the program says."""
        found = self.receive()
        assert isinstance(found, Said)
        self.returns_nothing |= set(found.returns_nothing)
        self.warnings += found.warnings
        message = found.message
        if isinstance(message, AskInline):
            self.at = f"{message.file.rpartition('/')[2]}:{message.line}"
        elif message.at:
            self.at = message.at
        return message

    def copy(self) -> _Process:
        """A copy of the process, as far as this one is."""
        ours, theirs = socket.socketpair()
        try:
            self.send(Copy(), theirs.fileno())
        finally:
            theirs.close()
        found = _Process(ours, 0)
        said = found.receive()
        assert isinstance(said, Copied)
        found.pid, found.known, found.calls, found.said, found.at = said.pid, self.known, self.calls, self.said, self.at
        found.returns_nothing = self.returns_nothing
        return found

    def close(self) -> None:
        """End it: one that waits ends by itself."""
        self._sock.close()

    def kill(self) -> None:
        self.close()
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGKILL)


class Rehearsals:
    """Starts the processes of one coverage. All of them end with it."""

    def __init__(self, folder: str, turn_seconds: float = TURN_SECONDS) -> None:
        self.folder = folder
        self.turn_seconds = turn_seconds
        # The first processes, by the seed of their hashes: every program begins in a copy of one.
        self._first: dict[str, tuple[subprocess.Popen[bytes], _Process]] = {}
        # Programs that have begun, by what they began with, with what they have said first.
        self._begun: dict[bytes, _Process] = {}
        # With what the program of each run began, by its uid.
        self._starts: dict[str, Start] = {}
        self.warnings: dict[str, None] = {}
        self.returns_nothing: set[str] = set()

    def __enter__(self) -> Rehearsals:
        return self

    def __exit__(self, *_: object) -> None:
        for popen, process in self._first.values():
            process.close()
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(popen.pid, signal.SIGKILL)
            popen.wait()
        for process in self._begun.values():
            process.close()
        self._first, self._begun = {}, {}

    def turns(self) -> ProgramTurns:
        """The turns of the programs of a play from the start."""
        return _Turns(self)

    def _first_process(self, seed: str) -> _Process:
        found = self._first.get(seed)
        if found is None:
            ours, theirs = socket.socketpair()
            argv = [sys.executable, "-m", "mulligan.programs.rehearsal_process", str(theirs.fileno())]
            popen = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**os.environ, "PYTHONHASHSEED": seed, **_ENVIRONMENT},
            )
            theirs.close()
            found = self._first[seed] = popen, _Process(ours, popen.pid)
        return found[1]

    def begin(self, start: Start, seed: str = "0") -> _Process:
        """A process in which a program has begun, with what it has said."""
        key = b"" if start.history is not None else m.encode(start)
        known = self._begun.get(key) if key else None
        if known is None:
            known = self._first_process(seed).copy()
            known.send(start)
            try:
                known.said = known.listen()
            except Misbehaved:
                known.kill()
                raise
            self.note(known)
            if not key:
                return known
            if len(self._begun) >= BEGUN_MAX:
                return known
            self._begun[key] = known
        return known.copy() if not isinstance(known.said, m.Ended) else _ended(known)

    def note(self, process: _Process) -> None:
        """Keep what a process has said of its steps and of itself."""
        self.warnings.update(dict.fromkeys(process.warnings))
        self.returns_nothing |= process.returns_nothing

    def differs(self, state: State) -> str:
        """Why a replay of a program that has ended would differ from what is recorded; "" if it would not."""
        history = recorded_history(program_history(state, len(state.deliveries)))
        process = self.begin(msgspec.structs.replace(self._starts[state.run.uid], history=history), seed="1")
        process.kill()
        said = process.said
        if isinstance(said, m.Ended):
            failure = said.failure
            return failure.message if failure is not None and failure.code == _DIFFERS else ""
        where = said.at if isinstance(said, m.Idle) else f"{said.file.rpartition('/')[2]}:{said.line}" if said else ""
        return f"it now makes another call, at {where}"

    def start_of(self, state: State, place: Place, history: m.History | None, *, turn: int) -> Start:
        """What a program begins with."""
        assert place.spec.action is not None
        begin = begin_of(
            fill_params(place.spec.action, place.bindings),
            self.folder,
            turn=turn,
            timeout=place.spec.timeout or self.turn_seconds,
            step=place.key,
            at=program_turn(state, place).begun,
        )
        found = self._starts[state.run.uid] = Start(begin, self.folder, history)
        return found


_DIFFERS = "NONDETERMINISTIC"
# What the code of a program may ask for, as in a run.
_ENVIRONMENT = {
    "MULLIGAN_PROGRAM": "1",
    "MULLIGAN_ATTEMPT": "1",
    "MULLIGAN_VISIT": "1",
    "MULLIGAN_RUN_ID": "1",
    "MULLIGAN_IDEMPOTENCY_KEY": "rehearsal:program:1",
}


def _ended(process: _Process) -> _Process:
    """One that has ended has no process, and what it has said stays."""
    ours, theirs = socket.socketpair()
    theirs.close()
    found = _Process(ours, 0)
    found.said = process.said
    return found


class _Turns(ProgramTurns):
    """The programs of the runs of one play, by the uid of the run."""

    def __init__(self, rehearsals: Rehearsals, before: _Turns | None = None) -> None:
        self._rehearsals = rehearsals
        # Where this play branches off: its processes are copied when they are needed, and stay as they are meanwhile.
        self._before = before
        self._own: dict[str, _Process] = {}

    def copy(self) -> _Turns:
        return _Turns(self._rehearsals, self)

    def copy_of(self, uid: str) -> _Turns:
        """A copy that keeps the program of this run as it is now, whatever becomes of it here."""
        found = _Turns(self._rehearsals, self)
        if (process := self._find(uid)) is not None:
            found._own[uid] = process.copy()
        return found

    def close(self) -> None:
        for process in self._own.values():
            process.close()
        self._own = {}

    def returns_nothing(self, definition: str) -> bool:
        return definition in self._rehearsals.returns_nothing

    def _find(self, uid: str) -> _Process | None:
        found: _Turns | None = self
        while found is not None:
            if uid in found._own:
                return found._own[uid]
            found = found._before
        return None

    def _process_for(self, uid: str, turn: ProgramTurn, calls: int) -> _Process | None:
        """The process of this run, if it can carry out the turn: otherwise it knows less, or has said what is lost."""
        found = self._find(uid)
        if found is None or isinstance(found.said, m.Ended) or found.calls != calls:
            return None
        if not turn.delivered <= found.known <= turn.delivered + len(turn.deliveries):
            return None
        if uid not in self._own:
            self._own[uid] = found.copy()
        return self._own[uid]

    def say(self, state: State, place: Place, at: datetime, ends: InlineEnds) -> TurnSaid:
        turn, uid = program_turn(state, place), state.run.uid
        process = self._process_for(uid, turn, len(state.calls))
        try:
            if process is None:
                process = self._begin(state, place, turn)
                said, process.said = process.said, None
            elif process.said is not None:
                said, process.said = process.said, None
            else:
                new = turn.deliveries[process.known - turn.delivered :]
                process.known = turn.delivered + len(turn.deliveries)
                process.send(m.Deliver(turn.turn, deliveries_of(new)))
                said = process.listen()
            while isinstance(said, AskInline):
                process.said = said
                said = self._answer(process, said, state, ends)
        except Misbehaved:
            if (broken := self._own.pop(uid, None)) is not None:
                broken.kill()
            raise
        assert said is not None
        process.said = None
        process.calls += len(said.calls)
        self._rehearsals.note(process)
        end = msgspec.structs.replace(turn_end_of(said), turn=turn.turn)
        if isinstance(said, m.Ended):
            process.close()
            self._own.pop(uid, None)
            self._refuse_endless(place, said)
            return TurnSaid(end, said.output)
        return TurnSaid(end)

    def _begin(self, state: State, place: Place, turn: ProgramTurn) -> _Process:
        known = turn.delivered + len(turn.deliveries)
        history = None
        if turn.turn > 1 or turn.deliveries:
            history = recorded_history(program_history(state, known))
        process = self._rehearsals.begin(self._rehearsals.start_of(state, place, history, turn=turn.turn))
        process.known, process.calls = known, len(state.calls)
        self._own[state.run.uid] = process
        return process

    def _answer(
        self, process: _Process, asked: AskInline, state: State, ends: InlineEnds
    ) -> m.Idle | m.Ended | AskInline:
        self._rehearsals.note(process)
        definition = msgspec.json.decode(asked.step, type=Step)
        call = InlineCall(asked.label, asked.name, asked.digest, asked.definition, definition, asked.file, asked.line)
        found = ends(state, call)
        if found is None:
            raise NoEnd
        failure = None if found.failure is None else call_failure_of(found.failure)
        process.send(InlineEnd(found.output, failure))
        return process.listen()

    def _refuse_endless(self, place: Place, said: m.Ended) -> None:
        """A program that computes for too long is stopped here; in a run only if it has a timeout."""
        failure = said.failure
        if (
            failure is not None
            and failure.message == endless_message(self._rehearsals.turn_seconds)
            and place.spec.timeout is None
        ):
            raise Misbehaved(failure.message, said.at)

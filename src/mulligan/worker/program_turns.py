"""Turns of programs: each is a task that a process of the program carries out, which waits for the next one.

A *host* is a process that forks a process for each program. A program that waits keeps its process for a few seconds.
Then it is killed, and a later turn starts another one, which replays the history of the program: a waiting program has
no process.
"""

from __future__ import annotations

import math
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from mulligan.core.effects.program_history import ProgramHistory
from mulligan.core.effects.tasks import Task
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.program_calls import Delivery, ProgramTurn
from mulligan.core.model.reports import CallsMade, Report, TaskEnded
from mulligan.errors import InputInvalid, OutputDropped
from mulligan.ports import Clock
from mulligan.programs import messages as m
from mulligan.programs.conversion import begin_of, deliveries_of, history_of, turn_end_of
from mulligan.worker.child.warm_child import Debugging
from mulligan.worker.environment import program_environment, working_folder_of
from mulligan.worker.exit_reader import ExitReader
from mulligan.worker.folders import Folders
from mulligan.worker.outputs.artifact_inputs import Spool
from mulligan.worker.running_task import RunningTask
from mulligan.worker.slots.deadlines import seconds_left, with_local_time
from mulligan.worker.slots.wake_up import WakeUp
from mulligan.worker.supervisor import wall_clock
from mulligan.worker.supervisor.fd_events import watch_reads, watch_writes
from mulligan.worker.supervisor.send_buffer import SendBuffer
from mulligan.worker.supervisor.supervisor_client import SupervisorClient
from mulligan.worker.task_reports import ProcessExit, report_refusal

# How long the process of a waiting program is kept, and how many of them at most.
KEPT_SECONDS, KEPT_MAX = 5.0, 64
# The keys of hosts at the supervisor: warm children have small negative ones, tasks positive ones.
_FIRST_KEY = -(10**12)
_RECEIVE_BYTES = 1 << 16
_SUCCESS = Outcome()
_KILLS = (signal.SIGKILL, signal.SIGTERM)

# Reads the history of a program from the store: the run, and how many ends of calls it knows.
ReadHistory = Callable[[int, int], ProgramHistory]
# Finds the files of the artifacts that a value refers to, by name; writes those that have none.
Locate = Callable[[Any, Spool], dict[str, str]]
# A program by run, place and attempt.
_Key = tuple[int, str, int]


class _Frames:
    """A connection that carries frames, without blocking."""

    def __init__(self, sock: socket.socket, selector: selectors.BaseSelector, on_ready: Callable[[], None]) -> None:
        self.sock = sock
        self._selector = selector
        self._buffer = bytearray()
        self._pending = SendBuffer(sock)
        self._is_sending = False
        watch_reads(selector, self, on_ready)

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, data: bytes, fd: int = -1) -> None:
        """Send a frame; if the other side is gone it is dropped, and `receive` says so."""
        try:
            self._pending.send(data, fd)
        except OSError:
            pass
        self._watch_writes()

    def _watch_writes(self) -> None:
        if self._is_sending != (has_pending := self._pending.has_pending):
            self._is_sending = has_pending
            watch_writes(self._selector, self, is_sending=has_pending)

    def receive(self, *, to_end: bool = False) -> Iterator[bytes]:
        """Some frames that have arrived, or all of them. EOFError when there will be no more."""
        if self._is_sending:
            with suppress(OSError):
                self._pending.flush()
            self._watch_writes()
        while True:
            try:
                data = self.sock.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                raise EOFError
            self._buffer += data
            yield from self._frames()
            if not to_end:
                return

    def _frames(self) -> Iterator[bytes]:
        """Take the frames that are complete."""
        while len(self._buffer) >= m.LENGTH_BYTES:
            end = m.LENGTH_BYTES + int.from_bytes(self._buffer[: m.LENGTH_BYTES], "big")
            if len(self._buffer) < end:
                return
            frame = bytes(self._buffer[m.LENGTH_BYTES : end])
            del self._buffer[:end]
            yield frame

    def close(self) -> None:
        if self.sock.fileno() >= 0:
            with suppress(KeyError, ValueError):
                self._selector.unregister(self)
            self.sock.close()


class _Process:
    """The process of a program: it carries out a turn (`token`), or waits for the next one."""

    def __init__(self, number: int, key: _Key) -> None:
        self.number = number
        self.key = key
        # The files that were written for it to read.
        self.spooled: list[str] = []
        self.token = 0
        self.turn = 0
        # How many ends of calls it knows.
        self.known = 0
        # It has said what it has called, and waits until that is recorded.
        self.is_mid_turn = False
        self.started = 0.0
        # When the turn has to be over, by the clock of `time.monotonic`.
        self.due = math.inf
        self.kept_until = math.inf
        # Why it was killed while it carried out a turn.
        self.stop_reason = ""
        # The processor time that it has said: all of it, and that of this turn.
        self.cpu_said = self.cpu_of_turn = 0.0
        self.frames: _Frames | None = None

    def waits_for(self, turn: ProgramTurn) -> bool:
        """Whether it can carry out a turn: if it has not got an answer, it knows less than is recorded."""
        is_next = self.turn == turn.turn - 1 and self.known == turn.delivered
        return is_next and not self.token and self.frames is not None


class ProgramTurns:
    """The programs of a worker. `end` reports a turn that is over, `end_waiting` one after which the program waits."""

    def __init__(
        self,
        *,
        running: Mapping[int, RunningTask],
        selector: selectors.BaseSelector,
        folders: Folders,
        folder: str,
        exit_reader: ExitReader,
        wake_up: WakeUp,
        read_history: ReadHistory,
        locate: Locate,
        supervisor: Callable[[], SupervisorClient],
        end: Callable[[int, Report], None],
        end_waiting: Callable[[int, TaskEnded], None],
        say: Callable[[int, Report], None],
        clock: Clock | None,
        bring_logs: Callable[[Task], None] | None = None,
        debugging: Debugging | None = None,
    ) -> None:
        self._debugging = debugging or Debugging()
        self._bring_logs = bring_logs
        self._running = running
        self._selector = selector
        self._folders = folders
        self._folder = folder
        self._exit_reader = exit_reader
        self._wake_up = wake_up
        self._read_history = read_history
        self._locate = locate
        self._supervisor = supervisor
        self._end = end
        self._end_waiting = end_waiting
        self._say = say
        self._clock = clock
        self._host: _Frames | None = None
        self._processes: dict[_Key, _Process] = {}
        # Those that wait in their turns, by token.
        self._mid_turns: dict[int, _Process] = {}
        # All that the host has not said to have ended, by number.
        self._forked: dict[int, _Process] = {}
        self._last_number = 0

    # -- starting

    def start(self, running: RunningTask) -> None:
        """Let the process of a program carry out its next turn; a new one first replays what is recorded."""
        task = running.resolved.task
        turn = task.turn
        assert turn is not None, "a task of a program is a turn"
        # Its logs have their names from the start.
        running.has_named_logs, running.may_have_files = True, False
        key = (task.run_id, task.place, task.attempt)
        process = self._processes.get(key)
        if process is not None and not process.waits_for(turn):
            self._kill(process)
            process = None
        spooled: list[str] = []
        try:
            if process is None:
                process = self._begin(key, running, turn, spooled)
            else:
                files = self._files(turn.deliveries, spooled)
                self._send(process, m.Deliver(turn.turn, deliveries_of(turn.deliveries), files))
        except BaseException:
            _remove(spooled)
            raise
        process.spooled += spooled
        process.token, process.turn, process.started = running.lease.token, turn.turn, wall_clock.now()
        process.cpu_of_turn = 0.0
        process.known = turn.delivered + len(turn.deliveries)
        process.kept_until = process.due = math.inf
        if task.deadline is not None:
            process.due = time.monotonic() + (seconds_left(msgspec.structs.replace(task, timeout=None)) or 0.0)
            self._wake_up.at(process.due)

    def _begin(self, key: _Key, running: RunningTask, turn: ProgramTurn, spooled: list[str]) -> _Process:
        """Fork a process that replays what is recorded. What may fail comes before."""
        task = running.resolved.task
        # Without its arguments it cannot begin; what a call has returned it may never read.
        files = self._locate(task.params.get("args"), partial(self._spool, spooled))
        history = ""
        if turn.turn > 1 or turn.deliveries:
            found = self._read_history(task.run_id, turn.delivered + len(turn.deliveries))
            history = self._spool(spooled, history_of(found), ".history")
            files |= self._files(found.deliveries, spooled)
        begin = begin_of(
            task.params,
            task.imports_from,
            turn=turn.turn,
            history=history,
            seen=turn.seen,
            files=files,
            timeout=task.timeout,
            step=task.place,
            at=turn.begun,
            terminal=self._debugging.terminal,
            has_locals=self._debugging.locals,
        )
        env = program_environment(running.lease, running.scratch, self._folders.outputs(task.run_id))
        process = self._fork(key, task, env)
        self._send(process, begin)
        return process

    def _send(self, process: _Process, message: m.ToProgram) -> None:
        assert process.frames is not None
        process.frames.send(m.frame(message))

    def _files(self, ends: Iterable[Delivery], spooled: list[str]) -> dict[str, str]:
        """The file of each artifact that the program may read. One that is gone is left out: reading it says so."""
        files: dict[str, str] = {}
        for one in ends:
            if isinstance(one.output, dict | list):
                with suppress(InputInvalid, OutputDropped):
                    files |= self._locate(one.output, partial(self._spool, spooled))
        return files

    def _spool(self, spooled: list[str], data: bytes, ending: str) -> str:
        """Write what has no file here to one that exists for as long as the process."""
        self._last_number += 1
        path = f"{self._folder}/program-{self._last_number}{ending}"
        spooled.append(path)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def _fork(self, key: _Key, task: Task, env: dict[str, str]) -> _Process:
        self._last_number += 1
        process = _Process(self._last_number, key)
        self._folders.make_run(task.run_id)
        if self._bring_logs is not None and task.turn is not None and task.turn.turn > 1:
            self._bring_logs(task)
        logs = self._folders.logs(task.run_id, task.place, task.attempt)
        order = m.Fork(process.number, logs.out, logs.err, cwd=working_folder_of(task), env=env)
        host = self._host or self._launch_host()
        ours, theirs = socket.socketpair()
        host.send(m.frame_of_host(order), theirs.detach())
        process.frames = _Frames(ours, self._selector, partial(self._on_process, process))
        self._forked[process.number] = self._processes[key] = process
        return process

    def _launch_host(self) -> _Frames:
        self._last_number += 1
        key = _FIRST_KEY - self._last_number
        ours, theirs = socket.socketpair()
        self._host = _Frames(ours, self._selector, self._on_host)
        argv = [sys.executable, "-m", "mulligan.programs.host", "0"]
        out = f"{self._folder}/host{key}.log"
        request: tuple[Any, ...] = ("run", key, sys.executable, argv, {}, "/", None, out, out, None, None)
        self._supervisor().send_fd(theirs.detach(), request)
        return self._host

    # -- what processes say

    def _on_process(self, process: _Process) -> None:
        if process.frames is None:
            return
        try:
            for frame in process.frames.receive():
                self._on_said(process, m.decode_from_program(frame))
        except (EOFError, msgspec.MsgspecError):
            # The host says how it ended.
            self._close(process)
            self._order_kill(process)

    def _on_said(self, process: _Process, said: m.FromProgram) -> None:
        token = process.token
        if token not in self._running or said.turn != process.turn:
            return
        running = self._running[token]
        if process.is_mid_turn:
            self._kill(process)
            self._end(token, report_refusal(running.lease.task, "the program said something before it had an answer"))
            return
        process.token = 0
        process.cpu_said += said.cpu
        process.cpu_of_turn += said.cpu
        try:
            turn, output = turn_end_of(said), said.output if isinstance(said, m.Ended) else None
        except msgspec.MsgspecError as error:
            self._kill(process)
            self._end(token, report_refusal(running.lease.task, f"the program said something invalid: {error}"))
            return
        if turn.goes_on and not process.stop_reason:
            process.token, process.is_mid_turn = token, True
            self._mid_turns[token] = process
            task = running.lease.task
            used = {"cpu_seconds": process.cpu_of_turn, "peak_memory": said.peak}
            made = CallsMade(datetime.now(UTC), task.place, task.attempt, turn, used)
            self._say(token, with_local_time(made, self._clock))
            return
        if turn.how or process.stop_reason:
            self._forget(process)
        else:
            self._keep(process)
        end = ProcessExit(
            0, process.started, ended=wall_clock.now(), cpu_seconds=process.cpu_of_turn, peak_memory=said.peak
        )
        task = running.lease.task
        report = TaskEnded(datetime.now(UTC), task.place, task.attempt, _SUCCESS, output, end.usage, turn=turn)
        (self._end if turn.how else self._end_waiting)(token, report)

    def go_on(self, token: int, ends: Sequence[Delivery]) -> None:
        """Let a program go on in its turn: what it has called is recorded."""
        process = self._mid_turns.pop(token, None)
        if process is None or process.frames is None:
            # If it has ended, its host says how.
            return
        files = self._files(ends, process.spooled) if any(one.output is not None for one in ends) else {}
        process.is_mid_turn = False
        process.known += len(ends)
        self._send(process, m.Deliver(process.turn, deliveries_of(ends), files))

    def end_turn(self, token: int) -> bool:
        """The turn of a program ends with what it has called: it waits for the next one. False if it is over."""
        process = self._mid_turns.pop(token, None)
        if process is None:
            return False
        process.token, process.is_mid_turn = 0, False
        self._keep(process)
        return True

    def _keep(self, process: _Process) -> None:
        """Keep the process for the next turn, for a while."""
        # A replay would stop again where a debugger was opened by hand.
        process.kept_until = math.inf if self._debugging.is_interactive else time.monotonic() + KEPT_SECONDS
        self._wake_up.at(process.kept_until)
        waiting = [one for one in self._processes.values() if not one.token]
        if len(waiting) > KEPT_MAX:
            self._kill(min(waiting, key=lambda one: one.kept_until))

    def run_due(self, now: float) -> None:
        """Kill the processes of programs that have waited for long."""
        for process in list(self._processes.values()):
            if process.token and process.due <= now:
                process.due = math.inf
                self.stop(process.token, "timeout")
            elif process.token:
                self._wake_up.at(process.due)
            elif process.kept_until <= now:
                self._kill(process)
            elif process.kept_until < math.inf:
                self._wake_up.at(process.kept_until)

    def _on_host(self) -> None:
        if self._host is None:
            return
        try:
            for frame in self._host.receive():
                self._on_exited(m.decode_exited(frame))
        except (EOFError, msgspec.MsgspecError):
            self._lose_host()

    def _on_exited(self, exited: m.Exited) -> None:
        process = self._forked.pop(exited.number, None)
        if process is None:
            return
        with suppress(EOFError, msgspec.MsgspecError):
            # What it said before it ended; nothing more can come.
            for frame in process.frames.receive(to_end=True) if process.frames is not None else ():
                self._on_said(process, m.decode_from_program(frame))
        token = process.token
        self._forget(process)
        if token in self._running:
            # If it was to be killed, it does not matter what it did in the meantime.
            killed_by = signal.SIGKILL if process.stop_reason else exited.signal
            status = exited.status << 8 if killed_by is None else int(killed_by)
            cpu = max(0.0, exited.cpu - process.cpu_said) + process.cpu_of_turn
            end = ProcessExit(
                status, process.started, wall_clock.now(), cpu, exited.peak, stop_reason=process.stop_reason
            )
            report = self._exit_reader.report_exit(self._running[token], end)
            if _is_killed_by_others(report, end):
                # As if its worker was gone: a replay loses nothing.
                report = self._exit_reader.report_lost(self._running[token].lease.task)
            self._end(token, report)

    def _lose_host(self) -> None:
        """The host is dead, and all of its processes with it: their turns are lost, and run again."""
        for token in self._forget_all():
            if token in self._running:
                self._end(token, self._exit_reader.report_lost(self._running[token].lease.task))

    # -- ends

    def stop(self, token: int, why: str) -> None:
        """Kill the process that carries out a turn. None of its code runs any more."""
        for process in self._processes.values():
            if process.token == token:
                process.stop_reason = why
                self._order_kill(process)

    def drop_all(self) -> None:
        """Forget all turns. The host kills its processes, and ends."""
        self._forget_all()

    def _forget_all(self) -> list[int]:
        """Forget the host and its processes; return the tokens of the turns that they carried out."""
        if self._host is not None:
            self._host.close()
            self._host = None
        forked, self._forked = list(self._forked.values()), {}
        for process in forked:
            self._forget(process)
        return [process.token for process in forked]

    def _kill(self, process: _Process) -> None:
        self._order_kill(process)
        self._forget(process)
        process.token = 0

    def _order_kill(self, process: _Process) -> None:
        if self._host is not None:
            self._host.send(m.frame_of_host(m.Kill(process.number)))

    def _close(self, process: _Process) -> None:
        if process.frames is not None:
            process.frames.close()
            process.frames = None

    def _forget(self, process: _Process) -> None:
        self._close(process)
        if process.is_mid_turn:
            self._mid_turns.pop(process.token, None)
        if self._processes.get(process.key) is process:
            del self._processes[process.key]
        _remove(process.spooled)


def _is_killed_by_others(report: Report, end: ProcessExit) -> bool:
    """Whether somebody has killed the process: not the worker, and not the kernel for its memory."""
    if end.stop_reason or end.signal not in _KILLS:
        return False
    return isinstance(report, TaskEnded) and not report.outcome.is_out_of_memory


def _remove(paths: Iterable[str]) -> None:
    for path in paths:
        with suppress(OSError):
            os.unlink(path)

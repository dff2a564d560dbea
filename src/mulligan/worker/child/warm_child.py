"""Warm children: processes that run one python step after the other, separate by workflow and interpreter."""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import msgspec

from mulligan.ports import Lease
from mulligan.worker.child.json_encoding import OUTPUT_BYTES_MAX
from mulligan.worker.folders import Logs, move_file
from mulligan.worker.logs.redacted_logs import RedactedLogs
from mulligan.worker.slots.loop_limits import LOOP_BYTES_MAX, LOOP_BYTES_MAX_REDACTED
from mulligan.worker.supervisor.send_buffer import SendBuffer
from mulligan.worker.supervisor.supervisor_client import PACKAGE_PARENT, SupervisorClient

# What is imported before a step is called may take this long, or its timeout if that is longer; a step without one may
# take any time. From when on its progress says that it is still importing.
IMPORT_SECONDS_MAX, IMPORT_SAID_AFTER_SECONDS = 300.0, 5.0
_LENGTH_BYTES = 4
# What a child learns of its use, so that the interpreter of a step needs nothing of ours to understand it.
REDACTED, SECRET = "redacted", "secret"
_RECEIVE_BYTES = 1 << 16
# The largest result, and space for the other fields.
_ANSWER_BYTES_MAX = OUTPUT_BYTES_MAX + (4 << 20)
# The search path is restored after loading: the user's interpreter must not see what is installed beside the package.
_PROGRAM = (
    "import sys; parent = sys.argv.pop(1); sys.path.append(parent); "
    "from mulligan.worker.child.child_main import main; sys.path.remove(parent); main(*sys.argv[1:])"
)


def importing_words(module: str) -> str:
    """What is being imported: a module, or what the code of a step imports."""
    return f"'{module}'" if module else "what its code imports"


class ChildDisconnected(Exception):
    """The socket is closed: the child has ended, which its supervisor reports, or its step closed the socket."""


class ChildProtocolError(Exception):
    """What arrived is not an answer to the last call: the step wrote to the socket."""


class Debugging(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a worker runs the steps in Python for somebody who looks for a mistake in them."""

    # The terminal that they have as their input and output; or the port to which an editor connects.
    terminal: str = ""
    port: int = 0
    # Whether a step stops at its first line.
    stops: bool = False
    # Whether a failure keeps the local variables of its frames.
    locals: bool = False

    @property
    def is_interactive(self) -> bool:
        """Whether somebody sits before it: one step at a time, and for any time."""
        return bool(self.terminal or self.port)


class ChildUse(NamedTuple):
    """What a child may be used for: it gets no task of another use."""

    group: str
    interpreter: str
    # Its logs go into pipes.
    is_redacted: bool = False
    # Of code that may know secrets: see `RunningTask.scope`.
    scope: str = ""


class ChildTask(msgspec.Struct):
    """A task that runs in a child."""

    lease: Lease
    # Wall clock; and the monotonic time at which it times out.
    started: float
    due: float | None = None
    has_named_logs: bool = False
    # When to kill a child that closed its socket and did not exit.
    cut_off_at: float | None = None
    # The seconds that its call may take, and the monotonic time at which its visit is over; None: any.
    timeout: float | None = None
    visit_due: float | None = None
    # The module that is being imported before the call, "" for the code of a step, and since when; None: none.
    importing: str | None = None
    import_began: float = 0.0
    # How long the import took that is over; when to say next that it takes long.
    import_seconds: float = 0.0
    say_at: float | None = None
    is_said: bool = False

    def is_starting(self, now: float) -> None:
        """Its process is not up: the time of the call has not begun."""
        self._limit(None if self.timeout is None else now + max(IMPORT_SECONDS_MAX, self.timeout))

    def begins_import(self, module: str, now: float) -> None:
        self.importing, self.import_began, self.say_at = module, now, now + IMPORT_SAID_AFTER_SECONDS
        self.is_starting(now)

    def begins_call(self, now: float) -> None:
        if self.importing is not None:
            self.importing, self.import_seconds, self.say_at = None, now - self.import_began, None
        self._limit(None if self.timeout is None else now + self.timeout)

    def _limit(self, due: float | None) -> None:
        dues = [one for one in (due, self.visit_due) if one is not None]
        self.due = min(dues, default=None)


class BackgroundJob(msgspec.Struct):
    """Internal work that would block the worker's loop: a function of this package, called in a child.

    `then` gets the result, or None if the child ended before it answered.
    """

    request: CallRequest
    then: Callable[[CallResult | None], None]
    # How often it was started.
    attempts: int = 0


class CallRequest(msgspec.Struct, frozen=True):
    """What a child has to run: code with a `main`, or a function, with its arguments and environment."""

    step: str = ""
    args: dict[str, Any] = {}
    env: dict[str, str] = {}
    cwd: str = ""
    # An additional folder to import from.
    home: str = ""
    code: str = ""
    call: str = ""
    # The text of the module in `call`, if it is pinned with the run, and the file that it was copied from.
    source: str = ""
    file: str = ""
    # A folder with modules, beside `home`.
    import_from: str = ""
    # The files of the artifacts that its arguments refer to, by name.
    files: dict[str, str] = {}
    # The address of a Dask scheduler: the function gets a client for it.
    dask: str = ""


class CallMessage(msgspec.Struct, omit_defaults=True):
    """A request as it is sent: None means that the value is the same as in the last request."""

    number: int
    step: str
    # The variables that changed, and those to remove.
    env: dict[str, str]
    unset: list[str] = []
    args: dict[str, Any] = {}
    cwd: str | None = None
    home: str | None = None
    code: str | None = None
    call: str | None = None
    source: str | None = None
    file: str | None = None
    import_from: str | None = None
    # The logs that were renamed, so that new ones have to be opened.
    fresh_logs: list[int] = []
    files: dict[str, str] = {}
    dask: str = ""


class CallResult(msgspec.Struct, frozen=True):
    """The answer of a child."""

    # The number of the request.
    number: int
    cpu: float
    peak: int
    # The sizes of its logs.
    out: int
    err: int
    output: Any = None
    # The output is in the child's result file.
    in_file: bool = False
    # Why its folder cannot be entered; why an artifact cannot be read.
    folder: str = ""
    unreadable: str = ""
    # Why an argument cannot be given to the function.
    refused: str = ""
    exit: int = 0
    # Why its result is not valid.
    invalid: str = ""
    reported: dict[str, Any] | None = None
    exception: str = ""
    trace: str = ""
    # The names of the class that was raised, and of its bases; and the frames, the outermost first.
    exceptions: tuple[str, ...] = ()
    traceback: tuple[dict[str, Any], ...] = ()
    # It started processes; it left something behind that cannot be restored.
    forked: bool = False
    dirty: bool = False
    # It is no answer yet: the child imports this module, or calls the function.
    phase: Literal["", "importing", "called"] = ""
    module: str = ""


_astuple = msgspec.structs.astuple
# What a message has only where it differs from the request before.
_LASTING = ("cwd", "home", "code", "call", "source", "file", "import_from")
_lasting = itemgetter(*map(CallRequest.__struct_fields__.index, _LASTING))
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(CallResult).decode


class WarmChild:
    """One process, which runs a task or a job, or is idle. No method blocks on it."""

    def __init__(self, number: int, use: ChildUse, folder: str) -> None:
        self.key = -number
        self.use = use
        self.task: ChildTask | None = None
        self.job: BackgroundJob | None = None
        # It gets no further task.
        self.is_leaving = False
        # It ended before it had read its first message: none of its step has begun.
        self.is_unread = False
        # The selector waits until more can be sent to it.
        self.is_watched_for_writes = False
        self.idle_since = 0.0
        self.launched_at = time.monotonic()
        # Compared with the times of files.
        self.launched_wall = time.time()
        self._slots = {1: f"{folder}/child-{number}.out", 2: f"{folder}/child-{number}.err"}
        self._slot_result = f"{folder}/child-{number}.result"
        # The pipes it logs into, if its steps may know secrets.
        self.pipes: RedactedLogs | None = None
        self._fresh_logs: list[int] = []
        self._last = CallRequest()
        self._number = 0
        self._buffer = bytearray()
        self.sock, self._theirs = socket.socketpair()
        self._send_buffer = SendBuffer(self.sock)

    def fileno(self) -> int:
        return self.sock.fileno()

    def launch(self, supervisor: SupervisorClient, debugging: Debugging | None = None) -> None:
        """Start it. What is sent meanwhile is read when it is up."""
        out, err = self._slots.values()
        # A larger result comes in a file.
        inline_max = LOOP_BYTES_MAX if self.pipes is None else LOOP_BYTES_MAX_REDACTED
        argv = [self.use.interpreter, "-c", _PROGRAM, PACKAGE_PARENT, out, err, self._slot_result, str(inline_max)]
        if self.pipes is not None or debugging is not None:
            argv.append("" if self.pipes is None else SECRET if self.use.scope else REDACTED)
        if debugging is not None:
            argv.append(msgspec.json.encode(debugging).decode())
        environment = {"MULLIGAN_CHILD": str(-self.key)}
        # No file for standard input: it is the descriptor that is sent with the message.
        request = ("run", self.key, self.use.interpreter, argv, environment, "/", None, out, err, None, None)
        supervisor.send_fd(self._theirs.detach(), request)

    def open_pipes(self, selector: selectors.BaseSelector) -> None:
        """Replace its logs by pipes, before it opens them."""
        self.pipes = RedactedLogs(selector, *self._slots.values())

    def start_task(self, task: ChildTask, request: CallRequest) -> None:
        """Give it a task; raise `ChildDisconnected` if it is gone.

        A child that was just launched never raises: the supervisor reports if it could not start.
        """
        task.has_named_logs = self.pipes is not None
        if not self._number:
            task.is_starting(time.monotonic())
        self._send(request)
        self.task = task

    def start_job(self, job: BackgroundJob) -> None:
        """Give it a job; raise `ChildDisconnected` as for a task."""
        self._send(job.request)
        self.job = job

    def _send(self, request: CallRequest) -> None:
        self._number += 1
        body = _encode(_make_message(self._number, self._last, request, self._fresh_logs))
        try:
            self._send_buffer.send(len(body).to_bytes(_LENGTH_BYTES, "little") + body)
        except OSError:
            if self._number > 1:
                raise ChildDisconnected from None
            self.is_unread = True
        # Values that may be large are not remembered: they differ from step to step.
        has_values = request.args or request.files
        self._last = msgspec.structs.replace(request, args={}, files={}) if has_values else request
        self._fresh_logs = []

    @property
    def is_sending(self) -> bool:
        """Whether some of what was sent is still in our buffer."""
        return bool(self._send_buffer.chunks)

    @property
    def is_idle(self) -> bool:
        return self.task is None and self.job is None and not self.is_leaving

    def send_more(self) -> None:
        """Send what is left. If the child is gone, `receive` raises."""
        with suppress(OSError):
            self._send_buffer.flush()

    def receive(self) -> CallResult | None:
        """Return its answer when it is complete, otherwise None. What it says before that is noted in its task."""
        try:
            data = self.sock.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            # What we had sent was not read.
            self.is_unread = self._number == 1
            data = b""
        except OSError:
            data = b""
        if not data:
            raise ChildDisconnected
        if not self._buffer and len(data) == _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little"):
            # The usual case: one piece.
            answer = self._answer(memoryview(data)[_LENGTH_BYTES:])
            if not answer.phase:
                return answer
            self._note_phase(answer)
            return None
        self._buffer += data
        while self._buffer:
            size = _frame_size(self._buffer)
            if size > _ANSWER_BYTES_MAX:
                raise ChildProtocolError
            if len(self._buffer) < size:
                break
            whole, self._buffer = self._buffer, self._buffer[size:]
            found = self._read(whole if not self._buffer else whole[:size])
            if found is not None:
                if self._buffer:
                    raise ChildProtocolError
                return found
        return None

    def _read(self, frame: bytes | bytearray) -> CallResult | None:
        """The answer in a frame; None if the child says what it does before it answers."""
        answer = self._answer(memoryview(frame)[_LENGTH_BYTES:])
        if not answer.phase:
            return answer
        self._note_phase(answer)
        return None

    def _note_phase(self, answer: CallResult) -> None:
        """Note what the child does before it answers."""
        if self.task is not None and answer.phase == "importing":
            self.task.begins_import(answer.module, time.monotonic())
        elif self.task is not None:
            self.task.begins_call(time.monotonic())

    def _answer(self, body: memoryview) -> CallResult:
        try:
            answer = _decode(body)
        except (ValueError, RecursionError):
            raise ChildProtocolError from None
        if answer.number != self._number:
            raise ChildProtocolError
        return answer

    @property
    def has_open_logs(self) -> bool:
        """Whether it has opened them: a child that is slow to start has not."""
        return all(map(os.path.exists, self._slots.values()))

    def name_logs(self, logs: Logs, is_out: bool = True, is_err: bool = True) -> None:
        """Give the logs the names of the attempt. Empty logs are named only while the step runs.

        A step that writes nothing has no files, and creating none saves time.
        """
        task = self.task
        assert task is not None
        if task.has_named_logs:
            return
        for fd, is_named, name in ((1, is_out, logs.out), (2, is_err, logs.err)):
            if is_named:
                move_file(self._slots[fd], name)
                self._fresh_logs.append(fd)
        task.has_named_logs = True

    def move_result(self, path: str) -> None:
        """Move its last result to `path`, so that it may run another step before the result is read."""
        with suppress(FileNotFoundError):
            os.rename(self._slot_result, path)

    def end_job(self) -> BackgroundJob:
        job, self.job = self.job, None
        assert job is not None
        self.idle_since = time.monotonic()
        return job

    def end_task(self) -> ChildTask:
        task, self.task = self.task, None
        assert task is not None
        self.idle_since = time.monotonic()
        return task

    def close(self) -> None:
        """Close the socket, so that the process exits."""
        self.is_leaving = True
        self._send_buffer.clear()
        self.sock.close()

    def remove_slots(self) -> None:
        if self.pipes is not None:
            self.pipes.close()
        for slot in (*self._slots.values(), self._slot_result):
            try:
                os.unlink(slot)
            except OSError:
                continue  # it was renamed, or never created


def _make_message(number: int, last: CallRequest, request: CallRequest, fresh_logs: list[int]) -> CallMessage:
    """Return the message for `request`, without what equals the `last` request. Most of it does."""
    last_env, env = last.env, request.env
    changed = {name: value for name, value in env.items() if last_env.get(name) != value}
    unset = [] if last_env.keys() <= env.keys() else [name for name in last_env if name not in env]
    if _lasting(_astuple(request)) == _lasting(_astuple(last)) and not (request.args or request.files or request.dask):
        return CallMessage(number, request.step, changed, unset, fresh_logs=fresh_logs)
    return CallMessage(
        number=number,
        step=request.step,
        env=changed,
        unset=unset,
        args=request.args,
        cwd=None if request.cwd == last.cwd else request.cwd,
        home=None if request.home == last.home else request.home,
        code=None if request.code == last.code else request.code,
        call=None if request.call == last.call else request.call,
        source=None if request.source == last.source else request.source,
        file=None if request.file == last.file else request.file,
        import_from=None if request.import_from == last.import_from else request.import_from,
        fresh_logs=fresh_logs,
        files=request.files,
        dask=request.dask,
    )


def _frame_size(data: bytes | bytearray) -> int:
    """Return the length of the frame that starts with `data`."""
    return _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")

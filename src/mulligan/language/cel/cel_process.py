"""Evaluates an expression that may take long in a separate process with limits, and waits for it.

The process is forked, so it already has the program and the values. It ends by itself when its time is up, even if its
parent is gone. The parent has no other threads that could hold a lock at the fork.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import time
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import msgspec

from mulligan.language.cel.cel import CelFailed, Program, plain

_READ_BYTES = 1 << 20
_VALUE, _REASON = b"v", b"r"
# Signals to the process group are for the parent.
_BLOCKED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Limits(NamedTuple):
    """Limits of one evaluation. On a busy machine a second of CPU time may take several seconds."""

    cpu_seconds: float = 1.0
    wall_seconds: float = 3.0
    memory_bytes: int = 1 << 30
    value_bytes: int = 64 << 20


LIMITS = Limits()


def evaluate(program: Program, names: Mapping[str, Any], limits: Limits = LIMITS) -> Any:
    """The value as JSON; CelFailed if there is none, or if the limits are reached."""
    try:
        pid, reader = _fork(program, names, limits)
    except OSError as error:
        raise CelFailed(f"no process can be started to evaluate it: {error.strerror}") from error
    try:
        answer = _read_answer(reader, limits)
    finally:
        os.close(reader)
        status = _reap(pid)
    if answer is None:
        raise CelFailed(_took_too_long(limits))
    return _decode_answer(answer, status, limits)


def _fork(program: Program, names: Mapping[str, Any], limits: Limits) -> tuple[int, int]:
    """The id of the new process, and the pipe to read its answer from."""
    reader, writer = os.pipe()
    try:
        with warnings.catch_warnings():
            # Python warns if there are other threads: the new process does not use them.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
    except OSError:
        os.close(reader)
        raise
    else:
        if pid == 0:
            _serve(program, names, writer, limits)
        return pid, reader
    finally:
        os.close(writer)


def _read_answer(reader: int, limits: Limits) -> bytes | None:
    """The answer, cut just above the largest allowed value; None if it takes too long."""
    until = time.monotonic() + limits.wall_seconds
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    pieces: list[bytes] = []
    room = limits.value_bytes + 2
    while room > 0:
        left = until - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000 + 1):
            return None
        piece = os.read(reader, min(_READ_BYTES, room))
        if not piece:
            break
        pieces.append(piece)
        room -= len(piece)
    return b"".join(pieces)


def _reap(pid: int) -> int:
    """Kill the process if it still runs, and return its exit code (negative for a signal)."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            # Its id is not reused before it is waited for.
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status)
    except ChildProcessError:
        return 0  # other code in this process has reaped it


def _decode_answer(answer: bytes, status: int, limits: Limits) -> Any:
    if len(answer) > limits.value_bytes + 1:
        raise CelFailed(f"its value has more than {limits.value_bytes >> 20} MiB as JSON")
    if answer[:1] == _VALUE and status in (0, -signal.SIGKILL):
        try:
            return msgspec.json.decode(memoryview(answer)[1:])
        except msgspec.DecodeError:
            raise CelFailed(_too_large(limits)) from None  # the kernel killed it while it was writing
    if answer[:1] == _REASON:
        raise CelFailed(answer[1:].decode())
    if status in (-signal.SIGPROF, -signal.SIGALRM):
        raise CelFailed(_took_too_long(limits))
    raise CelFailed(_too_large(limits))


def _took_too_long(limits: Limits) -> str:
    return f"it takes more than {limits.cpu_seconds:g} s to evaluate: do this work in a step"


def _too_large(limits: Limits) -> str:
    return f"it takes more than {limits.memory_bytes >> 20} MiB of memory to evaluate: do this work in a step"


# -- in the new process ----------------------------------------------------------------------------------------------


def _serve(program: Program, names: Mapping[str, Any], writer: int, limits: Limits) -> NoReturn:
    """Evaluate, write the answer and exit at once: cleanup code of the parent must not run here."""
    try:
        _confine(writer, limits)
        try:
            answer = _VALUE + msgspec.json.encode(plain(program.evaluate(names)))
        except CelFailed as failed:
            answer = _REASON + str(failed).encode("utf-8", "replace")
        except (MemoryError, SystemError):
            answer = _REASON + _too_large(limits).encode()
        except Exception as error:
            answer = _REASON + f"its engine failed: {error}".encode("utf-8", "replace")
        left = memoryview(answer)
        while left:
            left = left[os.write(writer, left) :]
        os._exit(0)
    finally:
        os._exit(1)


def _confine(writer: int, limits: Limits) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED_SIGNALS)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGPROF, signal.SIGALRM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, limits.cpu_seconds)
    signal.setitimer(signal.ITIMER_REAL, limits.wall_seconds)
    # Close inherited files: an open descriptor would keep locks and connections alive.
    os.closerange(3, writer)
    os.closerange(writer + 1, 1 << 20)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit_memory(limits.memory_bytes)


def limit_memory(memory_bytes: int) -> None:
    """Limit memory to `memory_bytes` more than now; without /proc only the time is limited."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            current = int(statm.read().split()[0]) * resource.getpagesize()
        with open("/proc/self/oom_score_adj", "wb") as score:
            score.write(b"1000")  # if memory runs out, the kernel should kill this process first
    except OSError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    allowed = current + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (allowed if hard == resource.RLIM_INFINITY else min(allowed, hard), hard))

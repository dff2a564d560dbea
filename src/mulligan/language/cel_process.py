"""An expression that may take long is evaluated in a process of its own, within limits, while everybody waits.

The process is forked, so that it has the program and the values already. It ends by itself when its time is up, also
if nobody waits any more. There is no thread beside the engine's loop, so that nothing is held that it would wait for.
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

from mulligan.language.cel import CelFailed, Program, plain

_READ_BYTES = 1 << 20
_VALUE, _REASON = b"v", b"r"
# What is sent to a whole group is for the process that waits.
_NOT_FOR_US = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Limits(NamedTuple):
    """What one evaluation may take. On a busy machine a second of processor time may take several."""

    cpu_seconds: float = 1.0
    wall_seconds: float = 3.0
    memory_bytes: int = 1 << 30
    value_bytes: int = 64 << 20


LIMITS = Limits()


def evaluate(program: Program, names: Mapping[str, Any], limits: Limits = LIMITS) -> Any:
    """The value as JSON; CelFailed where there is none, also for want of time or memory."""
    try:
        pid, reader = _started(program, names, limits)
    except OSError as error:
        raise CelFailed(f"no process can be started to evaluate it: {error.strerror}") from error
    try:
        told = _heard(reader, limits)
    finally:
        os.close(reader)
        status = _ended(pid)
    if told is None:
        raise CelFailed(_took_too_long(limits))
    return _value(told, status, limits)


def _started(program: Program, names: Mapping[str, Any], limits: Limits) -> tuple[int, int]:
    """The id of the new process, and where to read what it says."""
    reader, writer = os.pipe()
    try:
        with warnings.catch_warnings():
            # Python warns where there are other threads: the new process asks nothing of them.
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


def _heard(reader: int, limits: Limits) -> bytes | None:
    """All that the process says, or as much as a value may have; None where that takes too long."""
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


def _ended(pid: int) -> int:
    """End it, if it has not ended, and say how it did: its exit code, or less than nought for a signal."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            # Until it is waited for, nobody else is given its id.
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status)
    except ChildProcessError:
        return 0  # somebody else in this process waits for any child


def _value(told: bytes, status: int, limits: Limits) -> Any:
    if len(told) > limits.value_bytes + 1:
        raise CelFailed(f"its value has more than {limits.value_bytes >> 20} MiB as JSON")
    if told[:1] == _VALUE and status in (0, -signal.SIGKILL):
        try:
            return msgspec.json.decode(memoryview(told)[1:])
        except msgspec.DecodeError:
            raise CelFailed(_too_large(limits)) from None  # the kernel has killed it while it wrote
    if told[:1] == _REASON:
        raise CelFailed(told[1:].decode())
    if status in (-signal.SIGPROF, -signal.SIGALRM):
        raise CelFailed(_took_too_long(limits))
    raise CelFailed(_too_large(limits))


def _took_too_long(limits: Limits) -> str:
    return f"it takes more than {limits.cpu_seconds:g} s to evaluate: let a step do such work"


def _too_large(limits: Limits) -> str:
    return f"it takes more than {limits.memory_bytes >> 20} MiB of memory to evaluate: let a step do such work"


# -- in the new process ----------------------------------------------------------------------------------------------


def _serve(program: Program, names: Mapping[str, Any], writer: int, limits: Limits) -> NoReturn:
    """Evaluate, say what it came to, and be gone: nothing of the process that was forked may be touched or ended."""
    try:
        _confine(writer, limits)
        try:
            told = _VALUE + msgspec.json.encode(plain(program.evaluate(names)))
        except CelFailed as failed:
            told = _REASON + str(failed).encode("utf-8", "replace")
        except (MemoryError, SystemError):
            told = _REASON + _too_large(limits).encode()
        except Exception as error:
            told = _REASON + f"its engine failed: {error}".encode("utf-8", "replace")
        left = memoryview(told)
        while left:
            left = left[os.write(writer, left) :]
        os._exit(0)
    finally:
        os._exit(1)


def _confine(writer: int, limits: Limits) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_US)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGPROF, signal.SIGALRM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, limits.cpu_seconds)
    signal.setitimer(signal.ITIMER_REAL, limits.wall_seconds)
    # Locks and connections are held for as long as anybody has them open.
    os.closerange(3, writer)
    os.closerange(writer + 1, 1 << 20)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit_memory(limits.memory_bytes)


def _limit_memory(memory_bytes: int) -> None:
    """So much more than it has now; where the kernel does not say how much that is, the time alone is limited."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            held = int(statm.read().split()[0]) * resource.getpagesize()
        with open("/proc/self/oom_score_adj", "wb") as score:
            score.write(b"1000")  # if the machine has not even that much, it is this process that ends
    except OSError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    allowed = held + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (allowed if hard == resource.RLIM_INFINITY else min(allowed, hard), hard))

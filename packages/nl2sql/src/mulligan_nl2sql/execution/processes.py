"""Starts the process of a query, waits for it, and is left with no process, whatever happens there."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from mulligan_nl2sql.execution.messages import Answer, FailureReport, Request
from mulligan_nl2sql.failures import Code, QueryFailed

_COMMAND = (sys.executable, "-P", "-m", "mulligan_nl2sql.execution.child")
# Databases are asked to stop at the deadline. What has not done so by then is killed.
GRACE_SECONDS = 0.25
_ANSWER_BYTES_MAX = 64 << 20
_LAST_WORDS_BYTES = 500
# The process gets no other variable: what a worker knows is not its business.
_VARIABLES = frozenset({"HOME", "LANG", "TZ", "TZDIR", "LD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR"})
_PREFIXES = ("PG", "LC_", "PYTHON", "SSL_")


def ask(request: Request, *, command: Sequence[str] = _COMMAND) -> Answer:
    """Answer the request in a process of its own. QueryFailed if it fails, hangs or dies."""
    with (
        os.fdopen(os.memfd_create("request"), "r+b") as asked,
        os.fdopen(os.memfd_create("answer"), "r+b") as answered,
        os.fdopen(os.memfd_create("errors"), "r+b") as errors,
    ):
        asked.write(msgspec.json.encode(request))
        asked.seek(0)
        process = subprocess.Popen(
            command,
            stdin=asked,
            stdout=answered,
            stderr=errors,
            env=_environment(),
            pass_fds=[request.rows_fd] if request.rows_fd >= 0 else [],
        )
        try:
            is_in_time = _wait(process, request.deadline + GRACE_SECONDS)
        finally:
            # Also if this process is interrupted while it waits.
            process.kill()
            process.wait()
        if not is_in_time:
            raise request.timed_out()
        answer = _decode(answered.fileno()) if process.returncode == 0 else None
        if answer is None:
            raise _died(process.returncode, _tail(errors.fileno()), request)
    if answer.failure is not None:
        raise _reported(answer.failure, request)
    return answer


def _wait(process: subprocess.Popen[bytes], deadline: float) -> bool:
    """Wait until the process has ended; False if it has not by the deadline."""
    waiter = select.poll()
    handle = os.pidfd_open(process.pid)
    try:
        waiter.register(handle, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0:
            if waiter.poll(max(1, left * 1000)):
                process.wait()
                return True
        return False
    finally:
        os.close(handle)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name in _VARIABLES or name.startswith(_PREFIXES)}


def _decode(file: int) -> Answer | None:
    if os.fstat(file).st_size > _ANSWER_BYTES_MAX:
        return None
    try:
        return msgspec.json.decode(os.pread(file, _ANSWER_BYTES_MAX, 0), type=Answer)
    except msgspec.MsgspecError:
        return None


def _tail(file: int) -> str:
    size = os.fstat(file).st_size
    return os.pread(file, _LAST_WORDS_BYTES, max(0, size - _LAST_WORDS_BYTES)).decode(errors="replace").strip()


def _died(returncode: int, last_words: str, request: Request) -> QueryFailed:
    if returncode == -signal.SIGXCPU:
        return request.timed_out()
    if returncode < 0:
        name = signal.Signals(-returncode).name
        details: dict[str, Any] = {"signal": name}
        message = f"the process of the query was killed by {name}"
    else:
        details = {"exit_code": returncode}
        message = f"the process of the query ended without an answer, with exit code {returncode}"
    if "MemoryError" in last_words or "cannot allocate memory" in last_words.lower():
        return request.memory_exceeded()
    return request.failure(Code.CRASHED, message, **details, last_words=request.database.redact(last_words))


def _reported(failure: FailureReport, request: Request) -> QueryFailed:
    details = {name: value for name, value in failure.details.items() if name not in ("stage", "node", "repair")}
    return request.failure(Code(failure.code), request.database.redact(failure.message), **details)

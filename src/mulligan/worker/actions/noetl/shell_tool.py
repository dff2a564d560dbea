"""`shell`: commands for `sh`, one after the other, up to the first that does not end well."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO, Any

from mulligan import StepError

from .call import Call
from .credentials import refused
from .policy import time_limit
from .templates import filled, filled_text

TIMEOUT_SECONDS = 600.0
OUTPUT_BYTES_MAX = 4 * 1024 * 1024
_TOLD_CHARS = 2000


def run(tool: dict[str, Any], call: Call) -> Any:
    """What all of them printed. EXIT_NONZERO, SIGNALED or TIMEOUT where one of them fails."""
    said = next((tool[key] for key in ("cmds", "cmd", "command") if tool.get(key)), None)
    if said is None:
        raise refused("the tool 'shell' has no 'cmds'")
    commands = [filled_text(str(text), call.names) for text in (said if isinstance(said, list) else [said])]
    limit = filled(tool.get("timeout_seconds", TIMEOUT_SECONDS), call.names)
    until = time.monotonic() + time_limit(limit, "timeout_seconds")
    environment, folder = _environment(tool, call), filled_text(str(tool.get("cwd") or "."), call.names)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        for command in commands:
            status = _status(command, environment, folder, out, err, until)
            if status != 0:
                raise _failure(command, status, _read(out), _read(err))
        printed, complained = _read(out), _read(err)
    _repeat(printed, complained)
    return {"status": "success", "exit_code": 0, "stdout": printed, "stderr": complained}


def _environment(tool: dict[str, Any], call: Call) -> dict[str, str]:
    said = filled(tool.get("env") or {}, call.names)
    return {**os.environ, **{str(name): "" if value is None else str(value) for name, value in said.items()}}


def _status(
    command: str, environment: dict[str, str], folder: str, out: IO[bytes], err: IO[bytes], until: float
) -> int | None:
    """How it ended; None: it did not, and was made to, with all that it has started."""
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise refused(f"the command cannot be started in '{folder}': {reason}") from None
    try:
        return process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _failure(command: str, status: int | None, printed: str, complained: str) -> StepError:
    _repeat(printed, complained)
    details: dict[str, Any] = {"stdout": printed[-_TOLD_CHARS:], "stderr": complained[-_TOLD_CHARS:]}
    if status is None:
        return StepError("TIMEOUT", "the commands took longer than 'timeout_seconds'", details=details)
    if status < 0:
        return StepError("SIGNALED", f"killed by signal {-status}", details={**details, "exit_code": 128 - status})
    message = complained.strip()[-_TOLD_CHARS:] or f"exit code {status}"
    return StepError("EXIT_NONZERO", message, details={**details, "exit_code": status})


def _read(file: IO[bytes]) -> str:
    """What was printed so far. OUTPUT_INVALID where that is too much for a result."""
    size = os.fstat(file.fileno()).st_size
    if size > OUTPUT_BYTES_MAX:
        message = f"the commands printed {size} bytes, and {OUTPUT_BYTES_MAX} are the most"
        raise StepError("OUTPUT_INVALID", message, retryable=False)
    return os.pread(file.fileno(), size, 0).decode("utf-8", "replace")


def _repeat(printed: str, complained: str) -> None:
    """Whoever reads the log of the step finds it there."""
    print(printed, end="")
    print(complained, end="", file=sys.stderr)

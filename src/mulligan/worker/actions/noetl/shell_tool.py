"""`shell`: commands for `sh`, one after the other, up to the first that does not end well."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO, Any

from mulligan import StepError
from mulligan.worker.actions.noetl.call import Call
from mulligan.worker.actions.noetl.credentials import refused
from mulligan.worker.actions.noetl.placeholders import Command, marked
from mulligan.worker.actions.noetl.policy import time_limit
from mulligan.worker.actions.noetl.templates import filled, filled_text, is_template

TIMEOUT_SECONDS = 600.0
OUTPUT_BYTES_MAX = 4 * 1024 * 1024
_TOLD_CHARS = 2000
# Variables that name a file which a shell runs, or that hold what it evaluates.
_EVALUATED = frozenset("BASH_ENV ENV PROMPT_COMMAND PS0 PS1 PS2 PS3 PS4".split())


def run(tool: dict[str, Any], call: Call) -> Any:
    """What all of them printed. EXIT_NONZERO, SIGNALED or TIMEOUT where one of them fails."""
    said = next((tool[key] for key in ("cmds", "cmd", "command") if tool.get(key)), None)
    if said is None:
        raise refused("the tool 'shell' has no 'cmds'")
    commands = [_command(str(text), call) for text in (said if isinstance(said, list) else [said])]
    limit = filled(tool.get("timeout_seconds", TIMEOUT_SECONDS), call.names)
    until = time.monotonic() + time_limit(limit, "timeout_seconds")
    environment, folder = _environment(tool, call), filled_text(str(tool.get("cwd") or "."), call.names)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        for command in commands:
            status = _status(command.text, {**environment, **command.variables}, folder, out, err, until)
            if status != 0:
                raise _failure(status, _read(out), _read(err))
        printed, complained = _read(out), _read(err)
    _repeat(printed, complained)
    return {"status": "success", "exit_code": 0, "stdout": printed, "stderr": complained}


def _command(text: str, call: Call) -> Command:
    """The command with its values in variables; where templates are trusted, in its text."""
    if call.trusts_templates or not is_template(text):
        return Command(filled_text(text, call.names), {})
    found = marked(text, call.names, is_command=True)
    if not found.placeholders:
        return Command(found.text, {})
    # What reads a command costs a while to load, and most need none of it.
    command: Command = importlib.import_module(f"{__package__}.shell_text").bound(found)
    return command


def _environment(tool: dict[str, Any], call: Call) -> dict[str, str]:
    env = tool.get("env") or {}
    if not call.trusts_templates:
        _refuse_names(env, call)
    said = filled(env, call.names) or {}
    if not isinstance(said, dict):
        raise refused("'env' is not a mapping of names to values")
    return {**os.environ, **{str(name): "" if value is None else str(value) for name, value in said.items()}}


def _refuse_names(said: Any, call: Call) -> None:
    """Refuse values that would name a variable, or that a shell evaluates for the name of theirs."""
    if not isinstance(said, dict):
        for placeholder in marked(str(said), call.names).placeholders.values():
            raise placeholder.refused("names environment variables", "write their names in the file")
        return
    for name, value in said.items():
        for placeholder in marked(str(name), call.names).placeholders.values():
            raise placeholder.refused("names an environment variable", "write its name in the file")
        if name in _EVALUATED and isinstance(value, str):
            for placeholder in marked(value, call.names).placeholders.values():
                raise placeholder.refused(f"is the value of '{name}', which a shell evaluates", "use another variable")


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


def _failure(status: int | None, printed: str, complained: str) -> StepError:
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

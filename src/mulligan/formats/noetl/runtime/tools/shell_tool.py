"""`shell`: run commands with `sh`, one after the other, up to the first that fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO, Any

from mulligan import StepError
from mulligan.formats.noetl.runtime.call import Call
from mulligan.formats.noetl.runtime.credentials import invalid_input
from mulligan.formats.noetl.runtime.placeholders import Command, mark_values, refuse_values
from mulligan.formats.noetl.runtime.policy import time_limit
from mulligan.formats.noetl.runtime.templates import is_template, render_text, render_value

TIMEOUT_SECONDS = 600.0
OUTPUT_BYTES_MAX = 4 * 1024 * 1024
_REPORTED_CHARS = 2000
# Variables whose value a shell evaluates, or runs as a file.
_EVALUATED = frozenset("BASH_ENV ENV PROMPT_COMMAND PS0 PS1 PS2 PS3 PS4".split())


def run(tool: dict[str, Any], call: Call) -> Any:
    """Run the commands and return their output. EXIT_NONZERO, SIGNALED or TIMEOUT where one of them fails."""
    texts = next((tool[key] for key in ("cmds", "cmd", "command") if tool.get(key)), None)
    if texts is None:
        raise invalid_input("the tool 'shell' has no 'cmds'")
    commands = [_command(str(text), call) for text in (texts if isinstance(texts, list) else [texts])]
    limit = render_value(tool.get("timeout_seconds", TIMEOUT_SECONDS), call.names)
    until = time.monotonic() + time_limit(limit, "timeout_seconds")
    environment, folder = _environment(tool, call), render_text(str(tool.get("cwd") or "."), call.names)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        for command in commands:
            status = _status(command.text, {**environment, **command.variables}, folder, out, err, until)
            if status != 0:
                raise _failure(status, _read(out), _read(err))
        printed, complained = _read(out), _read(err)
    _repeat(printed, complained)
    return {"status": "success", "exit_code": 0, "stdout": printed, "stderr": complained}


def _command(text: str, call: Call) -> Command:
    """The command with its values in variables, or in its text where templates are trusted."""
    if call.trusts_templates or not is_template(text):
        return Command(render_text(text, call.names), {})
    found = mark_values(text, call.names, is_command=True)
    if not found.placeholders:
        return Command(found.text, {})
    # Imported on demand: the scanner takes a while to load, and most commands do not need it.
    from mulligan.formats.noetl.runtime.shell_text import bind_command

    command: Command = bind_command(found)
    return command


def _environment(tool: dict[str, Any], call: Call) -> dict[str, str]:
    env = tool.get("env") or {}
    if not call.trusts_templates:
        _refuse_names(env, call)
    variables = render_value(env, call.names) or {}
    if not isinstance(variables, dict):
        raise invalid_input("'env' is not a mapping of names to values")
    return {**os.environ, **{str(name): "" if value is None else str(value) for name, value in variables.items()}}


def _refuse_names(env: Any, call: Call) -> None:
    """Refuse values that would name a variable, or be in a variable that a shell evaluates."""
    if not isinstance(env, dict):
        refuse_values(str(env), call.names, "names environment variables", "write their names in the file")
        return
    for name, value in env.items():
        refuse_values(str(name), call.names, "names an environment variable", "write its name in the file")
        if name in _EVALUATED and isinstance(value, str):
            reason = f"is the value of '{name}', which a shell evaluates"
            refuse_values(value, call.names, reason, "use another variable")


def _status(
    command: str, environment: dict[str, str], folder: str, out: IO[bytes], err: IO[bytes], until: float
) -> int | None:
    """Run one command; its exit status, or None where the time was up and it was killed with its children."""
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
        raise invalid_input(f"the command cannot be started in '{folder}': {reason}") from None
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
    details: dict[str, Any] = {"stdout": printed[-_REPORTED_CHARS:], "stderr": complained[-_REPORTED_CHARS:]}
    if status is None:
        return StepError("TIMEOUT", "the commands took longer than 'timeout_seconds'", details=details)
    if status < 0:
        return StepError("SIGNALED", f"killed by signal {-status}", details={**details, "exit_code": 128 - status})
    message = complained.strip()[-_REPORTED_CHARS:] or f"exit code {status}"
    return StepError("EXIT_NONZERO", message, details={**details, "exit_code": status})


def _read(file: IO[bytes]) -> str:
    """The output so far. OUTPUT_INVALID where it is too large for a result."""
    size = os.fstat(file.fileno()).st_size
    if size > OUTPUT_BYTES_MAX:
        message = f"the commands printed {size} bytes; the limit is {OUTPUT_BYTES_MAX}"
        raise StepError("OUTPUT_INVALID", message, retryable=False)
    return os.pread(file.fileno(), size, 0).decode("utf-8", "replace")


def _repeat(printed: str, complained: str) -> None:
    """Print the output of the commands, for the log of the step."""
    print(printed, end="")
    print(complained, end="", file=sys.stderr)

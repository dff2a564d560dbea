"""uv and pip: how each resolves requirements and installs what they resolved to, and what it says when it fails.

Standard library only, like `environment_builder`, which calls it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence

# `typing` itself is not imported: a process that is about to start should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VARIABLE = "MULLIGAN_INSTALLER"
# `--python` and `--report` together.
PIP_VERSION_MIN = (22, 3)
MESSAGE_CHARS_MAX = 600
# The lines that an explanation is looked for in.
LINES_MAX = 400
# Variables that would lead an installer to another environment than ours, or let a package of the worker's in.
_MISLEADING = (
    *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"),
    *(
        "PIP_TARGET",
        "PIP_PREFIX",
        "PIP_ROOT",
        "PIP_USER",
        "PIP_PYTHON",
        "PIP_REQUIREMENT",
        "PIP_EDITABLE",
        "PIP_REPORT",
    ),
    *("UV_PYTHON", "UV_SYSTEM_PYTHON", "UV_PROJECT", "UV_PROJECT_ENVIRONMENT", "UV_BREAK_SYSTEM_PACKAGES"),
)
_SETTINGS = {
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_REQUIRE_VIRTUALENV": "0",
    "PIP_NO_COLOR": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
    "UV_NO_PROGRESS": "1",
    "UV_PYTHON_DOWNLOADS": "never",
    "NO_COLOR": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "PYTHONUNBUFFERED": "1",
}

# The network, or a server: later it may work. Looked for first, since pip goes on to say that it found no version.
_TRANSIENT = re.compile(
    r"connection broken by|NewConnectionError|name resolution|Failed to establish|timed out|ReadTimeout|ConnectTimeout"
    r"|Connection (?:reset|refused|aborted)|Network is unreachable|Failed to fetch|Could not connect|dns error"
    r"|error sending request|SSLError|Max retries exceeded|HTTP error (?:50\d|429)"
    r"|\b(?:50\d Server Error|429 Client Error)|\((?:50\d|429) |No space left|Could not resolve host",
    re.IGNORECASE,
)
# The requirements themselves: the same again tomorrow.
_PERMANENT = re.compile(
    r"No matching distribution|Could not find a version|ResolutionImpossible|conflicting dependencies"
    r"|No solution found|unsatisfiable|Invalid requirement|requires a different Python|not found in the "
    r"|does not appear to be a Python project|has an invalid wheel|is not a supported wheel",
    re.IGNORECASE,
)
_OBJECT = re.compile(r"<[^<>]* object at 0x[0-9a-f]+>: ")
_CAUSE = re.compile(r":? (?:cause|Caused by): ")
_BOX = re.compile(r"[│╰╭├─▶└┌×➜✗]+")


class InstallFailed(Exception):
    """An installer failed: what it said, in one line, and whether it may work later."""

    def __init__(self, message: str, *, is_transient: bool = True) -> None:
        super().__init__(message)
        self.message = message
        self.is_transient = is_transient


# Runs a command; raises InstallFailed.
Run = Callable[[Sequence[str]], None]


class Uv:
    """The commands of uv, under https://docs.astral.sh/uv/pip. `base` is the interpreter that gets packages."""

    def __init__(self, program: str, base: str, run: Run) -> None:
        self.name = "uv"
        self._program = program
        self._base = base
        self._run = run

    def resolve(self, requirements: Sequence[str], folder: str) -> list[str]:
        """Return the packages that satisfy the requirements, each with its version. `folder` is for temporary files."""
        wanted, pins = f"{folder}/requirements.in", f"{folder}/resolved.txt"
        _write_lines(wanted, requirements)
        options = ("--no-header", "--no-annotate", "--quiet", "--python", self._base, "--output-file", pins)
        self._run([self._program, "pip", "compile", *options, wanted])
        with open(pins, encoding="utf-8") as file:
            return sorted(line.strip() for line in file if line.strip() and not line.startswith(("#", "-", " ")))

    def create(self, venv: str) -> None:
        """Create an environment without packages."""
        self._run([self._program, "venv", "--quiet", "--no-project", "--python", self._base, venv])

    def install(self, pins: Sequence[str], venv: str, folder: str) -> None:
        """Install these packages, and nothing that they need in turn: that is among them."""
        _write_lines(f"{folder}/pins.txt", pins)
        target = ("--python", f"{venv}/bin/python", "--no-deps", "-r", f"{folder}/pins.txt")
        self._run([self._program, "pip", "install", *target])


class Pip:
    """The commands of venv and pip. `pip` is the interpreter that has pip: `base` itself, or one made for it."""

    def __init__(self, pip: str, base: str, run: Run) -> None:
        self.name = "pip"
        self._pip = pip
        self._base = base
        self._run = run

    def resolve(self, requirements: Sequence[str], folder: str) -> list[str]:
        report = f"{folder}/report.json"
        options = ("--dry-run", "--ignore-installed", "--report", report)
        # `--python` starts pip twice.
        target = () if self._pip == self._base else ("--python", self._base)
        self._run([self._pip, "-m", "pip", *target, "install", *options, "--", *requirements])
        with open(report, encoding="utf-8") as file:
            return sorted(map(_pin, json.load(file)["install"]))

    def create(self, venv: str) -> None:
        # Without pip, which costs seconds: the pip outside installs into it.
        self._run([self._base, "-m", "venv", "--without-pip", venv])

    def install(self, pins: Sequence[str], venv: str, folder: str) -> None:
        _write_lines(f"{folder}/pins.txt", pins)
        target = ("--no-deps", "-r", f"{folder}/pins.txt")
        self._run([self._pip, "-m", "pip", "--python", f"{venv}/bin/python", "install", *target])


Installer = Uv | Pip


def find_uv(environ: Mapping[str, str]) -> str | None:
    """Return the uv to use: what `$MULLIGAN_INSTALLER` says, otherwise the one on the PATH; None to use pip.

    Raises InstallFailed if the variable names a program that does not exist.
    """
    named = environ.get(VARIABLE, "")
    if named == "pip":
        return None
    found = shutil.which(named or "uv", path=environ.get("PATH", os.defpath))
    if found is None and named:
        message = f"{VARIABLE} is '{named}', and there is no such program; set it to 'pip', 'uv' or the path of uv"
        raise InstallFailed(message, is_transient=False)
    return found


def installer_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of an installer: the worker's, so that its index, proxy and certificates count."""
    kept = {name: value for name, value in environ.items() if name not in _MISLEADING}
    # Nobody is there to answer a question for a password.
    ssh = {} if "GIT_SSH" in kept or "GIT_SSH_COMMAND" in kept else {"GIT_SSH_COMMAND": "ssh -oBatchMode=yes"}
    return {**kept, **_SETTINGS, **ssh}


def run_installer(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: str,
    log: Callable[[str], None],
    kept_fds: Sequence[int],
) -> None:
    """Run a command in `folder` and pass each line that it prints to `log`; raise InstallFailed if it fails.

    It inherits `kept_fds`: a lock stays locked until it has ended, even if this process is killed.
    """
    lines: deque[str] = deque(maxlen=LINES_MAX)
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=folder,
            pass_fds=kept_fds,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise InstallFailed(f"'{command[0]}' cannot be started: {error.strerror}", is_transient=False) from None
    assert process.stdout is not None
    with process:
        try:
            for line in process.stdout:
                lines.append(line.rstrip("\n"))
                log(line)
            status = process.wait()
        except BaseException:
            process.kill()
            raise
    if status:
        raise explain(list(lines), f"{os.path.basename(command[0])} ended with exit code {status}")


def explain(lines: Sequence[str], otherwise: str) -> InstallFailed:
    """Return the failure that these lines of an installer describe: the one that says why, and whether it may pass."""
    text = "\n".join(lines)
    transient = _TRANSIENT.search(text)
    is_transient = transient is not None or _PERMANENT.search(text) is None
    message = _essence(lines) or otherwise
    if transient is not None and not _TRANSIENT.search(message):
        cause = next(line for line in lines if _TRANSIENT.search(line))
        message = f"{message} ({_plain(cause.partition('after ')[2] or cause)})"
    return InstallFailed(message[:MESSAGE_CHARS_MAX], is_transient=is_transient)


def _essence(lines: Sequence[str]) -> str:
    """Return what comes after the first sign of an error: the line of pip, or the paragraph of uv."""
    for number, line in enumerate(lines):
        start = line.strip()
        if start.startswith("ERROR: "):
            return _plain(start)
        if start.startswith(("× ", "error: ")) and "subprocess-exited-with-error" not in start:
            return _plain(" ".join(lines[number : number + 12]))
    return next((_plain(line) for line in reversed(lines) if line.strip()), "")


def _plain(text: str) -> str:
    words = " ".join(_BOX.sub(" ", _OBJECT.sub("", text)).split())
    words = _CAUSE.sub(": ", words)
    return re.sub(r"^(?:ERROR|error|WARNING): ", "", words).rstrip(".")


def _pin(item: dict[str, Any]) -> str:
    """Return one entry of pip's report as a requirement of exactly that."""
    # As uv writes names, so that both find the same environment.
    name, version = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower(), item["metadata"]["version"]
    if not item.get("is_direct"):
        return f"{name}=={version}"
    download = item["download_info"]
    address = download["url"]
    if "vcs_info" in download:
        address = f"{download['vcs_info']['vcs']}+{address}@{download['vcs_info']['commit_id']}"
    if download.get("subdirectory"):
        address += f"#subdirectory={download['subdirectory']}"
    return f"{name} @ {address}"


def _write_lines(path: str, lines: Sequence[str]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def describe_installer(environ: Mapping[str, str], has_module: Callable[[str], bool]) -> str | None:
    """Return what would install requirements here, for people; None if nothing would. InstallFailed as `find_uv`."""
    if uv := find_uv(environ):
        return f"uv at '{uv}'"
    if has_module("pip") and has_module("venv"):
        return f"venv and pip of '{sys.executable}'"
    return f"venv and ensurepip of '{sys.executable}'" if has_module("ensurepip") and has_module("venv") else None

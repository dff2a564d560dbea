"""Builds workflows from Python files. The file runs in a separate process, since it may do anything."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from mulligan.core.model.workflow import Workflow
from mulligan.errors import LanguageError, Problem
from mulligan.language.published import find_published

SUFFIX = ".py"
# The folder of this package comes last, so that modules next to the file take precedence.
_PROGRAM = (
    "import sys; parent, *args = sys.argv[1:]; sys.path.append(parent); import mulligan.msgspec_import; "
    "from mulligan.language.python.python_file_process import main; main(*args)"
)
_PACKAGE_PARENT = str(Path(__file__).parents[3])
WITH_KEYS = "keys"
_NOTHING = "the file ended its process before it made a workflow"
# As long as the imports of a step may take.
SECONDS_MAX = 300.0


class PythonFile(msgspec.Struct, frozen=True):
    """A Python file, and which of its workflows is meant: "" for the one that it makes or calls its main one."""

    path: Path
    name: str = ""


def as_python_file(path: Path) -> PythonFile | None:
    """`nightly.py`, or `nightly.py:weekly`, which names one of its workflows; None if it is another file."""
    if path.suffix == SUFFIX:
        return PythonFile(path)
    file, colon, name = path.name.rpartition(":")
    if colon and file.endswith(SUFFIX) and not path.exists():
        return PythonFile(path.with_name(file), name)
    return None


class Built(msgspec.Struct, omit_defaults=True):
    """The result of a Python file: a workflow with warnings, or problems."""

    workflow: Workflow | None = None
    warnings: tuple[Problem, ...] = ()
    problems: tuple[Problem, ...] = ()
    # The lines of the file in which its steps are written, by name.
    lines: dict[str, int] = {}
    # What a workflow file would say, if that was asked for.
    keys: dict[str, Any] | None = None
    # The modules below the current folder that were imported for it.
    modules: tuple[str, ...] = ()
    # Published workflows that it calls and that were not given: `region@2`. Then it is built again with them.
    wanted: tuple[str, ...] = ()


class BuiltWorkflow(msgspec.Struct, frozen=True):
    """The checked workflow that a file makes, its warnings, the lines of its steps, and maybe its keys."""

    workflow: Workflow
    warnings: tuple[Problem, ...]
    lines: dict[str, int]
    keys: dict[str, Any] | None
    modules: tuple[str, ...] = ()


def build(file: PythonFile, *, with_keys: bool = False, seconds_max: float = SECONDS_MAX) -> BuiltWorkflow:
    """The checked workflow that the file makes. LanguageError if it makes no valid workflow, or none in time.

    With `with_keys` it comes with what a workflow file would say instead; a workflow that no file can say is refused.
    """
    path = file.path
    published: dict[str, Workflow] = {}
    built = _ask(file, with_keys, published, seconds_max)
    while built.wanted:
        published |= {name: _find(name, path) for name in built.wanted}
        built = _ask(file, with_keys, published, seconds_max)
    if built.workflow is None:
        raise LanguageError(built.problems or (Problem("language.python", _NOTHING, str(path)),))
    return BuiltWorkflow(built.workflow, built.warnings, built.lines, built.keys, built.modules)


def _find(name: str, path: Path) -> Workflow:
    try:
        return find_published(name)
    except LanguageError as refused:
        raise LanguageError([msgspec.structs.replace(refused.problems[0], file=str(path))]) from None


def _ask(file: PythonFile, with_keys: bool, published: dict[str, Workflow], seconds_max: float) -> Built:
    if published:
        import tempfile

        with tempfile.TemporaryFile() as given:
            given.write(msgspec.json.encode(published))
            given.seek(0)
            answer = _run(file, with_keys, given.fileno(), seconds_max)
    else:
        answer = _run(file, with_keys, None, seconds_max)
    return msgspec.json.decode(answer, type=Built) if answer else Built()


def _run(file: PythonFile, with_keys: bool, published: int | None, seconds_max: float) -> bytes:
    """Run the file and return its answer from a separate pipe: what it prints goes to the terminal."""
    reader, writer = os.pipe()
    argv = [sys.executable, "-c", _PROGRAM, _PACKAGE_PARENT, str(file.path), file.name, str(writer)]
    argv += [WITH_KEYS if with_keys else "", "" if published is None else str(published)]
    if published is not None:
        os.set_inheritable(published, True)
    os.set_inheritable(writer, True)
    files = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, 2, 1)]
    pid = os.posix_spawn(sys.executable, argv, os.environ, file_actions=files)
    os.close(writer)
    answer = None
    try:
        with os.fdopen(reader, "rb") as pipe:
            answer = _read(pipe.fileno(), time.monotonic() + seconds_max)
    finally:
        if answer is None:
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if answer is None:
        message = f"the file has made no workflow after {seconds_max:g} seconds, and was stopped"
        hint = "put what takes long, or never ends, into a step: all code outside of functions runs whenever it is read"
        raise LanguageError([Problem("language.python", message, str(file.path), hint=hint)])
    return answer


def _read(pipe: int, until: float) -> bytes | None:
    """All that comes through the pipe until it is closed; None if that takes too long."""
    poll, parts = select.poll(), [b""]
    poll.register(pipe, select.POLLIN)
    while poll.poll(max(0.0, until - time.monotonic()) * 1_000):
        part = os.read(pipe, 1 << 20)
        if not part:
            return b"".join(parts)
        parts.append(part)
    return None

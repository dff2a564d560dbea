"""Runs a Python file that builds a workflow, in a separate process, and writes the result to a pipe."""

from __future__ import annotations

import linecache
import os
import sys
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import msgspec
from msgspec.structs import replace

from mulligan.core.model.workflow import Workflow as CheckedWorkflow
from mulligan.errors import LanguageError, Problem
from mulligan.language.builder import Workflow
from mulligan.language.python_files import Built
from mulligan.language.suggestions import quote_list

# The variable to use if a file makes several workflows.
PREFERRED = "workflow"


def main(path: str, fd: str) -> None:
    """Write the answer to the pipe `fd`."""
    try:
        built = _build(Path(path))
    except LanguageError as refused:
        built = Built(
            problems=tuple(
                replace(each, file=path) if each.file == os.path.abspath(path) else each for each in refused.problems
            )
        )
    with os.fdopen(int(fd), "wb") as answer:
        answer.write(msgspec.json.encode(built))


def _build(path: Path) -> Built:
    found = _choose_workflow(_execute(path), path)
    if isinstance(found, CheckedWorkflow):
        return Built(found)
    examined = found.examine()
    return Built(examined.workflow, examined.warnings)


def _execute(path: Path) -> ModuleType:
    """The file as a module, with the name under which a worker imports it from the current folder."""
    sys.path[:0] = [str(Path.cwd()), str(path.parent.resolve())]
    spec = spec_from_file_location(module_name(path), os.path.abspath(path))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except LanguageError:
        raise
    except (Exception, SystemExit) as error:
        raise LanguageError([_error_problem(error, path)]) from None
    return module


def module_name(path: Path) -> str:
    """`flows/release.py` is `flows.release`. A file that workers cannot import gets a name that the builder refuses."""
    try:
        parts = path.resolve().relative_to(Path.cwd()).with_suffix("").parts
    except ValueError:
        parts = ()
    return ".".join(parts) if parts and all(map(str.isidentifier, parts)) else f"<{path.stem}>"


def _choose_workflow(module: ModuleType, path: Path) -> Workflow | CheckedWorkflow:
    found: dict[str, Workflow | CheckedWorkflow] = {
        name: value for name, value in vars(module).items() if isinstance(value, (Workflow, CheckedWorkflow))
    }
    distinct = {id(value): value for value in found.values()}
    if PREFERRED in found or len(distinct) == 1:
        return found.get(PREFERRED) or next(iter(found.values()))
    if not distinct:
        raise LanguageError([_file_problem(path, "the file makes no workflow", f"write {PREFERRED} = Workflow(…)")])
    message = f"the file makes {len(distinct)} workflows: {quote_list(found, 'and')}"
    raise LanguageError([_file_problem(path, message, f"name the one to run '{PREFERRED}'")])


def _file_problem(path: Path, message: str, hint: str) -> Problem:
    return Problem("language.python", message, str(path), hint=hint)


def _error_problem(error: BaseException, path: Path) -> Problem:
    """The error as a problem, at its line in the file."""
    message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    file = os.path.abspath(path)
    if isinstance(error, SyntaxError) and error.filename == file:
        message, line = f"{type(error).__name__}: {error.msg}", error.lineno or 1
    else:
        frames = traceback.extract_tb(error.__traceback__)
        line = next((frame.lineno or 1 for frame in reversed(frames) if frame.filename == file), 1)
    shown = linecache.getline(file, line).rstrip("\n")
    indent = len(shown) - len(shown.lstrip())
    return Problem("language.python", message, str(path), line, indent + 1, max(1, len(shown.strip())), shown)

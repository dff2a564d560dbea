"""Runs a Python file that builds a workflow, in a separate process, and writes the result to a pipe."""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
from msgspec.structs import replace

from mulligan.core.model.workflow import Workflow as CheckedWorkflow
from mulligan.errors import LanguageError, NotFound, Problem
from mulligan.language.published import finding_published
from mulligan.language.python.builder import Workflow
from mulligan.language.python.python_files import WITH_KEYS, Built, PythonFile
from mulligan.language.text.suggestions import did_you_mean, quote_list

# The variables to use if a file makes several workflows.
PREFERRED = ("workflow", "flow")
# The method of a `@flow`, which makes a workflow of it.
_METHOD = "__mulligan_workflow__"


def main(path: str, name: str, fd: str, wanted: str = "", published: str = "") -> None:
    """Write the answer to the pipe `fd`. The file `published` has the workflows of the catalogue that are known."""
    known: dict[str, CheckedWorkflow] = {}
    if published:
        with os.fdopen(int(published), "rb") as given:
            known = msgspec.json.decode(given.read(), type=dict[str, CheckedWorkflow])
    missing: list[str] = []
    try:
        file = PythonFile(Path(path), name)
        with finding_published(partial(_find_known, known, missing)):
            found = choose_workflow(_execute(file.path), file)
            built = _examine(found, file.path, with_keys=wanted == WITH_KEYS)
        built.modules = tuple(_modules_here())
    except LanguageError as refused:
        built = Built(
            wanted=tuple(missing),
            problems=tuple(
                replace(each, file=path) if each.file == os.path.abspath(path) else each for each in refused.problems
            ),
        )
    with os.fdopen(int(fd), "wb") as answer:
        answer.write(msgspec.json.encode(built))


def _find_known(known: dict[str, CheckedWorkflow], missing: list[str], name: str, version: int) -> CheckedWorkflow:
    """A workflow of the catalogue, which this process does not see: it is built again with those that are missing."""
    word = f"{name}@{version}"
    if word not in known:
        missing.append(word)
        raise NotFound(f"'{word}' is not known here")
    return known[word]


def _modules_here() -> Iterator[str]:
    """The files below the current folder that were imported: paths relative to it. What is installed there is none."""
    here = os.path.join(os.getcwd(), "")
    installed = tuple({os.path.join(folder, "") for folder in sysconfig.get_paths().values()})
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "mulligan":
            continue
        file = getattr(module, "__file__", None) or ""
        if file.endswith(".py") and file.startswith(here) and not file.startswith(installed):
            yield file.removeprefix(here)


def _examine(found: Any, path: Path, *, with_keys: bool = False) -> Built:
    if isinstance(found, CheckedWorkflow):
        if with_keys:
            message, hint = "the file loads its workflow from another file", "convert that one"
            raise LanguageError([_file_problem(path, message, hint)])
        return Built(found)
    try:
        made = found if isinstance(found, Workflow) else getattr(found, _METHOD)()
        examined = made.examine()
    except LanguageError:
        raise
    except (Exception, SystemExit) as error:  # the function of a flow may raise anything
        raise LanguageError([_error_problem(error, path)]) from None
    keys = made.plain_keys() if with_keys else None
    if with_keys and (child := made.first_child()):
        message = f"'{examined.workflow.name}' calls the flow '{child}', and a workflow file calls only files"
        raise LanguageError([_file_problem(path, message, "call the steps of that flow here, as a group")])
    return Built(examined.workflow, examined.warnings, lines=made.step_lines(os.path.abspath(path)), keys=keys)


def _execute(path: Path) -> ModuleType:
    """The file as a module, with the name under which a worker imports it from the current folder."""
    __mulligan_loading__ = path  # noqa: F841 - a run that the file starts now is refused
    folder = str(path.parent.resolve())
    sys.path[:0] = [str(Path.cwd()), folder]
    # Flows let workers import from there, too.
    sys.modules["__main__"].__mulligan_folder__ = folder  # type: ignore[attr-defined]
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


def _workflows_in(module: ModuleType) -> dict[str, Any]:
    """The workflows and flows of the file, by the names of their variables. One with two names is there once."""
    found: dict[int, tuple[str, Any]] = {}
    for name, value in vars(module).items():
        is_one = isinstance(value, (Workflow, CheckedWorkflow)) or hasattr(type(value), _METHOD)
        if is_one and (id(value) not in found or name in PREFERRED):
            found[id(value)] = name, value
    return dict(found.values())


def choose_workflow(module: ModuleType, file: PythonFile) -> Any:
    """The workflow that is meant: the one that was named, or the only one that a user of the file can mean."""
    found, path = _workflows_in(module), file.path
    if file.name:
        return _named_workflow(found, file)
    if not found:
        hint = "decorate a function with @flow, or write workflow = Workflow(…)"
        raise LanguageError([_file_problem(path, "the file makes no workflow", hint)])
    if len(found) == 1:
        return next(iter(found.values()))
    for name in (*PREFERRED, path.stem.replace("-", "_")):
        if name in found:
            return found[name]
    # Those that were imported are there to be called.
    own = {name: value for name, value in found.items() if not _is_imported(value, module)}
    roots = own if len(own) == 1 else _not_called(own or found, path)
    if len(roots) == 1:
        return next(iter(roots.values()))
    message = f"the file makes {len(found)} workflows: {quote_list(found, 'and')}"
    hint = f"choose one: {path}:{next(iter(roots or found))}, or call it '{PREFERRED[0]}'"
    raise LanguageError([_file_problem(path, message, hint)])


def _is_imported(value: Any, module: ModuleType) -> bool:
    return hasattr(type(value), _METHOD) and getattr(value, "__module__", module.__name__) != module.__name__


def _named_workflow(found: dict[str, Any], file: PythonFile) -> Any:
    """The workflow that was asked for, by the name of its variable, otherwise by its own name."""
    if file.name in found:
        return found[file.name]
    by_name = {str(getattr(value, "name", "")): value for value in found.values()}
    if file.name in by_name:
        return by_name[file.name]
    message = f"the file makes no workflow '{file.name}'"
    hint = did_you_mean(file.name, [*found]) or (f"it makes {quote_list(found, 'and')}" if found else "it makes none")
    raise LanguageError([_file_problem(file.path, message, hint)])


def _not_called(found: dict[str, Any], path: Path) -> dict[str, Any]:
    """Those that no other one calls. One that cannot be built calls none: its problems are shown when it runs."""
    called: set[str] = set()
    names: dict[str, str] = {}
    for name, value in found.items():
        try:
            workflow = _examine(value, path).workflow
        except LanguageError:
            continue
        assert workflow is not None
        names[name] = workflow.name
        called.update(_names_below(workflow))
    return {name: value for name, value in found.items() if names.get(name) not in called}


def _names_below(workflow: CheckedWorkflow) -> Iterator[str]:
    for child in workflow.children.values():
        yield child.name
        yield from _names_below(child)


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
    length = max(1, len(shown.strip()))
    return Problem("language.python", message, str(path), line, indent + 1, length, shown, _hint(error))


# What other systems call our names, and their ways to call a step.
_NAMES = {
    "task": "step",
    "workflow": "flow",
    "asset": "step",
    "op": "step",
    "job": "flow",
    "dag": "flow",
    "DAG": "flow",
}
_CALLS = frozenset({"submit", "delay", "apply_async", "remote", "expand", "with_options", "start_workflow"})
_CALL_HINT = (
    "call it like a function, fetch(url); for each item of a list: fetch.map(urls); with other keys: fetch.options(…)"
)


def _hint(error: BaseException) -> str:
    """How to get a module, and what to write instead of a name that the package does not have."""
    if isinstance(error, ModuleNotFoundError):
        return "install it where mulligan runs, or import it inside the step that needs it"
    if isinstance(error, ImportError) and error.name == "mulligan":
        word = str(error).partition("'")[2].partition("'")[0]
        known = [name for name in dir(sys.modules["mulligan"]) if not name.startswith("_")]
        return f"did you mean '{_NAMES[word]}'?" if word in _NAMES else did_you_mean(word, known)
    if isinstance(error, AttributeError) and type(error.obj).__module__.startswith("mulligan."):
        known = [name for name in dir(type(error.obj)) if not name.startswith("_")]
        return _CALL_HINT if error.name in _CALLS else did_you_mean(error.name or "", known)
    return ""

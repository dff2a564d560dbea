"""Suggestions for shell completion: runs, steps, workflow files, names. It has to be quick.

So this module imports neither the language nor the engine. Values with characters that are special to a shell are left
out: a store or a file may come from another person, and suggestions are inserted into a command line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from mulligan.service.home_names import store_address as store_address
from mulligan.store import shell_completion

# More would not be read; steps are many, so that the first letters find all of a matrix.
RUNS_MAX, NAMES_MAX, STEPS_MAX = 30, 200, 5_000
LATEST = "latest"
_WORD = re.compile(r"[\w.@%+,:/-]+")
# 'step: NAME' in YAML's long and short form and in JSON; a pattern of a matrix has braces and does not match.
_STEP = re.compile(r"""^[^#\n]*?(?:^|[\s{,\[])["']?step["']?:\s*["']?([\w-]+)(?=["'\s,}]|$)""", re.MULTILINE)
# What a Python file calls its steps and its workflows, at the left margin.
_PYTHON = ".py"
_PYTHON_STEP = re.compile(r"^@(?:mulligan\.)?step\b(?:.*\n){1,40}?(?:async )?def (\w+)", re.MULTILINE)
_PYTHON_FLOW = re.compile(
    r"^@(?:mulligan\.)?flow\b(?:.*\n){1,40}?def (\w+)|^(\w+)(?:: *[\w.]+)? *= *(?:mulligan\.)?Workflow\(", re.MULTILINE
)
_WORKFLOW_ENDINGS = (".yaml", ".yml", ".json", ".json5", ".kdl", ".py")
_FILE_BYTES_MAX = 1 << 20
# Of one folder, so many entries are read.
_ENTRIES_MAX = 2_000


class Suggestion(NamedTuple):
    """A word, and a description for shells that show it."""

    word: str
    about: str = ""


class _Action(msgspec.Struct):
    kind: str = ""


class _Step(msgspec.Struct):
    name: str
    action: _Action | None = None

    @property
    def kind(self) -> str:
        return self.action.kind if self.action else "map"


class _Workflow(msgspec.Struct):
    steps: list[_Step] = []


def runs(store: str) -> list[Suggestion]:
    """The newest runs, newest first, then `latest`."""
    found = [
        Suggestion(str(run), f"{name}, {status}") for run, name, status in shell_completion.newest_runs(store, RUNS_MAX)
    ]
    return [*found, Suggestion(LATEST, f"run {found[0].word}: {found[0].about}")] if found else []


def steps_of_run(store: str, run: str, kinds: frozenset[str] = frozenset()) -> list[Suggestion]:
    """The steps of a run, which may be `latest`; only of these kinds, if any are given."""
    newest = shell_completion.newest_runs(store, 1) if run == LATEST else []
    run_id = newest[0][0] if newest else int(run) if run.isdecimal() else 0
    body = shell_completion.definition(store, run_id)
    steps = msgspec.json.decode(body, type=_Workflow).steps if body else []
    wanted = (step for step in steps if not kinds or step.kind in kinds)
    return list(islice(_safe(Suggestion(step.name, step.kind) for step in wanted), STEPS_MAX))


def steps_of_file(path: str) -> list[Suggestion]:
    """The steps that a workflow file names, also if it cannot be loaded yet."""
    python, colon, _ = path.rpartition(f"{_PYTHON}:")
    path = f"{python}{_PYTHON}" if colon else path
    pattern = _PYTHON_STEP if path.endswith(_PYTHON) else _STEP
    return [Suggestion(name) for name in dict.fromkeys(pattern.findall(_text(path)))]


def workflows_of_file(path: str) -> list[str]:
    """The names that a Python file gives to its workflows."""
    return list(dict.fromkeys(flow or built for flow, built in _PYTHON_FLOW.findall(_text(path))))


def workflow_files(start: str) -> list[Suggestion]:
    """Files that may hold a workflow: in the folder that is typed so far, and one level below it.

    No folders, since a shell would add a space after them. After `nightly.py:` the workflows of that file.
    """
    python, colon, _ = start.rpartition(f"{_PYTHON}:")
    if colon:
        file = f"{python}{_PYTHON}"
        return list(_safe(Suggestion(f"{file}:{name}") for name in workflows_of_file(file)))
    folder, _, beginning = start.rpartition("/")
    top = f"{folder}/" if folder or start.startswith("/") else ""
    found: list[str] = []
    for entry in _entries(top or "."):
        if not entry.name.startswith(beginning):
            continue
        if entry.is_dir():
            found += (f"{top}{entry.name}/{below.name}" for below in _entries(entry.path) if _is_workflow(below))
        elif _is_workflow(entry):
            found.append(f"{top}{entry.name}")
    return list(_safe(Suggestion(name) for name in sorted(found)))


def names(store: str, what: str) -> list[Suggestion]:
    """The names of all 'breakers', 'workers' or 'workflows' of the store."""
    return list(_safe(Suggestion(name) for name in shell_completion.names(store, what, NAMES_MAX)))


def _text(path: str) -> str:
    """The beginning of a file; nothing if there is none."""
    if not os.path.isfile(path):
        return ""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(_FILE_BYTES_MAX)


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from (one for one in islice(entries, _ENTRIES_MAX) if not one.name.startswith("."))
    except OSError:
        return


def _is_workflow(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith(_WORKFLOW_ENDINGS) and entry.is_file()


def _safe(found: Any) -> Iterator[Suggestion]:
    return (one for one in found if _WORD.fullmatch(one.word) and not one.word.startswith("-"))

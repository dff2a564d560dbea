"""What may stand in a place of a command line: runs, steps, workflow files, names. Completion has to be quick.

This module imports nothing that loads the language or the engine. Values with characters that a shell would read as
more than a word are left out: a store or a file may be somebody else's, and what is suggested lands on a prompt.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from mulligan.service.home_names import store_address as store_address
from mulligan.store import glance

# As many as somebody reads; all steps of a sweep, so that the first letters find the rest.
RUNS_MAX, NAMES_MAX, STEPS_MAX = 30, 200, 5_000
LATEST = "latest"
_WORD = re.compile(r"[\w.@%+,:/-]+")
# 'step: NAME' as it stands in our files, in YAML's long and short form and in JSON; a pattern of a matrix has braces.
_STEP = re.compile(r"""^[^#\n]*?(?:^|[\s{,\[])["']?step["']?:\s*["']?([\w-]+)(?=["'\s,}]|$)""", re.MULTILINE)
_WORKFLOW_ENDINGS = (".yaml", ".yml", ".json", ".json5", ".kdl", ".py")
_FILE_BYTES_MAX = 1 << 20
# Of one folder.
_ENTRIES_MAX = 2_000


class Suggestion(NamedTuple):
    """A word, and what it is, for shells that show that."""

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
    """The newest runs, newest first, then the word for the newest of all."""
    found = [Suggestion(str(run), f"{name}, {status}") for run, name, status in glance.newest_runs(store, RUNS_MAX)]
    return [*found, Suggestion(LATEST, f"run {found[0].word}: {found[0].about}")] if found else []


def steps_of_run(store: str, run: str, kinds: frozenset[str] = frozenset()) -> list[Suggestion]:
    """The steps of a run by its number, or of the newest; only of these kinds, where any are named."""
    newest = glance.newest_runs(store, 1) if run == LATEST else []
    run_id = newest[0][0] if newest else int(run) if run.isdecimal() else 0
    body = glance.definition(store, run_id)
    steps = msgspec.json.decode(body, type=_Workflow).steps if body else []
    wanted = (step for step in steps if not kinds or step.kind in kinds)
    return list(islice(_safe(Suggestion(step.name, step.kind) for step in wanted), STEPS_MAX))


def steps_of_file(path: str) -> list[Suggestion]:
    """The steps that a workflow file names, also while it is being written and cannot be loaded."""
    if not os.path.isfile(path):
        return []
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read(_FILE_BYTES_MAX)
    return [Suggestion(name) for name in dict.fromkeys(_STEP.findall(text))]


def workflow_files(start: str) -> list[Suggestion]:
    """Files that may hold a workflow: in the folder that is typed so far, and one level below it.

    Never a folder itself: a shell would put a blank behind it.
    """
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
    return list(_safe(Suggestion(name) for name in glance.names(store, what, NAMES_MAX)))


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

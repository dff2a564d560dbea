"""What is checked before a run, a round or a fork starts: labels, files, secrets, files of results that are kept."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

from mulligan.core.deciding.rounds.rounds import kept_files, written_files
from mulligan.core.model.file_records import FileRecord, StaleFile, stale_files
from mulligan.core.model.workflow import (
    LABEL_CHARS_MAX,
    LABEL_NAME_CHARS_MAX,
    LABELS_MAX,
    Command,
    Secret,
    Workflow,
    all_commands,
)
from mulligan.core.state.state import State
from mulligan.core.state.workspace import WORKER_FOLDER
from mulligan.errors import InputInvalid
from mulligan.service.home import Home, this_host
from mulligan.worker.outputs.file_hashes import problem_of
from mulligan.worker.secrets.secrets import problem_of as secret_problem


def refuse_missing_files(workflow: Workflow, cwd: Path) -> None:
    """Raise if a step, also of a called workflow, reads a file that does not exist and that no step writes.

    Each worker has its own files for the runs of a server.
    """
    if str(cwd) == WORKER_FOLDER:
        return
    for path in missing_files(workflow, cwd):
        raise InputInvalid(f"file '{path}' does not exist, and no step writes it", hint=f"looked in {cwd}")


def missing_files(workflow: Workflow, cwd: Path) -> Iterator[str]:
    """The declared files that do not exist and that no step writes."""
    return (path for path in declared_files(workflow) if not (cwd / path).exists())


def declared_files(workflow: Workflow) -> Iterator[str]:
    """The files that steps declare to read, also of called workflows, and that no step writes."""
    read = list(dict.fromkeys(_paths(workflow, "reads")))
    written = _written(workflow) if read else set()
    return (path for path in read if os.path.normpath(path) not in written)


def refuse_missing_secrets(workflow: Workflow, cwd: Path, environment: Mapping[str, str]) -> None:
    """Raise if a step reads a secret that is not available to this process, which would be its worker."""
    for step, name, problem in missing_secrets(workflow, cwd, environment):
        raise InputInvalid(f"secret '{name}', which step '{step}' reads, is not available: {problem}")


def missing_secrets(workflow: Workflow, cwd: Path, environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """The secrets in variables and files that steps read and that are not available: step, name, and why.

    A file may be written by a step. A secret that a command prints is asked for when it is needed.
    """
    read = list(_secrets_read(workflow))
    written = _written(workflow) if read else set()
    for step, name, secret in read:
        if secret.file is not None and os.path.normpath(secret.file) in written:
            continue
        if (problem := secret_problem(secret, str(cwd), environment)) is not None:
            yield step, name, problem


def _secrets_read(workflow: Workflow) -> Iterator[tuple[str, str, Secret]]:
    """The secrets that each step reads, with its handlers, scripts and checks; then those of called workflows."""
    for step in (*workflow.steps, workflow.end) if workflow.secrets else ():
        read = {name for command in all_commands((step,)) for name in _reads(command)}
        yield from ((step.name, name, one) for name, one in workflow.secrets.items() if f"secrets.{name}" in read)
    for child in workflow.children.values():
        yield from _secrets_read(child)


def _reads(command: Command) -> Iterator[str]:
    action = command.action
    for template in (*(action.bindings.values() if action else ()), *command.env.values(), command.cwd):
        yield from template.reads if template else ()


def _written(workflow: Workflow) -> set[str]:
    return {os.path.normpath(path) for path in _paths(workflow, "writes")}


def _paths(workflow: Workflow, key: Literal["reads", "writes"]) -> Iterator[str]:
    """The paths that the steps of a workflow read or write; then those of called workflows."""
    for command in all_commands(workflow.steps):
        # A path with an expression in it is known when the step starts.
        names = (name for name in getattr(command, key) if name not in command.file_paths)
        yield from (workflow.files.get(name, name) for name in names)
    for child in workflow.children.values():
        yield from _paths(child, key)


def check_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels; raises `InputInvalid` if one is too long, empty or not a single line."""
    if len(labels) > LABELS_MAX:
        raise InputInvalid(f"{len(labels)} labels are too many", hint=f"a run has at most {LABELS_MAX}")
    for name, value in labels.items():
        _check(f"the name of label '{_shown(name)}'", name, LABEL_NAME_CHARS_MAX, is_needed=True)
        _check(f"the value of label '{_shown(name)}'", value, LABEL_CHARS_MAX, is_needed=False)
    return dict(labels)


# What a server says about runs: of which version of a workflow they are, and which schedule started them.
VERSION_LABEL = "version"
SERVER_LABELS = (VERSION_LABEL, "schedule", "schedule_instant")


def refuse_reserved_labels(labels: Mapping[str, str]) -> None:
    """`InputInvalid` for labels that only the server gives."""
    for name in SERVER_LABELS:
        if name in labels:
            hint = "leave it out, or choose another name"
            raise InputInvalid(f"the label '{name}' is given by the server", hint=hint, field="labels")


def _check(what: str, text: str, chars_max: int, *, is_needed: bool) -> None:
    hint = f"one line of at most {chars_max} characters"
    if is_needed and not text.strip():
        raise InputInvalid(f"{what} is empty", hint=hint)
    if len(text) > chars_max:
        raise InputInvalid(f"{what} has {len(text)} characters", hint=hint)
    if not text.isprintable():
        raise InputInvalid(f"{what} has an unprintable character", hint=hint)


def _shown(name: str) -> str:
    return " ".join(name.split())[:LABEL_NAME_CHARS_MAX]


def stale_of_round(
    home: Home, state: State, from_step: str, *, has_items: bool = False, keep_completed: bool = False
) -> tuple[StaleFile, ...]:
    """Files of steps whose results another round would keep, if they are gone or have changed."""
    return _stale(home, state, kept_files(state, from_step, has_items=has_items, keep_completed=keep_completed))


def stale_results(home: Home, state: State, steps: Iterable[str]) -> tuple[StaleFile, ...]:
    """Files of these steps that are gone or have changed since the steps completed."""
    return _stale(home, state, written_files(state, steps))


def _stale(home: Home, state: State, written: Iterator[tuple[str, FileRecord]]) -> tuple[StaleFile, ...]:
    """Only files that were written on this host are checked: another host may have another disk."""
    here = ("", this_host())
    local = ((step, record) for step, record in written if state.places[step].host in here)
    return stale_files(local, partial(problem_of, home=state.run.workspace or str(home.run_folder(state.run.cwd))))

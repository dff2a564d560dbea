"""A recorded attempt again, in a debugger and outside of its run: its inputs are the same, and nothing is recorded.

It works in the folder of the run, as it did; what the worker writes for it goes to a folder that is removed.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from mulligan.core.deciding.classify import classify
from mulligan.core.effects.program_history import ProgramHistory
from mulligan.core.effects.tasks import Task, make_task
from mulligan.core.model import events as e
from mulligan.core.model.artifacts import Artifact, Format
from mulligan.core.model.reports import TaskEnded
from mulligan.core.model.workflow import Step
from mulligan.core.state.scope import error_view
from mulligan.errors import NotFound, Refused
from mulligan.ports import ArtifactRecord, Artifacts, Lease
from mulligan.service.driving.debugging import kept_terminal
from mulligan.service.driving.driver import machine
from mulligan.service.home import this_host
from mulligan.service.runs.stored.past_states import PastStates
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.store.artifact_files import ArtifactFiles
from mulligan.worker.actions.action_registry import is_python
from mulligan.worker.child.warm_child import Debugging
from mulligan.worker.local_executor import LocalExecutor

_KEY = "idempotency_key"
# An item of a map; its commands are places below it.
_ITEM = re.compile(r"\]$")


class RecordedAttempt(msgspec.Struct, frozen=True):
    """An attempt that is recorded, with what its task was given."""

    run_id: int
    place: str
    attempt: int
    task: Task
    # Why a second time may do harm; "" if nothing says that it would.
    danger: str


class AttemptEnd(msgspec.Struct, frozen=True):
    """How an attempt in a debugger has ended."""

    # As `show --json` has one.
    failure: dict[str, Any] | None
    output: Any


def find_attempt(reader: RunReader, run_id: int, place: str, attempt: int | None) -> RecordedAttempt:
    """The attempt of a step or an item, by default the last one. Refuses what is no function in Python."""
    reader.refuse_unknown(run_id, place)
    found: e.Entry | None = None
    for entry in reader.store.search_log(run_id, (f'"{place}',), also='"type":"attempt.scheduled"'):
        fact = entry.fact
        if isinstance(fact, e.AttemptScheduled) and _belongs(fact.place, place) and attempt in (None, fact.attempt):
            found = entry
    if found is None:
        which = "no attempt" if attempt is None else f"no attempt {attempt}"
        raise NotFound(f"'{place}' has {which} in run {run_id}", hint=_list_hint(run_id))
    fact = found.fact
    assert isinstance(fact, e.AttemptScheduled)
    state = PastStates(reader).at(run_id, found.seq).state
    task, step = make_task(state, fact.place), state.step_of(state.places[fact.place])
    if task.turn is not None:
        raise Refused(
            f"'{place}' is a program, which calls steps: outside of its run it cannot",
            hint="to debug it, run it again: mulligan run FILE --debug",
        )
    if not is_python(task):
        hint = f"run it alone: mulligan step FILE {task.step}"
        raise Refused(f"'{place}' is a {task.kind} step, and a debugger is for steps in Python", hint=hint)
    dangers = (
        "it has an undo, so it changes something" if isinstance(step.spec, Step) and step.spec.undo is not None else "",
        "a lost attempt of it counts as failed, so it may not run twice" if task.is_careful else "",
        "it uses an idempotency key" if _KEY in f"{task.params.get('source', '')}{task.params.get('code', '')}" else "",
    )
    return RecordedAttempt(run_id, fact.place, fact.attempt, _alone(task), next(filter(None, dangers), ""))


def _belongs(place: str, wanted: str) -> bool:
    """Whether a place is the wanted one, or a command of the wanted item."""
    item, _, command = place.rpartition(".")
    return place == wanted or (item == wanted and command.isdecimal() and _ITEM.search(item) is not None)


def _list_hint(run_id: int) -> str:
    return f"list the attempts: mulligan show {run_id}"


def _alone(task: Task) -> Task:
    """The task without what only matters among others: limits, resources, results that are used again."""
    return msgspec.structs.replace(
        task,
        timeout=None,
        deadline=None,
        cpus=1.0,
        memory=None,
        gpus=0,
        labels=(),
        nodes=1,
        guard=None,
        reuse=None,
        run_due=None,
        budget=None,
    )


def debug_attempt(reader: RunReader, recorded: RecordedAttempt, debugging: Debugging) -> AttemptEnd:
    """Run it, and return how it has ended. Ctrl-C ends it."""
    with tempfile.TemporaryDirectory(prefix="mulligan-debug-") as folder, kept_terminal(debugging):
        name = f"debug.{os.getpid()}.{os.urandom(3).hex()}"
        here = machine()
        executor = LocalExecutor(
            name=name,
            host=this_host(),
            home=Path(folder),
            cpus=1.0,
            memory=here.memory,
            artifacts=_ReadArtifacts(reader.store.artifacts, Path(folder) / "artifacts"),
            read_history=_no_history,
            debugging=debugging,
            grace_seconds=1.0,
        )
        try:
            task = recorded.task
            executor.reserve(task)
            executor.start([Lease(task, name, 1)])
            while not (ended := executor.collect(1.0)):
                continue
        finally:
            executor.close()
        (_, report) = ended[0]
        assert isinstance(report, TaskEnded)
        failure, _ = classify(report.outcome)
        return AttemptEnd(None if failure is None else error_view(failure), report.output)


def _no_history(run_id: int, delivered: int) -> ProgramHistory:
    raise AssertionError("a program is refused before")


class _ReadArtifacts:
    """The artifacts of a store to read; what is kept goes to a folder."""

    def __init__(self, store: Artifacts, folder: Path) -> None:
        self._store = store
        self._kept = ArtifactFiles(folder)

    def keep(self, name: str, data: bytes, format: Format) -> Artifact:
        return self._kept.keep(name, data, format)

    def keep_file(self, artifact: Artifact, path: str) -> Artifact:
        return self._kept.keep_file(artifact, path)

    def fetch(self, artifact: Artifact) -> bytes:
        return self._store.fetch(artifact)

    def path(self, artifact: Artifact) -> str:
        return self._store.path(artifact)

    def records(self) -> Iterator[ArtifactRecord]:
        return self._kept.records()

    def remove(self, names: Iterable[str]) -> None:
        self._kept.remove(names)

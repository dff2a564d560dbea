"""A corrected program for a run: which of its calls it keeps."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec

from mulligan.core.deciding.rounds.program_rounds import calls_to_repeat
from mulligan.core.effects.program_history import clock_begin, history_without, program_history
from mulligan.core.model.workflow import Workflow
from mulligan.core.state.state import State
from mulligan.errors import InputInvalid, OutputDropped, Refused
from mulligan.ports import Store
from mulligan.programs.conversion import begin_of, history_of, recorded_history
from mulligan.programs.correction_process import correct
from mulligan.programs.rehearsing import RecordedRun as RecordedRun
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.worker.outputs.artifact_inputs import locate_artifacts


def recorded_run(reader: RunReader, run_id: int) -> RecordedRun:
    """What is recorded of a run of a program, to run a changed program over it. Large results are read."""
    state = reader.state(run_id)
    if not state.graph.program:
        raise Refused(f"run {run_id} is not a run of a program", hint="whatif plays changed flows and files")
    program = state.places[state.graph.program]
    found = recorded_history(program_history(state, len(state.calls)))
    ends = tuple(msgspec.structs.replace(one, output=reader.fetch_value(one.output)) for one in found.deliveries)
    history = msgspec.structs.replace(found, deliveries=ends)
    inputs = dict(state.run.inputs)
    files = _files(reader.store, [inputs, *(one.output for one in found.deliveries)], None)
    return RecordedRun(reader.fetch_value(inputs), history, clock_begin(program), files)


def kept_calls(
    store: Store, state: State, workflow: Workflow, inputs: dict[str, Any], *, from_step: str, is_forced: bool = False
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The labels of the calls that a corrected program keeps, and where it differs, in words.

    Each branch keeps those up to its first difference. InputInvalid if it cannot be run over what is recorded.
    """
    program = state.places[state.graph.program]
    action = workflow.steps[0].action
    assert action is not None
    history = history_without(state, calls_to_repeat(state, from_step, is_forced=is_forced))
    params = {**action.params, "args": {name: inputs.get(name) for name in workflow.inputs}}
    with tempfile.TemporaryDirectory(prefix="mulligan-") as folder:
        path = os.path.join(folder, "history")
        with open(path, "wb") as file:
            file.write(history_of(history))
        files = _files(store, [params["args"], *(one.output for one in history.deliveries)], folder)
        begin = begin_of(params, state.run.cwd, turn=1, history=path, at=clock_begin(program), files=files)
        found = correct(begin, state.run.cwd or "/")
    if found.problem:
        raise InputInvalid(
            f"the corrected program cannot be run over what is recorded: {found.problem}",
            hint="correct the file",
        )
    return tuple(state.labels[one.branch, one.ordinal] for one in found.kept), found.differences


def _files(store: Store, values: Iterable[Any], folder: str | None) -> dict[str, str]:
    """The paths of the artifacts that the values refer to; those without one are written to the folder.

    One that is gone is left out: reading it fails, and says so.
    """

    def write(data: bytes, ending: str) -> str:
        if folder is None:
            return ""
        descriptor, path = tempfile.mkstemp(ending, dir=folder)
        with open(descriptor, "wb") as file:
            file.write(data)
        return path

    found: dict[str, str] = {}
    for value in values:
        with suppress(InputInvalid, OutputDropped):
            found |= locate_artifacts(value, store.artifacts, write)
    return found

"""A corrected program for a run: which of its calls it keeps."""

from __future__ import annotations

import os
import tempfile

import msgspec

from mulligan.core.deciding.rounds.program_rounds import calls_to_repeat
from mulligan.core.effects.program_history import ProgramHistory, program_history
from mulligan.core.model.workflow import Workflow
from mulligan.core.state.state import State
from mulligan.errors import InputInvalid, Refused
from mulligan.programs.conversion import begin_of, history_of, recorded_history
from mulligan.programs.correcting import Corrected, correct
from mulligan.programs.rehearsing import RecordedRun as RecordedRun
from mulligan.service.runs.stored.run_reader import RunReader


def recorded_run(reader: RunReader, run_id: int) -> RecordedRun:
    """What is recorded of a run of a program, to run a changed program over it. Large results are read."""
    state = reader.state(run_id)
    if not state.graph.program:
        raise Refused(f"run {run_id} is not a run of a program", hint="whatif plays changed flows and files")
    program = state.places[state.graph.program]
    found = recorded_history(program_history(state, len(state.calls)))
    ends = tuple(msgspec.structs.replace(one, output=reader.fetch_value(one.output)) for one in found.deliveries)
    history = msgspec.structs.replace(found, deliveries=ends)
    return RecordedRun(reader.fetch_value(dict(state.run.inputs)), history, program.entered_at.timestamp())


def kept_calls(state: State, workflow: Workflow, *, from_step: str, is_forced: bool = False) -> tuple[str, ...]:
    """The labels of the calls that a corrected program keeps: each branch keeps those up to its first difference."""
    found = corrected_calls(state, workflow, from_step=from_step, is_forced=is_forced)
    return tuple(state.labels[one.branch, one.ordinal] for one in found.kept)


def corrected_calls(state: State, workflow: Workflow, *, from_step: str, is_forced: bool = False) -> Corrected:
    """What the corrected program does over what is recorded. InputInvalid if it cannot be run."""
    again = frozenset(calls_to_repeat(state, from_step, is_forced=is_forced))
    program = state.places[state.graph.program]
    action = workflow.steps[0].action
    assert action is not None
    whole = program_history(state, len(state.calls))
    kept = {label: call for label, call in whole.calls.items() if label not in again}
    ends = [one for one in whole.deliveries if one.label not in again]
    history = ProgramHistory(kept, ends, is_edited=whole.is_edited)
    params = {**action.params, "args": {name: state.run.inputs.get(name) for name in workflow.inputs}}
    with tempfile.TemporaryDirectory(prefix="mulligan-") as folder:
        path = os.path.join(folder, "history")
        with open(path, "wb") as file:
            file.write(history_of(history))
        entered = program.entered_at.timestamp()
        begin = begin_of(params, state.run.cwd, turn=1, run_id=state.run.run_id, history=path, at=entered)
        found = correct(begin, state.run.cwd or "/")
    if found.problem:
        raise InputInvalid(
            f"the corrected program cannot be run over what is recorded: {found.problem}",
            hint="correct the file",
        )
    return found

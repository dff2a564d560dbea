"""A corrected workflow file for a run that has ended: the report to the run, and a preview of the round."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from mulligan.core.deciding.rounds.rounds import (
    Round,
    compared_round,
    is_correctable,
    plan_revision,
    plan_round,
    with_stopped_run,
)
from mulligan.core.evolve.evolve_run import evolve
from mulligan.core.evolve.revision import Difference, lost_undos, plain_from_json, workflow_from_plain
from mulligan.core.model.events import Entry, RunStarted
from mulligan.core.model.graph import Graph
from mulligan.core.model.reports import RetryRequested, Revised
from mulligan.core.model.workflow import Workflow, encode, version
from mulligan.core.state.state import State
from mulligan.errors import InputInvalid, MulliganError
from mulligan.formats import NOETL, OURS, load, options_of
from mulligan.language.expressions import Cel
from mulligan.language.input_values import check_recorded_inputs, convert, format_input, refuse_references
from mulligan.language.readers.workspace_steps import keep_workspace
from mulligan.ports import Store
from mulligan.service.runs.changes.preflight import refuse_missing_files, refuse_missing_secrets
from mulligan.service.runs.stored.run_reader import RunReader


class CorrectedWorkflow(msgspec.Struct, frozen=True):
    """A corrected workflow for a run, and the options that go with it."""

    workflow: Workflow
    # Inputs that the file declares and the run does not have.
    given: dict[str, Any] = {}
    file: str = ""
    may_rename: bool = False


class ChangedSteps(msgspec.Struct, frozen=True):
    """A step that changed, or steps of a matrix with the same changes; how many of them keep their results."""

    step: str
    keys: tuple[str, ...]
    count: int = 1
    kept: int = 0


class Correction(msgspec.Struct, frozen=True):
    """How a corrected file differs from the workflow of the run; empty if `is_same`."""

    version: str
    file: str = ""
    is_same: bool = False
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    # The changed keys of each step, as the file names them.
    changed: dict[str, tuple[str, ...]] = {}
    # The same with each matrix in one entry.
    families: tuple[ChangedSteps, ...] = ()
    # The changed keys of the workflow itself.
    settings: tuple[str, ...] = ()
    # Changed steps that keep their results: the change does not affect the result, or `keep_completed`.
    kept: tuple[str, ...] = ()
    # Completed steps that nothing undoes any more.
    lost_undos: tuple[str, ...] = ()
    # New inputs of the run; and inputs whose default changed, with the value that the run keeps.
    inputs: dict[str, Any] = {}
    inputs_kept: dict[str, Any] = {}
    # Where a program calls something else than is recorded, in words: the first difference of each branch.
    differences: tuple[str, ...] = ()


class PlannedRound(msgspec.Struct, frozen=True):
    """The next round, and the state that it would begin with."""

    state: State
    round: Round
    difference: Difference | None = None
    correction: Correction | None = None


def describe_revision(
    reader: RunReader,
    state: State,
    corrected: CorrectedWorkflow,
    *,
    keep_completed: bool,
    from_step: str = "",
    force: bool = False,
) -> tuple[Revised, tuple[str, ...]]:
    """The corrected file as a report to the run, and where a program differs, in words.

    Raises if the run could not continue with it.
    """
    workflow = keep_workspace(corrected.workflow, state.workflow)
    store, inputs = reader.store, _inputs(state, corrected, reader.store)
    kept: tuple[str, ...] | None = None
    differences: tuple[str, ...] = ()
    if state.graph.program:
        kept, differences = _kept_calls(store, state, workflow, inputs, from_step, is_forced=force)
    refuse_missing_files(workflow, Path(state.run.cwd))
    if not reader.store.is_shared:
        refuse_missing_secrets(workflow, reader.home.run_folder(state.run.cwd), os.environ)
    data = encode(workflow)
    revised = Revised(
        version=version(data),
        definition=plain_from_json(data),
        inputs=inputs,
        file=corrected.file,
        digest=digest_of(corrected.file),
        may_rename=corrected.may_rename,
        keeps_completed=keep_completed,
        kept_calls=kept,
        kept_round=compared_round(state),
    )
    return revised, differences


def _kept_calls(
    store: Store, state: State, workflow: Workflow, inputs: dict[str, Any], from_step: str, *, is_forced: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a corrected program keeps, and where it differs. Few runs are of programs, so this is imported here."""
    from mulligan.service.runs.changes.program_corrections import kept_calls

    return kept_calls(store, state, workflow, inputs, from_step=from_step, is_forced=is_forced)


def _inputs(state: State, corrected: CorrectedWorkflow, store: Store) -> dict[str, Any]:
    """The inputs for the corrected file. The run keeps its values, since steps have read them."""
    declared, run = corrected.workflow.inputs, state.run
    kept = {name: value for name, value in run.inputs.items() if name in declared}
    for name, value in corrected.given.items():
        if name in kept and convert(name, declared[name], value) != kept[name]:
            raise InputInvalid(
                f"run {run.run_id} already has the input '{name}': {format_input(kept[name])}",
                hint=f"for another value start another run: {_other_run(state)} -i {name}=VALUE",
                input=name,
            )
    refuse_references(corrected.given)
    evaluator = Cel(os.environ, store.artifacts.fetch)
    return check_recorded_inputs(corrected.workflow, {**corrected.given, **kept}, evaluator)


def _other_run(state: State) -> str:
    """The command that starts a run with other inputs, which a program needs from its first call on."""
    return "mulligan run FILE" if state.graph.program else f"mulligan fork {state.run.run_id} --from STEP"


def plan_next_round(state: State, report: RetryRequested, differences: tuple[str, ...] = ()) -> PlannedRound:
    """Plan the next round. A corrected definition is applied to `state`, which must be a copy of the caller."""
    if is_correctable(state, report):
        report = with_stopped_run(state, report)
    found = plan_revision(state, report)
    if found is None:
        revised = report.revised
        same = None if revised is None else Correction(revised.version, revised.file, is_same=True)
        return PlannedRound(state, plan_round(state, report), None, same)
    fact, difference = found
    before, inputs = state.workflow, state.run.inputs
    undos = lost_undos(state, Graph(workflow_from_plain(fact.definition)))
    evolve(state, Entry(state.run.seq + 1, state.run.at, 0, fact))
    chosen = plan_round(state, report, difference)
    kept = tuple(name for name in fact.changed if name not in frozenset(chosen.steps))
    correction = Correction(
        version=fact.version,
        file=fact.file,
        added=fact.added,
        removed=fact.removed,
        changed=fact.changed,
        families=tuple(_families(state, fact.changed, frozenset(kept))),
        settings=fact.settings,
        kept=kept,
        lost_undos=undos,
        inputs={name: value for name, value in fact.inputs.items() if name not in inputs},
        inputs_kept=_other_defaults(before, state.workflow, state.run.inputs),
        differences=differences,
    )
    return PlannedRound(state, chosen, difference, correction)


def _families(state: State, changed: dict[str, tuple[str, ...]], kept: frozenset[str]) -> Iterator[ChangedSteps]:
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name, keys in changed.items():
        found.setdefault((state.step(name).sweep or name, keys), []).append(name)
    for (family, keys), names in found.items():
        yield ChangedSteps(family, keys, len(names), len(kept.intersection(names)))


def _other_defaults(old: Workflow, new: Workflow, inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs that keep their old default although the file has another one now."""
    both = (name for name in new.inputs if name in old.inputs and old.inputs[name].has_default)
    others = (name for name in both if new.inputs[name].default != old.inputs[name].default)
    return {name: inputs[name] for name in others if inputs.get(name) == old.inputs[name].default}


def changed_file(reader: RunReader, run_id: int) -> str:
    """The file that the run was started from, if it holds another workflow now; otherwise "".

    It is loaded only if its bytes have changed, since a large file takes long to load.
    """
    record = reader.record(run_id)
    started = next((entry.fact for entry in reader.store.log(run_id, limit=1)), None)
    if not isinstance(started, RunStarted):
        return ""
    # In a later round a corrected file may have taken its place.
    revision = reader.lazy_state(run_id).run.revision if record.round > 1 else None
    known = revision or started
    if digest_of(known.file) in ("", known.digest):
        return ""
    pinned = reader.lazy_state(run_id).workflow
    # Was it read with --trust-templates? In JSON, quotes inside a text are escaped, so this cannot be a text.
    is_trusting = pinned.origin == NOETL and b'"trust_templates":true' in encode(pinned)
    try:
        today = load(
            known.file,
            named=pinned.origin or OURS,
            trust_templates=is_trusting,
            given=reader.inputs(run_id),
            options=options_of(pinned),
        )
        return known.file if version(encode(keep_workspace(today, pinned))) != known.version else ""
    except MulliganError:
        # It is being edited, and cannot be run as it is.
        return ""


def digest_of(path: str) -> str:
    """A hash of the bytes of a file; "" if it cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16] if path else ""
    except OSError:
        return ""

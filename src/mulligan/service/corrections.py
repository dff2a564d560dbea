"""A corrected workflow file for a run that has ended: what a retry is told of it, and what is said of it before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from mulligan.core.deciding.rounds import Round, plan_revision, plan_round
from mulligan.core.evolve.evolve import evolve
from mulligan.core.evolve.revision import Difference, definition, lost_undos, plain_definition
from mulligan.core.model.events import Entry
from mulligan.core.model.graph import Graph
from mulligan.core.model.reports import RetryRequested, Revised
from mulligan.core.model.workflow import Workflow, encode, version
from mulligan.core.state.state import State
from mulligan.errors import InputInvalid
from mulligan.language import check_recorded_inputs, refuse_references
from mulligan.language.expressions import Cel
from mulligan.language.inputs import convert, format_input
from mulligan.ports import Store
from mulligan.service.preflight import refuse_missing_files, refuse_missing_secrets
from mulligan.service.run_reader import digest_of


class Corrected(msgspec.Struct, frozen=True):
    """A workflow file that somebody has corrected, and what he gives beside it."""

    workflow: Workflow
    # Inputs that the file asks for and the run does not have.
    given: dict[str, Any] = {}
    file: str = ""
    may_rename: bool = False
    # Completed steps, and completed items of maps, keep their results though the file changes them.
    keeps_completed: bool = False


class Changed(msgspec.Struct, frozen=True):
    """A step that has changed, or steps of a matrix that have changed alike; how many of them keep their results."""

    step: str
    keys: tuple[str, ...]
    count: int = 1
    kept: int = 0


class Correction(msgspec.Struct, frozen=True):
    """Where a corrected file is another than what the run went by; nothing is where `is_same`."""

    version: str
    file: str = ""
    is_same: bool = False
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    # By step the keys that are others, as the file calls them.
    changed: dict[str, tuple[str, ...]] = {}
    # The same for people: a matrix in one line.
    families: tuple[Changed, ...] = ()
    # The keys of the workflow itself.
    settings: tuple[str, ...] = ()
    # Steps that have changed and keep their results: what changed has no part in them, or that is asked for.
    kept: tuple[str, ...] = ()
    # Steps that have completed, and that nothing undoes any more.
    lost_undos: tuple[str, ...] = ()
    # Inputs that the run has and did not have before; and those whose default is another now, with the run's own value.
    inputs: dict[str, Any] = {}
    inputs_kept: dict[str, Any] = {}


class Planned(msgspec.Struct, frozen=True):
    """A round as it would be, on the state that it would begin with."""

    state: State
    round: Round
    difference: Difference | None = None
    correction: Correction | None = None


def revised(state: State, corrected: Corrected, store: Store) -> Revised:
    """What a retry is told of a corrected file. Raises where the run could not go on with it."""
    workflow = corrected.workflow
    inputs = _inputs(state, corrected, store)
    refuse_missing_files(workflow, Path(state.run.cwd))
    if not store.is_shared:
        refuse_missing_secrets(workflow, Path(state.run.cwd), os.environ)
    data = encode(workflow)
    return Revised(
        version=version(data),
        definition=plain_definition(data),
        inputs=inputs,
        file=corrected.file,
        digest=digest_of(corrected.file),
        may_rename=corrected.may_rename,
        keeps_completed=corrected.keeps_completed,
    )


def _inputs(state: State, corrected: Corrected, store: Store) -> dict[str, Any]:
    """What the run has of what the file asks for, and what is given beside. A value that steps have read stays."""
    declared, run = corrected.workflow.inputs, state.run
    kept = {name: value for name, value in run.inputs.items() if name in declared}
    for name, value in corrected.given.items():
        if name in kept and convert(name, declared[name], value) != kept[name]:
            raise InputInvalid(
                f"run {run.run_id} has the input '{name}' already: {format_input(kept[name])}",
                hint=f"with another value it is another run: mulligan fork {run.run_id} --from STEP -i {name}=VALUE",
                input=name,
            )
    refuse_references(corrected.given)
    evaluator = Cel(os.environ, store.artifacts.fetch)
    return check_recorded_inputs(corrected.workflow, {**corrected.given, **kept}, evaluator)


def planned(state: State, report: RetryRequested) -> Planned:
    """The round that would follow. A corrected definition is tried on the state: that must be the caller's own."""
    found = plan_revision(state, report)
    if found is None:
        told = report.revised
        same = None if told is None else Correction(told.version, told.file, is_same=True)
        return Planned(state, plan_round(state, report), None, same)
    fact, difference = found
    before, inputs = state.workflow, state.run.inputs
    undos = lost_undos(state, Graph(definition(fact.definition)))
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
    )
    return Planned(state, chosen, difference, correction)


def _families(state: State, changed: dict[str, tuple[str, ...]], kept: frozenset[str]) -> Iterator[Changed]:
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name, keys in changed.items():
        found.setdefault((state.step(name).sweep or name, keys), []).append(name)
    for (family, keys), names in found.items():
        yield Changed(family, keys, len(names), len(kept.intersection(names)))


def _other_defaults(old: Workflow, new: Workflow, inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs that go on with the default that they had, where the file has another one now."""
    both = (name for name in new.inputs if name in old.inputs and old.inputs[name].has_default)
    others = (name for name in both if new.inputs[name].default != old.inputs[name].default)
    return {name: inputs[name] for name in others if inputs.get(name) == old.inputs[name].default}

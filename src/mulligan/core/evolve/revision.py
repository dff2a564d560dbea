"""A corrected definition for an ended run: how it differs, and the state of the run under it.

`rounds` decides which steps run again. Steps are compared by what determines their result: a longer timeout or another
retry policy leaves a completed step as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from mulligan.core.evolve.arrivals import is_met
from mulligan.core.evolve.evolve_places import reset_items
from mulligan.core.model import events as e
from mulligan.core.model.actions import is_group, traits_of
from mulligan.core.model.graph import Graph
from mulligan.core.model.reports import Revised
from mulligan.core.model.workflow import (
    END,
    Action,
    Command,
    Map,
    Step,
    Workflow,
    all_commands,
    decode,
    encode,
    expressions_in,
    version,
)
from mulligan.core.state.state import ITEM, PastVisit, Place, Revision, State
from mulligan.errors import Refused

_replace = msgspec.structs.replace

# Fields that bound or repair the attempts of a command and do not affect its result.
_POLICIES: dict[str, Any] = {
    "rules": (),
    "max_attempts": None,
    "timeout": None,
    "deadline": None,
    "on_failure": None,
    "handler_failure_fatal": False,
    "continue_on_error": False,
    "resources": None,
    "on_lost": "rerun",
    "affinity": "host",
    "breaker": None,
    "breaker_key": None,
    "logs": {},
    "cache": None,
    "cache_key": None,
    "cache_code": True,
}
# The same for a step, and when it may start: for a step that has run, that depends on what runs again before it.
_STEP_POLICIES: dict[str, Any] = {
    **_POLICIES,
    "needs": (),
    "join": "any",
    "triage": None,
    "undo": None,
    "max_visits": 0,
    "at_max_visits": "loop_limit",
    "is_start": False,
    "fail_fast": None,
    "budget": None,
    "accepts": {},
}
# The keys of fields in a file, if they differ.
_FILE_KEYS = {
    "rules": "retry",
    "edges": "next",
    "is_start": "start",
    "validator": "validate",
    "handler_failure_fatal": "on_failure",
    "sweep": "matrix",
    "cache_key": "cache",
    "cache_code": "cache",
    "breaker_key": "breaker",
    "file_paths": "writes",
    "accepts": "coverage",
}
# Fields of a workflow that are not compared as settings: steps are compared one by one, and these through them.
_NOT_SETTINGS = frozenset({"steps", "groups", "children", "origin", "callers_secrets"})


class Difference(msgspec.Struct, frozen=True):
    """How two definitions of a workflow differ."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    # The changed keys by step, as in the file.
    changed: dict[str, tuple[str, ...]]
    # The changed keys of the workflow itself.
    settings: tuple[str, ...]
    # The changed steps whose results would differ; among them those whose edges have changed.
    renewed: tuple[str, ...]
    rerouted: tuple[str, ...]
    # By step, the steps that it needs now and did not before.
    gained: dict[str, frozenset[str]]
    # The changed steps whose results would differ, also if they are to be kept.
    different: tuple[str, ...] = ()


# -- comparing -------------------------------------------------------------------------------------------------------


def compare_definitions(old: Graph, new: Graph) -> Difference:
    """How `new` differs from `old`. Steps are matched by name."""
    compared = _Comparison(old, new)
    both = [name for name in new.nodes if name in old.nodes]
    changed = {name: keys for name in both if (keys := compared.keys(name))}
    renewed = tuple(name for name in changed if compared.is_renewed(name))
    return Difference(
        added=tuple(name for name in new.nodes if name not in old.nodes),
        removed=tuple(name for name in old.nodes if name not in new.nodes),
        changed=changed,
        settings=tuple(_settings(old.workflow, new.workflow)),
        renewed=renewed,
        rerouted=tuple(name for name in changed if compared.has_other_edges(name)),
        gained={name: found for name in changed if (found := compared.gained(name))},
        different=renewed,
    )


class _Comparison:
    """Two definitions of one workflow, step by step."""

    def __init__(self, old: Graph, new: Graph) -> None:
        self.old, self.new = old, new
        self.files = _changed_names(old.workflow.files, new.workflow.files)
        self.groups = _changed_names(old.workflow.groups, new.workflow.groups)
        self.children = _changed_names(old.workflow.children, new.workflow.children)

    def keys(self, name: str) -> tuple[str, ...]:
        """The changed keys of the step, in field order, each once."""
        old, new = self.old.nodes[name].step, self.new.nodes[name].step
        found = [] if old == new else list(_keys(old, new))
        if self._has_other_group(new):
            found.append("needs")
        if self.has_other_edges(name):
            found.append("next")
        found += self._surroundings(new)
        return tuple(dict.fromkeys(found))

    def is_renewed(self, name: str) -> bool:
        """Whether the result of the step would differ, so that its old result is not kept."""
        old, new = self.old.nodes[name].step, self.new.nodes[name].step
        is_other = old != new and _without_policies(old) != _without_policies(new)
        return is_other or self.has_other_edges(name) or any(True for _ in self._surroundings(new))

    def gained(self, name: str) -> frozenset[str]:
        return self.new.sources(name) - self.old.sources(name) if "needs" in self.keys(name) else frozenset()

    def _has_other_group(self, step: Step) -> bool:
        return bool(self.groups) and any(need.is_group and need.of in self.groups for need in step.needs)

    def has_other_edges(self, name: str) -> bool:
        """Whether its edges have changed. An edge may also become a loop because of changes elsewhere."""
        old, new = self.old.nodes[name], self.new.nodes[name]
        return old.step.edges != new.step.edges or [a.is_loop for a in old.arcs] != [a.is_loop for a in new.arcs]

    def _surroundings(self, step: Step) -> Iterator[str]:
        """Changed definitions that the step uses: paths of files, called workflows."""
        if self.files and (self.files.intersection((*step.reads, *step.writes)) or "files" in _names_read(step)):
            yield "files"
        called = (command.action for command in all_commands([step]) if _called_file(command) in self.children)
        if self.children and (action := next(called, None)) is not None:
            yield _kind(action)


def _changed_names(old: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    return {name for name in {**old, **new} if old.get(name) != new.get(name)}


def _keys(old: Step, new: Step) -> Iterator[str]:
    for field in Step.__struct_fields__:
        if getattr(old, field) != getattr(new, field):
            action = new.action or old.action
            yield _kind(action) if field == "action" and action else _FILE_KEYS.get(field, field)


def _kind(action: Action) -> str:
    """The key of the action in a file. A group is a workflow within the same file."""
    return "group" if is_group(action) else action.kind


def _settings(old: Workflow, new: Workflow) -> Iterator[str]:
    names = (name for name in Workflow.__struct_fields__ if name not in _NOT_SETTINGS)
    return (name for name in names if getattr(old, name) != getattr(new, name))


def _without_policies(command: Command) -> Command:
    """The command without the fields that do not affect its result."""
    plain = _replace(
        command,
        **(_STEP_POLICIES if isinstance(command, Step) else _POLICIES),
        on_success=tuple(map(_without_policies, command.on_success)),
        validator=command.validator and _without_policies(command.validator),
    )
    if not isinstance(plain, Step):
        return plain
    return _replace(
        plain, do=tuple(map(_without_policies, plain.do)), map=plain.map and _map_without_policies(plain.map)
    )


def _map_without_policies(listed: Map) -> Map:
    return _replace(listed, max_parallel=None, parallel=None, lister=listed.lister and _without_policies(listed.lister))


def _called_file(command: Command) -> str:
    """The file of the workflow that a command calls; "" if it calls none."""
    action = command.action
    return str(action.params.get("file", "")) if action is not None and traits_of(action).calls_run else ""


def _names_read(step: Step) -> set[str]:
    """The first parts of all names that expressions of a step read."""
    return {name.partition(".")[0] for one in expressions_in(step) for name in one.reads}


# -- deciding --------------------------------------------------------------------------------------------------------


def make_revision(state: State, report: Revised, graph: Graph, by: str) -> tuple[e.RunRevised, Difference] | None:
    """The fact for a corrected definition, and the difference; None if the run already uses it. May be refused."""
    run, before, after = state.run, state.workflow.name, graph.workflow.name
    if before != after and not report.may_rename:
        raise Refused(
            f"run {run.run_id} is a run of '{before}', but this is the definition of '{after}'",
            hint="if the workflow was renamed: --force",
        )
    if graph.workflow == state.workflow and report.inputs == run.inputs:
        return None
    if run.status == "completed":
        raise Refused(
            f"run {run.run_id} completed, so its definition cannot be changed",
            hint="to run the corrected program: mulligan run FILE"
            if state.graph.program
            else f"to run a corrected one from a step: mulligan fork {run.run_id} --from STEP --file FILE",
        )
    # Without the calls of a program, which are in no definition.
    found = compare_definitions(state.graph.for_run(), graph)
    if report.keeps_completed:
        # Steps with changed edges must run again to choose among the new ones.
        found = _replace(found, renewed=found.rerouted)
    fact = e.RunRevised(
        # Not as the report says: nobody chooses with whose tasks a warm process is shared.
        version=version(encode(graph.workflow)),
        definition=report.definition,
        by=by,
        inputs=report.inputs,
        added=found.added,
        removed=found.removed,
        changed=found.changed,
        settings=found.settings,
        renewed=found.renewed,
        file=report.file,
        digest=report.digest,
    )
    return fact, found


def workflow_from_plain(plain: dict[str, Any]) -> Workflow:
    """The workflow from plain data."""
    return decode(msgspec.json.encode(plain))


def plain_from_json(data: bytes) -> dict[str, Any]:
    """Plain data, as an event holds it, from the canonical JSON of a workflow."""
    found: dict[str, Any] = msgspec.json.decode(data)
    return found


# -- applying, for `evolve` ---------------------------------------------------------------------------------


def revise(state: State, fact: e.RunRevised, entry: e.Entry) -> None:
    """Use the new definition: retire removed steps, add new ones as waiting, leave the others as they are.

    The run has ended, so nothing is active. The round that follows at once puts back and recounts all steps that must
    run, new ones too.
    """
    old, graph = state.graph, Graph(workflow_from_plain(fact.definition))
    state.revise(graph)
    graph = state.graph
    state.run.revision = Revision(fact.version, fact.file, fact.digest)
    state.run.inputs = fact.inputs
    _forget_edges(state, old)
    _forget_undoables(state)
    for name in old.nodes:
        if name not in graph.nodes:
            _retire(state, name)
    for name, node in graph.nodes.items():
        if name not in old.nodes:
            _add(state, name, node.step)
        elif (known := state.places[name].spec) != node.step:
            state.touch(name).spec = node.step
        elif isinstance(known, Step):
            # One object: it is asked by identity at each end whether a place has the definition of its step.
            node.step = known
    state.touch(END).spec = graph.workflow.end
    _count_barriers(state)
    for name in graph.behind(fact.renewed):
        _forget_items(state, name)


def _retire(state: State, name: str) -> None:
    """Retire a removed step. It keeps its numbers in case the name returns; its failures no longer count."""
    _forget_items(state, name)
    place = state.touch(name)
    # The result of an undone or recovered step is not reused by later runs.
    if place.is_undone or place.has_failed_undo or place.recovered_by:
        place.fingerprint = ""
    place.spec, place.recovered_by, place.loop_edge = ITEM, "", None
    place.is_undone, place.has_failed_undo = False, False
    for records in (state.failures, state.recoveries):
        for record in [one for one in records if one.step == name]:
            state.set_at(records, record.index, _replace(record, is_closed=True))


def _add(state: State, name: str, step: Step) -> None:
    """Add a new step as waiting. An earlier step of that name passes on its numbers, which count over the whole run."""
    before = state.places.get(name)
    place = Place("step", "waiting", key=name, spec=step)
    if before is None:
        state.add(place)
    else:
        state.put(state.past, (name, before.visit), PastVisit(before.status, before.failure_index))
        place.visit = place.visits_before = before.visit
        place.attempt, place.warnings = before.attempt, before.warnings
        state.put(state.places, name, place)
    state.run.waiting += 1


def _forget_items(state: State, name: str) -> None:
    if state.places[name].items is not None:
        reset_items(state, name)
        state.touch(name).items = None


def _forget_edges(state: State, old: Graph) -> None:
    """Drop the arcs of steps whose edges have changed, which are known by the index of the edge, and their arrivals."""
    new = state.graph.nodes
    dropped = set()
    for name, node in old.nodes.items():
        if name not in new or node.step.edges != new[name].step.edges:
            for arc in node.arcs:
                state.drop(state.arcs, arc.key)
                dropped.add(arc.key)
    for name in new:
        place = state.places.get(name)
        if place is not None and not dropped.isdisjoint((place.arrival, *place.queue)):
            place = state.touch(name)
            place.arrival = "" if place.arrival in dropped else place.arrival
            place.queue = tuple(key for key in place.queue if key not in dropped)
    arcs = {arc.key for node in new.values() for arc in node.arcs}
    state.run.loops_taken = {key: number for key, number in state.run.loops_taken.items() if key in arcs}


def _forget_undoables(state: State) -> None:
    """Drop the undoable visits of steps for which the new definition has no undo."""
    lost = frozenset(lost_undos(state, state.graph))
    kept = [one for one in state.undoables if one.step not in lost]
    if len(kept) != len(state.undoables):
        for _ in range(len(state.undoables)):
            state.take_last(state.undoables)
        for one in kept:
            state.append(state.undoables, one)


def _count_barriers(state: State) -> None:
    """Recount the barriers, since groups may have other members now."""
    for key in [key for key in state.barriers if key not in state.graph.barriers]:
        state.drop(state.barriers, key)
    for key, barrier in state.graph.barriers.items():
        settled = [state.places[member].settled for member in barrier.members]
        counted = settled.count(""), sum(bool(one) and not is_met(barrier.on, one) for one in settled)
        if state.barriers.get(key) != counted:
            state.put(state.barriers, key, counted)


def lost_undos(state: State, graph: Graph) -> tuple[str, ...]:
    """The undoable steps for which the definition of `graph` has no undo."""
    ours = (one.step for one in state.undoables if one.step not in state.calls and one.step not in state.dropped)
    undoable = dict.fromkeys(ours)
    return tuple(name for name in undoable if name not in graph.nodes or graph.nodes[name].step.undo is None)


def is_removed(state: State, name: str) -> bool:
    """Whether the run had a step of this name, and its corrected definition has none; a program does not call it."""
    if name in state.dropped and name not in state.graph.nodes:
        return True
    place = state.places.get(name)
    return name != END and name not in state.graph.nodes and place is not None and place.role == "step"

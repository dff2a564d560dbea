"""Builds the workflow of a flow: runs its function once, and writes what it recorded as the keys of a file."""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

from mulligan.flows.callbacks import Callback, command_for
from mulligan.flows.context import RECORDER, Site, call_site, current, refuse
from mulligan.flows.functions import definition_site
from mulligan.flows.input_types import inputs_of
from mulligan.flows.parameters import Parameters
from mulligan.flows.recording import END, RESULT, Group, Record, Recorder
from mulligan.flows.references import OPTIONAL, SUCCESS, Reference, merge, reads_of, source_of, step_path
from mulligan.flows.source_refusals import refuse_meaningless
from mulligan.flows.step_keys import apply_keys
from mulligan.flows.steps import MAP_KEYS, Step, map_keys
from mulligan.language.garbage_collection import pause_garbage_collection
from mulligan.language.python.builder import CallSite, Located, Workflow

# What the function of `end` may read, by the names of its parameters.
_END_VALUES = {
    "run": "${run}",
    "failures": "${run.failures}",
    "steps": "${run.steps}",
    "stopping": "${run.stopping}",
}
# The flows that are being built, from the outermost one.
_STACK: ContextVar[tuple[Any, ...]] = ContextVar("mulligan_flows", default=())


class RecordedFlow(Protocol):
    """A `Flow`, as far as it is built here: it builds itself with this module."""

    keys: Any
    site: Site
    end_action: tuple[Callback | None, dict[str, Any], Site] | None

    __name__: str

    @property
    def fn(self) -> Any: ...
    @property
    def name(self) -> str: ...
    def __mulligan_workflow__(self) -> Workflow: ...


class Built(NamedTuple):
    """The workflow of a flow, and whether it returns one value instead of a mapping of outputs."""

    workflow: Workflow
    returns_one_value: bool


def build(flow: RecordedFlow) -> Built:
    """Run the function of the flow with references as its arguments, and build what it says."""
    if flow in _STACK.get():
        way = " → ".join(one.name for one in (*_STACK.get(), flow))
        hint = "a loop is a route back to an earlier step: mulligan.route(improve, review, when=…)"
        refuse("include_cycle", f"the flow '{flow.name}' calls itself: {way}", hint=hint)
    parameters = Parameters(flow.fn, f"flow '{flow.name}'")
    refuse_meaningless(flow.fn, flow.__name__)
    declared = inputs_of(flow.fn, parameters, dict(flow.keys.get("inputs", {})))
    recorder = Recorder(flow.name, order=flow.keys.get("order", ""))
    recorded, stacked = RECORDER.set(recorder), _STACK.set((*_STACK.get(), flow))
    try:
        with pause_garbage_collection():
            returned = flow.fn(**{name: Reference(f"inputs.{name}", {}) for name in parameters.names})
            return _Builder(flow, recorder, declared).build(returned)
    finally:
        RECORDER.reset(recorded)
        _STACK.reset(stacked)


def child_of(recorder: Recorder, flow: RecordedFlow) -> tuple[str, bool]:
    """The name under which a step calls the flow as a child run, and whether it returns one value."""
    for name, (known, built) in recorder.children.items():
        if known is flow:
            return name, built.returns_one_value
    # A program is one step, whose workflow it makes itself.
    is_flow = hasattr(flow, "end_action")
    built = build(flow) if is_flow else Built(flow.__mulligan_workflow__(), True)
    name, number = f"{'flow' if is_flow else 'program'}:{flow.name}", 1
    while name in recorder.children:
        number += 1
        name = f"{name.partition(':')[0]}:{flow.name}_{number}"
    recorder.children[name] = (flow, built)
    return name, built.returns_one_value


def map_child(called: Any, items: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """While a flow is built: a step of it that runs another flow once per item."""
    hint = f"write gather({called.__name__}.call(one) for one in …)"
    recorder = current(f"the flow '{called.name}'", in_program=hint)
    site = call_site()
    given = called.bind((Reference("item", {}), *args), {key: kwargs[key] for key in kwargs if key not in MAP_KEYS})
    record = recorder.add(called.name, is_chosen=False, site=site, keys_site=site)
    recorder.last[id(called)] = record
    file, returns_one_value = child_of(recorder, called)
    inputs = {name: recorder.value(value, record.reads) for name, value in given.items()}
    mapped = map_keys(recorder, record, items, kwargs)
    record.action = {"map": mapped, "do": [{"workflow": {"file": file, "inputs": inputs} if inputs else file}]}
    apply_keys(recorder, record, {})
    found = recorder.result(record)
    return _MappedFlow(found) if returns_one_value else found


class _MappedFlow(Reference):
    """What a map of a flow returns, whose runs return one value each: `results` has these values."""

    __slots__ = ()

    def __init__(self, found: Reference) -> None:
        super().__init__(source_of(found), reads_of(found))

    def __getattr__(self, name: str) -> Any:
        if name != "results":
            return super().__getattr__(name)
        one = f"{source_of(self)}.results.map(one, one == null ? null : one.{RESULT})"
        return Reference(one, reads_of(self))


class _Builder:
    """Turns what a flow recorded into the keys of a file."""

    def __init__(self, flow: RecordedFlow, recorder: Recorder, declared: dict[str, dict[str, Any]]) -> None:
        self.flow = flow
        self.recorder = recorder
        self.declared = declared
        # The steps that an edge leads to, each with the steps that lead to it.
        self.targets: dict[str, set[str]] = {}
        self._positions: dict[str, int] = {}
        self._values: dict[tuple[int, Site], Located] = {}
        self.insiders = {record.name: group for group in recorder.group_of.values() for record in group.records}

    def build(self, returned: Any) -> Built:
        recorder, flow = self.recorder, self.flow
        if not recorder.records:
            hint = "call a step in it, or mulligan.shell(…)"
            refuse("type", f"the flow '{flow.name}' calls no step", hint=hint, site=definition_site(flow.fn))
        is_one = returned is not None and not isinstance(returned, dict)
        outputs = {} if returned is None else {RESULT: returned} if is_one else returned
        self._add_routes()
        self._positions = {record.name: place for place, record in enumerate(recorder.records)}
        keys = self._top_level(outputs)
        end = self._end()
        if end is not None:
            keys["end"] = end
        workflow = Workflow.at(_at(flow.site), keys)
        lines = _Lines(recorder.order)
        for record in recorder.records:
            if record.group is None:
                workflow.step_at(_at(record.site), *self._step(record, lines))
        for name, (_, built) in recorder.children.items():
            workflow.child(name, built.workflow)
        return Built(workflow, is_one)

    def _top_level(self, outputs: dict[str, Any]) -> dict[str, Any]:
        flow, recorder = self.flow, self.recorder
        keys: dict[str, Any] = {"name": flow.name}
        if description := " ".join((flow.__doc__ or "").split("\n\n")[0].split()):
            keys["description"] = description
        given = recorder.value({key: one for key, one in flow.keys.items() if key != "inputs"}, {})
        if given.get("order") in _BY_DATA:
            del given["order"]
        for section, values in recorder.sections.items():
            given[section] = {**given.get(section, {}), **values}
        keys.update(given)
        if self.declared:
            keys["inputs"] = Located(self.declared, _at(definition_site(flow.fn) or flow.site))
        if outputs:
            named = {str(name): self._rewrite(recorder.value(value, {}), None) for name, value in outputs.items()}
            keys["outputs"] = Located(named, _at(definition_site(flow.fn) or flow.site))
        return keys

    def _end(self) -> Any:
        if self.flow.end_action is None:
            return None
        callback, keys, site = self.flow.end_action
        made = self.recorder.value(keys, {})
        if callback is not None:
            given = {**_END_VALUES, **{name: f"${{inputs.{name}}}" for name in self.declared}}
            made = {**command_for(callback, f"the end of '{self.flow.name}',", given=given, first="run"), **made}
        return Located(made, _at(site))

    # Routes

    def _add_routes(self) -> None:
        """Resolve the targets of all routes. A target that is a step function becomes a step for its source."""
        recorder = self.recorder
        made_for: dict[str, tuple[Record, Any]] = {}
        done = 0
        while done < len(recorder.recoveries):
            source, step = recorder.recoveries[done]
            done += 1
            for target, keys, site in [*step.routes, *recorder.step_routes.get(id(step.recovery), ())]:
                if not isinstance(target, Step):
                    recorder.route(source, target, keys, site)
                    continue
                found = _ancestor(source, target, step, made_for)
                if found is None:
                    found = target.record_for_route(recorder, source, site)
                    made_for[found.name] = (source, step)
                    self._move_behind(source, found)
                recorder.route(source, found, keys, site)
        for source, target, keys, site in recorder.routes:
            self._add_edge(source, self._target(source, target, site), keys, site)

    def _target(self, source: Record, target: Any, site: Site) -> str:
        if isinstance(target, Record):
            return target.name
        if isinstance(target, str):
            return target  # the reader refuses what is no step, and suggests one
        recorder = self.recorder
        if isinstance(target, Step) and id(target) not in recorder.last:
            found = target.record_for_route(recorder, source, site)
            self._move_behind(source, found)
            return str(found.name)
        return recorder.record_of(target, "a route", site).name

    def _move_behind(self, source: Record, made: Record) -> None:
        """Put a step that was made for a route right behind the step that the route leaves, into the same group."""
        records = self.recorder.records
        records.remove(made)
        records.insert(records.index(source) + 1, made)
        if source.group is not None:
            made.group = source.group
            source.group.records.append(made)
            self.insiders[made.name] = source.group

    def _add_edge(self, source: Record, target: str, keys: dict[str, Any], site: Site) -> None:
        edge = {"to": target}
        for key, value in keys.items():
            edge[key] = source_of(value) if isinstance(value, Reference) else self.recorder.value(value, {})
        source.edges.append((edge if keys else target, site))
        if target != END:
            self.targets.setdefault(target, set()).add(source.name)

    # Steps

    def _step(self, record: Record, lines: _Lines) -> tuple[str, dict[str, Any]]:
        group = self.recorder.group_of.get(record.name)
        keys: dict[str, Any] = dict(record.action)
        if "python" in keys:
            keys["python"] = self._located(keys["python"], record.keys_site)
        reads = dict(record.reads)
        if group is not None:
            keys["group"] = self._group(group, reads)
        name = record.name
        for key, (value, site) in record.keys.items():
            if key == "step":
                name = value
            else:
                keys[key] = self._located(value, site)
        needs = self._needs(record, reads, lines)
        if needs:
            keys["needs"] = needs
        if record.edges:
            edges = [Located(edge, _at(site)) for edge, site in record.edges]
            keys["next"] = edges[0] if len(edges) == 1 else edges
        return name, self._rewrite(keys, record.group)

    def _located(self, value: Any, site: Site) -> Located:
        """The value with its site. The same value of another step of the same function is the same object."""
        key = (id(value), site)
        if key not in self._values:
            self._values[key] = Located(value, _at(site))
        return self._values[key]

    def _needs(self, record: Record, reads: dict[str, str], lines: _Lines) -> list[Any]:
        by_name, sources = self.recorder.by_name, self.targets.get(record.name, ())
        found: dict[str, str] = {}
        for step, on in reads.items():
            inside = self.insiders.get(step)
            if inside is not None and inside is not record.group:
                step = inside.record.name
            if step in by_name and step not in sources and step != record.name:
                merge(found, {step: on})
        if record.group is not None:
            found = {step: on for step, on in found.items() if self.insiders.get(step) is record.group}
        is_gate = self._is_gate(record)
        if not self._is_routed_to(record):
            lines.follow(record, found, is_gate=is_gate, is_target=bool(sources))
        elif is_gate:
            lines.hold_up(record)
        return [_need(by_name[step], on) for step, on in found.items()]

    def _is_routed_to(self, record: Record) -> bool:
        """Whether a line above leads to the step. Where only lines below lead back to it, it starts at its own line."""
        place = self._positions[record.name]
        return any(self._positions[source] < place for source in self.targets.get(record.name, ()))

    def _is_gate(self, record: Record) -> bool:
        """Whether it is an approval or a wait, or a group with one."""
        group = self.recorder.group_of.get(record.name)
        records = (record,) if group is None else group.records
        return any(not _GATES.isdisjoint(one.action) for one in records)

    # Groups

    def _group(self, group: Group, reads: dict[str, str]) -> dict[str, Any]:
        """The steps of a group. What they read of other steps comes in as inputs, and the group needs those steps."""
        steps: list[Any] = []
        lines = _Lines(group.order or self.recorder.order)
        for record in group.records:
            merge(reads, {step: on for step, on in record.reads.items() if self.insiders.get(step) is not group})
            name, keys = self._step(record, lines)
            steps.append(Located({"step": name, **keys}, _at(record.site)))
        made = {**group.keys, "steps": steps}
        if group.inputs:
            made["inputs"] = group.inputs
        return made

    def _rewrite(self, value: Any, group: Group | None) -> Any:
        """The value with its expressions as they read from inside the group, or from outside of all groups."""
        if not self.insiders:
            return value
        if isinstance(value, str):
            return _STEP_FIELD.sub(lambda found: self._path(found, group), value) if "steps" in value else value
        if isinstance(value, Located):
            return Located(self._rewrite(value.value, group), value.site)
        if isinstance(value, list):
            return [self._rewrite(one, group) for one in value]
        if isinstance(value, dict):
            return {key: self._rewrite(one, group) for key, one in value.items() if key != "group"} | (
                {"group": value["group"]} if "group" in value else {}
            )
        return value

    def _path(self, found: re.Match[str], group: Group | None) -> str:
        name, field = found[1] or found[2], found[3]
        inside = self.insiders.get(name)
        if name not in self.recorder.by_name or inside is group:
            return found[0]
        if group is None and inside is not None:
            return f"{step_path(inside.record.name)}.output.{name.replace('-', '_')}" if field == "output" else found[0]
        if group is not None:
            handed = f"{name.replace('-', '_')}_{field}"
            group.inputs[handed] = f"${{{found[0]}}}"
            return f"inputs.{handed}"
        return found[0]


class _Lines:
    """Which steps follow others because of the lines in which they stand, in a flow or in a group.

    An approval or a wait waits for the lines above it, and the lines below wait for it. Everything else follows what
    it reads. With `order="data"` that holds for all steps; with `order="sequential"` each follows the one before.
    """

    def __init__(self, order: str) -> None:
        self._order = order
        self._previous: Record | None = None
        # The lines since the last gate, what a line below it needs, and the steps that run only if it has succeeded.
        self._since: list[str] = []
        self._gate: dict[str, str] = {}
        self._passed: set[str] = set()
        # What each step needs that has succeeded.
        self._reads: dict[str, list[str]] = {}

    def follow(self, record: Record, needs: dict[str, str], *, is_gate: bool, is_target: bool = False) -> None:
        """Add to the needs of a step those of its line."""
        if self._order == "sequential":
            # A step without needs follows the one before by the order of the file, unless an edge leads to it.
            if (needs or is_target) and self._previous is not None:
                needs.setdefault(self._previous.name, SUCCESS)
            self._previous = record
        elif self._order not in _BY_DATA:
            self._follow_gate(record, needs, is_gate=is_gate)

    def hold_up(self, gate: Record) -> None:
        """Let the lines below wait for a gate to which a route leads: it is skipped if the route is not taken."""
        if self._order != "sequential" and self._order not in _BY_DATA:
            self._gate = {**self._gate, gate.name: OPTIONAL}
            self._passed = set()

    def _follow_gate(self, record: Record, needs: dict[str, str], *, is_gate: bool) -> None:
        if not self._is_behind(needs):
            self._add(self._gate, needs)
        self._reads[record.name] = [step for step, on in needs.items() if on == SUCCESS]
        if not is_gate:
            self._since.append(record.name)
            if self._is_behind(needs):
                self._passed.add(record.name)
            return
        # A step that was skipped holds up nobody; one that failed does.
        before = dict.fromkeys(self._since, OPTIONAL)
        self._add(before, needs)
        if "when" in record.keys:
            # A gate that is skipped lets pass, unless something failed before it.
            self._gate = {**before, **self._gate, record.name: OPTIONAL}
            self._passed = set()
        else:
            self._gate, self._passed = {record.name: SUCCESS}, {record.name}
        self._since = []

    def _add(self, lines: dict[str, str], needs: dict[str, str]) -> None:
        """Add the needs of a line, without those on steps that must have succeeded anyway."""
        known: set[str] = set()
        # A gate alone is never among them: what follows it is known. A flow of many lines is not searched for each.
        ahead = [step for step, on in needs.items() if on == SUCCESS] if len(lines) > 1 else []
        while ahead:
            new = [step for step in self._reads.get(ahead.pop(), ()) if step not in known]
            known.update(new)
            ahead += new
        for step, on in lines.items():
            if step not in known:
                needs.setdefault(step, on)

    def _is_behind(self, needs: dict[str, str]) -> bool:
        """Whether a step with these needs runs only if the gate has succeeded."""
        return any(on == SUCCESS and step in self._passed for step, on in needs.items())


# `graph` is the word of files.
_BY_DATA = frozenset(("data", "graph"))
# The actions that hold up the lines below them.
_GATES = frozenset(("approve", "wait"))
_STEP_FIELD = re.compile(r"""(?<![\w.])steps(?:\.([A-Za-z_]\w*)|\["([^"]+)"\])\.(\w+)""")


def _at(site: Site) -> CallSite:
    return CallSite(site.file, site.line)


def _need(record: Record, on: str) -> Any:
    if record.is_matrix:
        return {"matrix": record.name} if on == SUCCESS else {"matrix": record.name, "on": on}
    return record.name if on == SUCCESS else {"step": record.name, "on": on}


def _ancestor(source: Record, target: Any, step: Any, made_for: dict[str, tuple[Record, Any]]) -> Record | None:
    """The step of `target` on the way of routes that led to `source`, so that routes in a circle end."""
    record, of = source, step
    while True:
        if of.recovery is target.recovery:
            return record
        if record.name not in made_for:
            return None
        record, of = made_for[record.name]

"""Plan the steps of ours that stand for the steps of a playbook, some of which need several.

A loop becomes a step that lists the items, the map, and one that collects the results. A called playbook becomes a step
that makes its inputs, the child run, and one that routes on. A step `NAME_on_error` decides where a failure leads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from mulligan.core.model.workflow import END
from mulligan.formats.expressions import output_of, quoted
from mulligan.formats.names import Names
from mulligan.formats.noetl.calls import Call, read_call
from mulligan.formats.noetl.credentials import Credentials
from mulligan.formats.noetl.routes import Router, cases_for_action, router_for_action
from mulligan.formats.noetl.steps import Step
from mulligan.formats.noetl.texts import copied, foreign, has_templates, words, workload_name
from mulligan.formats.translation import Translation, made, mapping
from mulligan.language.checks.reachability import Reachability
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, TooManyProblems, plain

# Arcs may lead back, for pages or polls. More visits than this are taken for a mistake.
MAX_VISITS = 1000
_ITEM = "item"
_ACTION_KEYS = (
    *("name", "tool", "render", "pinned", "result", "loop", "each", "failure", "input", "item", "previous", "before"),
    *("workload", "derived", "seen", "auth", "set", "cases", "next", "defaults", "trust_templates"),
)
# Tools that run texts of the playbook which may contain templates.
_PROGRAMS = frozenset({"shell", "postgres", "duckdb"})


_ITEM_MODES = {"best_effort": "collect", "fail_fast": "stop"}


class Parts(msgspec.Struct, frozen=True):
    """The names of our steps for a step of the playbook: its entry, its work, its routes, its failure route."""

    entry: str
    own: str
    route: str
    on_error: str


class PlannedStep(msgspec.Struct, eq=False):
    """A step of ours. `actions` are its `noetl` actions, to which `seen` is added at the end."""

    name: str
    at: Node
    body: dict[str, Any]
    actions: tuple[dict[str, Any], ...] = ()
    # The texts in which names are searched, to know which steps it reads.
    reads: tuple[Node | None, ...] = ()
    next: list[Any] = []

    @property
    def links(self) -> list[str]:
        targets = [edge["to"] if isinstance(edge, dict) else edge for edge in self.next]
        return [target for target in targets if target != END]


class Plan:
    """The steps of ours that stand for those of a playbook."""

    def __init__(
        self, steps: list[Step], final: Step | None, workload: Any, credentials: Credentials, translation: Translation
    ) -> None:
        self._steps = [part for step in steps for part in (*(() if step.loop else step.before), step)]
        self._all = [part for step in steps for part in (*step.before, step)]
        steps = self._steps
        self._final = final
        self._workload = workload
        self._credentials = credentials
        self._source = translation.source
        self._translation = translation
        self.must_match = False
        # The defaults of the workload that are templates.
        self.derived: dict[str, Node] | None = None
        # The defaults of the workload.
        self.defaults: dict[str, Node] = {}
        self._calls = self._read_calls()
        self.names = self._named()
        self.planned: list[PlannedStep] = []
        self._at: dict[str, PlannedStep] = {}
        # Steps whose envelopes all following steps get, since they may set something.
        self._always = {step.name for step in steps if step.is_setter}
        # Steps whose names are not identifiers, such as names with blanks.
        self._odd = [step for step in steps if not step.name.isidentifier()]
        self._fetching = [(step.name, tool) for step in steps for tool in step.tools.all if tool.kind == "secrets"]
        self._by_name = {step.name: step for step in steps}
        self._order = {step.name: number for number, step in enumerate(steps)}

    # -- names --------------------------------------------------------------------------------------------------------

    def _read_calls(self) -> dict[str, Call]:
        found: dict[str, Call] = {}
        for step in self._all:
            if step.tools.child is not None:
                with self._source.noting:
                    found[step.name] = read_call(
                        step.tools.child, step.input, self._credentials.workload, self._translation
                    )
        for step in self._all:
            call = found.get(step.name)
            if call is not None and call.return_step is None and not call.entrypoint and step.tools.child is not None:
                # Once per file.
                message = "the step waits for the playbook that it calls; NoETL does so only with 'return_step'"
                self._source.warn("noetl", message, step.tools.child.fields.key("kind"))
                break
        return found

    def _named(self) -> dict[str, Parts]:
        names = Names.of_steps()
        owns = {step.name: names.fit(step.name) for step in self._steps}
        found = {step.name: self._parts(step, owns[step.name], names) for step in self._steps}
        for step in self._steps:
            if step.before and not step.part_of and step.loop is None:
                first = found[step.before[0].name].entry
                found[step.name] = msgspec.structs.replace(found[step.name], entry=first)
        return found

    def _parts(self, step: Step, own: str, names: Names) -> Parts:
        entry = route = own
        call = self._calls.get(step.name)
        if step.loop is not None and (step.loop.parallel is not None or not _is_written_out(step.loop.over)):
            entry = names.fit(f"{own}_items")
        elif step.loop is None and call is not None and call.is_rendered:
            entry = names.fit(f"{own}_input")
        if step.loop is not None or call is not None:
            route = names.fit(f"{own}_done")
        return Parts(entry, own, route, names.fit(f"{own}_on_error"))

    # -- steps --------------------------------------------------------------------------------------------------------

    def steps(self, entry: Step) -> list[Mapping]:
        """All steps, in the order of the playbook."""
        for step in self._steps:
            self._add(step)
        if self._source.problems:
            raise TooManyProblems  # a refused step is not planned, and others lead to it
        reach = Reachability({place.name: place.links for place in self.planned})
        self._add_seen(reach)
        rounds = reach.connected((place.name, place.name) for place in self.planned)
        entered = {target for place in self.planned for target in place.links}
        start = self.names[entry.name].entry
        return [
            self._step_node(place, (place.name, place.name) in rounds, place.name == start and start in entered)
            for place in self.planned
        ]

    def _step_node(self, place: PlannedStep, is_in_loop: bool, is_start: bool) -> Mapping:
        keys = {
            "step": place.name,
            **place.body,
            "max_visits": MAX_VISITS if is_in_loop else None,
            "start": True if is_start else None,
            "next": place.next or None,
        }
        return mapping(keys, place.at)

    def _add(self, step: Step) -> None:
        names = self.names[step.name]
        if step.loop is not None:
            self._add_loop(step, names)
        elif step.tools.child is not None:
            self._add_call(step, names)
        else:
            self._add_plain(step, names)
        parts = [self.names[part.name] for part in (() if step.loop else step.before)]
        works = list(dict.fromkeys(name for part in (*parts, names) for name in (part.entry, part.own)))
        if not self._at.keys() >= set(works):
            return  # it was refused, or a part of it
        if parts:
            self._at[parts[-1].route].next = [names.own if not step.part_of else names.entry]
        after = step.router.after_failure()
        if any(not self._is_final(arc.to) for arc in after.targets):
            self._add_failure_route(step, after, names, works)

    def _add_plain(self, step: Step, names: Parts) -> None:
        given = {"tool": self._tool(step), "input": copied(step.input), "before": self._before(step)}
        action = self._action(step, names.own, **given, set=copied(step.set), **_routes(step))
        body = {**self._description(step), "noetl": action, **self._timeout_and_retry(step), **self._after_arcs(step)}
        self._put(names.own, step, body, action, *self._texts(step), next=self._edges(step.router))

    def _add_loop(self, step: Step, names: Parts) -> None:
        loop = step.loop
        assert loop is not None
        items: Any = f"{output_of(names.entry)}.result"
        max_parallel: Any = loop.max_parallel
        if names.entry != names.own:
            rendered = foreign(loop.over)
            if loop.parallel is not None:
                max_parallel, items = f"${{{items}.max_in_flight}}", f"{items}.items"
                rendered = made({"items": rendered, "max_in_flight": foreign(loop.parallel)}, loop.over)
            action = self._action(step, names.entry, render=rendered)
            body = {"description": f"the items of '{step.name}'", "noetl": action}
            self._put(names.entry, step, body, action, loop.over, loop.parallel, next=[names.own])
        else:
            items = foreign(loop.over)
        item = {"name": loop.iterator, "value": f"${{{_ITEM}}}", "index": "${index}", "length": _length(items)}
        if _writes_programs(step):
            # Whether the items are from the file itself: from the step, or from the workload.
            name = workload_name(loop.over.text) if isinstance(loop.over, Scalar) else None
            item |= (
                {"is_written": True} if _is_written_out(loop.over) else {"of": name} if name in self.defaults else {}
            )
        commands, reads = self._commands(step, item)
        inner = tuple(command["noetl"] for command in commands if "noetl" in command)
        values = f"${{{items}}}" if isinstance(items, str) else items
        mapped = {
            "over": values,
            "max_parallel": max_parallel,
            "max_items": loop.max_items,
            # Where others read what it sets, those after a failed item wait for its retry.
            "on_item_failure": _ITEM_MODES.get(step.after_failure) or ("stop" if _passes_values_on(step) else None),
        }
        body = {**self._description(step), "map": mapped, "do": commands}
        self._put(names.own, step, body, inner, *reads, next=[names.route])
        each = {"name": loop.iterator, "values": values, "set": copied(step.set_in_turn)}
        of_loop = {"loop": f"${{{self._results(step, names)}}}", "each": each if step.set_in_turn is not None else None}
        self._add_gathering(step, names, **of_loop)

    def _commands(self, step: Step, item: dict[str, Any]) -> tuple[list[Any], list[Node | None]]:
        """The commands for each item, and what their actions read."""
        call = self._calls.get(step.name)
        place = {"item": item, "previous": "${previous}" if _passes_values_on(step) else None}
        after = {"set": copied(step.set_of_items), "cases": [foreign(case) for case in step.item_cases] or None}
        if call is None:
            commands, before, reads = self._commands_before(step, place)
            given = {"tool": self._tool(step), "input": copied(step.input), "before": before or None}
            action = self._action(step, "", **given, **place, **after)
            commands.append({"noetl": action, **self._timeout_and_retry(step)})
            return commands, [*self._texts(step), *reads, *step.item_cases]
        commands = self._call_commands(step, call, place)
        if step.acts_after_items:
            result = f"${{{call.result_in('output')}}}"
            commands.append({"noetl": self._action(step, "", result=result, **place, **after)})
        return commands, [*call.reads, step.set_of_items, *step.item_cases]

    def _call_commands(self, step: Step, call: Call, given: dict[str, Any]) -> list[Any]:
        """The commands that call a playbook for an item: one that makes its inputs, if that is needed, and the call."""
        if not call.is_rendered:
            return [{"workflow": call.action("")}]
        return [{"noetl": self._action(step, "", **call.rendering, **given)}, {"workflow": call.action("output")}]

    def _commands_before(
        self, step: Step, place: dict[str, Any]
    ) -> tuple[list[Any], list[dict[str, Any]], list[Node | None]]:
        """The commands for the parts of a list of tools before the last one, their results, and what they read."""
        commands: list[Any] = []
        before: list[dict[str, Any]] = []
        reads: list[Node | None] = []
        for part in step.before:
            call, so_far = self._calls.get(part.name), list(before) or None
            if call is None:
                given = {"tool": self._tool(part), "input": copied(part.input), "before": so_far}
                commands.append({"noetl": self._action(part, "", **given, **place), **self._timeout_and_retry(part)})
                output = f"outputs[{len(commands) - 1}]"
                before.append({"result": f"${{{output}.result}}", "ctx": f"${{{output}.ctx}}"})
                reads += self._texts(part)
                continue
            commands += self._call_commands(part, call, {"before": so_far, **place})
            reads += call.reads if call.is_rendered else ()
            result = call.result_in(f"outputs[{len(commands) - 1}]")
            before.append({"name": _label(part), "result": f"${{{result}}}"})
        return commands, before, reads

    def _before(self, step: Step) -> list[dict[str, Any]] | None:
        """The results of the parts of a list of tools before this one."""
        found: list[dict[str, Any]] = []
        for part in step.before:
            result = {"result": f"${{{output_of(self.names[part.name].route)}.result}}"}
            found.append({"name": _label(part), **result} if part.tools.child is not None else result)
        return found or None

    def _results(self, step: Step, names: Parts) -> str:
        """The output of the map, with the result of each child run as the result of its item."""
        call, output = self._calls.get(step.name), output_of(names.own)
        if call is None or step.acts_after_items:
            return output  # each is an envelope
        given = f"r == null ? null : {call.result_in('r')}"
        kept = ", ".join(f'"{key}": {output}.{key}' for key in ("total", "succeeded", "failed", "failures"))
        return f'{{{kept}, "results": {output}.results.map(r, {given})}}'

    def _add_call(self, step: Step, names: Parts) -> None:
        call = self._calls.get(step.name)
        if call is None:
            return  # the problem was noted
        if call.is_rendered:
            action = self._action(step, names.entry, **call.rendering, before=self._before(step))
            body = {"description": f"what '{step.name}' is called with", "noetl": action}
            self._put(names.entry, step, body, action, *call.reads, next=[names.own])
        inputs = output_of(names.entry) if call.is_rendered else ""
        body = {**self._description(step), "workflow": call.action(inputs), **self._timeout_and_retry(step)}
        self._put(names.own, step, body, (), next=[names.route])
        self._add_gathering(step, names, result=f"${{{call.result_in(output_of(names.own))}}}")

    def _add_gathering(self, step: Step, names: Parts, **given: Any) -> None:
        """Add the step that collects the results of a loop or a child run, and routes on."""
        own_set = step.set
        action = self._action(step, names.route, **given, set=copied(own_set), **_routes(step))
        body = {"description": f"where '{step.name}' goes on", "noetl": action, **self._after_arcs(step)}
        reads = (own_set, step.set_in_turn, *step.router.cases, *_conditions(step.router))
        self._put(names.route, step, body, action, *reads, next=self._edges(step.router))

    def _add_failure_route(self, step: Step, after: Router, names: Parts, works: list[str]) -> None:
        """Add the step that decides where a failure leads. Where no arc is taken the failure stays unhandled."""
        for name in works:
            self._at[name].next.append({"to": names.on_error, "on": "failure"})
        action = self._action(step, names.on_error, failure="${failure}", **_routes_of(after, step))
        body = {"description": f"where '{step.name}' goes on after a failure", "noetl": action, "no_match": "fail"}
        reads = (*after.cases, *_conditions(after))
        # An edge to `end` would count as handling: without it the failure stays unhandled.
        edges = [edge for edge in self._edges(after) if edge["to"] != END]
        self._put(names.on_error, step, body, action, *reads, next=edges)

    def _put(
        self,
        name: str,
        step: Step,
        body: dict[str, Any],
        action: dict[str, Any] | tuple[dict[str, Any], ...],
        *reads: Node | None,
        next: list[Any],
    ) -> None:
        actions = (action,) if isinstance(action, dict) else action
        for one in actions:
            one["auth"] = self._auth(step, reads)
            if one.get("tool") is not None or one.get("cases"):
                one |= self._trust(step, reads, one.get("item"))
        if step.after_failure == "fail_fast":
            body = {**body, "fail_fast": True}
        self._at[name] = PlannedStep(name, step.at, body, actions, reads, next)
        self.planned.append(self._at[name])

    def end(self, final: Step) -> Mapping | None:
        """Our `end`; None where the final step does nothing."""
        if not final.tools.all and not final.router.cases:
            return None
        given = {"tool": self._tool(final), "input": copied(final.input), "cases": cases_for_action(final.router)}
        action = self._action(final, END, **{key: value or None for key, value in given.items()})
        reads = self._texts(final)
        action["auth"] = self._auth(final, reads)
        action |= self._trust(final, reads, None)
        action["seen"] = _seen_expressions(list(self._sources(self._read_by(reads))))
        keys = {"description": final.description or None, "noetl": action, **self._timeout_and_retry(final)}
        return mapping(keys, final.at)

    # -- keys ---------------------------------------------------------------------------------------------------------

    def _action(self, step: Step, place: str, **keys: Any) -> dict[str, Any]:
        """A `noetl` action with its keys in reading order."""
        keys |= {"workload": self._workload, "derived": self.derived}
        keys["name"] = step.part_of or (step.name if place != step.name else None)
        return {key: keys.get(key) for key in _ACTION_KEYS}

    def _tool(self, step: Step) -> Node | None:
        if step.tools.node is None and step.before:
            return made([], step.at)  # its result is made of those before
        return copied(step.tools.node)

    def _auth(self, step: Step, reads: tuple[Node | None, ...]) -> dict[str, str] | None:
        """The credentials that these texts name, directly or by a step that fetches them."""
        named = {*words(*reads), step.name}
        found = self._credentials.used_by(*reads)
        for name, tool in self._fetching:
            if name in named:
                found |= self._credentials.fetched_by(tool.node)
        return found or None

    def _trust(self, step: Step, reads: tuple[Node | None, ...], item: dict[str, Any] | None) -> dict[str, Any]:
        """What may become part of a command or a query of the step: defaults of the workload, or any value."""
        if not _writes_programs(step):
            return {}
        if self._translation.trusts_templates:
            return {"trust_templates": True}
        named = words(*reads, *(self.derived or {}).values())
        found = {key: foreign(node) for key, node in self.defaults.items() if key in {*named, (item or {}).get("of")}}
        return {"defaults": {key: node for key, node in found.items() if not has_templates(node)} or None}

    def _texts(self, step: Step) -> tuple[Node | None, ...]:
        return (step.tools.node, step.input, step.set, step.set_of_items, *step.router.cases, *_conditions(step.router))

    def _description(self, step: Step) -> dict[str, Any]:
        own = self.names[step.name].own
        text = step.description if own == step.name else f"{step.name}: {step.description}".rstrip(": ")
        return {"description": text or None}

    def _timeout_and_retry(self, step: Step) -> dict[str, Any]:
        return {"timeout": step.timeout, "retry": step.retry}

    def _after_arcs(self, step: Step) -> dict[str, Any]:
        must_match = (step.router.must_match or self.must_match) and bool(step.router.targets)
        is_allowed = step.after_failure == "best_effort" and step.loop is None
        if is_allowed and not step.router.is_plain:
            message = "'failure: best_effort' is not honoured on a step whose arcs have conditions"
            self._translation.warn("noetl", message, step.at, hint="add an arc for its failure")
        return {
            "no_match": "fail" if must_match else None,
            "continue_on_error": True if is_allowed and step.router.is_plain else None,
        }

    def _edges(self, router: Router) -> list[Any]:
        targets = dict.fromkeys(arc.to for arc in router.targets)
        if router.is_plain:
            return [self.names[to].entry for to in targets if not self._is_final(to)]
        return [{"to": self._entry(to), "when": f"{quoted(to)} in output.next"} for to in targets]

    def _entry(self, name: str) -> str:
        return END if self._is_final(name) else self.names[name].entry

    def _is_final(self, name: str) -> bool:
        return name not in self.names

    # -- what a step reads --------------------------------------------------------------------------------------------

    def _add_seen(self, reach: Reachability) -> None:
        """Give each step the outputs that it reads of steps that lead to it, and of those that may set something."""
        reading = {place.name: self._read_by(place.reads) for place in self.planned if place.actions}
        reachable = reach.connected(
            (source, name) for name, read in reading.items() for _, source in self._sources(read)
        )
        for name, read in reading.items():
            before = [pair for pair in self._sources(read) if (pair[1], name) in reachable]
            for action in self._at[name].actions:
                action["seen"] = _seen_expressions(before)

    def _sources(self, steps: list[Step]) -> Iterator[tuple[str, str]]:
        """The steps of ours that have the envelope of a step: after a success, and after a failure with a route."""
        for step in steps:
            names = self.names[step.name]
            yield from ((step.name, source) for source in (names.route, names.on_error) if source in self._at)

    def _read_by(self, reads: tuple[Node | None, ...]) -> list[Step]:
        """The steps whose names occur in the texts, and those that may set something."""
        named = words(*reads)
        if "context" in named:
            return self._steps
        odd = {step.name for step in self._odd if words(made(step.name, step.at)) <= named}
        found = self._always | odd | (named & self.names.keys())
        return sorted((self._by_name[name] for name in found), key=lambda step: self._order[step.name])


def _writes_programs(step: Step) -> bool:
    """Whether its commands, queries, or names of tables or scripts may contain templates."""
    kinds = {tool.kind for tool in step.tools.all}
    if not _PROGRAMS.isdisjoint(kinds) or any(has_templates(tool.node.get("code")) for tool in step.tools.all):
        return True
    return not {"sink", "script"}.isdisjoint(words(*step.router.cases, step.tools.node, *step.item_cases))


def _seen_expressions(before: list[tuple[str, str]]) -> dict[str, str] | None:
    sources: dict[str, list[str]] = {}
    for step, source in before:
        sources.setdefault(step, []).append(source)
    for step, found in sources.items():
        # The first output that is not null.
        first, *others = map(output_of, found)
        sources[step] = [f"{first} == null ? {others[0]} : {first}" if others else first]
    return {step: f"${{{output}}}" for step, [output] in sources.items()} or None


def _label(part: Step) -> Node:
    """The name of a called playbook in its list of tools."""
    name = part.tools.all[0].node.get("name")
    assert name is not None, "each tool of such a list has a name"
    return name


def _routes(step: Step) -> dict[str, Any]:
    """The cases and arcs for the action; none where all arcs are always taken and set nothing."""
    router = step.router
    is_idle = router.is_plain and all(arc.set is None and arc.args is None for arc in router.arcs)
    return {} if is_idle else _routes_of(router, step)


def _routes_of(router: Router, step: Step) -> dict[str, Any]:
    return {
        "cases": cases_for_action(router) or None,
        "next": router_for_action(router, step.at) if router.arcs else None,
    }


def _conditions(router: Router) -> list[Node | None]:
    return [node for arc in router.arcs for node in (arc.when, arc.set, arc.args)]


def _is_written_out(over: Node) -> bool:
    return isinstance(over, Sequence) and not has_templates(over)


def _passes_values_on(step: Step) -> bool:
    """Whether an item of a loop reads what the items before it have set."""
    return step.loop is not None and step.loop.max_parallel == 1 and step.sets_in_items


def _length(items: Any) -> Any:
    return f"${{size({items})}}" if isinstance(items, str) else len(plain(items))

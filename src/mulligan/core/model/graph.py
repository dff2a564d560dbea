"""The graph of a workflow: needs, edges, start steps, and which edges are loops.

Built once per workflow and never changed. Every query takes time in proportion to the edges of one step; only `region`
walks further, and caches its result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property

import msgspec

from mulligan.core.model.actions import traits_of
from mulligan.core.model.step_plan import StepPlan, plan_of
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import END, Edge, Step, Workflow, all_commands

# Bounds the memory for a chain of many loops, each of which has the rest of the chain as its region.
REGIONS_KEPT_MAX = 64

# The predecessors of each vertex, which is a step or a barrier.
Sources = dict[str, list[str]]
_STEP_NAME = lazy_regex(r"[A-Za-z0-9_-]+")
_SHOWN_CHARS_MAX = 60


class Arc:
    """A `next` edge between two steps. `key` names it in the state: `deploy#1`."""

    __slots__ = ("edge", "is_loop", "key", "source", "to")

    def __init__(self, source: str, edge: Edge) -> None:
        self.key = f"{source}#{edge.index}"
        self.source = source
        self.to = edge.to
        self.edge = edge
        self.is_loop = False


class Barrier:
    """One condition on a group of steps, shared by all steps that need it: n + m edges instead of n * m."""

    __slots__ = ("key", "members", "on", "targets")

    def __init__(self, key: str, members: tuple[str, ...], on: str) -> None:
        self.key = key
        self.members = members
        self.on = on
        self.targets: list[str] = []


class Node(msgspec.Struct, eq=False):
    """A step with its edges, needs and barriers.

    Most of it is empty in most steps: the empty tuple, which all share, takes no memory.
    """

    step: Step
    order: int
    arcs: tuple[Arc, ...] = ()
    # The order of evaluation: lowest priority first, those without a priority last, then file order.
    by_priority: tuple[Arc, ...] = ()
    # Incoming arcs that count for the join: all except loops.
    arrivals: Sequence[Arc] = ()
    # The steps that need this one, and on which condition.
    dependents: Sequence[tuple[str, str]] = ()
    # Barriers that this step is a member of.
    barriers: Sequence[Barrier] = ()
    # What this step needs: single steps, and barriers.
    needs: Sequence[tuple[str, str]] = ()
    waits: Sequence[Barrier] = ()
    # What is known of the step before any run, once `plan` was asked: most readers of a run never do.
    made_plan: StepPlan | None = None

    @property
    def plan(self) -> StepPlan:
        """What is known of the step before any run: the same for all runs of a version."""
        if self.made_plan is None:
            self.made_plan = plan_of(self.step)
        return self.made_plan


class Graph:
    """The nodes by name, in file order, with `starts`: the steps that a run enters first."""

    # How many start steps are entered in one turn, so that the first run while others are still being entered.
    starts_at_once = 1000

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.nodes: dict[str, Node] = {step.name: Node(step, i) for i, step in enumerate(workflow.steps)}
        self.barriers: dict[str, Barrier] = {}
        # The steps of the loop that a step is part of, for each step that is part of one.
        self.loops: dict[str, tuple[str, ...]] = {}
        self._regions: dict[str, frozenset[str]] = {}
        self._link_edges()
        self._link_needs()
        self._mark_loops()
        self._link_arrivals()
        self.starts: list[str] = [
            name for name, node in self.nodes.items() if not node.needs and not node.waits and not node.arrivals
        ]

    @property
    def program(self) -> str:
        """The step that is a program, whose calls are further steps of a run; it is the only one of its workflow."""
        steps = self.workflow.steps
        return steps[0].name if len(steps) == 1 and traits_of(steps[0].action).is_program else ""

    def for_run(self) -> Graph:
        """The graph that the state of one run has: that of a program has its own nodes, which become more."""
        if not self.program:
            return self
        own = copy(self)
        # Also of the graph of another run: none of its calls.
        own.nodes, own._regions = {step.name: self.nodes[step.name] for step in self.workflow.steps}, {}
        return own

    @cached_property
    def matrices(self) -> dict[str, tuple[str, ...]]:
        """The steps of each matrix by its name, in the order of their combinations."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for step in self.workflow.steps:
            if step.sweep and (name := step.matrix_name):
                found[name].append(step.name)
        return {name: tuple(members) for name, members in found.items()}

    # -- queries -----------------------------------------------------------------------------------------------

    def arc(self, step: str, index: int) -> Arc:
        return self.nodes[step].arcs[index]

    def region(self, start: str) -> frozenset[str]:
        """Every step reachable from `start`, itself included, over needs and edges without loop edges."""
        if start not in self._regions:
            if len(self._regions) >= REGIONS_KEPT_MAX:
                self._regions.clear()
            self._regions[start] = self.behind((start,))
        return self._regions[start]

    def behind(self, starts: Iterable[str]) -> frozenset[str]:
        """Every step reachable from one of `starts`, themselves included, like `region`."""
        return frozenset(vertex for vertex in self._walk(starts) if vertex in self.nodes)

    def before(self, targets: Iterable[str]) -> frozenset[str]:
        """Every step from which one of `targets` can be reached over needs and edges without loop edges, not itself."""
        sources: Sources = defaultdict(list)
        for vertex in (*self.nodes, *self.barriers):
            for target in self.onward(vertex):
                sources[target].append(vertex)
        found: dict[str, None] = {}
        stack = list(targets)
        while stack:
            fresh = [vertex for vertex in sources[stack.pop()] if vertex not in found]
            found.update(dict.fromkeys(fresh))
            stack += fresh
        return frozenset(vertex for vertex in found if vertex in self.nodes)

    def between(self, sources: Iterable[str], targets: Collection[str]) -> set[str]:
        """The steps on a path from one of `sources` to one of `targets`, over needs and edges without loop edges."""
        leads: dict[str, bool] = {}
        stack = list(sources)
        while stack:
            vertex = stack[-1]
            if vertex not in leads:
                leads[vertex] = False
                stack += [step for step in self.onward(vertex) if step not in leads]
            else:
                stack.pop()
                leads[vertex] = leads[vertex] or any(leads[s] or s in targets for s in self.onward(vertex))
        return {vertex for vertex, does in leads.items() if does and vertex in self.nodes}

    def sources(self, name: str) -> frozenset[str]:
        """The steps directly before this one: those that it needs, alone or in groups, and those with an edge to it."""
        node = self.nodes[name]
        members = (member for barrier in node.waits for member in barrier.members)
        return frozenset((*(source for source, _ in node.needs), *members, *(arc.source for arc in node.arrivals)))

    def after(self, vertex: str) -> Iterator[str]:
        """The successors of a vertex: targets of its edges in file order, then steps and barriers that need it."""
        return (hop.to if isinstance(hop, Arc) else hop for hop in self.hops(vertex))

    def onward(self, vertex: str) -> list[str]:
        """Like `after`, without loop edges."""
        hops = (hop for hop in self.hops(vertex) if not (isinstance(hop, Arc) and hop.is_loop))
        return [hop.to if isinstance(hop, Arc) else hop for hop in hops]

    def hops(self, vertex: str) -> Iterator[Arc | str]:
        """Like `after`, with the arcs themselves."""
        if vertex in self.barriers:
            yield from self.barriers[vertex].targets
            return
        node = self.nodes[vertex]
        yield from (arc for arc in node.arcs if arc.to != END)
        yield from (target for target, _ in node.dependents)
        yield from (barrier.key for barrier in node.barriers)

    # -- building ------------------------------------------------------------------------------------------------

    def _link_edges(self) -> None:
        for name, node in self.nodes.items():
            if node.step.edges:
                node.arcs = arcs = tuple([Arc(name, edge) for edge in node.step.edges])
                node.by_priority = tuple(
                    sorted(arcs, key=lambda a: (a.edge.priority is None, a.edge.priority or 0, a.edge.index))
                )

    def _link_needs(self) -> None:
        dependents: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for name, node in self.nodes.items():
            if not node.step.needs:
                continue
            needs, waits = [], []
            for need in node.step.needs:
                if need.is_group:
                    barrier = self._barrier(need.of, need.on)
                    barrier.targets.append(name)
                    waits.append(barrier)
                else:
                    dependents[need.of].append((name, need.on))
                    needs.append((need.of, need.on))
            node.needs, node.waits = tuple(needs), tuple(waits)
        for name, found in dependents.items():
            self.nodes[name].dependents = found

    def _barrier(self, group: str, on: str) -> Barrier:
        key = f"{group}:{on}"
        if key not in self.barriers:
            barrier = self.barriers[key] = Barrier(key, self.workflow.groups[group], on)
            # One tuple for all members that are in no other group.
            alone = (barrier,)
            for member in barrier.members:
                node = self.nodes[member]
                if not node.barriers:
                    node.barriers = alone
                elif isinstance(node.barriers, list):
                    node.barriers.append(barrier)
                else:
                    node.barriers = [*node.barriers, barrier]
        return self.barriers[key]

    def _link_arrivals(self) -> None:
        arrivals: dict[str, list[Arc]] = defaultdict(list)
        for node in self.nodes.values():
            for arc in node.arcs:
                if arc.to != END and not arc.is_loop:
                    arrivals[arc.to].append(arc)
        for name, found in arrivals.items():
            self.nodes[name].arrivals = found

    def _mark_loops(self) -> None:
        """Mark every edge that leads back to an ancestor, seen from the entry of each loop."""
        if any(node.arcs for node in self.nodes.values()):
            sources = self._sources()
            for part in self._parts(sources):
                inside = set(part)
                # Groups of needs are vertices too, and no steps.
                self.loops.update(dict.fromkeys(part, tuple(name for name in part if name in self.nodes)))
                seen: set[str] = set()
                for root in self._entries(part, inside, sources):
                    self._descend(root, inside, seen)

    def _entries(self, part: list[str], inside: set[str], sources: Sources) -> list[str]:
        """The entries of a loop: steps entered from outside that need nothing inside.

        If there is none, the loop starts by itself: at the step marked `start`, or at the first step that is not the
        target of a failure edge.
        """
        steps = sorted((name for name in part if name in self.nodes), key=lambda name: self.nodes[name].order)
        free = [name for name in steps if not self._needs_any(name, inside)]
        from_outside = [name for name in free if any(source not in inside for source in sources[name])]
        if from_outside:
            return from_outside
        repaired = {arc.to for v in steps for arc in self.nodes[v].arcs if arc.edge.on == "failure"}
        marked = [name for name in steps if self.nodes[name].step.is_start]
        plain = [name for name in free if name not in repaired]
        return (marked or plain or free or steps)[:1]

    def _needs_any(self, name: str, inside: set[str]) -> bool:
        node = self.nodes[name]
        return any(source in inside for source, _ in node.needs) or any(b.key in inside for b in node.waits)

    def _descend(self, root: str, inside: set[str], seen: set[str]) -> None:
        """Walk depth first from `root` within a loop; an edge to a step on the current path is a loop edge."""
        if root in seen:
            return
        seen.add(root)
        path = {root}
        stack = [(root, self.hops(root))]
        while stack:
            vertex, hops = stack[-1]
            hop = next(hops, None)
            if hop is None:
                stack.pop()
                path.discard(vertex)
                continue
            target = hop.to if isinstance(hop, Arc) else hop
            if target in path:
                if isinstance(hop, Arc):
                    hop.is_loop = True
            elif target in inside and target not in seen:
                seen.add(target)
                path.add(target)
                stack.append((target, self.hops(target)))

    def _sources(self) -> Sources:
        """The predecessors of each vertex."""
        sources: Sources = {vertex: [] for vertex in (*self.nodes, *self.barriers)}
        for vertex in sources:
            for target in self.after(vertex):
                sources[target].append(vertex)
        return sources

    def _parts(self, sources: Sources) -> list[list[str]]:
        """The loops: strongly connected components of more than one vertex, or of one with an edge to itself.

        Kosaraju's algorithm without recursion: finish order forward, then collect backward.
        """
        taken: set[str] = set()
        parts: list[list[str]] = []
        for root in reversed(self._finish_order(sources)):
            if root not in taken:
                taken.add(root)
                part = [root]
                for vertex in part:
                    fresh = dict.fromkeys(source for source in sources[vertex] if source not in taken)
                    taken.update(fresh)
                    part.extend(fresh)
                if len(part) > 1 or root in sources[root]:
                    parts.append(part)
        return parts

    def _finish_order(self, vertices: Iterable[str]) -> list[str]:
        seen: set[str] = set()
        order: list[str] = []
        for root in vertices:
            if root in seen:
                continue
            seen.add(root)
            stack = [(root, self.after(root))]
            while stack:
                vertex, targets = stack[-1]
                target = next((t for t in targets if t not in seen), None)
                if target is None:
                    stack.pop()
                    order.append(vertex)
                else:
                    seen.add(target)
                    stack.append((target, self.after(target)))
        return order

    def _walk(self, starts: Iterable[str]) -> list[str]:
        found = list(dict.fromkeys(starts))
        seen = set(found)
        for vertex in found:
            fresh = dict.fromkeys(target for target in self.onward(vertex) if target not in seen)
            seen.update(fresh)
            found.extend(fresh)
        return found


# -- definitions of others ---------------------------------------------------------------------------------------------


def link_problem(workflow: Workflow) -> str:
    """What is wrong with the names in a definition, its children's included; "" if nothing is.

    The language makes none of these: a definition that another process has sent may have anything.
    """
    left = [workflow]
    for one in left:
        left += one.children.values()
        problem = next(filter(None, _link_problems(one)), "")
        if problem:
            return problem
    return ""


def _link_problems(workflow: Workflow) -> Iterator[str]:
    if not workflow.name or not workflow.name.isprintable():
        yield "it has no name"
    names = {step.name for step in workflow.steps}
    for name in names:
        if name == END or _STEP_NAME.fullmatch(name) is None:
            yield f"'{_shown(name)}' cannot be the name of a step"
    if len(names) != len(workflow.steps):
        yield "two of its steps have one name"
    if workflow.end.name != END or workflow.end.needs or workflow.end.edges or workflow.end.map is not None:
        yield "it has no valid last step"
    for members in workflow.groups.values():
        yield _missing(members, names, "step")
    targets = {*names, END}
    for step in workflow.steps:
        yield _missing((need.of for need in step.needs if not need.is_group), names, "step")
        yield _missing((need.of for need in step.needs if need.is_group), workflow.groups, "group")
        yield _missing((edge.to for edge in step.edges), targets, "step")
        if [edge.index for edge in step.edges] != [*range(len(step.edges))]:
            yield f"the edges of step '{step.name}' are not in order"
        if (step.map is None) != (not step.do):
            yield f"step '{step.name}' has items without commands, or commands without items"
    if workflow.workspace is not None:
        yield _missing((workflow.workspace.opens, workflow.workspace.closes), names, "step")
    for command in all_commands((*workflow.steps, workflow.end)):
        if command.breaker is not None:
            yield _missing((command.breaker,), workflow.breakers, "breaker")
        if command.action is not None and traits_of(command.action).calls_run:
            yield _missing((str(command.action.params.get("file", "")),), workflow.children, "workflow")


def _missing(names: Iterable[str], known: Collection[str], what: str) -> str:
    missing = next((name for name in names if name not in known), None)
    return "" if missing is None else f"it refers to the {what} '{_shown(missing)}', which it does not have"


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…"

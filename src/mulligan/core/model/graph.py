"""The graph of a workflow: who waits for whom, who leads to whom, where it starts, which edges are loops.

Built once per workflow, never changed. Everything the core asks of it costs time in proportion to the edges
of the step it asks about; only `region` walks further, and remembers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import cached_property

from mulligan.core.model.workflow import END, Edge, Step, Workflow

# A chain of many loops would otherwise keep the rest of the chain for each of them.
REGIONS_KEPT_MAX = 64

# What is one hop before each vertex: a step, or a barrier.
Sources = dict[str, list[str]]


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
    """One condition on a group of steps, shared by everyone who needs it: n + m edges in place of n * m."""

    __slots__ = ("key", "members", "on", "targets")

    def __init__(self, key: str, members: tuple[str, ...], on: str) -> None:
        self.key = key
        self.members = members
        self.on = on
        self.targets: list[str] = []


class Node:
    """A step and what touches it."""

    __slots__ = ("arcs", "arrivals", "barriers", "by_priority", "dependents", "needs", "order", "step", "waits")

    def __init__(self, step: Step, order: int) -> None:
        self.step = step
        self.order = order
        self.arcs: list[Arc] = [Arc(step.name, edge) for edge in step.edges]
        # The order in which they are looked at: the lowest priority first, those without one last, in file order.
        self.by_priority: tuple[Arc, ...] = tuple(
            sorted(self.arcs, key=lambda a: (a.edge.priority is None, a.edge.priority or 0, a.edge.index))
        )
        # Incoming arcs that count for the join: all but loops.
        self.arrivals: list[Arc] = []
        # Whoever needs this step, and on which condition.
        self.dependents: list[tuple[str, str]] = []
        # Barriers that this step is a member of.
        self.barriers: list[Barrier] = []
        # What this step needs: single steps, and barriers.
        self.needs: list[tuple[str, str]] = []
        self.waits: list[Barrier] = []


class Graph:
    """The nodes by name, in file order, with `starts`: the steps that a run enters first."""

    # How many of them are entered in one turn: the first run while the last are still being entered.
    starts_at_once = 1000

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.nodes: dict[str, Node] = {step.name: Node(step, i) for i, step in enumerate(workflow.steps)}
        self.barriers: dict[str, Barrier] = {}
        self._regions: dict[str, frozenset[str]] = {}
        self._link_needs()
        self._mark_loops()
        self._link_arrivals()
        self.starts: list[str] = [
            name for name, node in self.nodes.items() if not node.needs and not node.waits and not node.arrivals
        ]

    @cached_property
    def matrices(self) -> dict[str, tuple[str, ...]]:
        """The steps of each matrix, in the order of their combinations, by the name of the whole."""
        found: dict[str, list[str]] = {}
        for step in self.workflow.steps:
            if step.matrix_name:
                found.setdefault(step.matrix_name, []).append(step.name)
        return {name: tuple(members) for name, members in found.items()}

    # -- questions -----------------------------------------------------------------------------------------------

    def arc(self, step: str, index: int) -> Arc:
        return self.nodes[step].arcs[index]

    def region(self, start: str) -> frozenset[str]:
        """Every step reachable from `start`, itself included, over needs and edges. Loop edges lead back, not on."""
        if start not in self._regions:
            if len(self._regions) >= REGIONS_KEPT_MAX:
                self._regions.clear()
            self._regions[start] = self.behind((start,))
        return self._regions[start]

    def behind(self, starts: Iterable[str]) -> frozenset[str]:
        """Every step reachable from one of `starts`, themselves included, as for `region`."""
        return frozenset(vertex for vertex in self._walk(starts) if vertex in self.nodes)

    def between(self, sources: Iterable[str], targets: Collection[str]) -> set[str]:
        """The steps on a way from one of `sources` to one of `targets`, over needs and edges that are no loops."""
        leads: dict[str, bool] = {}
        stack = list(sources)
        while stack:
            vertex = stack[-1]
            if vertex not in leads:
                leads[vertex] = False
                stack += [step for step in self._onward(vertex) if step not in leads]
            else:
                stack.pop()
                leads[vertex] = leads[vertex] or any(leads[s] or s in targets for s in self._onward(vertex))
        return {vertex for vertex, does in leads.items() if does and vertex in self.nodes}

    def sources(self, name: str) -> frozenset[str]:
        """The steps right before this one: those that it needs, alone or in groups, and those that lead to it."""
        node = self.nodes[name]
        members = (member for barrier in node.waits for member in barrier.members)
        return frozenset((*(source for source, _ in node.needs), *members, *(arc.source for arc in node.arrivals)))

    def after(self, vertex: str) -> Iterator[str]:
        """One hop on: the targets of its edges in file order, then who needs it. A barrier is a vertex of its own."""
        return (hop.to if isinstance(hop, Arc) else hop for hop in self._hops(vertex))

    def _onward(self, vertex: str) -> list[str]:
        """As `after`, without the edges that lead back."""
        hops = (hop for hop in self._hops(vertex) if not (isinstance(hop, Arc) and hop.is_loop))
        return [hop.to if isinstance(hop, Arc) else hop for hop in hops]

    # -- building ------------------------------------------------------------------------------------------------

    def _link_needs(self) -> None:
        for name, node in self.nodes.items():
            for need in node.step.needs:
                if need.is_group:
                    barrier = self._barrier(need.of, need.on)
                    barrier.targets.append(name)
                    node.waits.append(barrier)
                else:
                    self.nodes[need.of].dependents.append((name, need.on))
                    node.needs.append((need.of, need.on))

    def _barrier(self, group: str, on: str) -> Barrier:
        key = f"{group}:{on}"
        if key not in self.barriers:
            barrier = self.barriers[key] = Barrier(key, self.workflow.groups[group], on)
            for member in barrier.members:
                self.nodes[member].barriers.append(barrier)
        return self.barriers[key]

    def _link_arrivals(self) -> None:
        for node in self.nodes.values():
            for arc in node.arcs:
                if arc.to != END and not arc.is_loop:
                    self.nodes[arc.to].arrivals.append(arc)

    def _mark_loops(self) -> None:
        """Mark every edge that leads back to an ancestor, on the way in from where each loop is entered."""
        if any(node.arcs for node in self.nodes.values()):
            sources = self._sources()
            for part in self._parts(sources):
                inside = set(part)
                seen: set[str] = set()
                for root in self._entries(part, inside, sources):
                    self._descend(root, inside, seen)

    def _entries(self, part: list[str], inside: set[str], sources: Sources) -> list[str]:
        """The steps by which a run gets into a loop: entered from outside, and waiting for nothing inside.

        Where there is none the loop is closed, and it starts by itself: at the step marked `start`, else at the
        first that is no target of a failure edge.
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
        """Depth first from `root`, within a loop; an edge to a step on the present path closes it."""
        if root in seen:
            return
        seen.add(root)
        path = {root}
        stack = [(root, self._hops(root))]
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
                stack.append((target, self._hops(target)))

    def _hops(self, vertex: str) -> Iterator[Arc | str]:
        """As `after`, with the arcs themselves."""
        if vertex in self.barriers:
            yield from self.barriers[vertex].targets
            return
        node = self.nodes[vertex]
        yield from (arc for arc in node.arcs if arc.to != END)
        yield from (target for target, _ in node.dependents)
        yield from (barrier.key for barrier in node.barriers)

    def _sources(self) -> Sources:
        """Everything one hop before each vertex."""
        sources: Sources = {vertex: [] for vertex in (*self.nodes, *self.barriers)}
        for vertex in sources:
            for target in self.after(vertex):
                sources[target].append(vertex)
        return sources

    def _parts(self, sources: Sources) -> list[list[str]]:
        """The loops: strongly connected parts of more than one step, or of one that leads to itself.

        Kosaraju, without recursion: finish order forward, then collect backward.
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
            fresh = dict.fromkeys(target for target in self._onward(vertex) if target not in seen)
            seen.update(fresh)
            found.extend(fresh)
        return found

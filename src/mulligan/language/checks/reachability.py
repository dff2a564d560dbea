"""Reachability in a large graph: many pairs are answered together."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

# Sources per sweep. Each takes one bit of an integer per vertex, so this limits memory.
_SOURCES_PER_SWEEP = 2048

Pair = tuple[str, str]


class Reachability:
    """A graph of names, as its strongly connected parts in topological order."""

    def __init__(self, links: Mapping[str, Sequence[str]]) -> None:
        self._links = links
        self._targets: dict[str, frozenset[str]] = {}
        self._part, self._order = _parts(links)
        self._loops = {vertex for vertex, targets in links.items() if vertex in targets}
        self._sizes = [0] * len(self._order)
        for part in self._part.values():
            self._sizes[part] += 1

    def rank(self, vertex: str) -> int:
        """A sort key: a vertex comes before the vertices that it leads to."""
        return -self._part[vertex]

    def connected(self, pairs: Iterable[Pair]) -> set[Pair]:
        """The pairs (from, to) between which there is a path of at least one link."""
        connected: set[Pair] = set()
        open_pairs: list[Pair] = []
        for pair in set(pairs):
            answer = self._answer_directly(*pair)
            if answer:
                connected.add(pair)
            elif answer is None:
                open_pairs.append(pair)
        return connected | self._sweep_pairs(open_pairs)

    def _answer_directly(self, source: str, target: str) -> bool | None:
        """The answer if no sweep is needed, otherwise None."""
        if source == target:
            return source in self._loops or self._sizes[self._part[source]] > 1
        if self._part[source] == self._part[target] or target in self._targets_of(source):
            return True
        return False if self._part[source] < self._part[target] else None

    def _targets_of(self, source: str) -> frozenset[str]:
        """The direct targets as a set: thousands of steps may read one step that leads to thousands."""
        if source not in self._targets:
            self._targets[source] = frozenset(self._links[source])
        return self._targets[source]

    def _sweep_pairs(self, pairs: list[Pair]) -> set[Pair]:
        connected: set[Pair] = set()
        by_part: dict[int, list[Pair]] = {}
        for pair in pairs:
            by_part.setdefault(self._part[pair[0]], []).append(pair)
        sources = sorted(by_part)
        for start in range(0, len(sources), _SOURCES_PER_SWEEP):
            bits = {part: 1 << bit for bit, part in enumerate(sources[start : start + _SOURCES_PER_SWEEP])}
            masks = self._sweep(bits)
            connected.update(
                pair for part, bit in bits.items() for pair in by_part[part] if masks[self._part[pair[1]]] & bit
            )
        return connected

    def _sweep(self, bits: dict[int, int]) -> list[int]:
        """For each part the bit set of sources that reach it. Links lead to parts with lower numbers."""
        masks = [0] * len(self._order)
        for part in range(len(self._order) - 1, -1, -1):
            mask = masks[part] | bits.get(part, 0)
            if mask:
                masks[part] = mask
                for vertex in self._order[part]:
                    for target in self._links[vertex]:
                        masks[self._part[target]] |= mask
        return masks


def _parts(links: Mapping[str, Sequence[str]]) -> tuple[dict[str, int], list[list[str]]]:
    """The strongly connected parts (Tarjan, without recursion), numbered so that links lead to lower numbers."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    part: dict[str, int] = {}
    order: list[list[str]] = []
    stack: list[str] = []
    for root in links:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        work = [(root, iter(links[root]))]
        while work:
            vertex, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    work.append((target, iter(links[target])))
                    break
                if target not in part:
                    low[vertex] = min(low[vertex], index[target])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[vertex])
                if low[vertex] == index[vertex]:
                    _close_part(vertex, stack, part, order)
    return part, order


def _close_part(vertex: str, stack: list[str], part: dict[str, int], order: list[list[str]]) -> None:
    members = []
    while True:
        member = stack.pop()
        part[member] = len(order)
        members.append(member)
        if member == vertex:
            order.append(members)
            return


def _goes_one_way(links: Mapping[str, Sequence[str]]) -> bool:
    """Whether all links lead on, or all lead back, in the order in which the vertices stand: as in most files."""
    place = {vertex: number for number, vertex in enumerate(links)}
    steps = {place[target] > number for number, targets in enumerate(links.values()) for target in targets}
    return len(steps) < 2 and not any(vertex in targets for vertex, targets in links.items())


def find_cycle(links: Mapping[str, Sequence[str]]) -> list[str]:
    """One cycle, with its first vertex repeated at the end; empty if there is none."""
    if _goes_one_way(links):
        return []
    part, order = _parts(links)
    for members in reversed(order):
        start = members[-1]
        if len(members) > 1 or start in links[start]:
            return _shortest_cycle(start, part, links)
    return []


def _shortest_cycle(start: str, part: dict[str, int], links: Mapping[str, Sequence[str]]) -> list[str]:
    """The shortest path from `start` back to itself, inside its part."""
    came_from: dict[str, str] = {}
    front = deque([start])
    while front:
        vertex = front.popleft()
        for target in links[vertex]:
            if target == start:
                way = [start, vertex]
                while way[-1] != start:
                    way.append(came_from[way[-1]])
                return way[::-1]
            if part[target] == part[start] and target not in came_from:
                came_from[target] = vertex
                front.append(target)
    return []

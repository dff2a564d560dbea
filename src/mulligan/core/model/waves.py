"""The order in which the steps of a workflow can run: wave by wave, each step as early as possible."""

from __future__ import annotations

from collections import deque

from mulligan.core.model.graph import Graph


def waves(graph: Graph) -> list[list[str]]:
    """The steps by wave, in file order: first the start steps, then those that wait only for them, and so on.

    Loop edges are ignored. Takes time in proportion to the edges.
    """
    # Barriers are vertices, so that a group of n steps that m others need has n + m edges.
    open_: dict[str, int] = {key: len(barrier.members) for key, barrier in graph.barriers.items()}
    for name, node in graph.nodes.items():
        open_[name] = len(node.needs) + len(node.waits) + len(node.arrivals)
    level = dict.fromkeys(open_, 0)
    ready = deque(vertex for vertex, count in open_.items() if not count)
    while ready:
        vertex = ready.popleft()
        is_step = vertex in graph.nodes
        for target in graph.onward(vertex):
            level[target] = max(level[target], level[vertex] + is_step)
            open_[target] -= 1
            if not open_[target]:
                ready.append(target)
    found: list[list[str]] = [[] for _ in range(max((level[name] for name in graph.nodes), default=-1) + 1)]
    for name in graph.nodes:
        found[level[name]].append(name)
    return found

"""The graph of resolved steps as plain links, for the checks. A group is a vertex."""

from __future__ import annotations

from collections.abc import Iterator

from mulligan.core.model.workflow import END, Edge, Need, Step
from mulligan.language.resolve import Resolved

Links = dict[str, list[str]]


def vertex(need: Need) -> str:
    """The vertex of a need. Names of steps have no colon."""
    return f"group:{need.of}" if need.is_group else need.of


def readable(name: str) -> str:
    return name.removeprefix("group:")


def forward_links(resolved: Resolved) -> Links:
    """The links along which a result can reach another step: needs, edges, and back from a remediation."""
    links = _vertices(resolved)
    for step in resolved.steps.values():
        for need in step.needs:
            links[vertex(need)].append(step.name)
        for edge in _inner(step):
            links[step.name].append(edge.to)
            if edge.then:
                links[edge.to].append(step.name)
    return links


def success_links(resolved: Resolved) -> Links:
    """The links from a step to the steps that wait for its success."""
    links = _vertices(resolved)
    for step in resolved.steps.values():
        for need in step.needs:
            if need.on != "always":
                links[vertex(need)].append(step.name)
        links[step.name] += [edge.to for edge in _inner(step) if edge.on == "success"]
    return links


def need_links(resolved: Resolved) -> Links:
    """The links from a step to the steps that it needs."""
    links: Links = {name: [] for name in resolved.steps}
    for group, members in resolved.groups.items():
        links[f"group:{group}"] = list(members)
    for step in resolved.steps.values():
        links[step.name] += [vertex(need) for need in step.needs]
    return links


def _vertices(resolved: Resolved) -> Links:
    links: Links = {name: [] for name in resolved.steps}
    for group, members in resolved.groups.items():
        links[f"group:{group}"] = []
        for member in members:
            links[member].append(f"group:{group}")
    return links


def _inner(step: Step) -> Iterator[Edge]:
    return (edge for edge in step.edges if edge.to != END)

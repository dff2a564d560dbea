"""The graph of resolved steps as plain links, for the checks, and the needs that files imply. A group is a vertex.

A reader of a file needs its writers, and two writers of one file must be ordered.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec

from mulligan.core.model.workflow import END, Edge, Need, Step
from mulligan.language.checks.reachability import Reachability
from mulligan.language.resolve import Resolved
from mulligan.language.text.nodes import Refusal, Source

Links = dict[str, list[str]]


def vertex(need: Need) -> str:
    """The vertex of a need. Names of steps have no colon."""
    return f"group:{need.of}" if need.is_group else need.of


def readable(name: str) -> str:
    return name.removeprefix("group:")


def forward_links(resolved: Resolved) -> Links:
    """The links along which a result can reach another step: needs, edges, and back from a remediation."""
    links = group_links(resolved)
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
    links = group_links(resolved)
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


def group_links(resolved: Resolved) -> Links:
    """All vertices, with the links from the members of a group to the group."""
    links: Links = {name: [] for name in resolved.steps}
    for group, members in resolved.groups.items():
        links[f"group:{group}"] = []
        for member in members:
            links[member].append(f"group:{group}")
    return links


def _inner(step: Step) -> Iterator[Edge]:
    return (edge for edge in step.edges if edge.to != END)


# -- links that files imply -------------------------------------------------------------------------------------------


def add_needs(resolved: Resolved, source: Source, *, allows_unordered: bool = False) -> None:
    """Add the needs that files imply; refuse writers of one file that could run at the same time, or only warn."""
    writers: dict[str, list[str]] = {}
    for step in resolved.steps.values():
        for file in step.writes:
            writers.setdefault(file, []).append(step.name)
    # Whether two maps write the same files depends on their items, so these are only looked for by readers.
    by_items: dict[str, list[str]] = {}
    for step in resolved.steps.values():
        for file in dict.fromkeys(file for command in step.do for file in command.writes):
            by_items.setdefault(file, []).append(step.name)
    if not writers and not by_items:
        return
    reach = Reachability(forward_links(resolved))
    for file, names in writers.items():
        if refusal := _unordered(file, names, reach, resolved, source):
            if allows_unordered:
                source.warn_as(refusal)
            else:
                source.note(refusal)
    for file, names in by_items.items():
        writers.setdefault(file, []).extend(names)
    implied = _implied_needs(writers, reach, resolved)
    for name, needs in implied.items():
        step = resolved.steps[name]
        resolved.steps[name] = msgspec.structs.replace(step, needs=(*step.needs, *needs))


def _unordered(file: str, names: list[str], reach: Reachability, resolved: Resolved, source: Source) -> Refusal | None:
    """Two writers of a file of which neither comes first."""
    ordered = sorted(names, key=reach.rank)
    pairs = list(pairwise(ordered))
    connected = reach.connected(pairs)
    for first, second in pairs:
        if (first, second) not in connected:
            earlier, later = sorted((first, second), key=names.index)
            message = f"steps '{earlier}' and '{later}' both write '{file}', and neither comes first"
            node = resolved.drafts[later].node
            at = node.get("writes") or node
            return source.refuse("writers", message, at, hint="let one need the other, or write another file")
    return None


def _implied_needs(writers: dict[str, list[str]], reach: Reachability, resolved: Resolved) -> dict[str, list[Need]]:
    """The writers that each reader does not need yet, without those that come after the reader."""
    pairs = {
        (writer, step.name)
        for step in resolved.steps.values()
        for file in dict.fromkeys((*step.reads, *(file for command in step.do for file in command.reads)))
        for writer in writers.get(file, ())
        if writer != step.name
    }
    later = reach.connected((reader, writer) for writer, reader in pairs)
    implied: dict[str, list[Need]] = {}
    for writer, reader in sorted(pairs):
        is_known = any(need.of == writer and not need.is_group for need in resolved.steps[reader].needs)
        if not is_known and (reader, writer) not in later:
            implied.setdefault(reader, []).append(Need(writer))
    return implied

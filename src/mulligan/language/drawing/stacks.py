"""Many steps alike as one card: the steps of a matrix, and fans of steps with like names that are linked alike.

A picture of 300 cards in a row says less than one card with a number on it. What is left out is said on the arrows:
an arrow without words leads from all of a stack to all of another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from mulligan.core.model.lazy_regex import lazy_regex
from mulligan.core.model.workflow import Workflow
from mulligan.history.matrices import counted_statuses, group_status, group_title
from mulligan.language.drawing.picture import Link, Node, Picture, matrices_by_key, picture

# So many steps alike, that no matrix holds together, become a stack; fewer are easily looked at.
FAN_MIN = 8
# How far the surroundings of two steps are compared: beyond that they count as alike.
_ROUNDS_MAX = 4
_FIRST_WORD = lazy_regex(r"[^\W\d_]*")


@dataclass(frozen=True, slots=True)
class _Stack:
    """Nodes that are drawn as one, in the order of the file."""

    key: str
    name: str
    nodes: tuple[Node, ...]


def stacked_picture(workflow: Workflow, statuses: Mapping[str, str] | None = None) -> Picture:
    """What there is to draw of a workflow, steps alike as one."""
    return stacked(picture(workflow, statuses), matrices_by_key(workflow))


def stacked(drawn: Picture, matrices: Mapping[str, str]) -> Picture:
    """The picture with a card for each matrix and each fan. `matrices`: the name of the whole, by the key of a node."""
    stacks = _stacks(drawn, matrices)
    if not stacks:
        return drawn
    within = {node.key: stack for stack in stacks for node in stack.nodes}
    nodes = [
        _card(stack) if (stack := within.get(node.key)) else node
        for node in drawn.nodes
        if node.key not in within or within[node.key].key == node.key
    ]
    return _without_idle_barriers(drawn.name, nodes, _merged(drawn.links, within))


# -- who is alike ----------------------------------------------------------------------------------------------------


def _stacks(drawn: Picture, matrices: Mapping[str, str]) -> list[_Stack]:
    alike = _alike(drawn, matrices)
    # Steps that lead to each other are a chain, and no stack.
    chained = {alike[link.source] for link in drawn.links if alike[link.source] == alike[link.target]}
    found: dict[Any, list[Node]] = defaultdict(list)
    for node in drawn.nodes:
        if alike[node.key] not in chained:
            found[alike[node.key]].append(node)
    stacks = []
    for nodes in found.values():
        matrix = matrices.get(nodes[0].key, "")
        if len(nodes) >= (2 if matrix else FAN_MIN):
            stacks.append(_Stack(nodes[0].key, matrix or f"{_beginning(nodes)}…", tuple(nodes)))
    return stacks


def _alike(drawn: Picture, matrices: Mapping[str, str]) -> dict[str, Any]:
    """A class for each node. Two steps are in one if they look alike, and so do the steps that they are linked with.

    The steps of a matrix are in one class whatever they are linked with.
    """
    classes: dict[str, Any] = {node.key: _look(node, matrices.get(node.key, "")) for node in drawn.nodes}
    count = len(set(classes.values()))
    for _ in range(_ROUNDS_MAX):
        around: dict[str, set[Any]] = defaultdict(set)
        for link in drawn.links:
            words = (link.kind, link.label, link.is_loop, link.then)
            around[link.source].add((True, words, classes[link.target]))
            around[link.target].add((False, words, classes[link.source]))
        signed = {key: look if key in matrices else (look, frozenset(around[key])) for key, look in classes.items()}
        numbers = {look: number for number, look in enumerate(dict.fromkeys(signed.values()))}
        classes = {key: numbers[look] for key, look in signed.items()}
        if len(numbers) == count:
            break
        count = len(numbers)
    return classes


def _look(node: Node, matrix: str) -> Any:
    if matrix:
        return "matrix", matrix
    if node.shape in ("group", "end"):
        return "itself", node.key
    found = _FIRST_WORD.match(node.title)
    return "step", found[0] if found else "", node.shape, node.action, node.notes, node.condition


def _beginning(nodes: Sequence[Node]) -> str:
    """What the names of a fan begin with, without the digits of a number that goes on."""
    first, last = min(node.title for node in nodes), max(node.title for node in nodes)
    shared = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
    return shared.rstrip("0123456789")


def _card(stack: _Stack) -> Node:
    """What all nodes of a stack have in common, and how they stand."""
    first, *others = stack.nodes
    statuses = counted_statuses(node.status for node in stack.nodes if node.status)
    return replace(
        first,
        title=group_title(stack.name, len(stack.nodes)),
        action=first.action if all(node.action == first.action for node in others) else "",
        notes=tuple(note for note in first.notes if all(note in node.notes for node in others)),
        condition=first.condition if all(node.condition == first.condition for node in others) else "",
        status=group_status(statuses) if statuses else "",
        name=stack.name,
        members=tuple(node.title for node in stack.nodes),
        statuses=statuses,
    )


# -- what leads where ------------------------------------------------------------------------------------------------


def _merged(links: Iterable[Link], within: Mapping[str, _Stack]) -> list[Link]:
    """One link for all that lead from a stack to another in the same way, with what is not true of all in words."""
    found: dict[Any, list[Link]] = defaultdict(list)
    for link in links:
        source, target = (_end(key, within) for key in (link.source, link.target))
        found[source, target, link.kind, link.is_loop, link.then].append(link)
    return [
        replace(
            some[0],
            source=source,
            target=target,
            label=_label(some, within),
            has_condition=all(link.has_condition for link in some),
        )
        for (source, target, *_), some in found.items()
    ]


def _end(key: str, within: Mapping[str, _Stack]) -> str:
    return within[key].key if key in within else key


def _label(links: Sequence[Link], within: Mapping[str, _Stack]) -> str:
    labels = list(dict.fromkeys(link.label for link in links))
    words = [labels[0] if len(labels) == 1 else "by their values"]
    if links[0].kind != "leaf":
        words.append(_share(links, within))
    return " · ".join(filter(None, words))


def _share(links: Sequence[Link], within: Mapping[str, _Stack]) -> str:
    """Which of the two stacks are linked: nothing where all are, with all of the other."""
    sources, targets = {link.source for link in links}, {link.target for link in links}
    pairs = {(link.source, link.target) for link in links}
    from_all, to_all = _size(links[0].source, within), _size(links[0].target, within)
    if len(sources) == from_all and len(targets) == to_all:
        if len(pairs) == from_all * to_all:
            return ""
        return "each to its own" if len(pairs) == from_all == to_all else f"{len(pairs):,} edges"
    words = [f"{len(sources):,} of {from_all:,}"] if len(sources) < from_all else []
    return " ".join(words + ([f"to {len(targets):,} of {to_all:,}"] if len(targets) < to_all else []))


def _size(key: str, within: Mapping[str, _Stack]) -> int:
    return len(within[key].nodes) if key in within else 1


def _without_idle_barriers(name: str, nodes: list[Node], links: list[Link]) -> Picture:
    """The picture without the barriers that one whole stack leads to: the arrow of the stack says the same."""
    leading: dict[str, list[Link]] = defaultdict(list)
    for link in links:
        leading[link.target].append(link)
    stacks = {node.key for node in nodes if node.members}
    idle = {
        node.key: before[0].source
        for node in nodes
        if node.shape == "group" and len(before := leading[node.key]) == 1
        if before[0].source in stacks and not before[0].label
    }
    kept = [replace(link, source=idle.get(link.source, link.source)) for link in links if link.target not in idle]
    return Picture(name, tuple(node for node in nodes if node.key not in idle), tuple(dict.fromkeys(kept)))

"""Draw many similar steps as one card: the steps of a matrix, and fans of steps with similar names and the same links.

One card with a number on it says more than 300 cards in a row. The labels of the arrows say what the card leaves out:
an arrow without a label leads from all steps of one stack to all steps of another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import Workflow
from mulligan.history.called_steps import WorkflowOfRun
from mulligan.history.matrices import count_statuses, group_status, group_title
from mulligan.service.rendering.drawing.call_picture import build_call_picture
from mulligan.service.rendering.drawing.picture import Link, Node, Picture, build_picture, matrices_by_key

# The smallest fan that becomes a stack; fewer steps are easy to look at one by one.
FAN_MIN = 8
# How many links away the surroundings of two steps are compared; beyond that they count as similar.
_ROUNDS_MAX = 4
_FIRST_WORD = lazy_regex(r"[^\W\d_]*")


@dataclass(frozen=True, slots=True)
class _Stack:
    """Nodes that are drawn as one, in the order of the file."""

    key: str
    name: str
    nodes: tuple[Node, ...]


def choose_picture(
    workflow: Workflow, statuses: Mapping[str, str] | None = None, *, is_expanded: bool = False
) -> Picture:
    """The picture of a workflow: with every step by itself if `is_expanded`, otherwise with similar steps stacked."""
    if isinstance(workflow, WorkflowOfRun):
        return build_call_picture(workflow, statuses, is_expanded=is_expanded)
    return build_picture(workflow, statuses) if is_expanded else build_stacked_picture(workflow, statuses)


def build_stacked_picture(workflow: Workflow, statuses: Mapping[str, str] | None = None) -> Picture:
    """The picture of a workflow with one card for each matrix and each fan of similar steps."""
    drawn, matrices = build_picture(workflow, statuses), matrices_by_key(workflow)
    stacks = _stacks(drawn, matrices)
    if not stacks:
        return drawn
    within = {node.key: stack for stack in stacks for node in stack.nodes}
    nodes = [
        _card(stack) if (stack := within.get(node.key)) else node
        for node in drawn.nodes
        if node.key not in within or within[node.key].key == node.key
    ]
    return _drop_idle_barriers(drawn.name, nodes, _merge_links(drawn.links, within))


# -- which steps are similar -------------------------------------------------------------------------------------------


def _stacks(drawn: Picture, matrices: Mapping[str, str]) -> list[_Stack]:
    alike = _classify_nodes(drawn, matrices)
    # Steps that lead to each other are a chain, not a stack.
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


def _classify_nodes(drawn: Picture, matrices: Mapping[str, str]) -> dict[str, Any]:
    """A class for each node: two steps share one if they and the steps they are linked with look the same.

    The steps of a matrix share one class whatever they are linked with.
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
    """The common beginning of the names of a fan, without trailing digits."""
    first, last = min(node.title for node in nodes), max(node.title for node in nodes)
    shared = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
    return shared.rstrip("0123456789")


def _card(stack: _Stack) -> Node:
    """One node with what all nodes of a stack have in common, and the counts of their statuses."""
    first, *others = stack.nodes
    statuses = count_statuses(node.status for node in stack.nodes if node.status)
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


# -- links between stacks ----------------------------------------------------------------------------------------------


def _merge_links(links: Iterable[Link], within: Mapping[str, _Stack]) -> list[Link]:
    """Merge the links of one kind between two stacks into one, with a label for what does not hold for all of them."""
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
    words = [labels[0] if len(labels) == 1 else "depends on values"]
    if links[0].kind != "leaf":
        words.append(_share(links, within))
    return " · ".join(filter(None, words))


def _share(links: Sequence[Link], within: Mapping[str, _Stack]) -> str:
    """How many steps of the two stacks are linked; "" if every step is linked with every step of the other."""
    sources, targets = {link.source for link in links}, {link.target for link in links}
    pairs = {(link.source, link.target) for link in links}
    from_all, to_all = _size(links[0].source, within), _size(links[0].target, within)
    if len(sources) == from_all and len(targets) == to_all:
        if len(pairs) == from_all * to_all:
            return ""
        return "one to one" if len(pairs) == from_all == to_all else f"{len(pairs):,} edges"
    words = [f"{len(sources):,} of {from_all:,}"] if len(sources) < from_all else []
    return " ".join(words + ([f"to {len(targets):,} of {to_all:,}"] if len(targets) < to_all else []))


def _size(key: str, within: Mapping[str, _Stack]) -> int:
    return len(within[key].nodes) if key in within else 1


def _drop_idle_barriers(name: str, nodes: list[Node], links: list[Link]) -> Picture:
    """Leave out barriers that only one whole stack leads to: the arrow of the stack says the same."""
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

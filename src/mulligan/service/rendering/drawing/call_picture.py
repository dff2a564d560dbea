"""The graph of what a program has called. The calls of one line are one card if they are many: a loop, or a gather."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from mulligan.core.model.program_calls import name_of
from mulligan.core.model.workflow import END
from mulligan.history.called_steps import WorkflowOfRun
from mulligan.history.matrices import count_statuses, group_status, group_title
from mulligan.service.rendering.drawing.picture import END_KEY, Link, LinkKind, Node, Picture, end_node, step_node

# So many calls of one line become one card; fewer are easy to look at one by one.
CALLS_OF_A_CARD_MIN = 4


def build_call_picture(
    workflow: WorkflowOfRun, statuses: Mapping[str, str] | None = None, *, is_expanded: bool = False
) -> Picture:
    """The program, its calls in the order in which they followed each other, and `end`."""
    found = statuses or {}
    nodes = {
        step.name: step_node(step, f"s{number}", found.get(step.name, "")) for number, step in enumerate(workflow.steps)
    }
    for name, one in workflow.called.items():
        if one.at and name in nodes:
            nodes[name] = replace(nodes[name], notes=(*nodes[name].notes, f"line {_line(one.at)}"))
    cards = {name: name for name in nodes} if is_expanded else _cards(workflow)
    links = _links(workflow, cards, {name: node.key for name, node in nodes.items()}, found)
    drawn = _drawn(nodes, cards)
    leaves = _leaves(drawn, links)
    end = end_node(workflow.end, found.get(END, ""))
    return Picture(workflow.name, (*drawn, end), (*links, *(Link(key, END_KEY, "leaf") for key in leaves)))


def _line(at: str) -> str:
    return at.rpartition(":")[2]


def _cards(workflow: WorkflowOfRun) -> dict[str, str]:
    """For each step the first one of its card."""
    lines: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name, one in workflow.called.items():
        lines[name_of(name), one.at].append(name)
    found = {step.name: step.name for step in workflow.steps}
    for names in lines.values():
        if len(names) >= CALLS_OF_A_CARD_MIN:
            found.update(dict.fromkeys(names, names[0]))
    return found


def _links(
    workflow: WorkflowOfRun, cards: Mapping[str, str], keys: Mapping[str, str], statuses: Mapping[str, str]
) -> list[Link]:
    order = {step.name: number for number, step in enumerate(workflow.steps)}
    found: dict[tuple[str, str, LinkKind], Link] = {}
    for step in workflow.steps:
        for need in step.needs:
            source, target = cards[need.of], cards[step.name]
            one = workflow.called.get(need.of)
            # An `except` is taken by those that failed.
            is_caught = one is not None and bool(one.handled_at) and statuses.get(need.of) == "failed"
            kind: LinkKind = "failure" if is_caught else "success"
            label = f"except, line {_line(one.handled_at)}" if one is not None and is_caught else ""
            is_loop = order[source] >= order[target]
            if is_loop and kind == "success":
                label = "again"
            found.setdefault((source, target, kind), Link(keys[source], keys[target], kind, label, is_loop))
    return list(found.values())


def _drawn(nodes: Mapping[str, Node], cards: Mapping[str, str]) -> list[Node]:
    members: defaultdict[str, list[Node]] = defaultdict(list)
    for name, node in nodes.items():
        members[cards[name]].append(node)
    return [_card(name, some) for name, some in members.items()]


def _card(name: str, nodes: list[Node]) -> Node:
    if len(nodes) == 1:
        return nodes[0]
    statuses = count_statuses(node.status for node in nodes if node.status)
    return replace(
        nodes[0],
        title=group_title(name_of(name), len(nodes)),
        status=group_status(statuses) if statuses else "",
        name=name_of(name),
        members=tuple(node.title for node in nodes),
        statuses=statuses,
    )


def _leaves(nodes: list[Node], links: list[Link]) -> list[str]:
    followed = {link.source for link in links if not link.is_loop}
    return [node.key for node in nodes if node.key not in followed]

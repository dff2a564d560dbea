"""The content of a drawing: nodes and links, in file order, with their texts. `layout` decides where they go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from mulligan.core.model.actions import Shape, traits_of
from mulligan.core.model.graph import Graph
from mulligan.core.model.text.formatting import number_ranges
from mulligan.core.model.workflow import END, Edge, Need, Step, Then, Workflow
from mulligan.history.matrices import group_counts

# `leaf` is the light line to `end` from a step that nothing follows.
LinkKind = Literal["success", "failure", "always", "leaf"]

LABEL_CHARS_MAX = 40
# Not `end`, since that word closes a block in Mermaid.
END_KEY = "e0"


@dataclass(frozen=True, slots=True)
class Node:
    """A step, a barrier (one small node for a whole group), or `end`. `key` is safe in any syntax."""

    key: str
    shape: Shape
    title: str
    action: str = ""
    notes: tuple[str, ...] = ()
    condition: str = ""
    status: str = ""
    # Only of a stack: its name without the number, its steps, and how many of them are in each status.
    name: str = ""
    members: tuple[str, ...] = ()
    statuses: dict[str, int] = field(default_factory=dict, hash=False)

    @property
    def details(self) -> str:
        """The second line: its action and its notes."""
        return " · ".join(word for word in (self.action, *self.notes) if word)

    @property
    def when(self) -> str:
        """The third line: its condition."""
        return f"when {self.condition}" if self.condition else ""

    @property
    def counts(self) -> str:
        """The statuses of a stack: `8 failed, 292 completed`; "" for a single step or without statuses."""
        return group_counts(self.statuses)


@dataclass(frozen=True, slots=True)
class Link:
    """An arrow. With `then: rerun` it points both ways: the source runs again after its target."""

    source: str
    target: str
    kind: LinkKind
    label: str = ""
    is_loop: bool = False
    then: Then | None = None
    has_condition: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    name: str
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]


def build_picture(workflow: Workflow, statuses: Mapping[str, str] | None = None) -> Picture:
    """All nodes and links of `workflow`, each step by itself, `end` last."""
    keys = _keys(workflow)
    nodes = [step_node(step, keys[step.name], (statuses or {}).get(step.name, "")) for step in workflow.steps]
    nodes += [Node(key=keys[_group(name)], shape="group", title=name) for name in workflow.groups]
    nodes.append(end_node(workflow.end, (statuses or {}).get(END, "")))
    # A need and an edge with the same meaning are one arrow.
    links = list(dict.fromkeys([*_needs(workflow, keys), *_edges(workflow, keys)]))
    links += [Link(key, END_KEY, "leaf") for key in _leaves(nodes, links)]
    return Picture(workflow.name, tuple(nodes), tuple(links))


def matrices_by_key(workflow: Workflow) -> dict[str, str]:
    """The name of the matrix, by the key of each of its steps."""
    return {f"s{index}": step.matrix_name for index, step in enumerate(workflow.steps) if step.matrix_name}


def shorten(text: str, chars_max: int = LABEL_CHARS_MAX) -> str:
    """Shorten text to one line of at most `chars_max` characters, with `…` at the cut."""
    line = " ".join(text.split())
    return line if len(line) <= chars_max else line[: chars_max - 1].rstrip() + "…"


def _group(name: str) -> str:
    # A group and a step may have the same name. No step's name contains NUL, so the two keys differ.
    return f"\0{name}"


def _keys(workflow: Workflow) -> dict[str, str]:
    """Generated ids, since names such as `end`, `class` or `a-b` have a meaning in Mermaid or CSS."""
    keys = {step.name: f"s{index}" for index, step in enumerate(workflow.steps)}
    keys |= {_group(name): f"g{index}" for index, name in enumerate(workflow.groups)}
    return keys | {END: END_KEY}


def step_node(step: Step, key: str, status: str) -> Node:
    """The node of a step."""
    return Node(
        key=key,
        shape=_shape(step),
        title=step.name,
        action=_action(step),
        notes=tuple(_notes(step)),
        condition=shorten(step.when.source) if step.when else "",
        status=status,
    )


def end_node(end: Step, status: str) -> Node:
    """The node of the last step."""
    action = end.action.kind if end.action else ""
    return Node(key=END_KEY, shape="end", title=END, action=action, notes=tuple(_notes(end)), status=status)


def _shape(step: Step) -> Shape:
    if step.map:
        return "map"
    shape = traits_of(step.action).shape
    return "triage" if step.triage and shape == "action" else shape


def _action(step: Step) -> str:
    if not step.map:
        return step.action.kind if step.action else ""
    kinds = dict.fromkeys(command.action.kind for command in step.do if command.action)
    return f"each {step.map.name}: {', then '.join(kinds)}"


def _notes(step: Step) -> Iterator[str]:
    if step.join != "any":
        yield f"join {step.join}"
    # The rules and handlers of a map step are on the commands of its items.
    places = (step, *step.do)
    if any(place.rules for place in places):
        yield "retry"
    handlers = [place.on_failure for place in places if place.on_failure]
    yield from dict.fromkeys("handler" if it.strategy == "recovery" else it.strategy for it in handlers)
    if step.triage:
        yield "triage"
    if step.undo:
        yield "undo"
    if step.continue_on_error:
        yield "may fail"


def _needs(workflow: Workflow, keys: dict[str, str]) -> Iterator[Link]:
    for name, members in workflow.groups.items():
        yield from (Link(keys[member], keys[_group(name)], "success") for member in members)
    for step in workflow.steps:
        for need in step.needs:
            source = _group(need.of) if need.is_group else need.of
            yield Link(keys[source], keys[step.name], "success", _need_label(need))


def _edges(workflow: Workflow, keys: dict[str, str]) -> Iterator[Link]:
    for node in Graph(workflow).nodes.values():
        for arc in node.arcs:
            label = _edge_label(arc.edge, arc.is_loop)
            source, target, condition = keys[arc.source], keys[arc.to], arc.edge.when
            yield Link(source, target, arc.edge.on, label, arc.is_loop, arc.edge.then, condition is not None)


def _need_label(need: Need) -> str:
    return "" if need.on == "success" else need.on.replace("_", " ")


def _edge_label(edge: Edge, is_loop: bool) -> str:
    words = ["loop"] if is_loop else []
    if edge.on == "failure":
        exits = [f"exit {codes}" for codes in number_ranges(edge.exit_codes)]
        words.append(shorten(", ".join([*edge.codes, *exits])) or "failure")
    if edge.on == "always":
        words.append("always")
    if edge.when:
        words.append(shorten(edge.when.source))
    if edge.then:
        words.append(f"then {edge.then}")
    if not edge.handles:
        words.append("handles nothing")
    return " · ".join(words)


def _leaves(nodes: list[Node], links: list[Link]) -> list[str]:
    """The nodes that nothing follows on success. A handler that returns to its source is not a leaf."""
    followed = {link.source for link in links if link.kind != "failure" and not (link.is_loop and link.has_condition)}
    handing_back = {link.target for link in links if link.then}
    led_on = followed | handing_back | {END_KEY}
    return [node.key for node in nodes if node.key not in led_on]

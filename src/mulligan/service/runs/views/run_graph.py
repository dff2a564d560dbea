"""The graph of a run for a page: each step with its status, and which arrows the run took.

A large graph is shown around one step: what it needs and what follows it, two levels each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Literal

import msgspec

from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import END, Step, Workflow
from mulligan.core.state.state import State
from mulligan.errors import UnknownStep
from mulligan.history.called_steps import workflow_of_run
from mulligan.language.text.suggestions import did_you_mean
from mulligan.service.rendering.drawing.grouped_steps import choose_picture
from mulligan.service.rendering.drawing.picture import END_KEY, Link, Node, Picture
from mulligan.service.rendering.drawing.svg import RunMarks, draw_run_svg

# A picture with more nodes is not readable any more: it is shown around one step.
NODES_MAX = 300
# Finding out whether many steps are similar takes time for each of them; those of a matrix are known to be.
SIMILAR_STEPS_MAX, STACKED_STEPS_MAX = 1_000, 10_000
# Around a step: how many levels, and how many neighbours of one step.
LEVELS, NEIGHBOURS_MAX = 2, 8
# Which steps are shown first where there are too many, and which step a large graph is shown around.
ATTENTION = (
    *("failed", "pending_failed", "handling", "backing_off", "running", "ready"),
    *("cancelled", "completed", "skipped", "waiting"),
)


class Neighbours(msgspec.Struct, frozen=True):
    """The steps directly before or after a step: the first ones, and how many there are."""

    names: tuple[str, ...]
    count: int


class RunGraph(msgspec.Struct, frozen=True):
    """A drawing, and what it shows: the whole run, or the surroundings of a step."""

    svg: str
    kind: Literal["whole", "stacked", "around"]
    step_count: int
    # Of the surroundings.
    step: str = ""
    status: str = ""
    is_paused: bool = False
    before: Neighbours = Neighbours((), 0)
    after: Neighbours = Neighbours((), 0)
    # How many steps of the surroundings are left out.
    left_out: int = 0


# The address of a node: of its step, or of several similar steps by the beginning of their names.
HrefOf = Callable[[Node], str]


def draw_run_graph(state: State, step: str, href: HrefOf, *, is_expanded: bool = False) -> RunGraph:
    """The graph of a run, with similar steps as one card unless `is_expanded`; around `step`, if one is named.

    A graph that is too large is drawn around the step that needs attention most.
    """
    if step:
        return _around(state, step, href)
    count = len(state.graph.nodes)
    if is_expanded and count <= NODES_MAX:
        drawn = choose_picture(workflow_of_run(state), _statuses(state), is_expanded=True)
        return RunGraph(_draw(state, drawn, href), "whole", count)
    if _can_be_stacked(state):
        drawn = choose_picture(workflow_of_run(state), _statuses(state))
        if len(drawn.nodes) <= NODES_MAX:
            has_stacks = any(node.members for node in drawn.nodes)
            return RunGraph(_draw(state, drawn, href), "stacked" if has_stacks else "whole", count)
    return _around(state, most_interesting(state), href)


def _can_be_stacked(state: State) -> bool:
    """Whether a picture with similar steps as one card is made quickly, and may be small enough."""
    count = len(state.graph.nodes)
    if count <= SIMILAR_STEPS_MAX or state.calls:
        return True
    single = sum(1 for step in state.workflow.steps if not step.matrix_name)
    return count <= STACKED_STEPS_MAX and single <= NODES_MAX


def most_interesting(state: State) -> str:
    """The step that somebody would look at first."""
    rank = _rank(state)
    return min(state.graph.nodes, key=rank)


def _draw(state: State, drawn: Picture, href: HrefOf, chosen: str = "") -> str:
    hrefs = {node.key: href(node) for node in drawn.nodes if node.shape != "group" and node.key != END_KEY}
    key = next((node.key for node in drawn.nodes if node.title == chosen and not node.members), "")
    return draw_run_svg(drawn, RunMarks(hrefs, taken_links(state, drawn), key))


def _statuses(state: State) -> dict[str, str]:
    if not state.places:
        return {}
    found: dict[str, str] = {place.key: place.status for place in (*state.steps(), state.places[END])}
    if state.run.status in ("failed", "cancelled"):
        # The step that ends a run completes also when the run has failed: a tick there would be taken for the result.
        found[END] = state.run.status
    return found


def _rank(state: State) -> Callable[[str], int]:
    ranks = {status: number for number, status in enumerate(ATTENTION)}
    places = state.places
    return lambda name: ranks.get(places[name].status, len(ranks)) if name in places else len(ranks)


# -- what was taken --------------------------------------------------------------------------------------------------


def taken_links(state: State, drawn: Picture) -> frozenset[Link]:
    """The arrows of a picture that the run took. One between stacks counts if it took one of theirs."""
    if state.calls:
        # What a program has called followed each other so.
        return frozenset(link for link in drawn.links if link.kind != "leaf" or state.status_of(END) == "completed")
    keys = {name: node.key for node in drawn.nodes for name in (node.members or (_node_name(node),))}
    # What was taken between two nodes: by kind, with the words by which several failure edges differ.
    found: dict[tuple[str, str, str], set[str]] = {}
    for source, target, kind, words in chain(_taken_needs(state), _taken_edges(state)):
        if source in keys and target in keys:
            found.setdefault((keys[source], keys[target], kind), set()).add(words)
    return frozenset(
        link
        for link in drawn.links
        if any(words in link.label for words in found.get((link.source, link.target, link.kind), ()))
    )


def _node_name(node: Node) -> str:
    # A group and a step may have the same name.
    return f"\0{node.title}" if node.shape == "group" else node.title


def _taken_needs(state: State) -> Iterator[tuple[str, str, str, str]]:
    """Needs that were met by steps that ran: of single steps and of groups."""
    places = state.places
    if not places:
        return
    done = {place.key for place in state.steps() if place.status in ("completed", "failed") and place.visit}
    for name in state.graph.nodes:
        has_run = places[name].visit > 0
        for need in state.step(name).needs if has_run else ():
            if need.is_group:
                yield f"\0{need.of}", name, "success", ""
            elif need.of in done:
                yield need.of, name, "success", ""
    for group, members in state.workflow.groups.items():
        for member in members:
            if member in done:
                yield member, f"\0{group}", "success", ""


def _taken_edges(state: State) -> Iterator[tuple[str, str, str, str]]:
    """Edges that were taken, with a word of their label where several edges join the same steps."""
    routed = {(record.step, record.route.edge) for record in (*state.failures, *state.recoveries)}
    for name, node in state.graph.nodes.items():
        for arc in node.arcs:
            was_taken = state.arcs.get(arc.key) in ("taken", "arrived") or arc.key in state.run.loops_taken
            if was_taken or (name, arc.edge.index) in routed or _went_to_end(state, name, arc.to, arc.edge.on):
                yield name, arc.to, arc.edge.on, arc.edge.codes[0] if arc.edge.codes else ""


def _went_to_end(state: State, name: str, to: str, on: str) -> bool:
    place = state.places.get(name)
    return to == END and on != "failure" and place is not None and place.status == "completed"


# -- around a step ---------------------------------------------------------------------------------------------------


def _around(state: State, step: str, href: HrefOf) -> RunGraph:
    workflow = workflow_of_run(state)
    graph = Graph(workflow) if state.calls else state.graph
    if step not in graph.nodes:
        hint = did_you_mean(step, graph.nodes) or "the list of its steps has their names"
        raise UnknownStep(f"'{step}' is not a step of run {state.run.run_id}", hint=hint, step=step)
    rank = _rank(state)
    chosen, left_out = {step}, 0
    for neighbours in (Graph.sources, _after):
        level = [step]
        for _ in range(LEVELS):
            following: list[str] = []
            for name in level:
                found = sorted((one for one in neighbours(graph, name) if one not in chosen), key=rank)
                following += found[:NEIGHBOURS_MAX]
                left_out += len(found) - NEIGHBOURS_MAX if len(found) > NEIGHBOURS_MAX else 0
                chosen.update(found[:NEIGHBOURS_MAX])
            level = following
    part = _part_of(workflow, chosen)
    statuses = {name: state.places[name].status for name in chosen if name in state.places}
    drawn = choose_picture(part, statuses, is_expanded=True)
    drawn = Picture(
        drawn.name,
        tuple(node for node in drawn.nodes if node.key != END_KEY),
        tuple(link for link in drawn.links if link.target != END_KEY),
    )
    before, after = (sorted(found(graph, step), key=rank) for found in (Graph.sources, _after))
    return RunGraph(
        svg=_draw(state, drawn, href, step),
        kind="around",
        step_count=len(graph.nodes),
        step=step,
        status=state.places[step].status if step in state.places else "waiting",
        is_paused=step in state.places and state.places[step].pause is not None,
        before=Neighbours(tuple(before[:20]), len(before)),
        after=Neighbours(tuple(after[:20]), len(after)),
        left_out=left_out,
    )


def _after(graph: Graph, name: str) -> Iterable[str]:
    node = graph.nodes[name]
    targets = (
        *(arc.to for arc in node.arcs if arc.to != END),
        *(target for target, _ in node.dependents),
        *(target for barrier in node.barriers for target in barrier.targets),
    )
    return dict.fromkeys(targets)


def _part_of(workflow: Workflow, names: set[str]) -> Workflow:
    """The workflow with these steps alone, and what links them."""
    steps = tuple(_kept_links(step, workflow, names) for step in workflow.steps if step.name in names)
    wanted = {need.of for step in steps for need in step.needs if need.is_group}
    groups = {
        name: tuple(one for one in members if one in names)
        for name, members in workflow.groups.items()
        if name in wanted
    }
    return msgspec.structs.replace(workflow, steps=steps, groups=groups)


def _kept_links(step: Step, workflow: Workflow, names: set[str]) -> Step:
    needs = tuple(
        need
        for need in step.needs
        if (any(one in names for one in workflow.groups[need.of]) if need.is_group else need.of in names)
    )
    return msgspec.structs.replace(step, needs=needs, edges=tuple(edge for edge in step.edges if edge.to in names))

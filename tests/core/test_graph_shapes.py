"""The static graph of tricky shapes: loop edges, start steps, steps between others."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.model.graph import REGIONS_KEPT_MAX, Graph
from mulligan.core.model.workflow import Need
from mulligan.testing.history import edge, step, workflow

GROUP = Need("group", is_group=True)


def graph_of(*steps: Any, **fields: Any) -> Graph:
    return Graph(workflow(*steps, **fields))


def loops(graph: Graph) -> list[str]:
    return [arc.key for node in graph.nodes.values() for arc in node.arcs if arc.is_loop]


@pytest.mark.parametrize(
    ("steps", "expected", "starts"),
    [
        # Inside a loop, too, an edge to a branch that was walked already leads on and not back.
        (
            [step("s", next=["a"]), step("a", next=["b", "c"]), step("b", next=["a"]), step("c", next=["b"])],
            ["b#0"],
            ["s"],
        ),
        # Entered at two steps: the first in the file counts, in whatever order they are led to.
        ([step("s", next=["y", "x"]), step("x", next=["y"]), step("y", next=["x"])], ["y#0"], ["s"]),
        # Entered from outside, it begins there: the mark is for those that are not.
        ([step("s", next=["a"]), step("a", next=["b"]), step("b", next=["a"], is_start=True)], ["b#0"], ["s"]),
        # Of two loops one behind the other each is walked from where it is entered.
        (
            [
                step("s", next=["a", "q"]),
                step("a", next=["b"]),
                step("b", next=["a", "p"]),
                step("q", next=["p"]),
                step("p", next=["q"]),
            ],
            ["b#0", "p#0"],
            ["s"],
        ),
        # Nobody is free but the target of a failure edge: then that is where it starts.
        ([step("b", needs=["a"], next=[edge("a", "failure")]), step("a")], ["b#0"], ["a"]),
    ],
    ids=["a cross edge", "two entries", "a mark that is not asked", "one behind the other", "only a repair is free"],
)
def test_an_edge_leads_back_if_it_closes_a_way_from_where_its_loop_is_entered(
    steps: list[Any], expected: list[str], starts: list[str]
) -> None:
    graph = graph_of(*steps)

    assert (loops(graph), graph.starts) == (expected, starts)


def test_a_step_that_waits_for_a_group_inside_its_loop_is_not_where_the_loop_starts() -> None:
    steps = [step("t", needs=[GROUP], next=["g0"]), step("g0"), step("g1")]

    graph = graph_of(*steps, groups={"group": ("g0", "g1")})

    assert (loops(graph), graph.starts) == (["t#0"], ["g0", "g1"])


def test_a_step_that_waits_for_a_group_does_not_start() -> None:
    graph = graph_of(step("t", needs=[GROUP]), step("a"), step("b"), groups={"group": ("a", "b")})

    assert graph.starts == ["a", "b"]


def test_a_barrier_is_named_by_its_group_and_its_condition() -> None:
    """Rows that were written before are found by that name."""
    always = Need("group", "always", is_group=True)
    steps = [step("t", needs=[GROUP]), step("u", needs=[always]), step("v", needs=[GROUP]), step("a")]

    graph = graph_of(*steps, groups={"group": ("a",)})

    assert {key: barrier.targets for key, barrier in graph.barriers.items()} == {
        "group:success": ["t", "v"],
        "group:always": ["u"],
    }


def test_edges_are_looked_at_by_priority_and_those_without_one_last() -> None:
    edges = [edge("b"), edge("c", priority=1), edge("d", priority=0), edge("e"), edge("f", priority=-1)]
    graph = graph_of(step("a", next=edges), *(step(name) for name in "bcdef"))

    assert [arc.to for arc in graph.nodes["a"].by_priority] == ["f", "d", "c", "b", "e"]


# -- what lies ahead, and between ------------------------------------------------------------------------------------

LADDER = [
    step("a", next=["b", "x"]),
    step("b", next=["c"]),
    step("c", next=["b", "d"]),
    step("d", needs=["y"]),
    step("x"),
    step("y", needs=["b"]),
    step("z"),
]


@pytest.mark.parametrize(
    ("sources", "targets", "between"),
    [
        (["a"], {"d"}, {"a", "b", "c", "y"}),
        (["b"], {"d"}, {"b", "c", "y"}),
        (["y"], {"d"}, {"y"}),
        # Back over the loop is no way.
        (["c"], {"b"}, set()),
        (["d"], {"a"}, set()),
        # A target is between only if it leads to another.
        (["a"], {"b", "c"}, {"a", "b"}),
        (["a", "z"], {"x"}, {"a"}),
        ([], {"a"}, set()),
        (["a"], set(), set()),
    ],
)
def test_between_are_those_on_a_way_from_one_to_the_other(
    sources: list[str], targets: set[str], between: set[str]
) -> None:
    assert graph_of(*LADDER).between(sources, targets) == between


def test_a_way_leads_through_groups() -> None:
    steps = [step("a"), step("b"), step("t", needs=[GROUP], next=["u"]), step("u")]
    graph = graph_of(*steps, groups={"group": ("a", "b")})

    assert graph.between(["a"], {"u"}) == {"a", "t"}
    assert graph.region("a") == {"a", "t", "u"}
    assert graph.behind(["b", "u"]) == {"b", "t", "u"}
    assert list(graph.after("a")) == ["group:success"]
    assert list(graph.after("group:success")) == ["t"]


def test_what_is_one_hop_on_is_told_with_edges_first_and_without_end() -> None:
    graph = graph_of(step("a", next=["end", "c"]), step("b", needs=["a"]), step("c", next=["a"]))

    assert list(graph.after("a")) == ["c", "b"]
    assert list(graph.after("c")) == ["a"]


def test_regions_are_the_same_when_there_are_too_many_to_remember() -> None:
    count = REGIONS_KEPT_MAX + 10
    graph = graph_of(*(step(f"s{i}", next=[f"s{i + 1}"] if i < count - 1 else []) for i in range(count)))

    for _ in range(2):
        assert [len(graph.region(f"s{i}")) for i in range(count)] == list(range(count, 0, -1))

"""Waves: the order in which steps can run, from the graph alone."""

from __future__ import annotations

from mulligan.core.model.graph import Graph
from mulligan.core.model.waves import waves
from mulligan.core.model.workflow import Need, Step
from mulligan.testing.history import edge, step, workflow


def waves_of(*steps: Step, **fields: object) -> list[list[str]]:
    return waves(Graph(workflow(*steps, **fields)))


def test_a_step_is_in_the_wave_behind_the_last_that_it_waits_for() -> None:
    found = waves_of(step("d", needs=["a", "c"]), step("c", needs=["b"]), step("a"), step("b"))

    assert found == [["a", "b"], ["c"], ["d"]]


def test_edges_count_and_those_that_lead_back_do_not() -> None:
    found = waves_of(
        step("a", next=["b"]), step("b", next=[edge("a", when="more"), edge("fix", "failure")]), step("fix")
    )

    assert found == [["a"], ["b"], ["fix"]]


def test_a_group_is_one_wave_for_whoever_needs_it() -> None:
    members = tuple(f"s{i}" for i in range(300))
    needing = [Step(name=f"t{i}", needs=(Need("all", is_group=True),)) for i in range(300)]

    found = waves_of(*map(step, members), *needing, groups={"all": members})

    assert [len(wave) for wave in found] == [300, 300]


def test_a_step_that_leads_to_itself_is_in_the_first_wave() -> None:
    assert waves_of(step("a", next=[edge("a", when="more")])) == [["a"]]

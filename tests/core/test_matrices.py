"""A matrix as one group: how far its steps are, what they failed with, how they are named, what tells them apart."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.run_json import run_json

from mulligan.core.model.workflow import Need, Step, Workflow
from mulligan.core.state.state import State
from mulligan.history.matrices import (
    find_differences,
    group_counts,
    group_status,
    group_title,
    matrix_groups,
    quote_steps,
)
from mulligan.testing.history import History, step, workflow


def sims(count: int) -> list[Step]:
    """The steps of a matrix, as the language makes them."""
    return [step(f"sim_{number}", sweep="sim", matrix={"seed": number}) for number in range(1, count + 1)]


def swept(count: int) -> Workflow:
    names = tuple(f"sim_{number}" for number in range(1, count + 1))
    after = step("compare", needs=[Need("sim", is_group=True)])
    return workflow(step("load"), *sims(count), after, groups={"sim": names})


def test_a_matrix_is_one_group_with_its_statuses_its_failures_and_its_values():
    run = History(swept(4)).start().ok("sim_1").ok("sim_2")
    run.fail("sim_3", code="EXIT_NONZERO", exit_code=3).fail("sim_4", code="EXIT_NONZERO", exit_code=3)

    group = matrix_groups(run.state)["sim"]

    assert group.statuses == {"completed": 2, "failed": 2}
    assert group.failures == {"EXIT_NONZERO 3": 2}
    assert group.combinations == {f"sim_{number}": {"seed": number} for number in range(1, 5)}
    assert (group.status, group.title, group.count) == ("failed", "sim × 4", 4)


def test_the_failures_of_a_group_are_counted_by_kind_the_most_frequent_first():
    run = History(swept(3)).start()
    run.fail("sim_1", code="CONNECTION").fail("sim_2", exit_code=9, code="EXIT_NONZERO")
    run.fail("sim_3", exit_code=9, code="EXIT_NONZERO")

    assert list(matrix_groups(run.state)["sim"].failures.items()) == [("EXIT_NONZERO 9", 2), ("CONNECTION", 1)]


def test_a_run_as_json_names_its_matrices_with_the_values_of_each_step_in_order():
    run = History(swept(2)).start().ok("sim_1")

    assert run_json(run.state)["matrices"] == {
        "sim": {
            "status": "ready",
            "statuses": {"ready": 1, "completed": 1},
            "failures": {},
            "combinations": {"sim_1": {"seed": 1}, "sim_2": {"seed": 2}},
        }
    }


def test_a_matrix_of_a_run_without_a_turn_waits():
    group = matrix_groups(State(swept(3)))["sim"]

    assert (group.status, group.statuses) == ("waiting", {"waiting": 3})


def test_whoever_waits_for_many_steps_of_a_matrix_names_the_matrix():
    run = History(swept(3)).start()
    before = run_json(run.state)["steps"]["compare"]["waiting_for"][0]

    run.ok("sim_2")

    after = run_json(run.state)["steps"]["compare"]["waiting_for"][0]
    assert before["text"] == "'sim' (all 3 steps) to complete"
    assert (after["text"], after["steps"]) == ("'sim' (2 of its 3 steps) to complete", ["sim_1", "sim_3"])


def test_one_step_of_a_matrix_is_named_itself_also_beside_others():
    state = History(swept(3)).start().state

    assert quote_steps(state, ["sim_2"]) == "'sim_2'"
    assert quote_steps(state, ["load", "sim_2", "sim_3"]) == "'sim' (2 of its 3 steps), 'load'"


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        ({"completed": 3}, "completed"),
        ({"completed": 3, "skipped": 1}, "completed"),
        ({"skipped": 4}, "skipped"),
        ({"failed": 1, "completed": 9}, "failed"),
        ({"cancelled": 1, "completed": 9}, "cancelled"),
        ({"failed": 1, "running": 1}, "running"),
        ({"ready": 5, "failed": 1}, "ready"),
        ({"ready": 5, "backing_off": 1}, "running"),
        ({"pending_failed": 1, "failed": 4}, "pending_failed"),
        ({"waiting": 2, "completed": 1}, "waiting"),
        ({}, "waiting"),
    ],
)
def test_a_group_has_one_status(statuses: dict[str, int], status: str):
    assert group_status(statuses) == status


def test_the_counts_of_a_group_begin_with_what_needs_attention():
    counts = {"completed": 1291, "skipped": 2, "pending_failed": 1, "failed": 8, "backing_off": 3}

    assert group_counts(counts) == "8 failed, 1 parked, 3 backing off, 1,291 completed, 2 skipped"
    assert group_title("sim", 1300) == "sim × 1,300"


@pytest.mark.parametrize(
    ("values", "shared", "names"),
    [
        ([{"a": 1, "b": 2}, {"a": 1, "b": 3}], {"a": 1}, ("b",)),
        ([{"a": 1}, {"b": 1}], {}, ("a", "b")),
        # In Python these two are equal.
        ([{"a": 1}, {"a": True}], {}, ("a",)),
        ([{"a": None}, {}], {}, ("a",)),
        # One alone has nothing to share with.
        ([{"a": 1}], {}, ("a",)),
        ([], {}, ()),
    ],
)
def test_what_many_values_share_is_told_from_what_differs(
    values: list[dict[str, Any]], shared: dict[str, Any], names: tuple[str, ...]
):
    found = find_differences(values)

    assert (found.shared, found.names) == (shared, names)

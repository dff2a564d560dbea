"""Critical failures of the items of a map, and what a map over child runs says of their failures."""

from __future__ import annotations

import pytest

from mulligan.core.effects.snapshot import changes, restore
from mulligan.core.evolve.evolve_run import evolve
from mulligan.core.model import events as e
from mulligan.core.model.failure import failure
from mulligan.core.model.workflow import Action, Command, Map
from mulligan.core.state.state import State
from mulligan.testing.history import History, command, expression, step, workflow

FORBIDDEN = {"reported": ({"code": "SECURITY_VIOLATION", "severity": "critical", "message": "forbidden table"},)}


def run_of(count: int, **keys: object) -> History:
    """A run of a map over this many items, one step beside it."""
    mapped = step("m", map=Map(over=expression("items"), max_parallel=1, **keys), do=(command("c"),))
    return History(workflow(mapped, step("beside")), {"items": list(range(count))}).start()


@pytest.mark.parametrize("keys", [{"on_item_failure": "collect"}, {"max_failures": 5}, {"failure_threshold": 1.0}])
def test_a_critical_failure_of_an_item_is_neither_collected_nor_tolerated(keys: dict[str, object]) -> None:
    run = run_of(3, **keys)

    run.fail("m[0].0", 1).fail("m[1].0", 0, **FORBIDDEN).ok("m[2].0")

    found = run["m"].failure
    assert (found.code, found.severity, found.is_fatal) == ("ITEMS_FAILED", "critical", True)
    assert found.details == {"failed": 2, "total": 3, "critical": 1}
    assert [one.code for one in found.cause] == ["SECURITY_VIOLATION", "EXIT_NONZERO"]
    assert run.facts(e.RunStopping)[0].cause == "failed_fast"


def test_a_map_that_says_so_collects_critical_failures_too() -> None:
    run = run_of(2, on_item_failure="collect", collect_critical=True)

    run.fail("m[0].0", 0, **FORBIDDEN).ok("m[1].0", "beside")

    assert (run.status, run["m"].status) == ("completed", "completed")
    assert run["m"].output["failures"] == [
        {
            "index": 0,
            "item": 0,
            "code": "SECURITY_VIOLATION",
            "message": "forbidden table",
            "exit_code": 0,
            "severity": "critical",
        }
    ]


def test_with_stop_no_item_starts_after_a_critical_failure_whatever_may_fail() -> None:
    run = run_of(3, on_item_failure="stop", max_failures=2)

    run.fail("m[0].0", 1).fail("m[1].0", 0, **FORBIDDEN)

    assert ([fact.index for fact in run.facts(e.ItemEntered)], run["m"].status) == ([0, 1], "failed")


def test_a_tolerated_failure_of_another_severity_stays_tolerated() -> None:
    run = run_of(2, on_item_failure="collect")

    run.fail("m[0].0", 1).ok("m[1].0", "beside")

    assert (run.status, run.ended.degraded) == ("completed", True)


def test_the_count_of_critical_items_is_in_the_rows_of_the_run() -> None:
    run = run_of(4, on_item_failure="collect").fail("m[0].0", 0, **FORBIDDEN)
    state = State(run.state.workflow)
    state.begin()
    for entry in run.log:
        evolve(state, entry)

    restored = restore(run.state.workflow, changes(state))

    assert (restored.places["m"].items.critical, restored) == (1, state)


# -- child runs ------------------------------------------------------------------------------------------------------


def calling(**keys: object) -> History:
    call = Command(action=Action("workflow", {"file": "child.yaml"}))
    return History(
        workflow(step("m", map=Map(over=expression("items"), **keys), do=(call,))), {"items": ["a", "b"]}
    ).start()


TABLE = failure("NO_SUCH_TABLE", "no table 'orders'", step="check", attempt=2, details={"table": "orders"})


def test_a_map_over_child_runs_says_what_failed_inside_them() -> None:
    run = calling(on_item_failure="collect")

    run.child_ended("m[0].0").child_ended("m[1].0", "failed", failures=(TABLE,))

    assert run["m"].output["failures"] == [
        {
            "index": 1,
            "item": "b",
            "code": "CHILD_FAILED",
            "message": "child run 3 failed at 'check': NO_SUCH_TABLE: no table 'orders'",
            "exit_code": None,
            "run_id": 3,
            "failures": [
                {
                    "step": "check",
                    "code": "NO_SUCH_TABLE",
                    "message": "no table 'orders'",
                    "severity": "error",
                    "retryable": True,
                    "exit_code": None,
                    "attempt": 2,
                    "details": {"table": "orders"},
                }
            ],
        }
    ]


def test_a_critical_failure_inside_a_child_run_makes_the_failure_of_its_caller_critical() -> None:
    run = calling(on_item_failure="collect")

    inside = failure("SECURITY_VIOLATION", "forbidden table", step="check")
    run.child_ended("m[0].0").child_ended("m[1].0", "failed", failures=(TABLE, inside))

    assert (run.status, run["m"].failure.severity) == ("failed", "critical")
    assert [one.severity for one in run["m"].failure.cause] == ["critical"]
    assert [one.code for one in run["m"].failure.cause[0].cause] == ["NO_SUCH_TABLE", "SECURITY_VIOLATION"]

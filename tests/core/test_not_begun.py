"""A large run that stops: the steps that were never entered are cancelled by one fact."""

from __future__ import annotations

import pytest

from mulligan.core.evolve.arrivals import cancel_waiting, set_status, settle
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import Need, Step, Workflow
from mulligan.core.state.not_begun import steps_not_begun
from mulligan.core.turn import fold
from mulligan.testing.history import T0, History, edge, step, workflow


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Graph, "starts_at_once", 2)


# Two steps are entered at once, three more wait for their turn to start, and `last` needs all of them.
LARGE = workflow(*map(step, "abcde"), step("last", needs=list("abcde")))


def begun(definition: Workflow = LARGE) -> History:
    """A run that enters no more steps for now: its worker does something else."""
    run = History(definition).report_once(r.RunRequested(T0, run_id=1))
    run.starts.clear()
    return run


def cancelled_alone(run: History) -> list[str]:
    return [fact.step for fact in run.facts(e.StepCancelled)]


def test_steps_that_were_never_entered_are_cancelled_with_the_stop() -> None:
    run = begun().cancel()

    assert [fact.not_begun for fact in run.facts(e.RunStopping)] == [4]
    assert cancelled_alone(run) == ["a", "b"]
    assert {place.status for place in run.state.steps()} == {"cancelled"}
    assert {place.settled for place in run.state.steps()} == {"cancelled"}
    assert (run.status, run.state.run.waiting) == ("cancelled", 0)


def test_a_log_with_such_a_stop_is_replayed_to_the_same_state() -> None:
    run = begun().cancel()

    assert fold(run.state.workflow, run.log) == run.state


@pytest.mark.parametrize("on", ["success", "always"])
def test_groups_are_counted_as_if_each_step_were_cancelled_alone(on: str) -> None:
    needs = (Need("all", on, is_group=True),)  # type: ignore[arg-type]
    late, later = Step(name="late", needs=needs), Step(name="later", needs=(*needs, Need("late")))
    steps = (late, *map(step, "abcde"), later)
    run = begun(Workflow(name="w", steps=steps, end=Step(name="end"), groups={"all": tuple("abcde")}))
    expected = run.state.copy()
    for place in steps_not_begun(expected):
        set_status(expected, place, "cancelled")
        settle(expected, place.key, "cancelled")

    cancel_waiting(run.state, steps_not_begun(run.state))

    assert run.state == expected
    assert run.state.barriers[f"all:{on}"] == (2, 0 if on == "always" else 3)


def test_a_few_steps_are_cancelled_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    run = begun()
    monkeypatch.setattr(Graph, "starts_at_once", 4)

    run.cancel()

    assert [fact.not_begun for fact in run.facts(e.RunStopping)] == [0]
    assert sorted(cancelled_alone(run)) == ["a", "b", "c", "d", "e", "last"]


def test_a_step_that_a_failure_was_routed_to_is_cancelled_by_a_fact_of_its_own() -> None:
    failing = step("a", next=[edge("fix", on="failure", then="rerun")])
    run = begun(workflow(failing, *map(step, "bcde"), step("fix", needs=["e"]))).fail("a")

    run.cancel()

    assert [fact.not_begun for fact in run.facts(e.RunStopping)] == [3]
    assert cancelled_alone(run) == ["b", "fix"]
    assert run.status == "cancelled"


def test_a_cancelled_run_runs_them_in_its_next_round() -> None:
    run = begun().cancel().retry().ok(*"abcde").ok("last")

    assert run.status == "completed"

"""A run with more start steps than are entered at once."""

from __future__ import annotations

import pytest
from tests.support.run_json import run_json

from mulligan.core.deciding.flow import remaining_start_batches
from mulligan.core.model import reports as r
from mulligan.core.model.workflow import Action, Workflow
from mulligan.core.turn import fold
from mulligan.history.views import waits_for_outside
from mulligan.testing.history import History, Step, step, workflow


class Piecewise(History):
    """A history that enters two steps at once, and the others when the test says so."""

    def __init__(self, definition: Workflow, **answers: object) -> None:
        super().__init__(definition, answers)
        self.state.graph.starts_at_once = 2

    def report(self, report: r.Report) -> Piecewise:
        return self.report_once(report)

    def go_on(self) -> Piecewise:
        return self.report(r.StartsDue(self.clock, self.starts.pop(0)))


def five(**fields: object) -> Workflow:
    return workflow(*(step(name, **fields) for name in "abcde"))


def test_the_first_are_entered_and_it_is_said_where_the_others_begin() -> None:
    run = Piecewise(five()).start()

    assert run.statuses == {"a": "ready", "b": "ready", "c": "waiting", "d": "waiting", "e": "waiting"}
    assert run.starts == [2, 4]


def test_the_others_follow_piece_by_piece_also_when_the_first_have_ended() -> None:
    run = Piecewise(five()).start().ok("a")

    run.go_on().ok("b", "c").go_on().ok("d", "e")

    assert (run.status, set(run.statuses.values())) == ("completed", {"completed"})


def test_a_run_does_not_end_before_all_have_been_entered() -> None:
    run = Piecewise(five()).start()

    run.ok("a", "b")

    assert run.statuses == {"a": "completed", "b": "completed", "c": "ready", "d": "ready", "e": "waiting"}


def test_a_piece_that_was_entered_already_is_nothing() -> None:
    run = Piecewise(five()).start().ok("a", "b")

    run.report(r.StartsDue(run.clock, 2))

    assert run.last == []


def test_where_none_of_a_piece_is_to_run_the_next_one_follows_in_the_same_turn() -> None:
    run = Piecewise(five(when="no"), no=False).start()

    assert (run.status, set(run.statuses.values())) == ("completed", {"skipped"})


@pytest.mark.parametrize("now", [False, True])
def test_a_run_that_is_cancelled_between_two_pieces_enters_no_more(now: bool) -> None:
    run = Piecewise(five()).start().started("a").cancel(now=now)

    run.go_on().fail("a", signal=15).go_on()

    assert (run.status, set(run.statuses.values())) == ("cancelled", {"cancelled"})


def test_a_paused_run_goes_on_to_enter_and_hands_out_nothing() -> None:
    run = Piecewise(five()).start().pause()

    run.go_on().go_on()

    assert (run.status, set(run.statuses.values())) == ("paused", {"ready"})


def test_a_piece_that_comes_after_the_end_is_nothing() -> None:
    run = Piecewise(five()).start().ok("a", "b", "c", "d", "e")

    run.report(r.StartsDue(run.clock, 2))

    assert (run.status, run.last) == ("completed", [])


def test_whoever_takes_the_run_up_knows_which_pieces_are_missing() -> None:
    run = Piecewise(five()).start().go_on()

    taken_up = fold(run.state.workflow, run.log, run.state.graph)

    assert list(remaining_start_batches(taken_up)) == [4]
    assert list(remaining_start_batches(run.go_on().state)) == []


def test_a_step_that_waits_for_another_is_not_one_of_the_first() -> None:
    steps: list[Step] = [*five().steps, step("last", needs=list("abcde"))]
    run = Piecewise(workflow(*steps)).start().go_on().go_on()

    assert list(remaining_start_batches(run.state)) == []


def test_a_step_that_nobody_has_come_to_yet_waits_for_its_turn_and_the_run_for_no_person_alone() -> None:
    asking = Action("approve", {"message": "go?"})
    run = Piecewise(workflow(step("a", action=asking), *(step(name) for name in "bcde"))).start().ok("b")

    shown = run_json(run.state)

    assert shown["steps"]["c"]["waiting_for"] == [{"kind": "entry", "text": "its turn to start", "place": "c"}]
    assert {"kind": "entry", "text": "its remaining first steps to start"} in shown["waiting_for"]
    assert not waits_for_outside(run.state)

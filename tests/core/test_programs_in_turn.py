"""Programs that say in the middle of a turn what they have called: they go on in it, or it ends there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.program_runs import LOAD, Program, every_row

from mulligan.core.effects.program_history import ends_of, program_history
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.failure import Failure
from mulligan.core.model.program_calls import ProgramCall, TurnEnd
from mulligan.core.model.workflow import RERUNS_AFTER_LOSS_MAX
from mulligan.core.turn import fold
from mulligan.testing.history import History, step, workflow


def inline(run: Program, x: int = 0, **fields: Any) -> ProgramCall:
    return run.load(x, kind="inline", output=x + 1, **fields)


def kinds(run: Program) -> list[str]:
    return [type(fact).__name__ for fact in run.follows]


def test_an_inline_step_is_one_fact_and_the_program_goes_on_in_its_turn() -> None:
    run = Program()
    run.go_on(inline(run, 1))
    call = inline(run, 2)

    run.go_on(call)

    assert kinds(run) == ["StepRan"]
    assert (run["nightly"].status, run.turn, run["load#2"].output) == ("running", 1, 3)
    assert [one.output for one in ends_of(run.state, TurnEnd(1, calls=(call,)))] == [3]


def test_what_a_program_knows_already_is_not_said_to_its_next_turn() -> None:
    run = Program()
    run.go_on(inline(run, 1)).go_on(run.load(2)).go_on(inline(run, 3))
    run.say()

    run.ok("load#2", output="late")

    assert run.told() == [("load#2", "late", "")]
    labels = [one.label for one in program_history(run.state, 3).deliveries]
    assert labels == ["load", "load#3", "load#2"]


def test_a_turn_that_ends_in_the_middle_has_used_what_was_used_so_far() -> None:
    run = Program()
    turn = run.pause()._turn((inline(run, 1),), {"goes_on": True})

    run.report(r.CallsMade(run.clock, "nightly", 1, turn, {"cpu_seconds": 0.5, "peak_memory": 300}))

    assert run["nightly"].program is not None and run["nightly"].program.usage == {
        "cpu_seconds": 0.5,
        "peak_memory": 300,
    }


def test_a_report_that_says_what_a_step_has_called_that_is_no_program_is_refused() -> None:
    flow = History(workflow(step("fetch"), step("load"))).start()
    run = Program()
    run.say(run.load(1))
    turn = TurnEnd(1, {"d": LOAD}, (ProgramCall("", 9, "forged", definition="d"),))

    for forged, name in ((flow, "fetch"), (run, "load")):
        forged.report(r.TaskEnded(forged.clock, name, forged[name].attempt, turn=turn))

    assert "forged" not in flow.state.places and "forged" not in run.state.places
    for forged, name in ((flow, "fetch"), (run, "load")):
        failure = forged[name].failure
        assert failure is not None and failure.code == "OUTPUT_INVALID"


@pytest.mark.parametrize("kind", ["step", "value"])
def test_a_report_that_a_call_has_failed_in_the_process_of_its_program_is_refused(kind: Any) -> None:
    run = Program()

    run.say(run.load(1), run.load(2, kind=kind, failure=Failure("X")))

    failure = run["nightly"].failure
    assert failure is not None and failure.code == "OUTPUT_INVALID"
    assert run.state.calls == {}


@pytest.mark.parametrize("said", [{"branch": "1" * 5000}, {"file": "x" * 5000}])
def test_a_call_whose_place_would_fill_the_log_is_refused(said: Any) -> None:
    run = Program().say(ProgramCall(**{"branch": "", "ordinal": 0, "name": "load", "definition": "d"} | said))

    assert run["nightly"].failure is not None and run["nightly"].failure.code == "OUTPUT_INVALID"
    assert Program().say(at="x" * 5000)["nightly"].failure is not None


def test_a_lost_turn_is_replayed_with_what_it_has_recorded() -> None:
    run = Program()
    run.go_on(inline(run, 1))

    run.lose("nightly")

    assert [one.output for one in program_history(run.state, 9).deliveries] == [2]
    assert run["nightly"].program is not None and run["nightly"].program.delivered == 1


@pytest.mark.parametrize(
    "before",
    [
        lambda run: run.report(r.PauseRequested(run.clock, "me", step="nightly")),
        lambda run: run.report(r.PauseRequested(run.clock, "me")),
        lambda run: run.ok("load"),
    ],
    ids=["its step is paused", "the run is paused", "another call has ended"],
)
def test_a_turn_ends_where_something_waits_for_its_end(before: Callable[[Program], Any]) -> None:
    run = Program()
    run.go_on(run.load(1))
    before(run)

    run.go_on(inline(run, 2))

    assert run["nightly"].status == "ready"
    assert [fact.is_known for fact in run.facts(e.StepRan)] == [False]
    assert run.told()[-1] == ("load#2", 3, "")


def test_a_program_that_is_to_stop_does_not_go_on_and_what_it_has_run_is_recorded() -> None:
    run = Program()
    run.go_on(inline(run, 1))
    run.report(r.CancelRequested(run.clock, "me"))

    run.go_on(inline(run, 2))

    assert run["nightly"].status == "cancelled"
    assert run.statuses["load#2"] == "completed"


@pytest.mark.parametrize("how", ["in the turn", "at its end"])
def test_what_an_unanswered_commit_has_recorded_is_recorded_once(how: str) -> None:
    run = Program()
    call = inline(run, 1)
    run.go_on(call)
    rows = every_row(run.state)

    if how == "in the turn":
        run.go_on(call)
        assert every_row(run.state) == rows
    else:
        run.say(call, goes_on=True)
        assert run["nightly"].status == "ready"

    assert len(run.facts(e.StepRan)) == 1


def test_a_call_with_an_identity_that_another_one_has_is_refused() -> None:
    run = Program()
    run.go_on(inline(run, 1))
    run.made -= 1

    run.go_on(inline(run, 5))

    (failed,) = run.facts(e.AttemptFailed)
    assert "which is recorded already" in failed.failure.message


@pytest.mark.parametrize(
    "calls",
    [
        lambda run: (inline(run, 1), inline(run, 2)),
        lambda run: (run.load(1), inline(run, 2)),
        lambda run: (inline(run, 1, failure=Failure("EXCEPTION")),),
    ],
    ids=["two inline steps", "an inline step behind another call", "one that has failed"],
)
def test_a_turn_ends_with_what_no_program_says_in_the_middle_of_one(
    calls: Callable[[Program], tuple[ProgramCall, ...]],
) -> None:
    run = Program()

    run.go_on(*calls(run))

    assert "ProgramWaiting" in kinds(run)


def test_a_log_of_turns_that_went_on_is_folded_to_the_same_state() -> None:
    run = Program()
    run.go_on(inline(run, 1)).go_on(run.load(2)).go_on(inline(run, 3))
    run.ok("load#2")
    run.go_on(inline(run, 4))

    folded = fold(run.state.workflow, run.log)

    assert every_row(folded) == every_row(run.state)


# -- what its process says of failures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["WORKER_LOST", "INTERRUPTED", "CANCELLED", "INTERNAL", "LOOP_LIMIT"])
def test_an_inline_step_cannot_fail_with_a_code_of_the_engine(code: str) -> None:
    run = Program()

    run.say(run.load(1, kind="inline", failure=Failure(code, "said", details={"why": 1})))

    failure = run["load"].failure
    assert failure is not None
    assert (failure.code, failure.details) == ("EXCEPTION", {"why": 1, "reported_code": code})


def test_a_program_fails_with_a_code_of_the_engine_only_if_a_call_of_it_did() -> None:
    let_through, made_up, made_up_of_call = Program(), Program(), Program()
    let_through.say(let_through.load(1))
    for _ in range(RERUNS_AFTER_LOSS_MAX + 1):
        let_through.lose("load")
    made_up_of_call.say(made_up_of_call.load(1)).fail("load")

    let_through.say(how="raised", failure=Failure("WORKER_LOST"), call="load")
    made_up.say(how="raised", failure=Failure("WORKER_LOST"))
    made_up_of_call.say(how="raised", failure=Failure("WORKER_LOST"), call="load")

    found = [run["nightly"].failure for run in (let_through, made_up, made_up_of_call)]
    assert [one and one.code for one in found] == ["WORKER_LOST", "EXCEPTION", "EXCEPTION"]


def test_a_program_that_makes_too_many_calls_says_so() -> None:
    run = Program().say(how="raised", failure=Failure("LOOP_LIMIT", retryable=False))

    assert run["nightly"].failure is not None and run["nightly"].failure.code == "LOOP_LIMIT"


def test_what_a_process_says_of_a_failure_is_bounded() -> None:
    run = Program()
    huge = Failure("C" * 1000, "m" * 9000, details={"a": "x" * 100_000}, trace="t" * 90_000, retryable=False)

    run.say(run.load(1, kind="inline", failure=huge))

    failure = run["load"].failure
    assert failure is not None and not failure.retryable
    assert (len(failure.code), len(failure.message), len(failure.trace)) == (100, 2000, 8000)
    assert list(failure.details) == ["dropped_bytes"]


# -- what a program publishes ------------------------------------------------------------------------------------------


def test_what_a_program_publishes_is_recorded_with_its_turn_and_replaces_what_it_has_published_before() -> None:
    run = Program()
    run.say(run.load(1), published={"done": 0, "of": 2})
    assert run.state.run.published == {"done": 0, "of": 2}

    run.ok("load").say(run.load(2)).ok("load#2").say(how="returned", published={"done": 2})

    assert run.state.run.published == {"done": 2}
    assert fold(run.state.workflow, run.log) == run.state


def test_a_program_that_publishes_does_not_go_on_in_its_turn() -> None:
    run = Program()

    run.go_on(inline(run, 1), published={"done": 1})

    assert run.turn == 2 and run.state.run.published == {"done": 1}


def test_a_worker_that_reports_more_than_a_program_may_publish_is_refused() -> None:
    run = Program()

    run.say(run.load(1), published={"text": "x" * 5000})

    assert run["nightly"].failure is not None
    assert "published more than 4,096 bytes" in run["nightly"].failure.message
    assert run.state.run.published == {}

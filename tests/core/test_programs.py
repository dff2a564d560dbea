"""A program is a run whose graph grows: its calls are steps, and the ends of these are its next turn."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support.program_runs import LOAD, Program, every_row

from mulligan.core.deciding.rounds.program_rounds import dropped_calls
from mulligan.core.deciding.rounds.rounds import plan_round, rerun_reasons
from mulligan.core.effects import effects as fx
from mulligan.core.effects.program_history import program_history
from mulligan.core.effects.run_lists import unhandled_by_records
from mulligan.core.effects.snapshot import changes, restore
from mulligan.core.effects.tasks import make_task
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.failure import Failure
from mulligan.core.model.file_records import FileRecord
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.program_calls import ProgramCall, TurnEnd
from mulligan.core.model.workflow import RERUNS_AFTER_LOSS_MAX, Action, Budget, Command
from mulligan.core.state.dropped_calls import label_of_result
from mulligan.core.state.verdict import unhandled
from mulligan.core.turn import fold, turn
from mulligan.errors import Refused, UndoFailed, UnknownStep
from mulligan.testing.history import command, handler, retry, step


def test_a_call_is_a_step_whose_end_is_the_next_turn_of_its_program() -> None:
    run = Program()
    run.say(run.load(7))

    run.ok("load", output=8)

    assert [type(fact).__name__ for fact in run.follows] == ["AttemptSucceeded", "StepCompleted", "ProgramResumed"]
    assert run.told() == [("load", 8, "")]
    assert run["nightly"].status == "ready"
    assert run.say(how="returned", output=9).status == "completed"
    assert run["nightly"].output == 9


def test_the_arguments_of_a_call_are_the_inputs_of_its_step() -> None:
    run = Program()

    run.say(run.load(7))

    assert make_task(run.state, "load").params["args"] == {"x": 7}


def test_a_program_that_waits_has_no_task_and_takes_no_slot() -> None:
    run = Program(max_parallel=1)

    run.say(run.load(), run.load())

    assert (run["nightly"].status, run["nightly"].phase) == ("running", "waiting")
    assert (run.statuses["load"], run.statuses["load#2"]) == ("ready", "waiting")
    run.ok("load")
    assert (run["nightly"].status, run.statuses["load#2"]) == ("ready", "ready")


@pytest.mark.parametrize("how", ["returned", "raised"])
def test_an_attempt_has_used_what_its_turns_have(how: str) -> None:
    run = Program()
    run.say(run.load(), usage={"cpu_seconds": 0.5, "peak_memory": 300, "wall_seconds": 9.0})
    run.ok("load")

    run.say(how=how, failure=Failure("A") if how == "raised" else None, usage={"cpu_seconds": 0.25, "peak_memory": 200})

    *_, end = (one.fact for one in run.log if isinstance(one.fact, e.AttemptSucceeded | e.AttemptFailed))
    assert end.place == "nightly" and end.usage == {"cpu_seconds": 0.75, "peak_memory": 300}


def test_an_attempt_whose_process_dies_has_used_what_its_turns_have_and_its_last_process() -> None:
    run = Program()
    run.say(run.load(), usage={"cpu_seconds": 0.5, "peak_memory": 300})
    run.ok("load")
    run.report(r.TaskStarted(run.clock, "nightly", 1, "w1", "h1", run.turn))

    usage = {"cpu_seconds": 0.25, "peak_memory": 400, "wall_seconds": 2.0}
    run.report(r.TaskEnded(run.clock, "nightly", 1, outcome=Outcome(exit_code=3), usage=usage))

    (end,) = (one.fact for one in run.log if isinstance(one.fact, e.AttemptFailed))
    assert end.usage == {"cpu_seconds": 0.75, "peak_memory": 400, "wall_seconds": 2.0}


def test_a_new_attempt_knows_which_ends_no_turn_has_ended_with() -> None:
    run = Program()
    run.say(run.load(1), run.load(2))
    run.ok("load")
    run.say()
    run.ok("load#2")
    run.report(r.TaskStarted(run.clock, "nightly", 1, "w1", "h1", run.turn))

    run.report(r.LeaseExpired(run.clock, "nightly", 1, "w1"))

    turn_of_retry = make_task(run.state, "nightly").turn
    assert turn_of_retry is not None
    assert (turn_of_retry.delivered, turn_of_retry.seen, run["nightly"].attempt) == (2, 1, 2)
    run.say()
    assert run["nightly"].program is not None and run["nightly"].program.unseen == 0


def test_calls_of_one_name_are_numbered_and_a_key_takes_the_place_of_the_number() -> None:
    run = Program()

    run.say(run.load(), run.load(), run.load(key="eu"))

    assert list(run.state.calls) == ["load", "load#2", "load#eu"]


def test_ends_that_come_during_a_turn_are_told_in_the_next_one() -> None:
    run = Program()
    run.say(run.load(1), run.load(2), run.load(3))
    run.ok("load#2")
    run.report(r.TaskStarted(run.clock, "nightly", 1, "w1", "h1", run.turn))
    run.ok("load#3").ok("load")

    run.say()

    assert [label for label, _, _ in run.told()] == ["load#3", "load"]
    assert [one.label for one in program_history(run.state, 2).deliveries] == ["load#2", "load#3"]


def test_an_exhausted_call_is_an_exception_of_its_program_and_handled_if_that_completes() -> None:
    run = Program()
    run.say(run.load(), definition=step("load", rules=retry(1)))
    run.fail("load").fail("load", exit_code=3)

    told = run.told()
    run.say(how="returned")

    assert told == [("load", None, "EXIT_NONZERO")]
    assert run.ended.degraded and run.ended.handled_steps_count == 1


def test_a_failure_that_leaves_the_program_fails_the_run() -> None:
    run = Program()
    run.say(run.load())
    run.fail("load")

    run.say(how="raised", failure=Failure("EXIT_NONZERO"), call="load")

    assert run.status == "failed"


def test_a_failure_of_a_call_that_the_program_lets_through_is_not_retried_since_it_is_recorded() -> None:
    run = Program(keys={"rules": retry(3)})
    run.say(run.load())
    run.fail("load")

    run.say(how="raised", failure=Failure("EXIT_NONZERO"), call="load")

    assert run.status == "failed"
    assert ("retry", "call_recorded") in run.passed


def test_a_caught_failure_trips_no_fail_fast() -> None:
    run = Program(fail_fast="always")
    run.say(run.load(), run.load())

    run.fail("load")

    assert run.state.run.stop is None


def test_a_program_that_ends_cancels_its_open_calls_first() -> None:
    run = Program()
    run.say(run.load(1), run.load(2))
    run.started("load").ok("load#2")

    run.say(how="returned", output=1)

    assert (run["nightly"].phase, run["load"].phase) == ("ending", "stopping")
    run.report(r.TaskEnded(run.clock, "load", 1, Outcome(None, signal=15, is_stopped=True)))
    assert (run.status, run.statuses["load"]) == ("completed", "cancelled")


def test_a_call_that_the_program_cancels_is_not_tried_again() -> None:
    run = Program()
    run.say(run.load(1), run.load(2), definition=step("load", rules=retry(3, delay=60.0)))
    run.fail("load").ok("load#2")

    run.say(cancelled=(("", 0),))

    assert run.statuses["load"] == "failed"
    assert run.state.run.stop is None


def test_what_a_program_does_not_want_is_no_exception_of_it_in_a_run_that_stops() -> None:
    run = Program()
    cleaned = step("load", on_failure=handler("clean", strategy="cleanup"))
    run.say(run.load(1), run.load(2), definition=cleaned)
    run.fail("load").ok("load#2")
    run.say(cancelled=(("", 0),))

    run.cancel()
    run.ok("load.on_failure@1.0")

    (ended,) = [entry.fact for entry in run.log if isinstance(entry.fact, e.StepFailed)]
    assert ended.route.status == "skipped_terminal"


def test_a_cancelled_run_ends_a_waiting_program_at_once() -> None:
    run = Program()
    run.say(run.load())

    run.cancel()

    assert run.status == "cancelled"


def test_an_inline_step_is_one_fact() -> None:
    run = Program()

    run.say(run.load(1, kind="inline", output=2))

    facts = [type(fact).__name__ for fact in run.follows]
    assert facts == ["StepDefined", "StepRan", "ProgramWaiting", "ProgramResumed"]
    assert (run.statuses["load"], run.told()) == ("completed", [("load", 2, "")])


def test_the_retry_of_an_inline_step_is_a_task() -> None:
    run = Program()

    run.say(run.load(kind="inline", failure=Failure("EXCEPTION")), definition=step("load", rules=retry(1)))

    assert (run.statuses["load"], run["load"].attempt) == ("ready", 2)


def test_a_value_is_recorded_and_is_no_step() -> None:
    run = Program()

    run.say(ProgramCall("", 5, "now", "value", output="2030"), run.load())

    assert run.state.calls["now"].output == "2030"
    assert "now" not in run.statuses


def test_a_program_that_only_records_something_goes_on_at_once() -> None:
    run = Program()

    run.say(ProgramCall("", 0, "now", "value"), goes_on=True)

    assert run["nightly"].status == "ready"


def test_a_lost_turn_is_told_everything_again() -> None:
    run = Program()
    run.say(run.load(1), run.load(2))
    run.ok("load").ok("load#2")
    run.report(r.TaskStarted(run.clock, "nightly", 1, "w1", "h1", run.turn))

    run.lose("nightly")

    turn = make_task(run.state, "nightly").turn
    assert turn is not None and turn.deliveries == ()
    assert [one.label for one in program_history(run.state, turn.delivered).deliveries] == ["load", "load#2"]


def lose_turn(run: Program) -> None:
    run.report(r.TaskStarted(run.clock, "nightly", run["nightly"].attempt, "w1", "h1", run.turn))
    run.lose("nightly")


def test_a_program_may_lose_any_number_of_workers_if_it_gets_on_in_between() -> None:
    run = Program()

    for number in range(3 * RERUNS_AFTER_LOSS_MAX):
        lose_turn(run)
        run.say(run.load(number))
        run.ok("load" if number == 0 else f"load#{number + 1}")

    assert (run["nightly"].status, run.status) == ("ready", "running")


def test_a_program_that_loses_its_worker_again_and_again_at_the_same_call_fails() -> None:
    run = Program()
    run.say(run.load())
    run.ok("load")

    for _ in range(RERUNS_AFTER_LOSS_MAX + 1):
        lose_turn(run)

    failure = run["nightly"].failure
    assert failure is not None and (failure.code, run.status) == ("WORKER_LOST", "failed")


def test_what_an_earlier_turn_has_said_is_refused() -> None:
    run = Program()
    run.say(run.load())
    run.ok("load")
    run.report(r.TaskStarted(run.clock, "nightly", 1, "w1", "h1", run.turn))

    run.report(r.TaskEnded(run.clock, "nightly", 1, turn=TurnEnd(1)))

    assert run.follows == [e.ReportRefused("nightly", 1, "stale_turn")]


def test_a_key_may_be_a_number_and_calls_without_one_are_numbered_around_it() -> None:
    run = Program()

    run.say(run.load(), run.load(branch="/load=2", key="2"), run.load())

    assert list(run.state.calls) == ["load", "load#2", "load#3"]


@pytest.mark.parametrize(
    "call",
    [
        ProgramCall("", 0, "load", definition="d"),
        ProgramCall("", 7, "load", definition="unknown"),
        ProgramCall("", 7, "load", definition="d", key="7/8"),
    ],
    ids=["made before", "no definition", "key with a slash"],
)
def test_a_turn_that_no_program_can_have_is_a_failure(call: ProgramCall) -> None:
    run = Program()
    run.say(run.load())
    run.ok("load")

    run.say(call)

    assert run["nightly"].failure is not None and run["nightly"].failure.code == "OUTPUT_INVALID"


def test_a_call_that_is_recorded_already_is_refused_with_its_name_and_where_it_stands() -> None:
    run = Program()
    run.say(run.load())
    run.ok("load")

    run.say(ProgramCall("", 0, "load", definition="d", file="/runs/nightly.py", line=14))

    found = run["nightly"].failure
    assert found is not None
    assert found.message == (
        "the worker reports the call of 'load', at nightly.py:14, which is recorded already: "
        "stop that worker, then retry the run, which replays the program from what is recorded"
    )


def test_a_difference_is_parked_for_a_person() -> None:
    run = Program()

    run.say(how="raised", failure=Failure("NONDETERMINISTIC", retryable=False))

    assert run.statuses["nightly"] == "pending_failed"
    run.classify("nightly", "retry")
    assert run["nightly"].status == "ready"


def test_the_deadline_ends_a_program_that_waits() -> None:
    run = Program(keys={"deadline": 60.0})
    run.say(run.load())

    run.wait(61)

    assert run["nightly"].failure is not None and run["nightly"].failure.code == "TIMEOUT"
    assert run.status == "failed"


def test_a_program_that_fails_where_it_does_not_wait_leaves_no_call_behind() -> None:
    run = Program(keys={"deadline": 60.0})
    asks = step("ask", action=Action("approve", {"message": "go on?"}))
    run.say(run.load(1), run.load(2), run.load(3, definition="a"), definitions={"d": LOAD, "a": asks})
    run.started("load#2").ok("load")

    run.wait(61)
    assert (run.statuses["nightly"], run["load#2"].phase, run.statuses["load#3"]) == ("failed", "stopping", "cancelled")
    run.report(r.TaskEnded(run.clock, "load#2", 1, Outcome(None, signal=15, is_stopped=True)))

    assert run.status == "failed"


def test_what_the_process_has_run_is_recorded_although_the_run_is_stopped_meanwhile() -> None:
    run = Program()
    run.report(r.TaskStarted(run.clock, "nightly", 1, "w1", "h1", 1)).cancel()

    run.say(
        run.load(1),
        run.load(2, kind="inline", output=2, definition="u"),
        definitions={"d": LOAD, "u": step("load", undo=UNDO)},
    )

    assert list(run.state.calls) == ["load"]
    run.ok("load.undo@1")
    assert run.status == "cancelled"


def test_the_undo_of_a_call_that_was_not_wanted_any_more_is_tried_as_often_as_it_says() -> None:
    run = Program()
    undo = msgspec.structs.replace(UNDO, rules=retry(3))
    run.say(run.load(1), run.load(2), definition=step("load", undo=undo)).started("load").ok("load#2")
    run.say(cancelled=(("", 0),)).ok("load")
    run.say(how="raised", failure=Failure("EXCEPTION"))

    run.fail("load.undo@1").ok("load.undo@1").ok("load#2.undo@1")

    assert (run.status, run["load"].is_undone) == ("failed", True)


@pytest.mark.parametrize("said", [{"how": "raised"}, {"how": "raised", "failure": Failure("X"), "call": "load#7"}])
def test_an_end_that_no_program_can_have_is_a_failure(said: dict[str, Any]) -> None:
    run = Program()

    run.say(**said)

    assert run["nightly"].failure is not None and run["nightly"].failure.code == "OUTPUT_INVALID"


def test_a_program_that_completes_without_a_turn_is_not_believed() -> None:
    run = Program()

    run.report(r.TaskStarted(run.clock, "nightly", 1, "w1", "h1", 1)).report(r.TaskEnded(run.clock, "nightly", 1))

    assert run["nightly"].failure is not None and run["nightly"].failure.code == "OUTPUT_INVALID"


def test_a_turn_that_nobody_has_begun_is_refused() -> None:
    run = Program()

    run.report(r.TaskEnded(run.clock, "nightly", 1, turn=TurnEnd(1, how="returned")))

    assert [type(fact).__name__ for fact in run.follows] == ["ReportRefused"]


def test_lists_and_the_run_say_the_same_of_what_a_program_has_caught() -> None:
    run = Program()
    about = {"file": "nightly.py", "line": 3}
    run.say(*(run.load(number, branch=str(number), position=(number, 2), **about) for number in range(2)), run.load(2))
    run.fail("load", exit_code=3).fail("load#2", exit_code=4).fail("load#3").say()

    run.say(how="raised", failure=Failure("EXIT_NONZERO"), call="load")

    by_records = [record.step for record in unhandled_by_records(run.state.failures)]
    assert by_records == [record.step for record in unhandled(run.state)] == ["load", "load#2", "nightly"]


# -- rounds ------------------------------------------------------------------------------------------------------------


def failed_at_the_third() -> Program:
    run = Program()
    run.say(run.load(1))
    run.ok("load", output=1).say(run.load(2))  # type: ignore[attr-defined]
    run.ok("load#2", output=2).say(run.load(3))  # type: ignore[attr-defined]
    run.fail("load#3").say(how="raised", failure=Failure("EXIT_NONZERO"), call="load#3")  # type: ignore[attr-defined]
    return run


def test_a_retry_drops_the_call_that_failed_the_program_and_keeps_the_others() -> None:
    run = failed_at_the_third()

    run.retry()

    assert list(run.state.calls) == ["load", "load#2"]
    assert "load#3" not in run.statuses
    turn = make_task(run.state, "nightly").turn
    assert turn is not None and turn.delivered == 2


def test_a_call_that_is_made_again_keeps_its_label_and_counts_on() -> None:
    run = failed_at_the_third().retry()
    assert isinstance(run, Program)

    run.made = 2
    run.say(run.load(3)).ok("load#3")

    assert (run["load#3"].visit, run["load#3"].attempt) == (2, 2)
    assert run.say(how="returned").status == "completed"


def test_retry_from_a_call_drops_what_the_program_did_since_it_knew_the_end_of_that() -> None:
    run = failed_at_the_third()

    run.retry("load#2")

    assert list(run.state.calls) == ["load"]


def test_a_correction_that_was_compared_before_another_round_is_refused() -> None:
    run = failed_at_the_third()
    edited = msgspec.structs.replace(run.state.workflow, description="edited")
    kept = tuple(run.state.calls)[:1]

    with pytest.raises(Refused):
        run.retry_with(edited, kept_calls=kept, kept_round=0)
    run.retry_with(edited, kept_calls=kept, kept_round=1)

    assert tuple(run.state.calls) == kept


def test_retry_from_something_else_is_refused() -> None:
    run = failed_at_the_third()

    with pytest.raises(UnknownStep):
        run.retry("load#9")


def test_an_undone_call_is_made_again_with_all_that_followed() -> None:
    run = Program()
    run.say(run.load(1), definition=step("load", undo=command("undo")))
    run.ok("load", output=1).say(run.load(2))  # type: ignore[attr-defined]
    run.fail("load#2").say(how="raised", failure=Failure("EXIT_NONZERO"), call="load#2")  # type: ignore[attr-defined]
    run.ok("load.undo@1")

    run.retry()

    assert list(run.state.calls) == []


UNDO = command("undo")


def cancelled_with_an_undo(undo: Command = UNDO, **fields: Any) -> Program:
    """A run that was cancelled with `--now`, so that two calls with an undo were not undone, behind one without."""
    run = Program(**fields)
    run.say(run.load(1)).ok("load", output=1)  # type: ignore[attr-defined]
    for number in (2, 3):
        definition = step("load", undo=undo)
        run.say(run.load(number, definition="u"), definitions={"u": definition})
        run.ok(f"load#{number}", output=number)  # type: ignore[attr-defined]
    run.cancel(now=True)
    return run


@pytest.mark.parametrize("slots", [None, 1])
def test_calls_that_a_round_drops_are_undone_before_it_begins_the_last_one_first(slots: int | None) -> None:
    run = cancelled_with_an_undo(max_parallel=slots)

    run.retry(from_step="load#2")

    assert (run.state.run.undoing, run.statuses["nightly"]) == ("load#3.undo@1", "waiting")
    run.ok("load#3.undo@1")
    assert run.state.run.undoing == "load#2.undo@1"
    run.ok("load#2.undo@1")
    assert (list(run.state.calls), run.statuses["nightly"]) == (["load"], "ready")
    assert not run.state.undoables
    assert restore(run.state.workflow, every_row(run.state)) == run.state == fold(run.state.workflow, run.log)


def test_an_agent_that_undoes_a_dropped_call_may_spend_something() -> None:
    undo = msgspec.structs.replace(command("undo"), action=Action("agent", {"prompt": "undo it"}))
    run = cancelled_with_an_undo(undo, budget=Budget(tokens=10))
    run.retry(from_step="load#3")

    run.ok("load#3.undo@1", usage={"tokens": 10})

    assert run.statuses["nightly"] == "ready"


def test_what_a_round_undoes_first_is_known_before_it_is_opened() -> None:
    run = cancelled_with_an_undo()
    report = r.RetryRequested(run.clock, "somebody", from_step="load#2")

    planned = plan_round(run.state, report)

    assert planned.undone_first == ("load#3", "load#2")
    assert planned.dropped == ("load#2", "load#3")


def test_a_program_does_not_begin_again_if_a_call_that_it_drops_could_not_be_undone() -> None:
    run = cancelled_with_an_undo()
    run.retry(from_step="load#3")

    run.fail("load#3.undo@1")
    run.ok("load#2.undo@1")

    assert run.status == "failed"
    with pytest.raises(UndoFailed):
        run.retry()
    run.retry(force=True)
    assert (list(run.state.calls), run.statuses["nightly"]) == (["load"], "ready")


def test_a_round_that_is_stopped_before_it_has_undone_its_calls_leaves_them_to_the_next_one() -> None:
    run = cancelled_with_an_undo()
    run.retry(from_step="load#2").cancel(now=True)
    run.report(r.TaskEnded(run.clock, "load#3.undo@1", 1, Outcome(None, signal=15, is_stopped=True)))

    run.retry(force=True)

    assert run.state.run.undoing == "load#2.undo@1"
    run.ok("load#2.undo@1")
    assert list(run.state.calls) == ["load"]


def test_a_correction_of_an_open_run_is_refused_if_an_undo_fails_while_the_run_stops() -> None:
    run = cancelled_with_an_undo().retry(from_step="load#2")
    edited = msgspec.structs.replace(run.state.workflow, description="edited")
    run.retry_with(edited, kept_calls=("load",), kept_round=-2)

    run.fail("load#3.undo@1")

    [warning] = [one.fact for one in run.log if isinstance(one.fact, e.WarningRecorded)]
    assert (warning.place, warning.failure.code, warning.failure.severity) == (
        "nightly",
        "CORRECTION_REFUSED",
        "warning",
    )
    assert "'load#3' of run 1 could not be undone" in warning.failure.message
    assert run.status == "cancelled" and run.state.workflow.description == ""
    # A person who has looked at it decides.
    run.retry_with(edited, force=True, kept_calls=("load",), kept_round=2).ok("load#2.undo@1")
    assert (list(run.state.calls), run.statuses["nightly"]) == (["load"], "ready")
    assert run.state.workflow.description == "edited"


def test_a_call_is_added_behind_those_that_a_round_has_kept() -> None:
    run = failed_at_the_third()
    run.retry()
    run.report(r.TaskStarted(run.clock, "nightly", 2, "w1", "h1", run.turn))

    run.say(run.load(3, branch="0"))

    assert list(run.state.calls) == ["load", "load#2", "load#4"]
    assert list(restore(run.state.workflow, every_row(run.state)).calls) == ["load", "load#2", "load#4"]


def test_a_corrected_program_makes_again_what_followed_from_a_call_that_was_undone_since_it_was_compared() -> None:
    run = Program()
    run.say(run.load(1), definition=step("load", undo=command("undo")))
    run.ok("load", output=1)
    run.say(run.load(2, definition="x"), run.load(3, definition="x"), definitions={"x": LOAD})
    run.ok("load#2", output=2)
    run.say(how="raised", failure=Failure("EXCEPTION"))
    run.ok("load.undo@1")

    dropped = dropped_calls(run.state, "", kept=("load", "load#2"))

    assert dropped == ("load", "load#2", "load#3")


class NotSearched(tuple[str, ...]):
    """Labels of which each takes as long to find as there are labels before it."""

    def __contains__(self, label: object) -> bool:
        raise AssertionError("25,000 labels are searched 25,000 times")


def test_what_a_corrected_program_keeps_is_found_without_a_search() -> None:
    run = Program()
    run.say(run.load(1), run.load(2)).ok("load", "load#2")

    assert dropped_calls(run.state, "", kept=NotSearched(["load"])) == ("load#2",)


# -- results of dropped calls ------------------------------------------------------------------------------------------


def paid_after_the_failure(**fields: Any) -> Program:
    """`load` has failed, `load#2` and `load#3` have completed after that, and the program has raised the failure."""
    run = Program()
    run.say(run.load(1)).fail("load")
    for number in (2, 2):
        run.say(run.load(number, **fields))
        run.ok(list(run.state.calls)[-1], output=[number, run.made])
    run.say(how="raised", failure=Failure("EXIT_NONZERO"), call="load")
    return run


def again(run: Program, **asked: Any) -> Program:
    """Retry it, and let the first call complete."""
    run.retry(**asked)
    run.made = 0
    run.say(run.load(1)).ok("load", output=1)
    return run


def offered(run: Program) -> list[str]:
    """The dropped calls whose results are offered."""
    return [label for label, call in run.state.dropped.items() if call.has_result]


def test_a_completed_call_that_is_dropped_does_not_run_again_if_it_is_made_in_the_same_way() -> None:
    run = again(paid_after_the_failure())

    run.say(run.load(2), run.load(2))

    assert run.statuses["load#2"] == run.statuses["load#3"] == "completed"
    assert run.told() == [("load#2", [2, 2], ""), ("load#3", [2, 3], "")]
    assert (run["load#2"].visit, run["load#2"].attempt) == (1, 1)
    assert run.say(how="returned").status == "completed"


def test_a_call_that_comes_before_takes_no_result_that_is_not_its_own() -> None:
    run = again(paid_after_the_failure())

    run.say(run.load(9), run.load(2))

    assert (run.statuses["load#4"], run.statuses["load#2"]) == ("ready", "completed")


def test_a_result_is_kept_until_a_round_makes_its_call() -> None:
    run = again(paid_after_the_failure())
    run.say(run.load(9)).fail("load#4").say(how="raised", failure=Failure("EXIT_NONZERO"), call="load#4")  # type: ignore[attr-defined]
    run.retry()
    run.made = 1

    run.say(run.load(2), run.load(2), run.load(2))

    assert [run.statuses[label] for label in ("load#2", "load#3", "load#5")] == ["completed", "completed", "ready"]


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "inline", "output": 5},
        {"definition": step("load", action=Action("approve", {"message": "go on?"}))},
        {"definition": step("load", undo=command("undo"))},
    ],
    ids=["inline", "asks a person", "has an undo"],
)
def test_what_runs_in_the_program_asks_a_person_or_is_undone_keeps_no_result(fields: dict[str, Any]) -> None:
    run = Program()
    run.say(run.load(1)).fail("load")
    definition = fields.pop("definition", LOAD)
    run.say(run.load(2, definition="x", **fields), definitions={"x": definition})
    if "kind" not in fields:
        run.ok("load#2", output=2)
    run.say(how="raised", failure=Failure("EXIT_NONZERO"), call="load")
    if definition.undo is not None:
        run.ok("load.undo@1" if "load.undo@1" in run.queued else "load#2.undo@1")

    again(run)

    assert offered(run) == []


def test_retry_from_a_call_keeps_no_result_of_what_followed() -> None:
    run = again(paid_after_the_failure(), from_step="load")

    run.say(run.load(2))

    assert run.statuses["load#2"] == "ready"
    assert offered(run) == []


def test_a_round_says_which_calls_may_keep_their_results() -> None:
    run = paid_after_the_failure()
    plan = plan_round(run.state, r.RetryRequested(run.clock, "somebody"))

    reasons = rerun_reasons(run.state, plan)

    assert reasons["load"] == "it failed"
    assert reasons["load#2"] == "it comes after 'load'; if it is called in the same way, it keeps its result"


def test_kept_results_are_in_the_rows_and_in_the_log() -> None:
    run = again(paid_after_the_failure())
    before = restore(run.state.workflow, every_row(run.state))

    run.say(run.load(2))

    assert before.kept_results == {("", "load", "2"): ("load#2", "load#3")}
    restored = restore(run.state.workflow, every_row(run.state))
    assert {label_of_result(state, ("", "load", "2")) for state in (restored, run.state)} == {"load#3"}
    assert label_of_result(fold(run.state.workflow, run.log), ("", "load", "2")) == "load#3"


def test_a_kept_result_has_the_files_that_its_call_has_written() -> None:
    run = Program()
    run.say(run.load(1)).fail("load")
    run.say(run.load(2))
    record = FileRecord("out.csv", "out.csv", sha256="abc", size=3)
    run.report(r.TaskEnded(run.clock, "load#2", 1, output=2, files=(record,)))
    run.say(how="raised", failure=Failure("EXIT_NONZERO"), call="load")
    before = run["load#2"].files

    again(run).say(run.load(2))

    assert run["load#2"].files == before != ()


def test_a_call_gets_the_same_label_after_a_restart() -> None:
    run = Program()
    for number, key in enumerate("ba"):
        run.made = 0
        run.say(run.load(9)).fail("load").say(run.load(number, key=key)).ok(f"load#{key}")  # type: ignore[attr-defined]
        run.say(how="raised", failure=Failure("EXIT_NONZERO"), call="load").retry()

    # A store returns rows in the order of their keys.
    restored = restore(run.state.workflow, sorted(every_row(run.state)))

    assert run.state.dropped_labels["", 1, "load"] == {"load#a", "load#b"}
    assert restored.dropped_labels == run.state.dropped_labels


# -- cost --------------------------------------------------------------------------------------------------------------


class Measured(Program):
    """Counts the bytes of the rows that its turns change, and these rows."""

    rows = bytes = 0

    def report_once(self, report: r.Report) -> Measured:
        self.last = turn(self.state, report, self.evaluator)
        found = changes(self.state)
        self.rows += len(found)
        self.bytes += sum(len(data or b"") for _, _, _, data in found)
        self.state.commit()
        self.log.extend(self.last)
        return self


def made_calls(count: int, *, at_once: bool) -> Measured:
    """A program in its second round, which makes so many calls, after as many that it has dropped."""
    run = Measured()
    run.say(*(run.load(number) for number in range(count)))
    run.cancel(now=True).retry()
    run.made = 0
    calls = [run.load(number) for number in range(count)]
    run.report(r.TaskStarted(run.clock, "nightly", 2, "w1", "h1", run.turn))
    run.rows = run.bytes = 0
    if at_once:
        run.say(*calls)
        run.report(r.TaskStarted(run.clock, "nightly", 2, "w1", "h1", run.turn))
    for number, call in enumerate(calls, 1):
        if not at_once:
            run.say(call)
        run.ok("load" if number == 1 else f"load#{number}", output=number)
    return run


def failed_calls(count: int) -> Measured:
    """A program that has caught the failures of so many calls."""
    run = Measured()
    for number in range(count):
        run.say(run.load(number))
        run.fail("load" if number == 0 else f"load#{number + 1}")
    return run


def test_what_a_failed_call_writes_does_not_depend_on_how_many_came_before() -> None:
    few, many = failed_calls(30), failed_calls(300)

    assert many.bytes / 300 <= 1.05 * few.bytes / 30


@pytest.mark.parametrize("at_once", [False, True])
def test_what_a_call_writes_does_not_depend_on_how_many_came_before(at_once: bool) -> None:
    few, many = made_calls(30, at_once=at_once), made_calls(300, at_once=at_once)

    assert len(many.state.calls) == 300
    assert many.rows / 300 <= 1.05 * few.rows / 30
    assert many.bytes / 300 <= 1.05 * few.bytes / 30


# -- state -------------------------------------------------------------------------------------------------------------


def test_the_rows_and_the_log_of_a_program_give_the_same_state_and_a_turn_is_rolled_back() -> None:
    run = failed_at_the_third().retry()
    before = run.state.copy()
    run.state.begin()
    rows = changes(run.state)
    report = r.TaskStarted(run.clock, "nightly", 2, "w1", "h1", 99)
    run.state.rollback()

    run.report(report)

    assert fold(run.state.workflow, run.log) == run.state
    assert before.calls == run.state.calls and rows
    assert restore(run.state.workflow, every_row(run.state)) == run.state


def test_the_graph_of_a_version_is_shared_and_stays_as_it_is() -> None:
    run = Program()
    other = fold(run.state.workflow, run.log, run.state.graph)

    run.say(run.load())

    assert "load" in run.state.graph.nodes and "load" not in other.graph.nodes


def test_a_paused_run_queues_the_next_turn_when_it_is_resumed() -> None:
    run = Program()
    run.say(run.load())
    run.pause()
    run.report(r.TaskEnded(run.clock, "load", 1))

    assert fx.QueueTask("nightly", 1) in run.effects
    assert run["nightly"].status == "ready"

"""Rounds: `retry` runs again what did not complete, and each round has exactly one final event."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mulligan.core.deciding.rounds.rounds import needs_force
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.workflow import Backoff, Map, Need, Triage
from mulligan.core.turn import fold, turn
from mulligan.errors import MulliganError, UndoFailed
from mulligan.testing.history import T0, History, command, edge, expression, handler, retry, shell, step, workflow


def run_of(*steps: Any, **fields: Any) -> History:
    answers = fields.pop("answers", None)
    return History(workflow(*steps, **fields), answers).start()


def put_back(run: History) -> tuple[str, ...]:
    steps: tuple[str, ...] = run.facts(e.RunReopened)[-1].put_back
    return steps


# -- what goes back --------------------------------------------------------------------------------------------------


def test_what_failed_and_what_was_skipped_for_it_run_again_and_the_rest_is_kept() -> None:
    run = run_of(step("good"), step("bad"), step("after", needs=["good", "bad"])).ok("good", output=7).fail("bad")
    assert run.statuses == {"good": "completed", "bad": "failed", "after": "skipped"}

    run.retry()
    assert (put_back(run), run.queued) == (("bad", "after"), ["bad"])
    run.ok("bad").ok("after")

    assert (run.status, run["good"].output, run["good"].visit) == ("completed", 7, 1)
    assert run.ended == e.RunCompleted(round=2, total_steps=3)
    assert fold(run.state.workflow, run.log) == run.state


def test_what_was_cancelled_runs_again() -> None:
    run = run_of(step("a"), step("b", needs=["a"])).started("a").cancel().fail("a", signal=15)

    run.retry().ok("a").ok("b")

    assert (put_back(run), run.status) == (("a", "b"), "completed")


def test_what_was_parked_when_the_run_was_cancelled_runs_again() -> None:
    run = run_of(step("a", triage=Triage(timeout=60))).fail("a").cancel()

    run.retry().ok("a")

    assert run.status == "completed"


def test_what_was_undone_runs_again() -> None:
    run = run_of(step("a", undo=command("undo")), step("b", needs=["a"])).ok("a").fail("b").ok("a.undo@1")

    run.retry()
    assert (put_back(run), run.queued) == (("a", "b"), ["a"])
    run.ok("a").ok("b")

    assert run.status == "completed"


def test_what_was_undone_in_an_earlier_round_binds_end_no_more() -> None:
    end = step("end", action=shell("judge"))
    run = run_of(step("a", undo=command("undo")), step("b", needs=["a"]), end=end).ok("a").fail("b").ok("a.undo@1")
    run.ok("end", output={"status": "completed"})
    assert run.status == "failed"

    run.retry().fail("a").ok("end", output={"status": "completed", "reason": "good enough"})

    assert (run.status, run["a"].is_undone) == ("completed", False)


def with_failed_undo() -> History:
    """Two steps that can be undone, of which the second could not; the third has failed."""
    undo = command("undo")
    run = run_of(step("a", undo=undo), step("b", undo=undo, needs=["a"]), step("c", needs=["b"])).ok("a", "b").fail("c")
    return run.fail("b.undo@1").ok("a.undo@1")


def test_what_could_not_be_undone_does_not_run_again_unasked() -> None:
    run = with_failed_undo()
    assert [(run[name].is_undone, run[name].has_failed_undo) for name in "ab"] == [(True, False), (False, True)]

    with pytest.raises(UndoFailed) as refused:
        run.retry()

    assert refused.value.data["steps"] == ["b"]
    assert "--force" in refused.value.hint
    assert run.state.run.round == 1


def test_with_force_it_runs_again_and_both_visits_are_undone_if_that_fails_too() -> None:
    run = with_failed_undo()

    run.retry(force=True).ok("a", "b").fail("c").ok("b.undo@2", "a.undo@2")
    assert (run["b"].is_undone, run["b"].has_failed_undo) == (False, True)
    run.ok("b.undo@1")

    assert run.facts(e.RunReopened)[0].is_forced
    assert (run["b"].is_undone, run["b"].has_failed_undo, run["b"].warnings) == (True, False, ())
    # The second try at the undo of that visit is another attempt, with logs of its own.
    assert [f.attempt for f in run.facts(e.AttemptScheduled) if f.place == "b.undo@1"] == [1, 2]
    assert fold(run.state.workflow, run.log) == run.state


def test_a_step_that_could_not_be_undone_keeps_its_result_if_nothing_before_it_runs_again() -> None:
    run = run_of(step("a", undo=command("undo")), step("b", needs=["a"])).ok("a").fail("b").fail("a.undo@1")

    run.retry()
    assert put_back(run) == ("b",)
    run.fail("b").ok("a.undo@1")

    assert (run.status, run["a"].is_undone, run["a"].has_failed_undo) == ("failed", True, False)


def test_an_undo_that_fails_is_tried_once_in_each_round() -> None:
    run = run_of(step("a", undo=command("undo")), step("b", needs=["a"])).ok("a").fail("b").fail("a.undo@1")
    assert run.status == "failed"

    run.retry().fail("b").fail("a.undo@1")

    assert (run.status, run["a"].has_failed_undo, len(run.facts(e.UndoFailed))) == ("failed", True, 2)


def test_a_visit_that_was_undone_does_not_hide_another_that_was_not() -> None:
    steps = (step("a", undo=command("undo"), next=[edge("a", when="more")]), step("b", needs=["a"]))
    run = run_of(*steps, answers={"more": lambda names: names["output"] == "more"})

    run.ok("a", output="more").ok("a").fail("b").fail("a.undo@2").ok("a.undo@1")

    assert (run["a"].is_undone, run["a"].has_failed_undo) == (False, True)


def test_a_corrected_definition_without_the_step_has_nothing_to_undo() -> None:
    run = with_failed_undo()

    run.retry_with(workflow(step("a", undo=command("undo")), step("c", needs=["a"])))
    run.ok("a").fail("c").ok("a.undo@2")

    assert (run.status, "b.undo@1" in run.state.places) == ("failed", False)


def test_a_corrected_definition_does_not_run_again_unasked_what_could_not_be_undone() -> None:
    run = with_failed_undo()
    mended = workflow(
        step("a", undo=command("undo")), step("b", undo=command("other"), needs=["a"]), step("c", needs=["b"])
    )
    before = list(run.log)

    with pytest.raises(UndoFailed):
        run.retry_with(mended)

    assert (run.log, fold(run.state.workflow, run.log)) == (before, run.state)


def test_a_round_is_said_to_need_force_only_if_it_would_be_refused() -> None:
    undo = command("undo")
    refused = with_failed_undo()
    kept = run_of(step("b", undo=undo), step("c", needs=["b"])).ok("b").fail("c").fail("b.undo@1")

    assert (needs_force(refused.state), needs_force(kept.state)) == (True, False)
    with pytest.raises(UndoFailed):
        refused.retry()
    kept.retry().ok("c")
    assert kept.status == "completed"


def with_triage(**fields: Any) -> History:
    undo, policy = command("undo"), Triage(**fields)
    steps = (step("a", undo=undo), step("b", undo=undo, needs=["a"], triage=policy), step("c", needs=["b"]))
    return run_of(*steps).ok("a", "b").fail("c").fail("b.undo@1").ok("a.undo@1").retry().ok("a")


def test_with_triage_a_person_decides_whether_what_could_not_be_undone_runs_again() -> None:
    run = with_triage()
    assert (run.statuses["b"], run.queued) == ("pending_failed", [])
    parked = run.facts(e.StepParked)[0]
    assert (parked.reason, parked.failure.code) == ("undo_failed", "UNDO_FAILED")

    run.classify("b", "retry").ok("b", "c")

    assert (run.status, run["b"].visit) == ("completed", 2)
    assert fold(run.state.workflow, run.log) == run.state


def test_the_person_may_leave_it_as_it_is() -> None:
    run = with_triage().classify("b", "fail")
    run.ok("a.undo@2").ok("b.undo@1")

    assert (run.status, run.statuses["b"], run["b"].has_failed_undo) == ("failed", "failed", False)


def test_nobody_who_decides_in_time_does_not_mean_that_it_runs_again() -> None:
    run = with_triage(timeout=60, default="retry").wait(60)

    assert run.statuses["b"] == "failed"


def test_with_force_nobody_is_asked() -> None:
    undo = command("undo")
    steps = (step("a", undo=undo), step("b", undo=undo, needs=["a"], triage=Triage()), step("c", needs=["b"]))
    run = run_of(*steps).ok("a", "b").fail("c").fail("b.undo@1").ok("a.undo@1")

    run.retry(force=True).ok("a", "b", "c")

    assert run.status == "completed"


def test_a_failed_undo_in_a_log_of_an_earlier_release_counts_as_undone() -> None:
    run = with_failed_undo()
    old = [
        replace(entry, fact=replace(entry.fact, is_kept=False)) if isinstance(entry.fact, e.UndoFailed) else entry
        for entry in run.log
    ]

    state = fold(run.state.workflow, old)

    assert (state.places["b"].is_undone, state.undoables) == (True, [])
    # What it did may still be in effect all the same.
    assert state.places["b"].undo_failed
    with pytest.raises(UndoFailed):
        turn(state, r.RetryRequested(T0, "someone"), run.evaluator)


def test_a_handled_failure_keeps_its_remediation() -> None:
    run = run_of(step("a", next=[edge("fix", "failure")]), step("fix"), step("bad")).fail("a").ok("fix").fail("bad")

    run.retry().ok("bad")

    assert put_back(run) == ("bad",)
    assert (run.status, run.statuses["a"], run.ended.handled_steps_count) == ("completed", "failed", 1)


def test_a_failure_whose_remediation_failed_goes_back_with_it() -> None:
    run = run_of(step("a", next=[edge("fix", "failure")]), step("fix")).fail("a").fail("fix")

    run.retry()
    assert (put_back(run), run.queued) == (("a", "fix"), ["a"])
    run.ok("a")

    assert (run.status, run.statuses) == ("completed", {"a": "completed", "fix": "skipped"})
    assert not run.ended.degraded


def test_a_source_that_waited_for_its_remediation_when_the_run_was_cancelled_goes_back_with_it() -> None:
    run = run_of(step("a", next=[edge("fix", "failure", then="rerun")]), step("fix")).fail("a").cancel()
    assert run.statuses == {"a": "failed", "fix": "cancelled"}

    run.retry().fail("a").ok("fix").ok("a")

    assert (put_back(run), run.status) == (("a", "fix"), "completed")


def test_a_loop_that_a_stop_made_void_is_taken_in_the_next_round() -> None:
    steps = (step("a", next=[edge("a", when="more", backoff=Backoff(delay=60))]), step("b"))
    run = run_of(*steps, answers={"more": lambda names: names["output"] == "more"}).ok("a", output="more").cancel()
    assert run.statuses == {"a": "completed", "b": "cancelled"}

    run.retry().ok("b").wait(60).ok("a")

    assert (run.status, run["a"].visit) == ("completed", 2)


def test_a_failure_that_was_allowed_is_kept() -> None:
    run = run_of(step("a", continue_on_error=True), step("bad")).fail("a").fail("bad")

    run.retry().ok("bad")

    assert (put_back(run), run.statuses["a"]) == (("bad",), "failed")


def test_a_recovered_step_is_kept() -> None:
    run = run_of(step("a", on_failure=handler("fix")), step("bad")).fail("a").ok("a.on_failure@1.0").fail("bad")

    run.retry().ok("bad")

    assert (put_back(run), run.ended.recovered_steps_count) == (("bad",), 1)


def test_a_run_that_only_its_end_failed_runs_its_end_again() -> None:
    run = run_of(step("a"), end=step("end", action=shell("report"))).ok("a").fail("end")

    run.retry()
    assert (put_back(run), run.queued) == ((), ["end"])
    run.ok("end")

    assert run.status == "completed"
    assert [fact.visit for fact in run.facts(e.StepEntered) if fact.step == "end"] == [1, 2]


# -- fresh -----------------------------------------------------------------------------------------------------------


def test_budgets_are_fresh_and_attempts_are_numbered_on() -> None:
    run = run_of(step("a", rules=retry(1))).fail("a").fail("a")
    assert run.status == "failed"

    run.retry().fail("a")
    assert run.statuses == {"a": "ready"}
    run.ok("a")

    assert (run.status, run["a"].attempt, run["a"].visit) == ("completed", 4, 2)


def test_visits_are_fresh() -> None:
    run = run_of(step("a", max_visits=1, next=[edge("a", "failure")])).fail("a")
    assert (run.status, run["a"].failure.code) == ("failed", "LOOP_LIMIT")

    run.retry()

    assert run.statuses == {"a": "ready"}


def test_the_visits_of_a_whole_loop_are_fresh() -> None:
    """Otherwise the step after the one that is retried would be beyond its limit at once."""
    run = run_of(step("a", max_visits=2, next=[edge("b")]), step("b", max_visits=2, next=[edge("a")]))
    run.ok("a").ok("b").ok("a").ok("b")
    assert (run.status, run["a"].failure.code) == ("failed", "LOOP_LIMIT")

    run.retry().ok("a").ok("b").ok("a").ok("b")

    assert (run.status, run["a"].failure.code, run["b"].visit) == ("failed", "LOOP_LIMIT", 4)


def test_the_steps_after_a_failure_in_a_loop_do_not_keep_the_result_of_an_earlier_pass() -> None:
    steps = (step("a", next=[edge("b")]), step("b", next=[edge("c")]), step("c", next=[edge("a", when="more")]))
    run = run_of(*steps, answers={"more": lambda names: names["output"] == "more"})
    run.ok("a").ok("b").ok("c", output="more").ok("a").fail("b")
    assert run.statuses == {"a": "completed", "b": "failed", "c": "completed"}

    run.retry()
    assert put_back(run) == ("b", "c")
    run.ok("b").ok("c", output="more").ok("a").ok("b").ok("c")

    assert (run.status, run["c"].visit) == ("completed", 3)


def test_the_visits_of_a_step_outside_the_loop_that_is_retried_are_not_touched() -> None:
    run = run_of(step("first", next=[edge("a")]), step("a", max_visits=1, next=[edge("a", "failure")]))
    run.ok("first").fail("a")

    run.retry()

    assert run["first"].visits_before == 0


def test_the_runs_timeout_is_fresh_and_the_old_timer_is_nothing() -> None:
    run = run_of(step("a"), timeout=100).started("a").wait(90).fail("a")

    run.retry().wait(99)
    assert run.state.run.stop is None
    run.wait(1)

    assert run.facts(e.RunStopping)[0].cause == "timed_out"


def test_a_run_that_was_out_of_time_has_time_again() -> None:
    run = run_of(step("a"), timeout=100).started("a").wait(100).fail("a", signal=15)
    assert run.status == "failed"

    run.retry().ok("a")

    assert (run.status, run.ended.reason) == ("completed", "")


def test_a_cancelled_run_is_no_longer_stopping_in_its_next_round() -> None:
    run = run_of(step("a", rules=retry(1))).cancel(now=True)

    run.retry().fail("a").ok("a")

    assert run.status == "completed"


def test_a_stale_result_of_the_round_before_is_refused() -> None:
    run = run_of(step("a")).fail("a").retry()

    run.report(r.TaskEnded(run.clock, "a", attempt=1))

    assert run.follows == [e.ReportRefused("a", 1, "stale_attempt")]
    assert run.statuses == {"a": "ready"}


def test_a_result_that_comes_after_the_last_event_is_refused() -> None:
    run = run_of(step("a")).cancel()

    run.report(r.TaskEnded(run.clock, "a", attempt=1))

    assert run.follows == [e.ReportRefused("a", 1, "run_ended")]
    assert run.status == "cancelled"


# -- rounds ----------------------------------------------------------------------------------------------------------


def test_each_round_has_exactly_one_last_event() -> None:
    run = run_of(step("a")).fail("a").retry().fail("a").retry().cancel().retry().ok("a")

    ends = run.facts(e.RunCompleted, e.RunFailed, e.RunCancelled)
    assert [(type(fact), fact.round) for fact in ends] == [
        (e.RunFailed, 1),
        (e.RunFailed, 2),
        (e.RunCancelled, 3),
        (e.RunCompleted, 4),
    ]
    assert [(fact.round, fact.by, fact.reason) for fact in run.facts(e.RunReopened)] == [
        (2, "someone", "again"),
        (3, "someone", "again"),
        (4, "someone", "again"),
    ]


def test_a_round_counts_only_what_is_still_true() -> None:
    run = run_of(step("a"), step("b")).fail("a").fail("b").retry().ok("a").fail("b")

    assert (run.status, run.ended.failed_steps_count) == ("failed", 1)


def test_no_timer_of_an_earlier_round_acts_in_a_later_one() -> None:
    run = run_of(step("a", rules=retry(1, delay=30)), step("b"), timeout=500).fail("a").cancel().retry().started("b")

    before = run.statuses
    run.wait(40)

    assert run.statuses == before


# -- from a step -----------------------------------------------------------------------------------------------------


def test_from_a_step_runs_it_and_everything_after_it_again() -> None:
    steps = (step("a"), step("b", needs=["a"]), step("c", needs=["b"]), step("other"))
    run = run_of(*steps).ok("a", "b", "other").fail("c")

    run.retry(from_step="b")
    assert (put_back(run), run.queued) == (("b", "c"), ["b"])
    run.ok("b").ok("c")

    assert run.status == "completed"
    assert {place.key: place.visit for place in run.state.steps()} == {"a": 1, "b": 2, "c": 2, "other": 1}


def test_from_a_step_also_runs_what_failed_elsewhere() -> None:
    run = run_of(step("a"), step("b")).ok("a").fail("b")

    run.retry(from_step="a")

    assert run.queued == ["a", "b"]


def test_a_step_that_an_edge_led_to_runs_again_when_it_failed() -> None:
    run = run_of(step("a", next=["b"]), step("b")).ok("a").fail("b")

    run.retry().ok("b")

    assert (run.status, run["a"].visit) == ("completed", 1)


# -- items -----------------------------------------------------------------------------------------------------------


def mapped(name: str = "m", do: tuple[Any, ...] = (command("one"),), needs: Any = (), **policy: Any) -> Any:
    return step(name, map=Map(over=expression("list"), **policy), do=do, needs=needs)


def collected(*outcomes: str) -> History:
    """A run that completed although items of its map `m` failed; `after` has read what it gave."""
    run = run_of(
        mapped(on_item_failure="collect"), step("after", needs=["m"]), step("aside"), answers={"list": [*outcomes]}
    )
    for index, outcome in enumerate(outcomes):
        run.ok(f"m[{index}].0", output=index) if outcome == "ok" else run.fail(f"m[{index}].0")
    return run.ok("after", "aside")


def test_failed_items_of_a_run_that_completed_run_again_alone_and_then_what_is_behind_them() -> None:
    run = collected("ok", "bad", "ok")
    assert (run.status, run.ended.degraded) == ("completed", True)

    run.retry("m", items=())
    assert (put_back(run), run.queued) == (("m", "after"), ["m[1].0"])
    run.ok("m[1].0", output="mended").ok("after")

    assert (run.status, run.ended.round, run.ended.degraded) == ("completed", 2, False)
    assert run["m"].output["results"] == [0, "mended", 2]
    assert {place.key: place.visit for place in run.state.steps()} == {"m": 2, "after": 2, "aside": 1}
    assert fold(run.state.workflow, run.log) == run.state


def test_items_go_on_from_their_last_attempt_and_those_that_are_done_keep_their_results() -> None:
    run = collected("ok", "bad").retry("m", items=())

    run.fail("m[1].0").ok("after")

    assert (run["m[0]"].attempt, run["m[1]"].attempt) == (1, 2)
    assert run["m"].output["failures"][0]["index"] == 1
    assert run["m"].output["results"] == [0, None]


def test_named_items_run_whatever_became_of_them_and_other_failures_stay() -> None:
    run = collected("ok", "bad", "bad")

    run.retry("m", items=(2, 0))
    assert run.queued == ["m[0].0", "m[2].0"]
    run.ok("m[0].0", output="new").ok("m[2].0", output=2).ok("after")

    assert (run["m"].output["results"], run["m"].output["failed"]) == (["new", None, 2], 1)
    assert (run.status, run.ended.degraded) == ("completed", True)


def test_a_later_attempt_of_the_visit_leaves_the_items_alone_that_the_round_was_not_opened_for() -> None:
    flow = step("m", map=Map(over=expression("list")), do=(command("one"),), on_failure=handler("fix", rerun=2))
    run = run_of(flow, answers={"list": [1, 2]}).fail("m[0].0").fail("m[1].0").fail("m.on_failure@1.0")

    run.retry("m", items=(1,)).fail("m[1].0").ok("m.on_failure@2.0")

    assert run.queued == ["m[1].0"]


def booked(after: str) -> History:
    """A completed run with a map that can be undone; then a round for its failed item, in which `after` goes so."""
    flow = (
        step("m", map=Map(over=expression("list"), on_item_failure="collect"), do=(command(),), undo=command("undo")),
        step("b", needs=["m"], undo=command("undo")),
        step("c", needs=["b"]),
    )
    run = run_of(*flow, answers={"list": [1, 2]}).ok("m[0].0").fail("m[1].0").ok("b", "c")
    run.retry("m", items=())
    return run.ok("m[1].0").ok("b").fail("c") if after == "completed" else run.cancel()


def test_what_a_map_did_over_two_rounds_is_undone_once() -> None:
    run = booked("completed").ok("b.undo@2").ok("m.undo@2").ok("b.undo@1")

    assert [(fact.step, fact.visit) for fact in run.facts(e.UndoStarted)] == [("b", 2), ("m", 2), ("b", 1)]
    assert run.status == "failed"
    assert fold(run.state.workflow, run.log) == run.state


def test_what_a_map_had_done_is_undone_also_when_the_round_for_its_items_came_to_nothing() -> None:
    run = booked("cancelled").ok("b.undo@1").ok("m.undo@1")

    assert (run.status, [fact.step for fact in run.facts(e.UndoStarted)]) == ("cancelled", ["b", "m"])
    assert run.retry().queued == ["m[0].0", "m[1].0"]


def test_the_list_stands_when_items_are_retried_whatever_it_would_be_now() -> None:
    run = collected("ok", "bad")
    run.evaluator.answers["list"] = ["another", "list", "altogether"]

    run.retry("m", items=()).ok("m[1].0").ok("after")

    assert (run.status, run["m"].output["total"]) == ("completed", 2)


def test_items_that_were_never_started_run_with_those_that_failed() -> None:
    run = run_of(mapped(on_item_failure="stop", max_parallel=1), answers={"list": [1, 2, 3]})
    run.ok("m[0].0").fail("m[1].0")
    assert run.status == "failed"

    run.retry("m", items=(1,)).ok("m[1].0").ok("m[2].0")

    assert (run.status, run["m"].output["succeeded"]) == ("completed", 3)


def test_a_second_visit_of_the_round_runs_all_items_again() -> None:
    steps = (
        step(
            "m",
            map=Map(over=expression("list"), on_item_failure="collect"),
            do=(command("one"),),
            next=[edge("m", when="more")],
        ),
    )
    run = run_of(*steps, answers={"list": [1, 2], "more": False}).ok("m[0].0").fail("m[1].0")
    run.evaluator.answers["more"] = lambda names: run["m"].visit == 2

    run.retry("m", items=()).ok("m[1].0")

    assert (run["m"].visit, run.queued) == (3, ["m[0].0", "m[1].0"])


def test_a_plain_round_runs_what_is_not_done_of_a_map_that_failed() -> None:
    run = run_of(mapped(), answers={"list": [1, 2]}).ok("m[0].0", output="kept").fail("m[1].0")

    run.retry()
    assert run.queued == ["m[1].0"]
    run.ok("m[1].0", output="new")

    assert run["m"].output["results"] == ["kept", "new"]


def test_a_map_behind_what_was_undone_runs_all_its_items_again() -> None:
    run = run_of(step("a", undo=command("undo")), mapped(needs=["a"]), answers={"list": [1, 2]})
    run.ok("a").ok("m[0].0").fail("m[1].0").ok("a.undo@1")

    run.retry().ok("a")

    assert run.queued == ["m[0].0", "m[1].0"]


def test_from_a_step_on_maps_run_all_their_items_again() -> None:
    run = run_of(step("a"), mapped(needs=["a"]), answers={"list": [1, 2]}).ok("a").ok("m[0].0").fail("m[1].0")

    run.retry("a").ok("a")

    assert run.queued == ["m[0].0", "m[1].0"]
    assert fold(run.state.workflow, run.log) == run.state


@pytest.mark.parametrize(
    ("run", "step_name", "items", "text"),
    [
        (
            collected("ok", "ok"),
            "m",
            (),
            "error[run.nothing_to_retry]: no item of step 'm' of run 1 has failed, so there is nothing to retry\n"
            "  to run one anyway, name it: --item I",
        ),
        (
            collected("ok", "bad"),
            "m",
            (7,),
            "error[refused]: step 'm' of run 1 has no item 7\n  its items are 0 to 1",
        ),
        (
            collected("ok", "bad"),
            "m",
            (-1,),
            "error[refused]: step 'm' of run 1 has no item -1\n  its items are 0 to 1",
        ),
        (collected("ok"), "after", (), "error[refused]: step 'after' of run 1 is not a map: it has no items"),
        (collected("ok"), "nope", (), "error[step.unknown]: 'nope' is not a step of run 1"),
        (
            run_of(mapped(), answers={"list": []}),
            "m",
            (),
            "error[run.nothing_to_retry]: step 'm' of run 1 has no items, so there is nothing to retry\n"
            "  to run what failed again: mulligan retry 1",
        ),
        (
            run_of(mapped(), answers={"list": [1]}),
            "m",
            (),
            "error[run.not_finished]: run 1 is running; it can be retried after it has ended\n"
            "  if nothing is running it: mulligan resume 1; to stop it: mulligan cancel 1",
        ),
        (
            run_of(
                step("m", map=Map(over=expression("list")), do=(command("one"),), undo=command("undo")),
                step("b", needs=["m"]),
                answers={"list": [1]},
            )
            .ok("m[0].0")
            .fail("b")
            .ok("m.undo@1"),
            "m",
            (0,),
            "error[refused]: step 'm' of run 1, or a step before it, was undone: none of its items can be kept\n"
            "  to run the whole step again: mulligan retry 1 --from m",
        ),
    ],
    ids=["none failed", "no such item", "less than nothing", "no map", "no step", "empty", "running", "undone"],
)
def test_a_retry_of_items_that_makes_no_sense_is_refused(
    run: History, step_name: str, items: tuple[int, ...], text: str
) -> None:
    before = fold(run.state.workflow, run.log)

    with pytest.raises(MulliganError) as refused:
        run.retry(step_name, items=items)

    assert refused.value.render() == text
    assert run.state == before


def test_a_plain_retry_of_a_run_that_let_items_fail_points_to_them() -> None:
    run = collected("ok", "bad")

    with pytest.raises(MulliganError) as refused:
        run.retry()

    assert refused.value.hint == "to run the failed items of 'm' again: mulligan items 1 m --retry"


# -- refused ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "from_step", "text"),
    [
        (
            run_of(step("a")),
            "",
            "error[run.not_finished]: run 1 is running; it can be retried after it has ended\n"
            "  if nothing is running it: mulligan resume 1; to stop it: mulligan cancel 1",
        ),
        (
            run_of(step("a")).pause(),
            "",
            "error[run.not_finished]: run 1 is paused; it can be retried after it has ended\n"
            "  to resume it: mulligan resume 1",
        ),
        (
            run_of(step("a")).ok("a"),
            "",
            "error[run.nothing_to_retry]: run 1 completed, so there is nothing to retry\n"
            "  to run it again from a step: mulligan fork 1 --from STEP",
        ),
        (run_of(step("a")).fail("a"), "nope", "error[step.unknown]: 'nope' is not a step of run 1"),
        (run_of(step("a")).fail("a"), "end", "error[step.unknown]: 'end' is not a step of run 1"),
    ],
    ids=["running", "paused", "completed", "unknown step", "end"],
)
def test_a_retry_that_makes_no_sense_is_refused_and_changes_nothing(run: History, from_step: str, text: str) -> None:
    before = fold(run.state.workflow, run.log)

    with pytest.raises(MulliganError) as refused:
        run.retry(from_step=from_step)

    assert refused.value.render() == text
    assert run.state == before


def test_a_second_retry_finds_the_run_already_under_way() -> None:
    run = run_of(step("a")).fail("a").retry()

    with pytest.raises(MulliganError) as refused:
        run.retry()

    assert refused.value.message == "run 1 is running; it can be retried after it has ended"


@pytest.mark.parametrize("join", ["any", "all", "first", "each"])
def test_a_step_that_was_arrived_at_is_visited_again_in_another_round(join: str) -> None:
    run = run_of(step("s", next=["x"]), step("x", join=join)).ok("s").fail("x")

    run.retry()

    assert run.queued == ["x"]
    assert run.ok("x").status == "completed"


# -- what depends on what runs again -----------------------------------------------------------------------------------


@pytest.mark.parametrize("on", ["always", "success_or_skipped", "success"])
def test_a_completed_step_runs_again_if_what_it_needs_does(on: str) -> None:
    run = run_of(step("a", continue_on_error=on != "always"), step("b", needs=[Need("a", on)]), step("bad"))
    run.fail("a").ok("b", output="1 failed").fail("bad")
    if on != "always":
        # Allowed to fail, it is kept by itself, and runs again when it is named.
        run.retry("a")
    else:
        run.retry()
    assert run.queued == ["a", "bad"]

    run.ok("a", "bad").ok("b", output="0 failed")

    assert (run.status, run["b"].output, run["b"].visit) == ("completed", "0 failed", 2)
    assert fold(run.state.workflow, run.log) == run.state


def test_a_completed_step_is_kept_if_asked_although_what_it_needs_runs_again() -> None:
    run = run_of(step("a"), step("b", needs=[Need("a", "always")]), step("c", needs=["b"])).fail("a").ok("b").ok("c")

    run.retry(keep_completed=True).ok("a")

    assert (put_back(run), run.status, run["b"].visit) == (("a",), "completed", 1)


@pytest.mark.parametrize("keep_completed", [True, False])
def test_a_step_that_an_edge_for_every_end_led_to_runs_once_more_or_is_kept(keep_completed: bool) -> None:
    run = run_of(step("a", next=[edge("b", "always")]), step("b", next=["c"]), step("c")).fail("a").ok("b").ok("c")

    run.retry(keep_completed=keep_completed).ok("a")

    assert run.queued == ([] if keep_completed else ["b"])
    run.ok(*run.queued)
    assert (run["b"].visit, run["c"].status) == ((1, "completed") if keep_completed else (2, "ready"))


def test_who_was_told_of_a_failure_is_told_of_the_next_one_also_if_results_are_kept() -> None:
    run = run_of(step("a", next=[edge("alert", "failure", handles=False)]), step("alert")).fail("a").ok("alert")

    run.retry(keep_completed=True).fail("a")

    assert run.queued == ["alert"]


def test_a_step_that_is_not_led_to_again_is_skipped_and_has_no_output() -> None:
    run = run_of(step("a", next=[edge("alert", "failure", handles=False)]), step("alert"))
    run.fail("a").ok("alert", output="mail 7")

    run.retry().ok("a")

    assert (run.status, run.statuses["alert"], run["alert"].output) == ("completed", "skipped", None)
    assert fold(run.state.workflow, run.log) == run.state


def test_a_branch_that_was_not_taken_makes_nothing_run_again() -> None:
    steps = (step("a", next=["b", edge("fix", "failure")]), step("fix", next=["b"]), step("b"), step("bad"))
    run = run_of(*steps).ok("a").ok("b").fail("bad")
    assert run.statuses["fix"] == "skipped"

    run.retry().ok("bad")

    assert (put_back(run), run.status, run.statuses["fix"]) == (("bad",), "completed", "skipped")


@pytest.mark.parametrize(("reads", "again"), [("run.round", ["late", "after", "bad"]), ("steps.a", ["bad"])])
def test_a_condition_that_may_have_another_answer_in_the_next_round_is_asked_again(
    reads: str, again: list[str]
) -> None:
    late = replace(step("late", needs=["a"]), when=expression("late", reads))
    run = run_of(step("a"), late, step("after", needs=[Need("late", "always")]), step("bad"), answers={"late": False})
    run.ok("a").ok("after").fail("bad")

    run.retry()

    assert list(put_back(run)) == again


def test_a_source_whose_stand_in_runs_again_runs_again_with_it() -> None:
    steps = (
        step("a", next=["after", edge("fix", "failure", then="continue")]),
        step("fix", needs=[Need("note", "always")]),
        step("after"),
        step("note"),
    )
    run = run_of(*steps).fail("a").fail("note").ok("fix", output="instead").ok("after")
    assert run["a"].output == "instead"

    run.retry()
    assert put_back(run) == ("a", "fix", "after", "note")
    run.ok("a", "note", "after")

    assert (run.status, run.statuses["fix"]) == ("completed", "skipped")


def test_a_step_that_ran_for_the_first_arrival_does_not_depend_on_the_others() -> None:
    steps = (step("a", next=["x"]), step("b", next=["x"]), step("x", join="first"), step("y", needs=["x"]))
    run = run_of(*steps).ok("a").ok("x").ok("y").fail("b")

    run.retry().ok("b")

    assert (put_back(run), run.status, run["x"].visit) == (("b",), "completed", 1)


def test_a_step_with_a_visit_per_arrival_is_visited_again_for_each() -> None:
    steps = (step("a", next=["x"]), step("b", next=["x"]), step("c", next=["x"]), step("x", join="each"))
    run = run_of(*steps, step("y", needs=["x"])).ok("a").ok("x").ok("b").ok("x").fail("c").ok("y")

    run.retry()
    assert (put_back(run), run.queued) == (("c", "x", "y"), ["c", "x"])
    run.ok("x").ok("x").ok("c").ok("x").ok("y")

    assert (run.status, run["x"].visit, run["y"].visit) == ("completed", 5, 2)
    assert fold(run.state.workflow, run.log) == run.state


def test_a_step_with_a_visit_per_arrival_waits_for_those_that_run_again() -> None:
    run = run_of(step("a", next=[edge("x", "always")]), step("x", join="each")).fail("a").ok("x")

    run.retry()
    assert run.queued == ["a"]
    run.ok("a").ok("x")

    assert (run.status, run["x"].visit) == ("completed", 2)


def test_a_visit_per_arrival_gets_the_failure_of_that_arrival_again() -> None:
    steps = [step(name, next=[edge("x", "failure")]) for name in "ab"]
    run = run_of(*steps, step("x", join="each", needs=[Need("note", "always")]), step("note"))
    run.fail("note").fail("a", 3).fail("b", 4).ok("x").ok("x")

    run.retry().ok("note")

    contexts = {visit: run.state.failures[found[0]].step for (_, visit), found in run.state.informed.items()}
    assert contexts == {1: "a", 2: "b", 3: "a", 4: "b"}


def test_a_map_that_failed_itself_starts_with_a_new_list_behind_a_step_that_runs_again() -> None:
    run = run_of(step("a"), mapped(needs=[Need("a", "always")]), answers={"list": [1, 2]})
    run.fail("a").ok("m[0].0").fail("m[1].0")

    run.retry().ok("a")

    assert (run.queued, run.facts(e.RunReopened)[-1].fresh) == (["m[0].0", "m[1].0"], ("m",))
    assert fold(run.state.workflow, run.log) == run.state


def test_only_items_of_a_map_behind_a_step_that_runs_again_are_refused_unless_results_are_kept() -> None:
    run = run_of(step("a"), mapped(needs=[Need("a", "always")]), answers={"list": [1, 2]})
    run.fail("a").ok("m[0].0").fail("m[1].0")

    with pytest.raises(MulliganError) as refused:
        run.retry("m", items=())
    assert refused.value.render() == (
        "error[refused]: step 'm' of run 1 comes after 'a', which runs again: none of its items can be kept\n"
        "  to run the whole step again: mulligan retry 1; to keep its other items: --keep-completed"
    )

    run.retry("m", items=(), keep_completed=True).ok("a")
    assert run.queued == ["m[1].0"]


def test_steps_behind_items_are_kept_if_asked() -> None:
    run = collected("ok", "bad")

    run.retry("m", items=(), keep_completed=True).ok("m[1].0", output="mended")

    assert (put_back(run), run.status, run["after"].visit) == (("m",), "completed", 1)


def test_a_handled_failure_behind_a_step_that_runs_again_is_made_again() -> None:
    steps = (step("a"), step("b", needs=[Need("a", "always")], next=[edge("fix", "failure")]), step("fix"))
    run = run_of(*steps).fail("a").fail("b").ok("fix")

    run.retry().ok("a").ok("b")

    assert (run.status, run.ended.degraded, run.statuses["fix"]) == ("completed", False, "skipped")


def test_a_round_of_an_older_version_puts_back_what_it_says() -> None:
    """Its fact has no `fresh`: evolve takes the steps from it, and items and arrivals as that version did."""
    run = run_of(step("a"), mapped(needs=[Need("a", "always")]), answers={"list": [1, 2]})
    run.fail("a").ok("m[0].0").fail("m[1].0")
    old = e.RunReopened(2, "someone", "again", put_back=("a", "m"))

    state = fold(run.state.workflow, [*run.log, e.Entry(run.state.run.seq + 1, run.state.run.at, 0, old)])

    assert (state.places["m[0]"].status, state.places["m"].status) == ("completed", "waiting")

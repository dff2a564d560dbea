"""A child run that did not complete is continued by the next attempt of the step that called it, in another round."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from mulligan.core.deciding.rounds.child_failure import child_end
from mulligan.core.deciding.rounds.child_rounds import PlannedChild, planned_children
from mulligan.core.effects import effects as fx
from mulligan.core.effects.child_runs import round_request
from mulligan.core.evolve.revision import plain_from_json
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.agents.spending import Spent
from mulligan.core.model.event_types import ChildRound
from mulligan.core.model.kept_history import pack_history
from mulligan.core.model.workflow import Action, Budget, Command, Handler, Map, Template, Triage, encode, version
from mulligan.core.turn import fold, follow
from mulligan.errors import NothingToRetry, Refused, UndoFailed
from mulligan.testing.history import T0, History, command, edge, expression, handler, retry, step, workflow

CHILD = Action("workflow", {"file": "child.yaml"})
GIVEN = Action(
    "workflow", {"file": "child.yaml", "inputs": {"${}": "n"}}, {"n": Template((expression("n", "steps.a"),))}
)


def child(name: str = "c", **fields: Any) -> Any:
    return step(name, **{"action": CHILD, **fields})


def run_of(*steps: Any, **fields: Any) -> History:
    answers = fields.pop("answers", None)
    return History(workflow(*steps, **fields), answers).start()


def calls(run: History) -> list[fx.Effect]:
    """The child runs that were started and continued, in order."""
    return [effect for effect in run.effects if isinstance(effect, fx.StartChild | fx.ContinueChild)]


# -- what is continued -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_the_retry_of_a_parent_gives_its_child_another_round(status: str) -> None:
    run = run_of(child(), step("after", needs=["c"])).child_ended("c", status)

    run.retry()

    assert calls(run) == [fx.StartChild("c", 1), fx.ContinueChild("c", 2, 2, 2)]
    assert run.child_ended("c", outputs={"x": 1}).ok("after").status == "completed"


def test_a_rule_a_handler_and_a_person_continue_the_child_run_too() -> None:
    climber = child(rules=retry(1), on_failure=handler("fix", rerun=1))
    run = run_of(climber).child_ended("c", "failed").child_ended("c", "failed").ok("c.on_failure@2.0")

    run.child_ended("c", "failed").retry()

    assert calls(run)[1:] == [fx.ContinueChild("c", attempt, 2, attempt) for attempt in (2, 3, 4)]


def test_a_child_run_that_ran_out_of_time_is_continued() -> None:
    run = run_of(child(timeout=60.0, rules=retry(1))).wait(60).child_ended("c", "cancelled")

    assert run.facts(e.AttemptFailed)[0].failure.code == "TIMEOUT"
    assert calls(run)[1:] == [fx.ContinueChild("c", 2, 2, 2)]


def test_the_child_of_a_cancelled_parent_is_continued() -> None:
    run = run_of(child()).cancel().child_ended("c", "cancelled")

    run.retry()

    assert calls(run)[1:] == [fx.ContinueChild("c", 2, 2, 2)]


def test_each_item_of_a_map_continues_its_own_child_run() -> None:
    over = Map(over=expression("list"))
    run = run_of(step("m", map=over, do=(Command(action=CHILD),)), answers={"list": [1, 2, 3]})
    run.child_ended("m[0].0", "failed", child_run_id=2).child_ended("m[1].0", child_run_id=3)
    run.child_ended("m[2].0", "failed", child_run_id=4)

    run.retry()

    assert calls(run)[3:] == [fx.ContinueChild("m[0].0", 2, 2, 2), fx.ContinueChild("m[2].0", 2, 4, 2)]


def test_named_items_continue_their_child_runs() -> None:
    over = Map(over=expression("list"), on_item_failure="collect")
    run = run_of(step("m", map=over, do=(Command(action=CHILD),)), answers={"list": [1]}).child_ended(
        "m[0].0", "failed"
    )

    run.retry("m", items=())

    assert calls(run)[1:] == [fx.ContinueChild("m[0].0", 2, 2, 2)]


def test_a_remediation_that_brings_the_step_back_has_its_child_continued() -> None:
    run = run_of(child(next=[edge("fix", "failure", then="rerun")]), step("fix")).child_ended("c", "failed")

    run.ok("fix")

    assert (calls(run)[1:], run["c"].visit) == ([fx.ContinueChild("c", 2, 2, 2)], 2)


# -- what is not -----------------------------------------------------------------------------------------------------


def test_a_child_run_that_completed_is_not_continued() -> None:
    run = run_of(child(validate=expression("good"), rules=retry(1)), answers={"good": False})

    run.child_ended("c")

    assert calls(run)[1:] == [fx.StartChild("c", 2)]


def test_with_other_inputs_a_new_child_run_starts() -> None:
    values = iter([{"n": 1}, {"n": 1}, {"n": 2}])
    run = run_of(step("a"), child(needs=["a"], action=GIVEN, rules=retry(2)), answers={"n": lambda _: next(values)})
    run.ok("a").child_ended("c", "failed")
    assert calls(run)[1:] == [fx.ContinueChild("c", 2, 2, 2)]

    run.child_ended("c", "failed")

    assert calls(run)[2:] == [fx.StartChild("c", 3)]


@pytest.mark.parametrize("from_step", ["a", "c"])
def test_a_child_is_new_only_if_a_step_before_it_has_run_again(from_step: str) -> None:
    run = run_of(step("a"), child(needs=["a"])).ok("a").child_ended("c", "failed").retry(from_step)

    if from_step == "a":
        run.ok("a")

    assert calls(run)[1:] == [fx.StartChild("c", 2) if from_step == "a" else fx.ContinueChild("c", 2, 2, 2)]


def test_behind_an_undone_step_a_new_child_run_starts() -> None:
    run = run_of(step("a", undo=command("x")), child(needs=["a"])).ok("a").child_ended("c", "failed").ok("a.undo@1")

    run.retry().ok("a")

    assert calls(run)[1:] == [fx.StartChild("c", 2)]


def test_in_a_loop_every_visit_has_its_own_child_run() -> None:
    run = run_of(step("a", next=["c"]), child(next=[edge("a", "failure")])).ok("a").child_ended("c", "failed").ok("a")

    assert calls(run)[1:] == [fx.StartChild("c", 2)]


def test_in_a_loop_every_visit_of_a_map_has_its_own_child_runs() -> None:
    over = Map(over=expression("list"), on_item_failure="collect")
    again = step("m", map=over, do=(Command(action=CHILD),), next=[edge("m")], max_visits=2)
    run = run_of(again, answers={"list": [1, 2]})

    run.child_ended("m[0].0", "failed").child_ended("m[1].0")

    assert calls(run)[2:] == [fx.StartChild("m[0].0", 2), fx.StartChild("m[1].0", 2)]


def test_a_round_that_keeps_what_completed_keeps_no_child_run_of_an_earlier_pass_of_its_loop() -> None:
    steps = (step("a", next=["c"], max_visits=5), child(next=[edge("a", "failure")], max_visits=5), step("z"))
    run = run_of(*steps).ok("a").fail("z").child_ended("c", "failed").ok("a").cancel().child_ended("c", "cancelled")

    run.retry("a", keep_completed=True).ok("a").child_ended("c", "failed").ok("a")

    assert calls(run)[2:] == [fx.ContinueChild("c", 3, 3, 2), fx.StartChild("c", 4)]


def test_the_steps_of_a_group_are_tried_again_together() -> None:
    group = Action("workflow", {"file": "f.yaml#g", "group": True})
    run = run_of(child(action=group, rules=retry(1))).child_ended("c", "failed").child_ended("c", "failed")

    run.retry()

    assert calls(run) == [fx.StartChild("c", 1), fx.StartChild("c", 2), fx.StartChild("c", 3)]


def test_from_start_runs_the_child_anew() -> None:
    run = run_of(child()).child_ended("c", "failed")

    run.retry(from_start=True)

    assert calls(run)[1:] == [fx.StartChild("c", 2)]


def test_without_a_child_to_start_anew_from_start_is_refused() -> None:
    run = run_of(step("a")).fail("a")

    with pytest.raises(NothingToRetry):
        run.retry(from_start=True)

    assert run.state.run.round == 1


def test_a_child_that_refuses_to_go_on_fails_the_attempt_and_the_next_one_starts_anew() -> None:
    run = run_of(child(rules=retry(2))).child_ended("c", "failed")

    run.child_ended("c", "failed", is_refused=True, reason="it cannot be continued: why")

    assert run.facts(e.AttemptFailed)[1].failure.message == "child run 2 failed: it cannot be continued: why"
    assert calls(run)[1:] == [fx.ContinueChild("c", 2, 2, 2), fx.StartChild("c", 3)]


def test_a_call_that_a_handler_recovered_is_not_continued_by_a_later_visit() -> None:
    run = run_of(child(on_failure=handler("fix")), step("b", needs=["c"])).child_ended("c", "failed")
    run.ok("c.on_failure@1.0").fail("b")

    run.retry("c")

    assert calls(run)[1:] == [fx.StartChild("c", 2)]


def test_the_child_run_of_a_handler_is_continued_by_its_own_retry_only() -> None:
    called = Handler((Command(action=CHILD, rules=retry(1)),), rerun=2)
    run = run_of(step("a", on_failure=called)).fail("a").child_ended("a.on_failure@1.0", "failed")
    run.child_ended("a.on_failure@1.0", child_run_id=2, round=2).fail("a")

    assert calls(run) == [
        fx.StartChild("a.on_failure@1.0", 1),
        fx.ContinueChild("a.on_failure@1.0", 2, 2, 2),
        fx.StartChild("a.on_failure@2.0", 1),
    ]


# -- stops and pauses ------------------------------------------------------------------------------------------------


def test_what_stops_or_pauses_a_parent_reaches_a_child_that_has_not_opened_its_round_yet() -> None:
    run = run_of(child()).child_ended("c", "failed").retry()

    run.pause().resume().cancel()

    told = [one for one in run.effects if isinstance(one, fx.PauseChildren | fx.ResumeChildren | fx.StopChild)]
    assert fx.PauseChildren((2,)) in told
    assert told[-2:] == [fx.ResumeChildren((2,)), fx.StopChild("c", 2, run_id=2)]


# -- the round of the child run --------------------------------------------------------------------------------------


def called_run(*steps: Any, **fields: Any) -> History:
    run = History(workflow(*steps, **fields))
    return run.report(r.RunRequested(T0, 2, parent_run_id=1, uid="u.c.1"))


def asked(run: History, attempt: int = 2, number: int = 2, **fields: Any) -> History:
    return run.report(r.RoundRequested(run.clock, attempt, number, "run 1", **fields))


def test_a_child_run_opens_the_round_once_and_keeps_what_it_has_done() -> None:
    run = called_run(step("a"), step("b", needs=["a"])).ok("a").fail("b")

    asked(asked(run))

    assert [(fact.round, fact.attempt, fact.put_back) for fact in run.facts(e.RunReopened)] == [(2, 2, ("b",))]
    assert (run.statuses, run.tasks) == ({"a": "completed", "b": "ready"}, {"b": 2})
    run.ok("b")
    end = child_end(run.state, "c", 1, run.clock)
    assert (end.attempt, end.round, end.status) == (2, 2, "completed")


@pytest.mark.parametrize(("attempt", "number"), [(2, 1), (3, 3)])
def test_a_round_that_does_not_follow_is_refused(attempt: int, number: int) -> None:
    run = called_run(step("b")).fail("b")

    with pytest.raises(Refused):
        asked(run, attempt, number)

    assert run.state.run.round == 1


def test_a_running_child_run_and_one_that_completed_refuse_a_round() -> None:
    run = called_run(step("b"))

    with pytest.raises(Refused):
        asked(run)
    run.ok("b")
    with pytest.raises(Refused):
        asked(run)


def test_a_child_run_opens_no_round_by_itself() -> None:
    run = called_run(step("b")).fail("b")

    with pytest.raises(Refused, match="child of run 1"):
        run.retry()

    assert run.state.run.round == 1


def test_what_a_person_asked_for_reaches_the_child_run() -> None:
    run = run_of(child()).child_ended("c", "failed")
    wanted = ChildRound("c", 2, 2, from_step="a", child=ChildRound("d", 3, 4))

    run.retry(child=wanted)

    (effect,) = [one for one in run.effects if isinstance(one, fx.ContinueChild)]
    request = round_request(run.state, effect, run.clock)
    assert request == r.RoundRequested(run.clock, 2, 2, "run 1", "attempt 2 of 'c'", asked=wanted)
    inner = called_run(step("a"), step("d", needs=["a"])).ok("a").fail("d")
    asked(inner, asked=ChildRound("c", 2, 2, from_step="a"))
    assert inner.facts(e.RunReopened)[0].put_back == ("a", "d")


def test_a_later_attempt_of_the_round_asks_for_what_failed_alone() -> None:
    run = run_of(child(rules=retry(1))).child_ended("c", "failed").child_ended("c", "failed")
    run.retry(child=ChildRound("c", 2, 3, from_step="a")).child_ended("c", "failed")

    requests = [round_request(run.state, one, run.clock) for one in calls(run) if isinstance(one, fx.ContinueChild)]

    assert [(one.round, one.asked and one.asked.from_step) for one in requests] == [(2, None), (3, "a"), (4, None)]


def test_an_adjusting_retry_reaches_the_child_runs_once() -> None:
    run = run_of(child(rules=retry(1))).child_ended("c", "failed").child_ended("c", "failed")
    run.retry(adjust=True)
    (_, _, first) = calls(run)
    assert isinstance(first, fx.ContinueChild)
    request = round_request(run.state, first, run.clock)
    run.child_ended("c", "failed")
    (*_, second) = calls(run)
    assert isinstance(second, fx.ContinueChild)

    assert request.asked == ChildRound("c", 2, 3, adjust=True)
    assert round_request(run.state, second, run.clock).asked is None
    inner = called_run(step("a", timeout=10.0)).fail("a", is_timed_out=True)
    assert asked(inner, asked=ChildRound("c", 2, 2, adjust=True)).facts(e.RunReopened)[0].adjusts


def test_a_person_can_ask_for_a_new_child_run_at_one_place_alone() -> None:
    run = run_of(child("c"), child("d")).child_ended("c", "failed").child_ended("d", "failed", child_run_id=3)

    run.retry(child=ChildRound("d", 3, 2, from_start=True))

    assert calls(run)[2:] == [fx.ContinueChild("c", 2, 2, 2), fx.StartChild("d", 2)]


@pytest.mark.parametrize("wanted", [ChildRound("c", 9, 2), ChildRound("x", 2, 2), ChildRound("ok", 3, 2)])
def test_a_child_run_that_the_round_does_not_continue_is_refused(wanted: ChildRound) -> None:
    allowed = child("ok", continue_on_error=True)
    run = run_of(child(), allowed).child_ended("c", "failed").child_ended("ok", "failed", child_run_id=3)

    with pytest.raises(NothingToRetry):
        run.retry(child=wanted)

    assert run.state.run.round == 1


def test_a_step_of_a_child_that_will_start_anew_cannot_be_asked_for() -> None:
    run = run_of(step("a"), child(needs=["a"])).ok("a").child_ended("c", "failed")

    with pytest.raises(Refused, match="'a' may run again before it"):
        run.retry("a", child=ChildRound("c", 2, 2, from_step="x"))


def test_a_plan_says_what_becomes_of_each_child_run() -> None:
    run = run_of(step("a"), child("c", needs=["a"]), child("d")).ok("a")
    run.child_ended("c", "failed", child_run_id=2).child_ended("d", "failed", child_run_id=3)

    found = list(planned_children(run.state, r.RetryRequested(run.clock, "me"), ("a", "c", "d")))

    assert found == [PlannedChild("c", 2, 2, "'a' may run again before it"), PlannedChild("d", 3, 2)]


# -- what agents spend -----------------------------------------------------------------------------------------------


def test_each_round_reports_what_it_has_spent_itself() -> None:
    run = called_run(child("x"), step("b", needs=["x"])).child_ended("x", usage={"calls": 3, "cost": "0.5"}).fail("b")
    before = child_end(run.state, "c", 1, run.clock)

    asked(run, budget=Budget(calls=2)).ok("b")

    assert (before.usage, child_end(run.state, "c", 1, run.clock).usage) == ({"calls": 3, "cost": "0.5"}, {})
    assert (run.state.run.spent, run.state.run.callers_budget) == (Spent(3, cost=Decimal("0.5")), Budget(calls=5))


# -- replays and forks -----------------------------------------------------------------------------------------------


def test_a_replay_of_the_log_gives_the_same_state() -> None:
    run = run_of(child(rules=retry(1))).child_ended("c", "failed").child_ended("c", "failed").retry()

    assert fold(run.state.workflow, run.log) == run.state


def test_a_fork_continues_no_child_run_of_the_other_run() -> None:
    run = run_of(child(rules=retry(1, delay=60))).child_ended("c", "failed")

    seq = run.log[-1].seq
    fork = History(run.state.workflow).report(
        r.RunRequested(run.clock, 3, uid="f", forked_from=1, forked_at=seq, history=pack_history(run.log))
    )
    fork.wait(60)

    assert calls(fork)[-1:] == [fx.StartChild("c", 2)]


# -- what a round was asked for holds for child runs -------------------------------------------------------------------


def test_with_kept_results_a_child_run_goes_on_although_a_step_before_it_ran_again() -> None:
    run = run_of(step("a"), child(needs=["a"])).ok("a").child_ended("c", "failed")

    run.retry("a", keep_completed=True).ok("a")

    assert calls(run)[-1] == fx.ContinueChild("c", 2, 2, 2)
    assert [one.why_new for one in planned_children(run.state, asking(keep_completed=True), ("a", "c"))] == [""]


@pytest.mark.parametrize("asked", [{"keep_completed": True}, {"force": True}], ids=["kept", "forced"])
def test_what_is_asked_of_a_round_is_asked_of_its_child_runs(asked: dict[str, bool]) -> None:
    run = run_of(child()).child_ended("c", "failed")

    run.retry(**asked)

    effect = calls(run)[-1]
    assert isinstance(effect, fx.ContinueChild)
    request = round_request(run.state, effect, T0)
    assert {"keep_completed": request.keep_completed, "force": request.force} == {
        **{"keep_completed": False, "force": False},
        **asked,
    }


def asking(**fields: Any) -> r.RetryRequested:
    return r.RetryRequested(T0, "someone", **fields)


def test_a_corrected_round_is_refused_before_its_first_fact() -> None:
    run = run_of(step("a"), step("b", needs=["a"])).ok("a").fail("b")
    data = encode(workflow(step("a"), step("b", needs=["a"], timeout=5.0)))
    report = asking(revised=r.Revised(version(data), plain_from_json(data), {}), from_start=True)

    # An engine has no way to take back a fact that was followed.
    with pytest.raises(NothingToRetry):
        next(follow(run.state, report, run.evaluator))


# -- a child run that could not undo all that it did -----------------------------------------------------------------


def test_a_decision_to_try_it_again_reaches_the_child_run() -> None:
    run = run_of(child(triage=Triage())).child_ended("c", "failed", undo_failed=("a",)).classify("c", "retry")

    effect = calls(run)[-1]
    assert isinstance(effect, fx.ContinueChild)
    request = round_request(run.state, effect, run.clock)
    assert (request.force, request.is_decided) == (False, True)


def test_the_child_run_then_runs_again_what_it_could_not_undo_only_if_it_has_to() -> None:
    undo = command("undo")
    before = called_run(step("a", undo=undo), step("b", undo=undo, needs=["a"]), step("c", needs=["b"]))
    before.ok("a", "b").fail("c").fail("b.undo@1").ok("a.undo@1")
    first = called_run(step("b", undo=undo), step("c", needs=["b"])).ok("b").fail("c").fail("b.undo@1")

    with pytest.raises(UndoFailed):
        asked(before)
    asked(before, is_decided=True)
    asked(first, is_decided=True)

    assert [fact.is_forced for run in (before, first) for fact in run.facts(e.RunReopened)] == [True, False]
    assert (before.queued, first.queued) == (["a"], ["c"])


def test_a_refusal_names_the_command_for_the_same_round_by_force() -> None:
    run = run_of(child()).child_ended("c", "failed", undo_failed=("a",))

    hints = []
    for options in ({"from_step": "c", "keep_completed": True}, {"child": ChildRound("c", 2, 2, from_step="b")}):
        with pytest.raises(UndoFailed) as refused:
            run.retry(**options)
        hints.append(refused.value.hint.partition("anyway: ")[2])
    assert hints == ["mulligan retry 1 --from c --keep-completed --force", "mulligan retry 2 --from b --force"]

"""What a report means for a run in its current state: facts, a refusal with a reason, or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.effects import effects as fx
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.event_types import Adjusted
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import Action, Command, Handler, Map, Resources, Triage
from mulligan.errors import MulliganError, Refused
from mulligan.testing.history import History, command, edge, expression, handler, retry, step, workflow

CHILD = Action("workflow", {"file": "child.yaml"})
APPROVE = Action("approve", {"message": "go on?", "timeout": 60})
MIB = 1024 * 1024


def run_of(*steps: Any, **fields: Any) -> History:
    answers = fields.pop("answers", None)
    return History(workflow(*steps, **fields), answers).start()


def refusal(run: History, report: r.Report) -> str:
    """The whole of what is said, and that nothing has changed."""
    count = len(run.log)
    with pytest.raises(MulliganError) as caught:
        run.report(report)
    assert len(run.log) == count
    return caught.value.render()


def fired(run: History, kind: Any, place: str = "", number: int = 0) -> list[e.Fact]:
    """What follows when a timer fires now."""
    return run.report(r.TimerFired(run.clock, kind, place, number)).follows


# -- the run ---------------------------------------------------------------------------------------------------------


def test_a_run_starts_once() -> None:
    run = run_of(step("a"))

    with pytest.raises(Refused) as caught:
        run.start()

    assert caught.value.render() == "error[refused]: run 1 has already started"


def test_now_said_twice_is_heard_once() -> None:
    run = run_of(step("a")).started("a").cancel(now=True)

    run.cancel(now=True)

    assert run.follows == []


def test_a_run_whose_time_is_up_says_so_and_when() -> None:
    run = run_of(step("a"), timeout=60).started("a").wait(60)

    stopping = run.facts(e.RunStopping)[0]
    assert (stopping.cause, stopping.reason) == ("timed_out", "the run took longer than its timeout")
    assert (stopping.failure.code, stopping.failure.at) == ("RUN_TIMEOUT", run.clock)


# -- what runs -------------------------------------------------------------------------------------------------------


def late(run: History, place: str) -> str:
    """Why a second end of an attempt is not believed."""
    run.report(r.TaskEnded(run.clock, place, run[place].attempt))
    refused = run.follows[0]
    assert isinstance(refused, e.ReportRefused) and len(run.follows) == 1
    return refused.reason


def test_a_step_that_does_what_follows_its_success_has_ended() -> None:
    run = run_of(step("a", on_success=(command("tell"),))).ok("a")

    assert (run["a"].phase, late(run, "a")) == ("finishing", "already_ended")


def test_nobody_but_its_items_can_end_a_map() -> None:
    run = run_of(step("m", map=Map(over=expression("list")), do=(command("one"),)), answers={"list": [1]})

    assert (run["m"].status, late(run, "m")) == ("running", "already_ended")


def test_what_belongs_to_an_attempt_and_begins_elsewhere_says_where_it_should_have() -> None:
    run = run_of(step("a", on_failure=handler("fix"))).started("a", host="h1").fail("a")

    run.started("a.on_failure@1.0", host="h2")

    assert run.follows[0] == e.AttemptStarted("a.on_failure@1.0", 1, "w1", "h2", instead_of="h1")


@pytest.mark.parametrize("host", ["h1", ""])
def test_what_begins_where_it_should_says_nothing_of_it(host: str) -> None:
    run = run_of(step("a", on_failure=handler("fix"))).started("a", host="h1").fail("a")

    run.started("a.on_failure@1.0", host=host)

    assert run.follows[0] == e.AttemptStarted("a.on_failure@1.0", 1, "w1", host, instead_of="")


def test_a_task_that_was_made_to_end_by_nobody_here_and_ended_well_has_ended_well() -> None:
    run = run_of(step("a")).started("a")

    run.report(r.TaskEnded(run.clock, "a", 1, Outcome(is_stopped=True), output=7))

    assert (run.status, run["a"].output) == ("completed", 7)


# -- what it used ----------------------------------------------------------------------------------------------------


def ended(run: History, outcome: Outcome, **usage: Any) -> History:
    return run.report(r.TaskEnded(run.clock, "a", run["a"].attempt, outcome, usage=usage))


@pytest.mark.parametrize(
    ("outcome", "details"),
    [
        (Outcome(is_out_of_memory=True, signal=9), {"peak_memory": 7, "memory": 64 * MIB}),
        (Outcome(is_timed_out=True), {"peak_memory": 7, "limit": "timeout", "timeout": 30.0}),
        (Outcome(is_timed_out=True, is_past_deadline=True), {"peak_memory": 7, "limit": "deadline"}),
        (Outcome(reported=({"code": "TIMEOUT"},)), {"peak_memory": 7, "limit": "own"}),
        (
            Outcome(reported=({"code": "TIMEOUT", "details": {"limit": "read_timeout", "limit_seconds": 1.0}},)),
            {"peak_memory": 7, "limit": "read_timeout", "limit_seconds": 1.0},
        ),
        (Outcome(exit_code=1), {"peak_memory": 7}),
    ],
    ids=["memory", "time", "deadline", "reported", "named", "neither"],
)
def test_a_failure_says_what_was_used_and_of_what_ran_out_how_much_there_was(outcome: Outcome, details: Any) -> None:
    run = run_of(step("a", resources=Resources(memory=64 * MIB), timeout=30.0))

    ended(run, outcome, peak_memory=7, cpu_seconds=3.0)

    assert run["a"].failure.details == details


@pytest.mark.parametrize("outcome", [Outcome(is_out_of_memory=True), Outcome(is_timed_out=True)])
def test_where_nothing_was_said_about_it_a_failure_says_nothing_either(outcome: Outcome) -> None:
    assert ended(run_of(step("a")), outcome)["a"].failure.details == {}


@pytest.mark.parametrize(
    ("memory", "used", "warnings"),
    [
        (64 * MIB, 65 * MIB, ["used 65MiB of memory, more than the 64MiB it asks for"]),
        (64 * MIB, 64 * MIB, []),
        # Nothing was asked for, nothing was measured, or what was measured is no number.
        (None, 65 * MIB, []),
        (64 * MIB, None, []),
        (64 * MIB, "much", []),
    ],
)
def test_whoever_had_more_memory_than_it_asked_for_and_got_away_with_it_is_warned(
    memory: Any, used: Any, warnings: list[str]
) -> None:
    run = ended(run_of(step("a", resources=Resources(cpus=1, memory=memory))), Outcome(), peak_memory=used)

    assert (run.status, [warning.message for warning in run["a"].warnings]) == ("completed", warnings)


def test_what_a_person_gave_it_is_what_it_may_use() -> None:
    run = run_of(step("a", triage=Triage())).fail("a").classify("a", "retry", memory=64 * MIB)

    ended(run, Outcome(), peak_memory=65 * MIB)

    assert [warning.message for warning in run["a"].warnings] == [
        "used 65MiB of memory, more than the 64MiB it asks for"
    ]


# -- child runs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "details"), [({"timeout": 60.0}, {"limit": "timeout", "timeout": 60.0}), ({"deadline": 60.0}, {})]
)
def test_a_child_run_that_timed_out_says_how_much_time_it_had(limits: Any, details: Any) -> None:
    run = run_of(step("a", action=CHILD, **limits)).wait(60).child_ended("a", "cancelled")

    assert run["a"].failure.details == details


def test_the_child_runs_of_a_map_whose_time_is_up_have_not_failed() -> None:
    run = run_of(
        step("m", map=Map(over=expression("list")), do=(Command(action=CHILD),), deadline=60.0), answers={"list": [1]}
    )

    run.wait(60)
    assert [(fact.place, fact.reason) for fact in run.facts(e.AttemptStopping)] == [
        ("m", "deadline"),
        ("m[0].0", "stopping"),
    ]
    run.child_ended("m[0].0", "cancelled")

    assert [(fact.place, fact.attempt) for fact in run.facts(e.AttemptCancelled)] == [("m[0].0", 1)]
    assert run["m"].failure.code == "TIMEOUT"


def test_a_child_run_that_a_handler_had_no_time_for_has_not_failed() -> None:
    run = run_of(step("a", on_failure=Handler((Command(action=CHILD),), timeout=5.0))).fail("a").wait(5)

    run.child_ended("a.on_failure@1.0", "cancelled")

    assert [(fact.place, fact.attempt) for fact in run.facts(e.AttemptCancelled)] == [("a.on_failure@1.0", 1)]


# -- people ----------------------------------------------------------------------------------------------------------


def parked() -> History:
    return run_of(step("a", triage=Triage(), next=[edge("b", "always")]), step("b")).fail("a")


def classified(run: History, step_name: str = "a", **fields: Any) -> r.Classified:
    return r.Classified(run.clock, step_name, "retry", "ada", **{"reason": "seen before", **fields})


def test_a_step_that_never_was_parked_cannot_be_classified() -> None:
    run = run_of(step("a"))

    said = refusal(run, classified(run))

    assert said == "error[step.not_parked]: step 'a' is ready, so there is nothing to classify"


@pytest.mark.parametrize(("by", "author"), [("ada", " by ada"), ("", "")])
def test_a_second_classification_is_refused_with_the_first_as_the_hint(by: str, author: str) -> None:
    run = parked()
    run.report(r.Classified(run.clock, "a", "retry", by, reason="a flaky disk"))

    assert refusal(run, classified(run)) == (
        "error[step.not_parked]: step 'a' is ready, so there is nothing to classify\n"
        f"  already classified as retry{author}: a flaky disk"
    )


def test_a_decision_about_an_attempt_that_is_not_parked_any_more_is_refused() -> None:
    run = parked()
    run.report(classified(run, attempt=1)).fail("a")

    assert refusal(run, classified(run, attempt=1)) == (
        "error[step.other_attempt]: the decision is about attempt 1 of step 'a', which is parked after attempt 2\n"
        "  already classified as retry by ada: seen before"
    )
    assert run.report(classified(run, attempt=2))["a"].status == "ready"


def test_whoever_classifies_an_approval_is_told_how_to_answer_it() -> None:
    run = run_of(step("a", action=APPROVE))

    assert refusal(run, classified(run)) == (
        "error[step.not_parked]: step 'a' is running, so there is nothing to classify\n"
        "  the step waits for an approval: mulligan approve 1 a --reason TEXT"
    )


@pytest.mark.parametrize("report", [r.Classified, r.ApprovalGiven])
def test_a_refusal_names_the_step_for_whoever_does_not_read_sentences(report: Any) -> None:
    run = run_of(step("a"))
    told = classified(run) if report is r.Classified else r.ApprovalGiven(run.clock, "a", True, "ada", "fine")

    with pytest.raises(MulliganError) as caught:
        run.report(told)

    assert caught.value.data == {"step": "a"}


def test_the_next_attempt_may_get_very_little_and_keeps_what_it_was_given_before() -> None:
    run = run_of(step("a", triage=Triage(when="always"), rules=retry(0))).fail("a")

    run.report(classified(run, timeout=0.5)).fail("a")
    assert run.facts(e.StepClassified)[-1].adjusted == Adjusted(timeout=0.5)
    run.report(classified(run, memory=1))

    assert run.facts(e.StepClassified)[-1].adjusted == Adjusted(memory=1, timeout=0.5)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"memory": 0}, "error[input.invalid]: memory must be greater than 0, not 0"),
        ({"timeout": -0.5}, "error[input.invalid]: timeout must be greater than 0, not -0.5"),
    ],
)
def test_nothing_is_no_allowance(fields: Any, said: str) -> None:
    run = parked()

    assert refusal(run, classified(run, **fields)) == said


def approval(run: History, place: str) -> r.ApprovalGiven:
    return r.ApprovalGiven(run.clock, place, True, "ada", "fine")


def test_an_approval_is_the_output_of_its_step() -> None:
    run = run_of(step("a", action=APPROVE))

    run.report(approval(run, "a"))

    assert run["a"].output == {"approved": True, "by": "ada", "reason": "fine"}


def test_an_approval_that_is_refused_is_a_failure_that_says_why_and_by_whom() -> None:
    run = run_of(step("a", action=APPROVE))

    run.report(r.ApprovalGiven(run.clock, "a", False, "ada", "not on a friday"))

    failure = run["a"].failure
    assert (failure.code, failure.message, failure.details) == ("APPROVAL_REFUSED", "not on a friday", {"by": "ada"})
    assert run.status == "failed"


@pytest.mark.parametrize("reason", ["", "  \n"])
@pytest.mark.parametrize("is_approved", [True, False])
def test_an_approval_needs_a_reason(reason: str, is_approved: bool) -> None:
    run = run_of(step("a", action=APPROVE))

    said = refusal(run, r.ApprovalGiven(run.clock, "a", is_approved, "ada", reason))

    assert said == "error[input.invalid]: an approval needs a reason\n  say why: --reason TEXT"


@pytest.mark.parametrize(
    ("run", "place"),
    [
        (run_of(step("a")).started("a"), "a"),
        (run_of(step("a")), "nobody"),
        (run_of(step("m", map=Map(over=expression("list")), do=(command("one"),)), answers={"list": [1]}), "m"),
        # Answered, and its success is told to somebody; answered, and over.
        (run_of(step("a", action=APPROVE, on_success=(command("tell"),))).approve("a"), "a"),
        (run_of(step("a", action=APPROVE), step("b")).approve("a"), "a"),
        # Not asked yet.
        (run_of(step("b"), step("a", needs=["b"], action=APPROVE)), "a"),
    ],
    ids=["a command", "no place", "a map", "answered", "over", "not asked"],
)
def test_what_asks_nobody_cannot_be_approved(run: History, place: str) -> None:
    said = f"error[step.not_waiting]: '{place}' does not wait for an approval"

    assert refusal(run, approval(run, place)) == said


def test_whoever_approves_what_is_parked_is_told_how_to_classify_it() -> None:
    run = parked()

    assert refusal(run, approval(run, "a")) == (
        "error[step.not_waiting]: 'a' does not wait for an approval\n"
        "  the step is parked: mulligan classify 1 a retry|fail --reason TEXT"
    )


# -- timers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "timer"),
    [
        # Early.
        (run_of(step("a", rules=retry(1, delay=30))).fail("a"), ("retry", "a", 2)),
        (run_of(step("a", action=APPROVE)), ("attempt", "a", 1)),
        (run_of(step("a", action=APPROVE, deadline=30)), ("deadline", "a", 1)),
        (run_of(step("a"), timeout=30), ("run", "", 1)),
        # Of another attempt, visit or round.
        (run_of(step("a", rules=retry(2, delay=30))).fail("a").wait(29), ("retry", "a", 1)),
        # Of nobody.
        (run_of(step("a")), ("retry", "nobody", 1)),
        (run_of(step("a")), ("loop", "a", 0)),
    ],
    ids=["retry", "attempt", "deadline", "run", "another attempt", "nobody", "loop"],
)
def test_a_timer_that_is_early_or_anothers_is_nothing(run: History, timer: Any) -> None:
    assert fired(run, *timer) == []


@pytest.mark.parametrize(
    ("kind", "place", "number", "run"),
    [
        ("retry", "a", 3, run_of(step("a", rules=retry(5, delay=30))).fail("a")),
        ("attempt", "a", 2, run_of(step("a", action=APPROVE))),
        ("run", "", 2, run_of(step("a"), timeout=30)),
    ],
    ids=["attempt", "approval", "round"],
)
def test_a_timer_with_anothers_number_is_nothing_however_late(kind: str, place: str, number: int, run: History) -> None:
    run.timers.clear()
    run.wait(600)

    assert fired(run, kind, place, number) == []


def test_the_time_of_a_run_that_stops_already_is_nothing_to_it() -> None:
    run = run_of(step("a"), timeout=30).started("a").cancel()
    run.timers.clear()
    run.wait(60)

    assert fired(run, "run", "", 1) == []


@pytest.mark.parametrize("kind", ["attempt", "deadline"])
def test_the_time_of_a_child_run_is_up_once(kind: str) -> None:
    run = run_of(step("a", action=CHILD, timeout=30, deadline=30)).wait(30)
    assert run.facts(e.AttemptStopping) == [e.AttemptStopping("a", 1, "timeout")]

    assert fired(run, kind, "a", 1) == []


@pytest.mark.parametrize("default", ["approve", "reject", None])
def test_an_approval_that_nobody_gave_is_what_it_says_it_is_then(default: str | None) -> None:
    asked = Action("approve", {"message": "go on?", "timeout": 60, "default": default})
    run = run_of(step("a", action=asked)).wait(60)

    if default == "approve":
        assert run["a"].output == {"approved": True, "by": "timeout", "reason": "no answer before the timeout"}
    else:
        failure = run["a"].failure
        assert (failure.code, failure.message) == ("APPROVAL_EXPIRED", "no answer before the timeout")


def test_a_map_whose_time_is_up_has_its_items_end_and_fails() -> None:
    run = run_of(
        step("m", map=Map(over=expression("list"), max_parallel=1), do=(command("one"),), deadline=60.0),
        answers={"list": [1, 2]},
    ).started("m[0].0")

    run.wait(60)
    assert run.effects[-1] == fx.StopTask("m[0].0", 1, 10.0)
    run.fail("m[0].0", signal=15)

    assert (run["m"].failure.code, run.status) == ("TIMEOUT", "failed")
    assert run["m"].failure.message == "the map took longer than its deadline"

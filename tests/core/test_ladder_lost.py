"""Lost workers, interruptions, and late or duplicate reports."""

from __future__ import annotations

import pytest

from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.clusters.scheduler_job import JobEnd, WorkerJob
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import Handler, Map, Rule, Triage
from mulligan.testing.history import History, command, edge, expression, handler, retry, step, workflow


def run_of(**fields: object) -> History:
    return History(workflow(step("a", **fields))).start()


@pytest.fixture
def lost_job() -> JobEnd:
    return JobEnd(WorkerJob("17", "n3", profile="long"), "NODE_FAIL")


def lose(run: History, key: str, times: int) -> History:
    for _ in range(times):
        run.lose(key)
    return run


# -- reruns ----------------------------------------------------------------------------------------------------------


def test_a_lost_worker_is_no_failure_and_the_task_runs_again_at_once():
    run = run_of().started("a").lose("a")

    assert run.follows == [e.AttemptLost("a", 1, "w1"), e.AttemptScheduled("a", 2, "lost")]
    assert (run["a"].status, run["a"].failure, run.queued) == ("ready", None, ["a"])


def test_three_reruns_spend_no_retry():
    run = lose(run_of(rules=retry(1)), "a", 3)

    run.fail("a").ok("a")

    assert run.status == "completed"
    assert [(fact.attempt, fact.number) for fact in run.facts(e.RetryScheduled)] == [(5, 1)]


def test_three_reruns_do_not_count_as_attempts_of_max_attempts():
    run = lose(run_of(rules=retry(1), max_attempts=2), "a", 3)

    assert run.fail("a").queued == ["a"]


def test_the_fourth_loss_is_a_failure_and_climbs():
    run = lose(run_of(), "a", 4)

    found = run["a"].failure
    assert run.status == "failed"
    assert found is not None
    assert (found.code, found.message, found.attempt) == ("WORKER_LOST", "the worker running it was lost (w1)", 4)
    assert run.passed == [("retry", "reruns_exhausted"), ("retry", "no_rule"), ("route", "no_route")]


def test_the_failure_of_a_task_that_lost_its_worker_names_the_job(lost_job: JobEnd):
    run = run_of(on_lost="fail").lose("a", lost_job)

    found = run["a"].failure
    assert run.facts(e.AttemptLost) == [e.AttemptLost("a", 1, "w1", lost_job)]
    assert found is not None
    assert found.details == {"slurm": {"job_id": "17", "node": "n3", "profile": "long", "state": "NODE_FAIL"}}


def test_the_failure_of_a_task_names_the_job_in_which_it_ran():
    run = run_of()
    said = {"code": "EXCEPTION", "details": {"slurm": "mine", "more": 1}}

    outcome = Outcome(1, reported=(said,))
    run.report(r.TaskEnded(run.clock, "a", 1, outcome, job=WorkerJob("17", "n3", array_id="17", array_task=0)))

    found = run["a"].failure
    assert found is not None
    assert found.details == {"slurm": {"job_id": "17", "array_id": "17", "array_task": 0, "node": "n3"}, "more": 1}


def test_the_fourth_loss_may_be_retried_by_a_catch_all():
    run = lose(run_of(rules=retry(1)), "a", 4)

    assert run.queued == ["a"]
    assert run.ok("a").status == "completed"


def test_after_the_reruns_each_further_loss_is_a_failure():
    run = lose(run_of(rules=retry(1)), "a", 5)

    assert run.status == "failed"
    assert len(run.facts(e.RetryScheduled)) == 1


def test_the_fourth_loss_reaches_the_handler():
    run = lose(run_of(on_failure=handler("fix")), "a", 4)

    assert run.queued == ["a.on_failure@4.0"]
    assert run.ok("a.on_failure@4.0").status == "completed"


def test_the_fourth_loss_may_be_parked():
    run = lose(run_of(triage=Triage()), "a", 4)

    assert run["a"].status == "pending_failed"


def test_the_fourth_loss_may_be_routed_by_its_code():
    flow = workflow(
        step(
            "a",
            next=[edge("other", on="failure", codes=("TIMEOUT",)), edge("fix", on="failure", codes=("WORKER_LOST",))],
        ),
        step("other"),
        step("fix"),
    )

    run = lose(History(flow).start(), "a", 4)

    assert run.queued == ["fix"]


def test_losses_are_counted_per_visit():
    flow = workflow(step("a", next=[edge("fix", on="failure", then="rerun")]), step("fix"))

    run = lose(lose(History(flow).start(), "a", 4).ok("fix"), "a", 3)

    assert run.queued == ["a"]


def test_losses_are_counted_per_item():
    do = (command("check"),)
    flow = workflow(step("m", map=Map(over=expression("list")), do=do))

    run = History(flow, {"list": [1, 2]}).start()
    lose(lose(run, "m[0].0", 3), "m[1].0", 3)

    assert run.queued == ["m[0].0", "m[1].0"]
    assert run.ok("m[0].0", "m[1].0").status == "completed"


def test_losses_are_counted_per_command():
    run = run_of(on_failure=handler("one", "two")).fail("a")

    lose(run, "a.on_failure@1.0", 3).ok("a.on_failure@1.0")
    lose(run, "a.on_failure@1.1", 3).ok("a.on_failure@1.1")

    assert run.status == "completed"


def test_a_handler_command_that_is_lost_four_times_has_failed():
    run = lose(run_of(on_failure=handler("fix")).fail("a"), "a.on_failure@1.0", 4)

    found = run["a"].failure
    assert found is not None and found.handler_failure is not None
    assert (found.code, found.handler_failure.cause[0].code) == ("EXIT_NONZERO", "WORKER_LOST")


def test_a_worker_that_nobody_knows_by_name_is_gone_all_the_same():
    run = run_of(on_lost="fail").report(r.LeaseExpired(run_of().clock, "a", 1))

    assert run["a"].failure is not None
    assert run["a"].failure.message == "the worker running it was lost"


def test_below_a_handler_whose_time_is_up_nothing_that_is_lost_or_interrupted_runs_again():
    fixing = command("fix", on_failure=handler("tidy", strategy="cleanup"))
    tidying = "a.on_failure@1.0.on_failure@1.0"

    lost = run_of(on_failure=Handler((fixing,), timeout=10.0)).fail("a").fail("a.on_failure@1.0").wait(10).lose(tidying)
    cut_off = run_of(on_failure=Handler((fixing,), timeout=10.0)).fail("a").fail("a.on_failure@1.0").wait(10)
    cut_off.interrupt(tidying)

    assert (lost.status, lost.queued) == ("failed", [])
    assert (cut_off.status, cut_off.queued) == ("failed", [])
    assert e.AttemptCancelled(tidying, 1) in lost.follows
    assert e.AttemptCancelled(tidying, 1) in cut_off.follows


@pytest.mark.parametrize("how", ["lose", "interrupt"])
def test_what_was_asked_to_end_does_not_run_again_because_its_worker_is_gone(how):
    run = run_of().started("a").cancel()

    getattr(run, how)("a")

    assert run.statuses == {"a": "cancelled"}
    assert run.status == "cancelled"


def test_an_interruption_says_so_where_it_runs_again():
    run = run_of().interrupt("a")

    assert run.follows == [e.AttemptInterrupted("a", 1), e.AttemptScheduled("a", 2, "interrupted")]


# -- climbing at once ------------------------------------------------------------------------------------------------


def test_on_lost_fail_climbs_at_once():
    run = run_of(on_lost="fail").lose("a")

    assert run.status == "failed"
    assert run.passed == [("retry", "no_rule"), ("route", "no_route")]


def test_on_lost_fail_never_speaks_of_reruns():
    run = lose(run_of(on_lost="fail", rules=retry(9)), "a", 6)

    assert run.queued == ["a"]
    assert run.passed == []


def test_a_rule_that_names_a_lost_worker_climbs_at_once_and_spends_its_budget():
    run = run_of(rules=(Rule(codes=("WORKER_LOST",), max_retries=1),)).lose("a")

    assert [fact.number for fact in run.facts(e.RetryScheduled)] == [1]
    assert run.lose("a").status == "failed"
    assert run.passed == [("retry", "retries_exhausted"), ("route", "no_route")]


def test_a_catch_all_rule_does_not_name_a_lost_worker():
    run = run_of(rules=retry(1)).lose("a")

    assert run.facts(e.RetryScheduled) == []


# -- interruptions ---------------------------------------------------------------------------------------------------


def test_an_interruption_spends_and_counts_nothing():
    run = run_of(rules=retry(1), max_attempts=2)

    for _ in range(20):
        run.interrupt("a")
    run.fail("a").ok("a")

    assert run.status == "completed"
    assert [fact.number for fact in run.facts(e.RetryScheduled)] == [1]
    assert run.facts(e.AttemptFailed)[0].failure.code == "EXIT_NONZERO"


def test_an_interruption_is_no_loss():
    run = run_of()

    for _ in range(5):
        run.interrupt("a")
    lose(run, "a", 3)

    assert run.queued == ["a"]


def test_an_interrupted_script_and_handler_run_again():
    rule = Rule(exit_codes=(1,), max_retries=1, recovery_script=command("clear"))
    run = run_of(rules=(rule,), on_failure=handler("fix"))

    run.fail("a").interrupt("a.script@1").ok("a.script@1").fail("a", 2).interrupt("a.on_failure@2.0")

    assert run.queued == ["a.on_failure@2.0"]
    assert run.ok("a.on_failure@2.0").status == "completed"


# -- late and double reports -----------------------------------------------------------------------------------------

LATE = [
    r.TaskStarted,
    r.TaskEnded,
    r.LeaseExpired,
    r.TaskInterrupted,
]


def refused(run: History, report: r.Report) -> list[e.Fact]:
    """What follows from a report that must change nothing but the log."""
    before = {key: str(place) for key, place in run.state.places.items()}
    run.report(report)
    assert {key: str(place) for key, place in run.state.places.items()} == before
    return run.follows


@pytest.mark.parametrize("kind", LATE)
def test_a_report_about_an_attempt_that_was_given_up_is_refused(kind):
    run = run_of().lose("a")

    assert refused(run, kind(run.clock, "a", 1)) == [e.ReportRefused("a", 1, "stale_attempt")]


@pytest.mark.parametrize("kind", LATE)
def test_a_report_about_an_attempt_that_is_not_there_yet_is_refused(kind):
    run = run_of()

    assert refused(run, kind(run.clock, "a", 2)) == [e.ReportRefused("a", 2, "stale_attempt")]


@pytest.mark.parametrize("kind", LATE)
def test_a_report_about_an_attempt_whose_retry_is_reserved_is_refused(kind):
    run = run_of(rules=retry(1, delay=10)).fail("a")

    assert refused(run, kind(run.clock, "a", 1)) == [e.ReportRefused("a", 1, "already_ended")]


@pytest.mark.parametrize("kind", LATE)
def test_a_report_about_a_step_whose_handler_runs_is_refused(kind):
    run = run_of(on_failure=handler("fix")).fail("a")

    assert refused(run, kind(run.clock, "a", 1)) == [e.ReportRefused("a", 1, "already_ended")]


@pytest.mark.parametrize("kind", LATE)
def test_a_report_about_a_parked_step_is_refused(kind):
    run = run_of(triage=Triage()).fail("a")

    assert refused(run, kind(run.clock, "a", 1)) == [e.ReportRefused("a", 1, "already_ended")]


@pytest.mark.parametrize("kind", LATE)
def test_a_report_about_a_result_that_is_being_checked_is_refused(kind):
    run = run_of(validator=command("check")).ok("a")

    assert refused(run, kind(run.clock, "a", 1)) == [e.ReportRefused("a", 1, "already_ended")]


@pytest.mark.parametrize("kind", LATE)
def test_a_report_about_a_command_that_has_ended_is_refused(kind):
    run = run_of(on_failure=handler("one", "two")).fail("a").ok("a.on_failure@1.0")

    answer = refused(run, kind(run.clock, "a.on_failure@1.0", 1))

    assert answer == [e.ReportRefused("a.on_failure@1.0", 1, "unknown_place")]


@pytest.mark.parametrize("kind", LATE)
def test_a_report_that_comes_after_the_end_of_the_run_is_refused(kind):
    run = run_of().ok("a")

    assert refused(run, kind(run.clock, "a", 1)) == [e.ReportRefused("a", 1, "run_ended")]
    assert run.status == "completed"


def test_a_task_that_is_said_to_start_twice_starts_once():
    run = run_of().started("a")

    assert refused(run, r.TaskStarted(run.clock, "a", 1, "w2", "h2")) == [e.ReportRefused("a", 1, "already_started")]
    assert run["a"].worker == "w1"


def test_a_result_that_is_reported_twice_is_accepted_once():
    flow = workflow(step("a"), step("b", needs=["a"]))
    run = History(flow).start().ok("a", output="first")

    answer = refused(run, r.TaskEnded(run.clock, "a", 1, output="second"))

    assert answer == [e.ReportRefused("a", 1, "already_ended")]
    assert run["a"].output == "first"


def test_a_result_that_comes_without_word_of_its_start_is_accepted():
    run = run_of().report(r.TaskEnded(run_of().clock, "a", 1, Outcome(0), output="x"))

    assert run["a"].output == "x"

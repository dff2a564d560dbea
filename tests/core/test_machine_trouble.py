"""A machine that fails an attempt: it runs again without spending a retry, and not for ever."""

from __future__ import annotations

from mulligan.core.deciding.workers.breaker import Guard, breaker_verdict
from mulligan.core.model import events as e
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded
from mulligan.core.model.workflow import RERUNS_AFTER_LOSS_MAX, Breaker, Rule
from mulligan.history.story import story
from mulligan.testing.history import T0, History, step, workflow

FULL = "the disk of '/srv' is full"
OUTCOME = Outcome(exit_code=1, stderr_tail="cannot write", machine=FULL, is_machine_broken=True)


def begun(**spec: object) -> History:
    return History(workflow(step("a", rules=(Rule(any=True, max_retries=1),), **spec))).start()


def ended(run: History, times: int = 1) -> list[e.Fact]:
    for _ in range(times):
        run.report(TaskEnded(T0, "a", run["a"].attempt, OUTCOME))
    return [entry.fact for entry in run.log]


def test_an_attempt_that_its_machine_failed_runs_again_and_spends_no_retry() -> None:
    run = begun()

    facts = ended(run)

    (lost,) = [fact for fact in facts if isinstance(fact, e.AttemptLost)]
    assert lost.machine == FULL
    assert (run["a"].attempt, run["a"].climb.tries) == (2, 0)
    assert not any(isinstance(fact, e.RetryScheduled | e.AttemptFailed) for fact in facts)
    assert any(FULL in line.text for line in story(run.log))


def test_a_step_that_fills_the_disk_itself_fails_in_the_end_with_the_cause_in_its_message() -> None:
    run = begun()

    facts = ended(run, RERUNS_AFTER_LOSS_MAX + 1)

    assert sum(isinstance(fact, e.AttemptLost) for fact in facts) == RERUNS_AFTER_LOSS_MAX
    failure = next(fact.failure for fact in facts if isinstance(fact, e.AttemptFailed))
    assert (failure.code, failure.exit_code, failure.message) == ("EXIT_NONZERO", 1, f"{FULL}: cannot write")
    assert failure.details["machine"] == FULL
    assert any(isinstance(fact, e.RetryScheduled) for fact in facts)


def test_a_full_disk_of_the_run_alone_is_a_failure_that_names_it() -> None:
    run = begun()

    run.report(TaskEnded(T0, "a", 1, Outcome(exit_code=1, machine=FULL)))

    failure = next(entry.fact.failure for entry in run.log if isinstance(entry.fact, e.AttemptFailed))
    assert (failure.code, failure.message) == ("EXIT_NONZERO", f"{FULL}: exit code 1")


def test_with_on_lost_fail_it_has_failed_at_once() -> None:
    facts = ended(begun(on_lost="fail"))

    assert [fact.failure.code for fact in facts if isinstance(fact, e.AttemptFailed)] == ["EXIT_NONZERO"]


def test_an_attempt_that_has_spent_something_is_a_failure_so_that_it_is_counted() -> None:
    run = begun()

    run.report(TaskEnded(T0, "a", 1, OUTCOME, usage={"calls": 1, "cost": 0.5}))

    assert not any(isinstance(entry.fact, e.AttemptLost) for entry in run.log)


def test_it_says_nothing_about_the_service_behind_a_breaker() -> None:
    guard = Guard("api", Breaker())

    assert breaker_verdict(TaskEnded(T0, "a", 1, OUTCOME), guard) == "neither"

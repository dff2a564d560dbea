"""Tasks and the ends of workers: what is free, what has failed, and which worker may have the task next."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from mulligan.core.effects.lease_rules import has_time_for
from mulligan.core.effects.tasks import Demand, Task, demand, make_task
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.clusters.scheduler_job import JobEnd, JobEnding, WorkerJob
from mulligan.core.model.clusters.worker_time import RERUNS_AFTER_TIME_MAX
from mulligan.core.model.event_types import Adjusted
from mulligan.core.model.workflow import Adjust, Resources, Rule
from mulligan.history.obstacles import Obstacle, RunningTask, WorkerCapacity, WorkerPool
from mulligan.history.phrases import describe_failure
from mulligan.history.story import story
from mulligan.testing.history import History, retry, step, workflow
from proof.invariants.run_invariants import check

LIFE = 600.0
MIB = 2**20


def run_of(**fields: object) -> History:
    return History(workflow(step("a", **fields))).start()


def task_of(run: History) -> Task:
    return make_task(run.state, "a")


def ended(ending: JobEnding, state: str = "", **fields: object) -> JobEnd:
    return JobEnd(WorkerJob("17", "n3", **fields), state, ending)


# -- the end of a worker's time ------------------------------------------------------------------------------------


def test_the_first_end_of_a_workers_time_is_free_and_the_fact_says_how_long_both_lasted():
    run = run_of(rules=retry(1)).interrupt("a", 590.0, LIFE)

    assert run.follows == [e.AttemptInterrupted("a", 1, 590.0, LIFE), e.AttemptScheduled("a", 2, "time")]
    assert (run["a"].failure, run["a"].climb.tries) == (None, 0)


def test_a_task_that_had_the_whole_life_of_two_workers_needs_too_much_time():
    run = run_of().interrupt("a", 590.0, LIFE).interrupt("a", 580.0, LIFE)

    found = run["a"].failure
    assert found is not None
    assert (found.code, found.message) == ("TIMEOUT", "it needs more than the 10m00s that its workers live")
    assert (found.details["limit"], found.details["limit_seconds"]) == ("worker_life", LIFE)
    assert describe_failure(found) == "TIMEOUT after 10m00s: it needs more than the 10m00s that its workers live"
    assert run.status == "failed"


def test_a_task_that_came_late_to_its_workers_gets_a_whole_life_before_it_fails():
    run = run_of().interrupt("a", 20.0, LIFE)
    assert task_of(run).seconds_needed == 20.0

    run.interrupt("a", 30.0, LIFE)
    assert task_of(run).seconds_needed == 540.0

    run.interrupt("a", 535.0, LIFE)
    assert run["a"].status == "failed"


def test_what_an_operator_interrupts_counts_nothing():
    run = run_of()
    for _ in range(20):
        run.interrupt("a")

    run.interrupt("a", 590.0, LIFE)

    assert (run["a"].status, task_of(run).seconds_needed) == ("ready", 540.0)


def test_a_rule_for_the_timeout_gives_a_timeout_from_the_life_of_the_workers():
    rule = Rule(codes=("TIMEOUT",), adjust=Adjust(timeout=2.0))
    run = run_of(rules=(rule,)).interrupt("a", 600.0, LIFE).interrupt("a", 600.0, LIFE)

    assert run.facts(e.AttemptScheduled)[-1].adjusted == Adjusted(timeout=1200.0)
    assert task_of(run).seconds_needed == 1200.0
    assert not has_time_for(task_of(run), LIFE)


def test_a_rule_whose_cap_the_life_of_the_workers_has_reached_grants_no_retry():
    rule = Rule(codes=("TIMEOUT",), adjust=Adjust(timeout=2.0, max_timeout=LIFE))
    run = run_of(rules=(rule,)).interrupt("a", 600.0, LIFE).interrupt("a", 600.0, LIFE)

    assert ("retry", "max_timeout_reached") in run.passed


def test_after_a_plain_retry_one_more_whole_life_fails_it_again():
    run = run_of(rules=retry(2))
    for _ in range(4):
        run.interrupt("a", 600.0, LIFE)

    assert [fact.failure.code for fact in run.facts(e.AttemptFailed)] == ["TIMEOUT"] * 3
    assert run.status == "failed"


def test_another_visit_begins_anew():
    run = run_of().interrupt("a", 600.0, LIFE).interrupt("a", 600.0, LIFE)

    run.retry()

    assert (task_of(run).seconds_needed, run["a"].climb.time_ends) == (0.0, 0)


def test_explain_says_whose_time_was_over():
    run = run_of()
    run.report(r.TaskInterrupted(run.clock, "a", 1, 590.4, LIFE, WorkerJob("17", "n3")))

    shown = [line.text for line in story(run.log, run.state.workflow)]

    assert (
        "attempt 1 interrupted after 9m50s: the 10m00s that its worker (Slurm job 17 on node n3) had are over" in shown
    )
    assert "runs again as attempt 2; the end of a worker's time does not use up a retry" in shown


# -- whatever the workers are ---------------------------------------------------------------------------------------


class Pilots:
    """Workers that come one after the other, each with a life; a task comes to each at some moment of it."""

    def __init__(self, run: History, seconds: float) -> None:
        self.run = run
        # How long the task takes.
        self.seconds = seconds
        self.reruns = 0

    def meet(self, life: float, at_share: float, starting_share: float) -> None:
        """The task comes to a worker when this share of its life is over, if that may have it; otherwise to a new one.

        A start takes a share of the life. If not even a new one may have it, the task waits.
        """
        left = life * (1 - at_share)
        if not has_time_for(task_of(self.run), left):
            left = life
        if not has_time_for(task_of(self.run), left):
            return
        had = left - life * starting_share
        if self.seconds <= had:
            self.run.ok("a")
        else:
            self.run.interrupt("a", max(0.0, had), life)


LIVES = st.sampled_from([60.0, 600.0, 660.0, 7200.0])
MEETINGS = st.tuples(LIVES, st.floats(0, 0.99), st.floats(0, 0.04))


@settings(max_examples=examples(30, 80), deadline=None, derandomize=True)
@given(seconds=st.floats(1, 30_000), meetings=st.lists(MEETINGS, min_size=1, max_size=12))
def test_whatever_workers_come_a_task_ends_or_fails_after_a_few_free_reruns(
    seconds: float, meetings: list[tuple[float, float, float]]
):
    run = run_of()
    pilots = Pilots(run, seconds)
    longest = max(life for life, _, _ in meetings)

    # Those that come later are of the longest-lived kind.
    for life, at_share, starting_share in [*meetings, *[(longest, 0.5, 0.02)] * 6]:
        if run.status == "running":
            pilots.meet(life, at_share, starting_share)

    assert run.status in ("completed", "failed")
    assert len(run.facts(e.AttemptInterrupted)) <= RERUNS_AFTER_TIME_MAX + 1
    assert len([fact for fact in run.facts(e.AttemptScheduled) if fact.cause == "time"]) <= RERUNS_AFTER_TIME_MAX
    assert [fact.failure.code for fact in run.facts(e.AttemptFailed)] == ["TIMEOUT"] * (run.status == "failed")
    check(run.log, run.state)


@settings(max_examples=examples(25, 50), deadline=None, derandomize=True)
@given(life=LIVES, longer=st.floats(1.0, 40), shares=st.lists(st.floats(0, 0.99), min_size=6, max_size=6))
def test_a_task_longer_than_all_its_workers_has_at_most_two_silent_reruns(
    life: float, longer: float, shares: list[float]
):
    run = run_of()
    pilots = Pilots(run, life * longer)

    for share in shares:
        if run.status == "running":
            pilots.meet(life, share, 0.02)

    assert run.status == "failed"
    assert len([fact for fact in run.facts(e.AttemptScheduled) if fact.cause == "time"]) <= 2


@settings(max_examples=examples(25, 50), deadline=None, derandomize=True)
@given(share=st.floats(0.01, 0.85), meetings=st.lists(MEETINGS, min_size=4, max_size=8))
def test_a_task_that_fits_into_the_life_of_every_worker_completes(
    share: float, meetings: list[tuple[float, float, float]]
):
    run = run_of()
    pilots = Pilots(run, share * min(life for life, _, _ in meetings))

    for life, at_share, starting_share in [*meetings, (7200.0, 0.0, 0.0)]:
        if run.status == "running":
            pilots.meet(life, at_share, starting_share)

    assert run.status == "completed"


# -- a worker that is gone with its job -----------------------------------------------------------------------------


def test_a_job_that_somebody_ended_spends_nothing_however_often():
    run = run_of(rules=retry(1))
    for _ in range(10):
        run.lose("a", ended("free", "PREEMPTED"))

    assert run.follows[-1] == e.AttemptScheduled("a", 11, "job_ended")
    assert (run["a"].climb.losses, run.passed) == (0, [])
    assert "attempt 1 lost: its worker on node n3 (Slurm job 17) is gone: Slurm says PREEMPTED" in [
        line.text for line in story(run.log, run.state.workflow)
    ]


@pytest.mark.parametrize("ending", ["free", "time"])
def test_a_step_that_must_not_run_twice_fails_with_its_worker_whoever_ended_the_job(ending: JobEnding):
    run = run_of(on_lost="fail").lose("a", ended(ending, "CANCELLED", life_seconds=LIFE))

    found = run["a"].failure
    assert found is not None
    assert (found.code, found.details["slurm"]["state"]) == ("WORKER_LOST", "CANCELLED")


def test_a_worker_that_died_at_the_end_of_its_job_is_an_end_of_time_and_no_loss():
    run = run_of()
    for _ in range(4):
        run.lose("a", ended("time", "TIMEOUT", life_seconds=LIFE))

    found = run["a"].failure
    assert run["a"].climb.losses == 0
    assert found is not None
    assert (found.code, found.details["slurm"]) == ("TIMEOUT", {"job_id": "17", "node": "n3", "state": "TIMEOUT"})
    assert [fact.cause for fact in run.facts(e.AttemptScheduled)] == ["entered", "time", "time", "time"]


def test_after_such_an_end_a_worker_needs_its_life_before_it():
    run = run_of().lose("a", ended("time", life_seconds=LIFE))
    assert task_of(run).seconds_needed == 0.0

    run.lose("a", ended("time", life_seconds=LIFE))
    assert task_of(run).seconds_needed == 540.0


def test_an_end_of_time_of_which_nothing_is_known_is_free_a_few_times():
    run = run_of()
    for _ in range(4):
        run.lose("a", ended("time"))

    assert run.status == "failed"


def test_memory_that_the_only_task_of_a_worker_lacked_is_its_failure():
    rule = Rule(codes=("OUT_OF_MEMORY",), adjust=Adjust(memory=1.5))
    run = run_of(rules=(rule,), resources=Resources(memory=200 * MIB))

    run.lose("a", ended("memory", "OUT_OF_MEMORY", is_one_task=True, memory=400 * MIB))

    (failed,) = run.facts(e.AttemptFailed)
    found = failed.failure
    assert (found.code, found.signal, found.exit_code) == ("OUT_OF_MEMORY", 9, 137)
    assert found.details["slurm"] == {"job_id": "17", "node": "n3", "state": "OUT_OF_MEMORY"}
    assert run.facts(e.AttemptScheduled)[-1].adjusted == Adjusted(memory=600 * MIB)
    assert run["a"].climb.losses == 0
    assert describe_failure(found) == (
        "OUT_OF_MEMORY at 400MiB of 200MiB; on node n3, Slurm job 17, state OUT_OF_MEMORY"
    )


def test_memory_that_a_worker_with_several_tasks_lacked_is_a_loss():
    run = run_of().lose("a", ended("memory", "OUT_OF_MEMORY"))

    assert run.follows[-1] == e.AttemptScheduled("a", 2, "lost")
    assert run["a"].climb.losses == 1


def test_in_a_run_that_stops_nothing_runs_again():
    run = run_of().started("a").cancel()

    run.lose("a", ended("memory", is_one_task=True))

    assert run.status == "cancelled"


# -- who may have it -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("left", "may"), [(None, True), (540.0, True), (539.9, False), (0.0, False)])
def test_a_worker_gets_a_task_that_was_interrupted_only_with_more_time_than_it_needs(left: float | None, may: bool):
    run = run_of().interrupt("a", 580.0, LIFE)

    assert has_time_for(task_of(run), left) is may


def obstacles(wanted: Demand, *left: float | None) -> tuple[Obstacle, ...]:
    workers = [WorkerCapacity(f"w{i}", "h", cpus=4, seconds_left=one) for i, one in enumerate(left)]
    return WorkerPool(workers).obstacles(wanted)


def test_a_timeout_longer_than_all_workers_have_left_is_said():
    (found,) = obstacles(demand(run_of(timeout=3600.0).state, run_of(timeout=3600.0)["a"]), 1740.5, 600.0)

    assert found == Obstacle(
        "time",
        "it may take 1h00m (its timeout), and the longest that a worker has left is 29m00s",
        is_impossible=True,
        asked=3600.0,
        largest=1740.5,
    )


def test_so_is_the_time_that_a_task_has_shown_to_need():
    run = run_of().interrupt("a", 580.0, LIFE)

    (found,) = obstacles(demand(run.state, run["a"]), 100.0)

    assert found.text == (
        "it needs a worker with 9m00s left, since others have ended before it, "
        "and the longest that a worker has left is 1m40s"
    )


@pytest.mark.parametrize("left", [(100.0, None), (100.0, 3600.0)])
def test_one_worker_with_enough_time_is_enough(left: tuple[float | None, ...]):
    assert obstacles(Demand(timeout=3600.0), *left) == ()


def test_who_has_time_and_is_busy_is_named_and_not_who_has_none():
    busy = WorkerCapacity("w1", "h", cpus=1, tasks=(RunningTask(7, "b"),))
    free = WorkerCapacity("w2", "h", cpus=1, seconds_left=10.0)

    (found,) = WorkerPool([busy, free]).obstacles(Demand(timeout=60.0))

    assert (found.kind, found.is_impossible) == ("cpus", False)

"""The engine's loop on real stores, with a clock that jumps and hands that run nothing."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import Command
from mulligan.engine.driven_runs import RunAbandoned
from mulligan.ports import Answer, Commit, WorkerRecord

from .conftest import World

CHAIN = """
order: sequential
steps:
  - {step: a, shell: make a}
  - {step: b, shell: make b}
  - {step: c, shell: make c}
"""

FAN = """
steps:
  - {step: a, shell: make a}
  - {step: b, shell: make b}
  - {step: c, shell: make c}
  - {step: d, shell: make d, needs: [a, b, c]}
"""


def started(world: World, run_id: int) -> list[str]:
    facts = (entry.fact for entry in world.store.log(run_id))
    return [fact.place for fact in facts if isinstance(fact, e.AttemptStarted)]


class Counting:
    """A store that counts its commits."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.commits: list[list[Commit]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, commits: list[Commit]) -> Any:
        self.commits.append(list(commits))
        return self._store.commit(commits)


# -- turns -----------------------------------------------------------------------------------------------------------


def test_a_run_is_driven_to_its_end(world: World) -> None:
    engine = world.engine()
    run_id = world.start(CHAIN, engine)

    world.settle(engine)

    assert world.status(run_id) == "completed"
    assert world.statuses(run_id) == {"a": "completed", "b": "completed", "c": "completed"}
    assert engine.drivers == {}


def test_a_chain_costs_one_commit_a_step_and_one_to_begin_with(world: World) -> None:
    world.store = counting = Counting(world.store)  # type: ignore[assignment]
    engine = world.engine()
    world.start(CHAIN, engine)

    world.settle(engine)

    assert len(counting.commits) == 1 + 3


def test_the_turns_of_many_runs_share_one_commit(world: World) -> None:
    world.store = counting = Counting(world.store)  # type: ignore[assignment]
    engine = world.engine(slots=8)
    for _ in range(5):
        world.start(CHAIN, engine)

    world.settle(engine)

    assert [len(commits) for commits in counting.commits] == [5, 5, 5, 5]


def test_tasks_beyond_the_room_wait_and_are_taken_as_it_is_freed(world: World) -> None:
    engine = world.engine(slots=2)
    run_id = world.start(FAN, engine)

    engine.tick(0.0)

    assert started(world, run_id) == ["a", "b"]
    world.settle(engine)
    assert started(world, run_id) == ["a", "b", "c", "d"]
    assert world.status(run_id) == "completed"


def test_a_large_task_that_waits_for_room_does_not_keep_a_small_one_waiting(world: World) -> None:
    engine = world.engine(slots=2, ends=lambda task: None if task.step == "long" else Outcome(exit_code=0))
    steps = "{step: long, shell: a}, {step: b, shell: b}, {step: large, shell: c, resources: {cpus: 2}}"
    run_id = world.start(f"steps: [{steps}, {{step: small, shell: d}}]", engine)

    for _ in range(5):
        engine.tick(0.0)

    assert world.statuses(run_id) == {"long": "running", "b": "completed", "large": "ready", "small": "completed"}


def test_a_task_that_nobody_here_can_ever_take_fails_for_want_of_capacity_or_waits_for_another_worker(
    world: World,
) -> None:
    engine = world.engine(slots=2)
    run_id = world.start("steps: [{step: a, shell: make, resources: {cpus: 64, memory: 512MiB}}]", engine)

    world.settle(engine)

    if world.store.is_shared:
        assert world.statuses(run_id) == {"a": "ready"}
        world.settle(world.engine(slots=64))
        engine.request_poll()
        world.settle(engine)
        assert world.status(run_id) == "completed"
        return
    failure = world.state(run_id).failures[0].failure
    message = "no worker here can ever take it: it asks for 64 cpus (there are 2)"
    assert (failure.code, failure.message) == ("NO_CAPACITY", message)


LARGE = "steps: [{step: a, shell: make, resources: {cpus: 64}}]"


@pytest.mark.postgres
def test_a_task_waits_for_a_worker_of_another_host_that_has_just_joined(world: World) -> None:
    engine = world.engine(slots=2)
    # It has no lock here: it takes part through a server.
    world.store.register(WorkerRecord("remote", "far", 1, cpus=2.0))

    run_id = world.start(LARGE, engine)
    world.settle(engine)

    assert world.statuses(run_id) == {"a": "ready"}


def test_a_task_waits_for_a_worker_of_another_host_that_was_here_before(world: World) -> None:
    engine = world.engine(slots=2)
    engine.set_alone(False)
    engine.set_alone(True)

    run_id = world.start(LARGE, engine)
    world.settle(engine)

    assert world.statuses(run_id) == {"a": "ready"}


@pytest.mark.postgres
def test_a_run_that_another_engine_drives_is_left_alone(world: World) -> None:
    one, other = world.engine(ends=lambda task: None), world.engine()
    run_id = world.start(CHAIN, one)
    one.tick(0.0)

    other.take_up([run_id])

    assert other.drivers == {}


def test_an_engine_that_drains_starts_nothing_and_writes_what_ends(world: World) -> None:
    engine = world.engine(slots=1)
    run_id = world.start(CHAIN, engine)
    engine.tick(0.0)

    engine.drain()
    world.settle(engine)

    assert started(world, run_id) == ["a"]
    assert world.statuses(run_id) == {"a": "completed", "b": "ready", "c": "waiting"}
    engine.release_all()
    next_engine = world.engine()
    next_engine.take_up([run_id])
    world.settle(next_engine)
    assert world.status(run_id) == "completed"


# -- what a run is told ----------------------------------------------------------------------------------------------


def test_what_is_asked_is_answered(world: World) -> None:
    engine = world.engine(ends=lambda task: None)
    run_id = world.start(CHAIN, engine)
    engine.tick(0.0)

    message = world.store.put(run_id, r.PauseRequested(world.clock.now(), "me"), is_asking=True)
    engine.request_poll()
    engine.tick(0.0)

    assert world.store.answer(message) == Answer()
    assert world.status(run_id) == "paused"


def test_what_makes_no_sense_is_refused_with_the_reason(world: World) -> None:
    engine = world.engine()
    run_id = world.start(CHAIN, engine)
    world.settle(engine)
    message = world.store.put(run_id, r.CancelRequested(world.clock.now(), "me"), is_asking=True)

    engine.request_poll()
    world.settle(engine)

    assert world.store.answer(message) == Answer(
        "run.finished",
        f"run {run_id} completed on 2026-01-01 at 00:00 UTC, so there is nothing to cancel",
        f"to run it again from a step: mulligan fork {run_id} --from STEP",
    )
    assert engine.drivers == {}


def test_a_cancelled_run_ends_its_tasks_and_then_itself(world: World) -> None:
    engine = world.engine(ends=lambda task: None)
    run_id = world.start(CHAIN, engine)
    engine.tick(0.0)
    world.store.put(run_id, r.CancelRequested(world.clock.now(), "me"))

    engine.request_poll()
    world.settle(engine)

    assert list(engine.executor.stopped.values()) == [10.0]  # type: ignore[union-attr]
    assert world.status(run_id) == "cancelled"


def test_a_paused_run_gives_out_nothing_until_it_is_resumed(world: World) -> None:
    engine = world.engine(slots=1)
    run_id = world.start(FAN, engine)
    engine.tick(0.0)
    world.store.put(run_id, r.PauseRequested(world.clock.now(), "me"))

    engine.request_poll()
    world.settle(engine)

    assert started(world, run_id) == ["a"]
    world.store.put(run_id, r.ResumeRequested(world.clock.now(), "me"))
    engine.request_poll()
    world.settle(engine)
    assert world.status(run_id) == "completed"


# -- time ------------------------------------------------------------------------------------------------------------

RETRIED = "steps: [{step: a, shell: make, retry: {max_retries: 2, delay: 30s}}]"


def fails_until(attempt: int) -> Any:
    return lambda task: Outcome(exit_code=0 if task.attempt >= attempt else 1)


def test_a_retry_waits_for_its_delay(world: World) -> None:
    engine = world.engine(ends=fails_until(2))
    run_id = world.start(RETRIED, engine)
    world.settle(engine)

    assert started(world, run_id) == ["a"]
    world.pass_time(engine, seconds=29)
    assert started(world, run_id) == ["a"]
    world.pass_time(engine, seconds=1)
    assert started(world, run_id) == ["a", "a"]
    assert world.status(run_id) == "completed"


def test_a_delay_of_nothing_is_over_in_the_same_commit(world: World) -> None:
    world.store = counting = Counting(world.store)  # type: ignore[assignment]
    engine = world.engine(ends=fails_until(3))
    run_id = world.start("steps: [{step: a, shell: make, retry: {max_retries: 2, delay: 0s}}]", engine)

    world.settle(engine)

    assert world.status(run_id) == "completed"
    assert len(counting.commits) == 1 + 3


def test_a_timer_that_came_due_while_no_engine_was_there_fires_when_one_is(world: World) -> None:
    engine = world.engine(ends=fails_until(2))
    run_id = world.start(RETRIED, engine)
    world.settle(engine)
    world.expire(engine)
    world.clock.advance(300)

    other = world.engine(ends=fails_until(2))
    other.take_up([run_id])
    world.settle(other)

    assert world.status(run_id) == "completed"


# -- child runs ------------------------------------------------------------------------------------------------------


@pytest.fixture
def parent(tmp_path: Any) -> str:
    (tmp_path / "child.yaml").write_text(
        """
name: child
inputs: {n: {type: integer}}
steps: [{step: work, shell: make}]
outputs: {said: "${steps.work.output}"}
"""
    )
    return f"""
name: parent
steps:
  - {{step: call, workflow: {{file: {tmp_path}/child.yaml, inputs: {{n: 1}}}}}}
  - {{step: after, needs: [call], shell: make}}
"""


def test_a_child_run_is_driven_and_its_end_reaches_its_parent(world: World, parent: str) -> None:
    engine = world.engine()
    run_id = world.start(parent, engine)

    world.settle(engine)

    (child,) = world.store.children(run_id)
    assert (child.status, child.root_run_id, child.parent_place) == ("completed", run_id, "call")
    assert world.state(run_id).places["call"].output == {"said": "work"}
    assert world.status(run_id) == "completed"


def test_a_child_that_fails_fails_the_step_that_called_it(world: World, parent: str) -> None:
    engine = world.engine(ends=lambda task: Outcome(exit_code=3))
    run_id = world.start(parent, engine)

    world.settle(engine)

    failure = world.state(run_id).failures[0].failure
    assert (failure.code, [cause.exit_code for cause in failure.cause]) == ("CHILD_FAILED", [3])


def test_cancelling_a_parent_cancels_its_child_first(world: World, parent: str) -> None:
    engine = world.engine(ends=lambda task: None)
    run_id = world.start(parent, engine)
    engine.tick(0.0)
    engine.tick(0.0)
    world.store.put(run_id, r.CancelRequested(world.clock.now(), "me"))

    engine.request_poll()
    world.settle(engine)

    assert [record.status for record in world.store.children(run_id)] == ["cancelled"]
    assert world.status(run_id) == "cancelled"


# -- several engines -------------------------------------------------------------------------------------------------


def test_what_a_dead_engine_ran_runs_again_and_spends_no_retry(world: World) -> None:
    engine = world.engine(ends=lambda task: None)
    run_id = world.start(CHAIN, engine)
    engine.tick(0.0)

    world.expire(engine)
    other = world.engine()
    other.take_up([run_id])
    world.settle(other)

    assert world.status(run_id) == "completed"
    assert world.facts(run_id).count("AttemptLost") == 1
    assert started(world, run_id) == ["a", "a", "b", "c"]


def test_what_an_expired_engine_reports_late_is_refused_and_changes_nothing(world: World) -> None:
    engine = world.engine(ends=lambda task: None)
    run_id = world.start(CHAIN, engine)
    engine.tick(0.0)
    world.expire(engine)
    other = world.engine()
    other.take_up([run_id])
    world.settle(other)
    log = world.store.log(run_id)

    engine.executor.ends = lambda task: Outcome(exit_code=1)  # type: ignore[union-attr]
    world.settle(engine)

    assert world.store.log(run_id) == log
    assert engine.drivers == {}


@pytest.mark.postgres
def test_a_turn_that_was_lost_costs_the_other_runs_of_the_batch_nothing(world: World) -> None:
    engine = world.engine(ends=lambda task: None)
    lost, kept = world.start(CHAIN, engine), world.start(CHAIN, engine)
    engine.tick(0.0)
    world.store.release([engine.drivers[lost].turn])
    other = world.engine(ends=lambda task: None)
    other.take_up([lost])

    engine.executor.ends = lambda task: Outcome(exit_code=0)  # type: ignore[union-attr]
    world.settle(engine)

    assert world.status(kept) == "completed"
    # The report under a lease that still holds went to whoever has the run.
    other.executor.ends = lambda task: Outcome(exit_code=0)  # type: ignore[union-attr]
    other.request_poll()
    world.settle(other)
    assert world.status(lost) == "completed"
    assert world.facts(lost).count("AttemptLost") == 0


# -- bugs of ours ----------------------------------------------------------------------------------------------------


class Poisoned:
    """An evaluator with a bug."""

    def condition(self, *_: Any) -> bool:
        raise ZeroDivisionError("a bug")

    evaluate = render = condition


def test_a_run_that_crashes_the_engine_again_and_again_is_paused_and_disturbs_no_other(world: World) -> None:
    engine = world.engine()
    poisoned = world.start("steps: [{step: a, shell: make}, {step: b, shell: make, needs: [a], when: 1 == 1}]", engine)
    healthy = world.start(CHAIN, engine)
    engine.drivers[poisoned].evaluator = Poisoned()  # type: ignore[assignment]

    world.settle(engine)

    assert world.status(healthy) == "completed"
    assert world.status(poisoned) == "paused"
    assert world.store.run(poisoned).reason == "engine_error: ZeroDivisionError: a bug"


def test_what_the_run_could_not_be_told_is_told_again_when_its_pause_is_lifted(world: World) -> None:
    """The worker lives on and holds the lease of what it has run: nobody else would ever tell it."""
    engine = world.engine()
    run_id = world.start("steps: [{step: a, shell: make}, {step: b, shell: make, needs: [a], when: 1 == 1}]", engine)
    healthy, engine.drivers[run_id].evaluator = engine.evaluator, Poisoned()  # type: ignore[assignment]
    world.settle(engine)
    assert world.statuses(run_id) == {"a": "running", "b": "waiting"}

    engine.drivers[run_id].evaluator = healthy
    world.store.put(run_id, r.ResumeRequested(world.clock.now(), "somebody"))
    engine.request_poll()
    world.settle(engine)

    assert world.status(run_id) == "completed"
    assert world.facts(run_id).count("AttemptStarted") == 2


def test_a_stopping_run_that_meets_a_bug_cannot_be_paused_and_is_left_alone(world: World) -> None:
    engine = world.engine(ends=lambda task: None)
    run_id = world.start("steps: [{step: a, shell: make}]\noutputs: {x: '${steps.a.output}'}", engine)
    engine.tick(0.0)
    engine.drivers[run_id].evaluator = Poisoned()  # type: ignore[assignment]

    world.store.put(run_id, r.CancelRequested(world.clock.now(), "somebody"))
    engine.request_poll()
    world.settle(engine)

    assert engine.drivers == {}
    with pytest.raises(RunAbandoned, match=f"run {run_id} triggers a bug in Mulligan"):
        engine.refuse_abandoned(run_id)


class Choking(Counting):
    """A store that cannot write some of what one run has to say."""

    def __init__(self, store: Any, *facts: type[e.Fact]) -> None:
        super().__init__(store)
        self.run_id = 0
        self.facts = facts

    def commit(self, commits: list[Commit]) -> Any:
        for one in commits:
            if one.turn.run_id == self.run_id and any(isinstance(entry.fact, self.facts) for entry in one.entries):
                raise OverflowError("a bug")
        return super().commit(commits)


@pytest.mark.postgres
def test_a_run_whose_turn_cannot_be_written_is_paused_and_disturbs_no_other(world: World) -> None:
    world.store = choking = Choking(world.store, e.AttemptSucceeded)  # type: ignore[assignment]
    engine = world.engine()
    poisoned, healthy = world.start(CHAIN, engine), world.start(CHAIN, engine)
    choking.run_id = poisoned

    world.settle(engine)

    assert world.status(healthy) == "completed"
    assert world.store.run(poisoned).reason == "engine_error: OverflowError: a bug"


def test_a_run_that_cannot_even_be_paused_is_left_alone(world: World) -> None:
    world.store = choking = Choking(world.store, e.AttemptSucceeded, e.RunPaused)  # type: ignore[assignment]
    engine = world.engine()
    poisoned, healthy = world.start(CHAIN, engine), world.start(CHAIN, engine)
    choking.run_id = poisoned

    world.settle(engine)

    assert (world.status(healthy), world.status(poisoned)) == ("completed", "running")
    assert engine.drivers == {}
    assert world.store.run(poisoned).holder == ""


def test_who_takes_up_a_run_that_was_left_alone_hears_what_its_tasks_have_come_to(world: World) -> None:
    """The worker that has left it alone lives on, and with it the lease of what it has run."""
    world.store = choking = Choking(world.store, e.AttemptSucceeded, e.RunPaused)  # type: ignore[assignment]
    engine, wiser = world.engine(), world.engine()
    choking.run_id = run_id = world.start(CHAIN, engine)
    world.settle(engine)

    choking.run_id = 0
    wiser.take_up([run_id])
    world.settle(wiser)

    assert (world.status(run_id), started(world, run_id)) == ("completed", ["a", "b", "c"])


@pytest.mark.postgres
def test_what_another_worker_has_left_in_the_queue_is_taken_also_by_one_that_is_alone(world: World) -> None:
    one = world.engine(slots=1)
    run_id = world.start(CHAIN, one)
    one.tick(0.0)
    one.drain()
    world.settle(one)
    one.release_all()

    other = world.engine()
    other.set_alone(True)
    if not world.store.is_shared:
        other.take_up([run_id])
    world.settle(other)
    other.request_poll()
    world.settle(other)

    assert world.status(run_id) == "completed"


def test_a_task_that_meets_a_bug_does_not_take_those_that_wait_with_it(world: World) -> None:
    engine = world.engine(slots=1)
    engine.set_alone(True)
    run_id = world.start(FAN, engine)
    engine.tick(0.0)
    drive = engine.drivers[run_id]
    drive.state.places["b"].spec = Command()

    with pytest.raises(AssertionError, match="'b' has nothing to run"):
        drive.claim_tasks(world.clock.now())

    assert list(drive.queue) == [("b", 1), ("c", 1)]

"""Where an engine parts with a run: the end of a round clears up that round, and nobody keeps a turn that is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mulligan.core.effects.tasks import Task
from mulligan.core.model import reports as r
from mulligan.core.model.outcome import Outcome
from mulligan.engine.engine import Engine
from mulligan.errors import StoreUnavailable
from mulligan.language.expressions import Cel
from mulligan.ports import FAULT_POINTS, Lease, Offer, WorkerRecord
from mulligan.testing.fake_executor import FakeExecutor
from mulligan.testing.faults import Crash, faults

from .conftest import World

ONE = "steps: [{step: a, shell: make a}]"
ASKING = "steps: [{step: a, shell: make a}, {step: ask, approve: {message: go on?}, next: end}]"


def ended(world: World) -> int:
    engine = world.engine()
    run_id = world.start(ONE, engine)
    world.settle(engine)
    return run_id


def test_a_round_that_is_opened_when_the_last_one_has_just_ended_keeps_its_tasks(world: World) -> None:
    """Both were in the inbox together: what clears up the first round must not clear up the second."""
    engine = world.engine()
    run_id = world.start(ASKING, engine)
    world.settle(engine)
    world.store.put(run_id, r.CancelRequested(world.clock.now(), "someone", now=True))
    world.store.put(run_id, r.RetryRequested(world.clock.now(), "someone", from_step="a"))
    engine.request_poll()

    world.settle(engine)

    assert world.store.run(run_id).round == 2
    assert world.statuses(run_id) == {"a": "completed", "ask": "running"}
    assert world.facts(run_id).count("AttemptSucceeded") == 2


TWO = "steps: [{step: a, shell: make a}, {step: b, shell: make b}]"


class Rushing:
    """A store in which somebody else is given what is queued, just before anything is written."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.leases: list[Lease] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, commits: Any) -> Any:
        self.leases += self._store.lease("other", Offer(1.0, 1 << 30, 0, (), "there", 1))
        return self._store.commit(commits)


def test_another_round_waits_for_what_was_given_out_as_the_last_one_was_stopped(world: World) -> None:
    """Else a step would be there twice: told to end, and begun again."""
    world.store = rushing = Rushing(world.store)  # type: ignore[assignment]
    engine = world.engine(slots=1, ends=lambda task: None)
    run_id = world.start(TWO, engine)
    for _ in range(5):
        engine.tick(0.0)
    world.store.register(WorkerRecord("other", "there", 99))
    world.store.put(run_id, r.CancelRequested(world.clock.now(), "someone", now=True))
    engine.request_poll()
    world.settle(engine)
    world.store.put(run_id, r.RetryRequested(world.clock.now(), "someone", from_step="b"))
    engine.request_poll()
    world.settle(engine)
    before = world.store.run(run_id)

    (lease,) = rushing.leases
    world.store.report(lease.token, r.TaskEnded(world.clock.now(), "b", 1, Outcome(signal=15, is_stopped=True)))
    engine.request_poll()
    for _ in range(5):
        engine.tick(0.0)

    assert (before.status, before.round, lease.task.place) == ("cancelled", 1, "b")
    assert (world.status(run_id), world.store.run(run_id).round) == ("running", 2)


@pytest.mark.postgres
def test_a_run_that_another_has_driven_to_its_end_is_not_held(world: World) -> None:
    run_id = ended(world)
    other = world.engine(root_run_id=run_id)

    other.take_up([run_id])
    world.settle(other)

    assert run_id not in other.drivers
    assert world.store.run(run_id).holder == ""


def test_a_run_that_has_ended_and_was_told_something_is_held_until_it_has_answered(world: World) -> None:
    run_id = ended(world)
    message_id = world.store.put(run_id, r.PauseRequested(world.clock.now(), "someone"), is_asking=True)
    other = world.engine(root_run_id=run_id)

    other.take_up([run_id])
    world.settle(other)

    answer = world.store.answer(message_id)
    assert answer is not None
    assert answer.error == "run.finished"
    assert run_id not in other.drivers
    assert world.store.run(run_id).holder == ""


class Clinging:
    """A store that does not answer when the first turn is given back."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._is_away = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def release(self, turns: list[Any]) -> None:
        if turns and self._is_away:
            self._is_away = False
            raise StoreUnavailable("the connection broke")
        self._store.release(turns)


@pytest.mark.postgres
def test_a_turn_that_could_not_be_given_back_is_given_back_when_the_store_answers(world: World) -> None:
    run_id = ended(world)
    world.store = Clinging(world.store)  # type: ignore[assignment]
    engine = world.engine()
    world.store.put(run_id, r.CancelRequested(world.clock.now(), "someone"))
    with pytest.raises(StoreUnavailable, match="the connection broke"):
        world.settle(engine)

    engine.recover()
    world.settle(engine)

    assert world.store.run(run_id).holder == ""


# -- reports of our own tasks ----------------------------------------------------------------------------------------


ENDING = "{steps: [{step: a, shell: make a}, {step: b, shell: make b}], end: {shell: report}}"


class Meanwhile:
    """A store in which somebody else acts just before something is written."""

    def __init__(self, store: Any, act: Callable[[], object]) -> None:
        self._store = store
        self._act = act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, commits: Any) -> Any:
        self._act()
        return self._store.commit(commits)


class Reluctant(FakeExecutor):
    """What is asked to stop takes as long as it likes, and is the last to be reported."""

    def stop(self, token: int, grace_seconds: float | None) -> None:
        pass

    def collect(self, timeout: float | None) -> list[tuple[Lease, r.Report]]:
        return super().collect(timeout)[::-1]


class Stopped:
    """A run that was cancelled while another worker was given the second of its steps; then its own worker died.

    The other worker drives the run now, and has two tasks: `end`, and the one that it was asked to stop.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_over = False
        plain = world.store
        world.count += 1
        name = f"other{world.count}"
        plain.register(WorkerRecord(name, "here", 98, cpus=4))
        self.other = Engine(plain, world.clock, Cel({}), name, Reluctant(name, world.clock, ends=self._ends))
        self.other.set_alone(False)
        self.is_taken = False
        world.store = Meanwhile(plain, self._take)  # type: ignore[assignment]
        first = world.engine(slots=1, ends=lambda task: None)
        first.set_alone(False)
        self.run_id = world.start(ENDING, first)
        while "AttemptStarted" not in world.facts(self.run_id):
            first.tick(0.0)
        world.store.put(self.run_id, r.CancelRequested(world.clock.now(), "someone"))
        first.request_poll()
        self.is_taken = True
        while "RunStopping" not in world.facts(self.run_id):
            first.tick(0.0)
        world.store = plain
        world.expire(first)

    def _take(self) -> None:
        if self.is_taken:
            self.is_taken = False
            self.other.request_poll()
            for _ in range(5):
                self.other.tick(0.0)

    def _ends(self, task: Task) -> Outcome | None:
        return Outcome(exit_code=0) if self.is_over else None

    def reach_the_end(self) -> None:
        """Let the other worker drive the run until both tasks run there."""
        self.other.request_poll()
        for _ in range(20):
            self.other.tick(0.0)
        assert self.other.tasks_running == 2 and self.run_id in self.other.drivers


def test_the_report_of_our_own_task_behind_the_end_of_the_round_is_not_lost(world: World) -> None:
    stopped = Stopped(world)
    stopped.reach_the_end()

    # Both have ended: with `end` the round is over.
    stopped.is_over = True
    world.settle(stopped.other)

    assert world.status(stopped.run_id) == "cancelled"
    assert not world.store.has_leases(stopped.run_id)
    assert world.facts(stopped.run_id)[-1] == "ReportRefused"


def test_another_round_does_not_wait_for_a_task_that_was_reported_behind_the_end(world: World) -> None:
    stopped = Stopped(world)
    stopped.reach_the_end()
    stopped.is_over = True
    world.settle(stopped.other)

    world.store.put(stopped.run_id, r.RetryRequested(world.clock.now(), "someone"))
    stopped.other.request_poll()
    world.settle(stopped.other)

    assert (world.status(stopped.run_id), world.store.run(stopped.run_id).round) == ("completed", 2)


@pytest.mark.parametrize("point", sorted(FAULT_POINTS))
def test_a_crash_near_the_end_of_a_round_leaves_no_lease_behind(world: World, point: str) -> None:
    plain = world.store

    def cancelled(nth: int) -> int:
        world.store = plain
        stopped = Stopped(world)
        stopped.reach_the_end()
        stopped.is_over = True
        with faults() as points:
            points.arm(point, nth)
            try:
                world.settle(stopped.other)
            except Crash:
                world.expire(stopped.other)
                world.settle(world.engine())
        assert (world.status(stopped.run_id), world.store.has_leases(stopped.run_id)) == ("cancelled", False)
        return points.passes[point]

    nth = 1
    while cancelled(nth) >= nth:
        nth += 1

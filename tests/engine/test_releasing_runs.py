"""Where an engine parts with a run: the end of a round clears up that round, and nobody keeps a turn that is over."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.model import reports as r
from mulligan.core.model.outcome import Outcome
from mulligan.errors import StoreUnavailable
from mulligan.ports import Lease, Offer, WorkerRecord

from .conftest import World

ONE = "steps: [{step: a, shell: make a}]"
ASKING = "steps: [{step: a, shell: make a}, {step: ask, approve: {message: go on?}}]"


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
    engine.request_look()

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
    engine.request_look()
    world.settle(engine)
    world.store.put(run_id, r.RetryRequested(world.clock.now(), "someone", from_step="b"))
    engine.request_look()
    world.settle(engine)
    before = world.store.run(run_id)

    (lease,) = rushing.leases
    world.store.report(lease.token, r.TaskEnded(world.clock.now(), "b", 1, Outcome(signal=15, is_stopped=True)))
    engine.request_look()
    for _ in range(5):
        engine.tick(0.0)

    assert (before.status, before.round, lease.task.place) == ("cancelled", 1, "b")
    assert (world.status(run_id), world.store.run(run_id).round) == ("running", 2)


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

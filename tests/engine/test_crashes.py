"""A crash at each named fault point, at each of its passes, then recovery: the same outcome as undisturbed."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from mulligan.core.effects.tasks import Task
from mulligan.core.model import events as e
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import EventSent
from mulligan.engine.engine import Engine
from mulligan.errors import StoreUnavailable
from mulligan.ports import FAULT_POINTS
from mulligan.testing.faults import Crash, faults

from .conftest import World

# Retries with a script, a handler, a failure edge that leads back, a map with a bad item, an undo that is not needed;
# and two events that are sent, one of them twice.
EVERYTHING = """
steps:
  - step: fetch
    shell: fetch
    retry: {rules: [{exit_codes: [7], max_retries: 2, delay: 0s, recovery_script: clear}]}
  - step: build
    needs: [fetch]
    shell: build
    on_failure: [clean, build slowly]
  - step: check
    needs: [build]
    map: {over: "${[1, 2, 3]}", as: n, on_item_failure: collect, max_parallel: 2}
    do: [{shell: "check ${n}"}, {shell: "seal ${n}"}]
  - step: deploy
    needs: [check]
    shell: deploy
    undo: {shell: undeploy}
    next: [{to: announce}, {to: repair, on: failure, then: rerun}]
  - {step: repair, shell: repair}
  - {step: announce, shell: announce, continue_on_error: true}
  - {step: paid, needs: [fetch], wait: {event: paid}}
  - {step: paid_twice, needs: [paid], wait: {event: paid}}
"""


class Plan:
    """How the tasks end, by what they have been through: the same whoever runs them, and however often."""

    def __init__(self) -> None:
        self.ended: Counter[str] = Counter()

    def __call__(self, task: Task) -> Outcome:
        return Outcome(exit_code=self._exit_code(task))

    def _exit_code(self, task: Task) -> int:
        if task.step == "fetch" and task.role == "step":
            return 0 if self._failed("fetch") >= 1 else self._fail("fetch", 7)
        if task.step == "build" and task.role == "step":
            return 2
        if task.place.startswith("check[1].0"):
            return 5
        if task.step == "deploy" and task.role == "step":
            return 0 if task.visit > 1 else 9
        return 1 if task.step == "announce" else 0

    def _failed(self, step: str) -> int:
        return self.ended[step]

    def _fail(self, step: str, code: int) -> int:
        self.ended[step] += 1
        return code


def outcome(world: World, run_id: int) -> dict[str, Any]:
    """What a crash may not change."""
    state = world.state(run_id)
    return {
        "status": state.run.status,
        "degraded": state.run.degraded,
        "steps": {place.key: (place.status, place.visit, place.recovered_by) for place in state.steps()},
        "failures": [(record.step, record.visit, record.failure.code) for record in state.failures],
        # What ran again after a crash has another number: that of its attempt.
        "results": {place.key: re.sub(r"@\d+", "@n", repr(place.output)) for place in state.steps()},
        "events": [(event.value, event.place) for event in state.received.values()],
    }


def begin(world: World, engine: Engine) -> int:
    run_id = world.start(EVERYTHING, engine)
    for value, key in ((1, ""), (2, "b"), (2, "b")):
        world.store.put(run_id, EventSent(world.clock.now(), "paid", value, "ann", key))
    return run_id


def finish(world: World, run_id: int, engine: Engine | None, plan: Plan) -> None:
    """Drive the run to its end, with a new engine after each crash."""
    while world.status(run_id) not in ("completed", "failed", "cancelled"):
        engine = engine or taken_up(world, run_id, plan)
        try:
            world.settle(engine)
        except Crash:
            world.expire(engine)
            engine = None


def taken_up(world: World, run_id: int, plan: Plan) -> Engine:
    engine = world.engine(slots=2, ends=plan)
    engine.take_up([run_id])
    return engine


def undisturbed(world: World) -> tuple[dict[str, Any], dict[str, int]]:
    """The outcome without a crash, and how often each fault point is passed on the way."""
    with faults() as points:
        plan = Plan()
        engine = world.engine(slots=2, ends=plan)
        run_id = begin(world, engine)
        finish(world, run_id, engine, plan)
    return outcome(world, run_id), points.passes


@pytest.mark.parametrize("point", sorted(FAULT_POINTS))
def test_a_crash_at_any_pass_of_a_fault_point_changes_no_outcome(world: World, point: str) -> None:
    expected, passes = undisturbed(world)

    assert passes[point] > 5
    for nth in world.crashes(passes[point]):
        with faults() as points:
            points.arm(point, nth)
            plan = Plan()
            engine = world.engine(slots=2, ends=plan)
            run_id = begin(world, engine)
            finish(world, run_id, engine, plan)

        assert outcome(world, run_id) == expected, f"died at pass {nth} of '{point}'"


def test_what_is_undisturbed_has_been_through_the_whole_ladder(world: World) -> None:
    found, _ = undisturbed(world)

    assert found["status"] == "completed"
    assert found["steps"] == {
        "fetch": ("completed", 1, ""),
        "build": ("completed", 1, "recovery"),
        "check": ("completed", 1, ""),
        "deploy": ("completed", 2, ""),
        "repair": ("completed", 1, ""),
        "announce": ("failed", 1, ""),
        "paid": ("completed", 1, ""),
        "paid_twice": ("completed", 1, ""),
    }
    assert found["events"] == [(1, "paid"), (2, "paid_twice")]


# -- a store that does not answer ------------------------------------------------------------------------------------


class Flaky:
    """A store whose n-th commit raises, before or after it was written."""

    def __init__(self, store: Any, nth: int, *, is_written: bool) -> None:
        self._store = store
        self.nth = nth
        self.is_written = is_written
        self.commits = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, commits: Any) -> Any:
        self.commits += 1
        if self.commits != self.nth:
            return self._store.commit(commits)
        if self.is_written:
            self._store.commit(commits)
        raise StoreUnavailable("the connection broke")


@pytest.mark.postgres
@pytest.mark.parametrize("is_written", [False, True], ids=["not written", "written"])
def test_a_commit_whose_answer_is_lost_is_neither_lost_nor_done_twice(world: World, is_written: bool) -> None:
    expected, passes = undisturbed(world)
    plain = world.store

    for nth in world.crashes(passes["before_commit"]):
        world.store = Flaky(plain, nth, is_written=is_written)  # type: ignore[assignment]
        engine = world.engine(slots=2, ends=Plan())
        run_id = begin(world, engine)
        with pytest.raises(StoreUnavailable, match="the connection broke"):
            world.settle(engine)
        engine.recover()
        world.settle(engine)

        assert outcome(world, run_id) == expected, f"the answer to commit {nth} was lost"
        assert all(count == 1 for count in starts(world, run_id).values())


def starts(world: World, run_id: int) -> Counter[tuple[str, int]]:
    facts = (entry.fact for entry in world.store.log(run_id))
    return Counter((fact.place, fact.attempt) for fact in facts if isinstance(fact, e.AttemptStarted))

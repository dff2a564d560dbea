"""Breakers in the engine's loop, on real stores: who waits, who is woken, what survives; no time passes by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from mulligan.core.effects.tasks import Task
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.outcome import Outcome
from mulligan.engine.engine import Engine
from mulligan.ports import FAULT_POINTS, BreakerRecord, fault_listeners
from mulligan.testing.fake_executor import Ends
from mulligan.testing.faults import Crash, faults

from .conftest import World

RESET = 60.0

THREE = """
breakers: {llm: {failures: 2, reset: 60s}}
steps:
  - {step: a, shell: ask, breaker: llm, retry: {max_retries: 3, delay: 0s}}
  - {step: b, shell: ask, breaker: llm, needs: [{step: a, on: always}]}
  - {step: c, shell: make}
"""
HASTY = THREE.replace("reset: 60s", "reset: 60s, when_open: fail")


class Service:
    """What the tasks ask: it answers while it is up."""

    def __init__(self) -> None:
        self.is_up = False
        self.asked: list[str] = []

    def __call__(self, task: Task) -> Outcome:
        if task.guard is None:
            return Outcome()
        self.asked.append(f"{task.place} {task.attempt}")
        return Outcome(exit_code=0 if self.is_up else 1)


@pytest.fixture
def later(world: World, request: pytest.FixtureRequest) -> Callable[..., None]:
    """Lets the time of the store pass: of one whose clock cannot be set, it is written into what it keeps."""

    def pass_time(*engines: Engine, seconds: float = RESET) -> None:
        if world.store.is_shared:
            with psycopg.connect(request.getfixturevalue("store_schema_url")) as connection:
                micros = round(seconds * 1_000_000)
                connection.execute("UPDATE breakers SET retry_at = retry_at - %s", [micros])
            for engine in engines:
                engine.request_poll()
        world.pass_time(*engines, seconds=seconds)

    return pass_time


def breaker(world: World) -> BreakerRecord:
    (found,) = world.store.breakers()
    return found


def facts(world: World, run_id: int) -> list[e.Fact]:
    return [entry.fact for entry in world.store.log(run_id)]


def attempts(world: World, run_id: int) -> list[str]:
    return [f"{fact.place} {fact.attempt}" for fact in facts(world, run_id) if isinstance(fact, e.AttemptStarted)]


# -- passing ---------------------------------------------------------------------------------------------------------


def test_behind_a_closed_breaker_a_run_goes_as_any_other(world: World) -> None:
    engine = world.engine()
    run_id = world.start(THREE, engine)

    world.settle(engine)

    assert world.statuses(run_id) == {"a": "completed", "b": "completed", "c": "completed"}
    assert breaker(world) == BreakerRecord("llm", "closed")


def test_more_guarded_tasks_than_there_is_room_for_all_run(world: World) -> None:
    engine = world.engine(slots=2)
    items = "{step: all, map: {over: '${[1, 2, 3, 4, 5, 6, 7]}'}, breaker: llm, do: [ask]}"
    run_id = world.start(f"breakers: {{llm: {{}}}}\nsteps: [{items}]", engine)

    world.settle(engine)

    assert world.status(run_id) == "completed"


def test_many_tasks_without_a_breaker_leave_room_for_one_that_has_one(world: World) -> None:
    engine = world.engine(slots=1)
    wide = "{step: wide, map: {over: '${[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}'}, do: [make]}"
    run_id = world.start(f"breakers: {{llm: {{}}}}\nsteps: [{wide}, {{step: ask, shell: ask, breaker: llm}}]", engine)

    world.settle(engine)

    assert world.status(run_id) == "completed"
    # In a store that others share all tasks are leased, the oldest first.
    assert world.store.is_shared or attempts(world, run_id).index("ask 1") < 8


EXACT = """
breakers: {llm: {failures: 5, reset: 60s, when_open: fail, max_parallel: 5}}
steps:
  - step: ask
    map: {over: "${[1, 2, 3, 4, 5, 6, 7]}", on_item_failure: collect}
    breaker: llm
    retry: {rules: [{codes: [EXIT_NONZERO], max_retries: 2, delay: 0s}]}
    do: [ask]
"""


def settle_all(world: World, *engines: Engine) -> None:
    """They share a connection, on which nobody hears of what the others have written."""
    world.settle(*engines)
    for engine in engines:
        engine.request_poll()
    world.settle(*engines)


@pytest.mark.postgres
def test_exactly_so_many_requests_fail_whoever_sends_them_and_then_one_probe(
    world: World, later: Callable[..., None]
) -> None:
    service = Service()
    engines = [world.engine(ends=service, slots=7) for _ in range(3)]
    runs = [world.start(EXACT, engine) for engine in engines]
    settle_all(world, *engines)

    assert len(service.asked) == 5
    assert breaker(world).status == "open" and breaker(world).waiting == 0
    codes = [fact.failure.code for run_id in runs for fact in facts(world, run_id) if isinstance(fact, e.AttemptFailed)]
    # five items fail twice, since their retries are refused
    assert sorted(codes) == ["CIRCUIT_OPEN"] * 21 + ["EXIT_NONZERO"] * 5

    later(*engines)
    again = [world.start(EXACT, engine) for engine in engines]
    settle_all(world, *engines)

    assert len(service.asked) == 6
    assert {world.status(run_id) for run_id in (*runs, *again)} <= {"completed", "failed"}


def test_an_open_breaker_keeps_tasks_waiting_and_spends_nothing(world: World, later: Callable[..., None]) -> None:
    service = Service()
    engine = world.engine(ends=service)
    run_id = world.start(THREE, engine)
    world.settle(engine)
    assert (service.asked, breaker(world).status) == (["a 1", "a 2"], "open")
    assert world.statuses(run_id) == {"a": "ready", "b": "waiting", "c": "completed"}
    assert world.store.next_due(run_id) == breaker(world).retry_at

    service.is_up = True
    later(engine)

    assert service.asked == ["a 1", "a 2", "a 3", "b 1"]
    assert world.status(run_id) == "completed"
    assert breaker(world) == BreakerRecord("llm", "closed")


def test_a_probe_that_fails_opens_it_again_and_the_next_waits_as_long(world: World, later: Callable[..., None]) -> None:
    service = Service()
    engine = world.engine(ends=service)
    run_id = world.start(THREE, engine)
    world.settle(engine)

    later(engine)

    assert service.asked == ["a 1", "a 2", "a 3"]
    assert (breaker(world).status, breaker(world).failures) == ("open", 3)
    later(engine)
    # the last retry of 'a', and 'b' waits for the next probe
    assert service.asked == ["a 1", "a 2", "a 3", "a 4"]
    assert world.statuses(run_id)["b"] == "ready"


def test_who_will_not_wait_fails_with_the_breakers_time_and_its_retries_wait_for_that(world: World) -> None:
    service = Service()
    engine = world.engine(ends=service)
    run_id = world.start(HASTY, engine)

    world.settle(engine)

    assert service.asked == ["a 1", "a 2"]
    failure = world.state(run_id).failures[0].failure
    retry_at = breaker(world).retry_at
    assert retry_at is not None
    assert failure.code == "CIRCUIT_OPEN"
    assert failure.message == f"breaker 'llm' is open until {retry_at:%Y-%m-%d %H:%M:%S} UTC"
    assert failure.details["retry_at"] == retry_at.isoformat()
    # 'a' has no rule for it, and neither has 'b': both are refused, the first for its third attempt
    assert [record.failure.code for record in world.state(run_id).failures] == ["CIRCUIT_OPEN", "CIRCUIT_OPEN"]
    assert world.status(run_id) == "failed"


def test_a_rule_for_an_open_breaker_retries_when_it_may_be_probed(world: World) -> None:
    rules = "{rules: [{codes: [CIRCUIT_OPEN], max_retries: 1, delay: 0s}, {any: true, max_retries: 2, delay: 0s}]}"
    text = HASTY.replace("{max_retries: 3, delay: 0s}", rules)
    engine = world.engine(ends=Service())
    run_id = world.start(text, engine)

    world.settle(engine)

    assert world.statuses(run_id)["a"] == "backing_off"
    assert world.state(run_id).places["a"].climb.due == breaker(world).retry_at


# -- many runs -------------------------------------------------------------------------------------------------------


@pytest.mark.postgres
def test_two_engines_and_two_runs_share_one_breaker_and_one_probe(world: World, later: Callable[..., None]) -> None:
    service = Service()
    one, other = world.engine(ends=service), world.engine(ends=service)
    first = world.start(THREE, one)
    world.settle(one)
    second = world.start(THREE, other)
    world.settle(other)
    assert world.statuses(second)["a"] == "ready"

    service.is_up = True
    later(one, other)
    # They share a connection, on which nobody hears of what the other has written.
    other.request_poll()
    world.settle(one, other)

    assert [world.status(run_id) for run_id in (first, second)] == ["completed", "completed"]
    assert service.asked[:2] == ["a 1", "a 2"]
    assert sorted(service.asked[2:]) == ["a 1", "a 3", "b 1", "b 1"]


def test_a_breaker_that_is_reset_by_hand_lets_a_waiting_run_go_on(world: World) -> None:
    service = Service()
    engine = world.engine(ends=service)
    run_id = world.start(THREE, engine)
    world.settle(engine)
    service.is_up = True

    world.store.reset_breaker("llm")
    engine.request_poll()
    world.settle(engine)

    assert world.status(run_id) == "completed"


# -- verbs -----------------------------------------------------------------------------------------------------------


def test_a_run_that_waits_for_a_breaker_can_be_cancelled(world: World) -> None:
    engine = world.engine(ends=Service())
    run_id = world.start(THREE, engine)
    world.settle(engine)

    world.store.put(run_id, r.CancelRequested(world.clock.now(), "somebody"))
    engine.request_poll()
    world.settle(engine)

    assert world.status(run_id) == "cancelled"
    assert (breaker(world).waiting, world.store.queued_tasks(run_id)) == (0, [])


def test_what_was_leased_behind_a_cancel_is_asked_to_end_before_the_run_is_over(world: World) -> None:
    engine = world.engine(ends=never)
    run_id = world.start("breakers: {llm: {}}\nsteps: [{step: a, shell: ask, breaker: llm}]", engine)

    def cancel(point: str) -> None:
        if point == "after_commit" and world.store.queued_tasks(run_id):
            fault_listeners.remove(cancel)
            world.store.put(run_id, r.CancelRequested(world.clock.now(), "somebody"))

    fault_listeners.append(cancel)
    world.settle(engine)
    engine.request_poll()
    world.settle(engine)

    assert world.status(run_id) == "cancelled"
    assert [fact for fact in world.facts(run_id) if fact.startswith("Attempt")] == [
        "AttemptScheduled",
        "AttemptStarted",
        "AttemptStopping",
        "AttemptCancelled",
    ]


def test_a_probe_that_is_cancelled_decides_nothing_and_another_run_is_the_next(
    world: World, later: Callable[..., None]
) -> None:
    service = Service()
    engine = world.engine(ends=service)
    first, second = world.start(THREE, engine), world.start(THREE, engine)
    world.settle(engine)
    assert engine.executor is not None
    engine.executor.ends = never  # type: ignore[attr-defined]
    later_until_probed(later, engine, world)
    (probe,) = engine.executor.running
    probing, waiting = (first, second) if probe.task.run_id == first else (second, first)

    service.is_up, engine.executor.ends = True, service  # type: ignore[attr-defined]
    world.store.put(probing, r.CancelRequested(world.clock.now(), now=True))
    engine.request_poll()
    world.settle(engine)

    assert (world.status(probing), world.status(waiting)) == ("cancelled", "completed")
    assert breaker(world) == BreakerRecord("llm", "closed")


def test_a_paused_run_asks_no_breaker_and_goes_on_when_it_is_resumed(world: World, later: Callable[..., None]) -> None:
    service = Service()
    engine = world.engine(ends=service)
    run_id = world.start(THREE, engine)
    world.settle(engine)
    world.store.put(run_id, r.PauseRequested(world.clock.now()))
    engine.request_poll()
    world.settle(engine)

    later(engine)
    assert service.asked == ["a 1", "a 2"]

    service.is_up = True
    world.store.put(run_id, r.ResumeRequested(world.clock.now()))
    engine.request_poll()
    world.settle(engine)
    assert world.status(run_id) == "completed"


def test_one_that_was_queued_while_its_run_was_paused_fails_for_want_of_capacity_too(world: World) -> None:
    large = "{step: b, needs: [a], shell: ask, breaker: llm, resources: {cpus: 64}}"
    ended: list[Outcome] = []
    engine = world.engine(slots=2, ends=lambda task: ended[0] if ended else None)
    run_id = world.start(f"breakers: {{llm: {{}}}}\nsteps: [{{step: a, shell: ask}}, {large}]", engine)
    for _ in range(3):
        engine.tick(0.0)
    world.store.put(run_id, r.PauseRequested(world.clock.now()))
    engine.request_poll()
    engine.tick(0.0)
    ended.append(Outcome())
    world.settle(engine)

    world.store.put(run_id, r.ResumeRequested(world.clock.now()))
    engine.request_poll()
    world.settle(engine)

    assert world.statuses(run_id) == {"a": "completed", "b": "ready" if world.store.is_shared else "failed"}


def test_a_guarded_task_that_nobody_here_can_ever_take_fails_for_want_of_capacity(world: World) -> None:
    engine = world.engine(slots=2)
    text = "breakers: {llm: {}}\nsteps: [{step: a, shell: ask, breaker: llm, resources: {cpus: 64}}]"
    run_id = world.start(text, engine)

    world.settle(engine)

    if world.store.is_shared:
        assert world.statuses(run_id) == {"a": "ready"}
    else:
        assert world.state(run_id).failures[0].failure.code == "NO_CAPACITY"


def test_a_guarded_task_that_waited_is_refused_by_a_smaller_machine_that_takes_the_run_up(world: World) -> None:
    service = Service()
    text = THREE.replace("breaker: llm, retry", "breaker: llm, resources: {cpus: 4}, retry")
    large = world.engine(slots=4, ends=service)
    run_id = world.start(text, large)
    world.settle(large)
    world.expire(large)

    small = world.engine(slots=2, ends=service)
    small.take_up([run_id])
    world.settle(small)

    codes = [record.failure.code for record in world.state(run_id).failures]
    assert codes == ([] if world.store.is_shared else ["NO_CAPACITY"])


# -- what survives ---------------------------------------------------------------------------------------------------


def test_a_run_that_waited_for_a_breaker_is_taken_up_by_another_engine(
    world: World, later: Callable[..., None]
) -> None:
    service = Service()
    engine = world.engine(ends=service)
    run_id = world.start(THREE, engine)
    world.settle(engine)
    world.expire(engine)

    service.is_up = True
    other = world.engine(ends=service)
    other.take_up([run_id])
    world.settle(other)
    assert service.asked == ["a 1", "a 2"]
    later(other)

    assert world.status(run_id) == "completed"


@pytest.mark.postgres
def test_a_probe_that_dies_with_its_worker_is_another_lease_for_another(
    world: World, later: Callable[..., None]
) -> None:
    service = Service()
    engine = world.engine(ends=service)
    run_id = world.start(THREE, engine)
    world.settle(engine)
    assert engine.executor is not None
    engine.executor.ends = never  # type: ignore[attr-defined]
    later_until_probed(later, engine, world)
    world.expire(engine)

    service.is_up = True
    other = world.engine(ends=service)
    other.take_up([run_id])
    world.settle(other)

    assert world.status(run_id) == "completed"
    assert attempts(world, run_id) == ["c 1", "a 1", "a 2", "a 3", "a 4", "b 1"]


def never(task: Task) -> None:
    """It goes on."""


def later_until_probed(later: Callable[..., None], engine: Engine, world: World) -> None:
    with pytest.raises(AssertionError, match="still work"):
        later(engine)
    assert breaker(world).status == "half_open"


# -- crashes ---------------------------------------------------------------------------------------------------------

EVERYTHING = """
breakers: {llm: {failures: 3, reset: 60s}, db: {failures: 1, reset: 60s, when_open: fail}}
steps:
  - {step: fetch, shell: ask, breaker: llm, retry: {max_retries: 1, delay: 0s}}
  - step: each
    needs: [fetch]
    map: {over: "${[1, 2, 3]}", on_item_failure: collect}
    breaker: llm
    do: [ask, {shell: note, on_failure: {shell: ask again, breaker: llm}}]
  - {step: broken, shell: query, breaker: db, continue_on_error: true}
  - {step: refused, shell: query, breaker: db, continue_on_error: true, needs: [{step: broken, on: always}, each]}
"""


def plan() -> Ends:
    def ends(task: Task) -> Outcome:
        is_bad = task.step == "broken" or task.place.endswith("[1].1") or (task.step, task.attempt) == ("fetch", 1)
        return Outcome(exit_code=1 if is_bad else 0)

    return ends


def ended(world: World, run_id: int) -> dict[str, object]:
    state = world.state(run_id)
    return {
        "status": state.run.status,
        "steps": {place.key: (place.status, place.recovered_by) for place in state.steps()},
        "failures": [(record.step, record.failure.code) for record in state.failures],
        "breakers": [(record.name, record.status) for record in world.store.breakers()],
    }


def finished(world: World) -> dict[str, object]:
    """What becomes of a run whose engine is made anew whenever it dies, in a store whose breakers are closed."""
    for record in world.store.breakers():
        world.store.reset_breaker(record.name)
    engine: Engine | None = world.engine(slots=2, ends=plan())
    run_id = world.start(EVERYTHING, engine)
    while world.status(run_id) == "running":
        engine = engine or next(taken_up(world, run_id))
        try:
            world.settle(engine)
        except Crash:
            world.expire(engine)
            engine = None
    return ended(world, run_id)


def taken_up(world: World, run_id: int) -> Iterator[Engine]:
    engine = world.engine(slots=2, ends=plan())
    engine.take_up([run_id])
    yield engine


@pytest.mark.parametrize("point", sorted(FAULT_POINTS))
def test_a_crash_at_any_pass_of_a_fault_point_changes_no_outcome_behind_breakers(world: World, point: str) -> None:
    with faults() as points:
        expected = finished(world)
        passes = points.passes[point]

    assert expected["status"] == "completed"
    assert expected["failures"] == [("broken", "EXIT_NONZERO"), ("refused", "CIRCUIT_OPEN")]
    assert passes > 2
    for nth in world.crashes(passes):
        with faults() as points:
            points.arm(point, nth)
            found = finished(world)
        assert found == expected, f"died at pass {nth} of '{point}'"

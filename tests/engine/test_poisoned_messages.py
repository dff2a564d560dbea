"""Messages that no run can process: refused, recorded and dropped. The run goes on without them, and so do others."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.outcome import Outcome
from mulligan.engine.engine import Engine
from proof.simulator.hostile_reports import FROM_PEOPLE, HostileReports

from .conftest import World
from .test_engine import Choking, Poisoned

FAILING = "name: failing\nsteps: [{step: a, shell: make}, {step: b, shell: make, needs: [a]}]"
APPROVED = "name: asked\nsteps: [{step: ask, approve: go?}, {step: b, needs: [ask], when: 1 == 1, shell: make}]"
HEALTHY = "name: healthy\nsteps: [{step: one, shell: make}]"


def failed(world: World, engine: Engine) -> int:
    run_id = world.start(FAILING, engine)
    world.settle(engine)
    assert world.status(run_id) == "failed"
    return run_id


def fails(task: Any) -> Outcome:
    return Outcome(exit_code=1)


def send(world: World, engine: Engine, run_id: int, report: r.Report) -> int:
    message_id = world.store.put(run_id, report, is_asking=True)
    engine.request_poll()
    world.settle(engine)
    return message_id


def refusals(world: World, run_id: int) -> list[e.ReportRefused]:
    return [entry.fact for entry in world.store.log(run_id) if isinstance(entry.fact, e.ReportRefused)]


NO_STEP = {"items": (0,)}
NO_DEFINITION = {"revised": r.Revised("v", {"name": 17})}
OTHER_VERSION = {"revised": r.Revised("v", {"name": "failing", "steps": [], "end": {"name": "end"}})}


@pytest.mark.parametrize("asked", [NO_STEP, NO_DEFINITION, OTHER_VERSION], ids=["no step", "no definition", "version"])
def test_a_request_that_makes_no_sense_is_refused_recorded_and_dropped(world: World, asked: dict[str, Any]) -> None:
    engine = world.engine(ends=fails)
    run_id = failed(world, engine)

    message_id = send(world, engine, run_id, r.RetryRequested(world.clock.now(), "mallory", **asked))

    answer = world.store.answer(message_id)
    assert answer is not None and answer.error == "input.invalid"
    assert [(one.report, one.by) for one in refusals(world, run_id)] == [("RetryRequested", "mallory")]
    assert world.store.inbox([run_id]) == []
    assert world.status(run_id) == "failed"


def test_after_it_the_run_can_be_retried_and_removed(world: World) -> None:
    engine = world.engine(ends=fails)
    run_id = failed(world, engine)
    send(world, engine, run_id, r.RetryRequested(world.clock.now(), "mallory", items=(0,)))

    send(world, engine, run_id, r.RetryRequested(world.clock.now(), "somebody"))

    assert world.store.run(run_id).round == 2
    assert world.store.remove([run_id]) == [run_id]


def test_a_request_that_meets_a_bug_is_refused_and_the_run_stays_as_it_was(world: World) -> None:
    """An approval is right, and what follows from it meets the bug: whoever sent it hears so, and can send it again."""
    engine = world.engine()
    run_id, healthy = world.start(APPROVED, engine), world.start(HEALTHY, engine)
    world.settle(engine)
    well, engine.drivers[run_id].evaluator = engine.evaluator, Poisoned()  # type: ignore[assignment]

    message_id = send(world, engine, run_id, r.ApprovalGiven(world.clock.now(), "ask", True, "somebody", "fine"))

    answer = world.store.answer(message_id)
    assert answer is not None and answer.error == "run.message_refused"
    assert refusals(world, run_id)[0].reason == "engine_error: ZeroDivisionError: a bug"
    assert (world.status(run_id), world.statuses(run_id)["ask"]) == ("running", "running")
    assert world.status(healthy) == "completed"

    engine.drivers[run_id].evaluator = well
    send(world, engine, run_id, r.ApprovalGiven(world.clock.now(), "ask", True, "somebody", "fine"))
    assert world.status(run_id) == "completed"


def test_a_message_that_cannot_be_read_is_dropped_and_keeps_nobody_from_others(world: World) -> None:
    engine = world.engine(ends=fails)
    run_id = failed(world, engine)

    send(world, engine, run_id, r.Unreadable(world.clock.now(), "it has a type that this version does not know"))

    assert [one.report for one in refusals(world, run_id)] == ["Unreadable"]
    assert world.store.inbox([run_id]) == []


def test_a_result_with_numbers_that_cannot_be_stored_fails_its_attempt(world: World) -> None:
    engine = world.engine(ends=lambda task: None)
    run_id = world.start(HEALTHY, engine)
    engine.tick(0.0)

    report = r.TaskEnded(world.clock.now(), "one", 1, usage={"peak_memory": 10**30}, output=10**30)
    world.store.put(run_id, report)
    engine.request_poll()
    for _ in range(20):
        engine.tick(0.0)

    (found,) = [entry.fact for entry in world.store.log(run_id) if isinstance(entry.fact, e.AttemptFailed)]
    assert found.failure.code == "OUTPUT_INVALID"
    assert "a number is too large" in found.failure.message


def test_a_run_that_cannot_start_has_failed_with_the_reason(world: World) -> None:
    world.store = choking = Choking(world.store, e.StepEntered)  # type: ignore[assignment]
    engine = world.engine()
    choking.run_id = run_id = world.start(HEALTHY, engine)

    world.settle(engine)

    record = world.store.run(run_id)
    assert (record.status, record.reason) == ("failed", "engine_error: OverflowError: a bug")
    assert world.store.remove([run_id]) == [run_id]


def test_cancel_with_now_ends_a_run_that_meets_a_bug_whatever_is_reported(world: World) -> None:
    world.store = choking = Choking(  # type: ignore[assignment]
        world.store, e.AttemptSucceeded, e.AttemptCancelled, e.AttemptInterrupted, e.RunPaused, e.StepCancelled
    )
    engine = world.engine(ends=lambda task: None)
    choking.run_id = run_id = world.start(HEALTHY, engine)
    for _ in range(20):
        engine.tick(0.0)

    message_id = world.store.put(run_id, r.CancelRequested(world.clock.now(), "admin", now=True), is_asking=True)
    engine.request_poll()
    for _ in range(20):
        engine.tick(0.0)

    answer = world.store.answer(message_id)
    assert answer is not None and not answer.error
    record = world.store.run(run_id)
    assert (record.status, record.holder) == ("cancelled", "")
    assert world.store.inbox([run_id]) == []


def test_a_run_that_is_left_alone_is_tried_again_after_pauses_that_grow(world: World) -> None:
    world.store = choking = Choking(world.store, e.AttemptSucceeded, e.RunPaused)  # type: ignore[assignment]
    engine = world.engine()
    choking.run_id = run_id = world.start(HEALTHY, engine)
    world.settle(engine)

    troubles: list[str] = engine._turns._observer.troubles  # type: ignore[attr-defined]
    for _ in range(40):
        engine.request_poll()
        world.pass_time(engine, seconds=1.0)
    choking.run_id = 0
    engine.request_poll()
    world.pass_time(engine, seconds=600.0)

    waits = [text.partition(" for ")[2].partition(":")[0] for text in troubles if "left alone" in text]
    assert waits[:3] == ["5s", "10s", "20s"]
    assert len(troubles) < 15
    assert world.status(run_id) == "completed"


@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_hostile_client_sends_the_engine_settles_and_other_runs_end(world: World, seed: int) -> None:
    chance = random.Random(seed)
    engine = world.engine(ends=fails)
    run_id = failed(world, engine)
    reports = HostileReports.about(chance, world.state(run_id))

    for _ in range(25):
        world.store.put(run_id, reports.one(FROM_PEOPLE), is_asking=False)
    healthy = world.start(HEALTHY, engine)
    engine.request_poll()
    world.settle(engine)

    assert world.store.inbox([run_id]) == []
    assert world.status(healthy) == "failed"
    world.state(run_id)

"""A bug of ours, live: the run that meets it is paused and says so, the others go on, and `resume` tries again."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.runner import ROOM, ExecutionRecorder, Live

from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.engine.driven_runs import RunAbandoned
from mulligan.language import load
from mulligan.service.driving.driver import Driver
from mulligan.service.runs.changes.prepared_runs import prepare

# The second step asks the evaluator something, when the first has ended.
ASKING = """
name: asking
steps:
  - {step: first, shell: echo first >> trace}
  - {step: second, needs: [first], when: 1 == 1, shell: echo second >> trace}
"""
HEALTHY = """
name: healthy
steps:
  - {step: one, shell: 'true'}
  - {step: two, needs: [one], when: 1 == 1, shell: 'true'}
"""
REASON = "engine_error: ZeroDivisionError: a bug"


class Poisoned:
    """An evaluator with a bug."""

    def condition(self, *_: Any) -> bool:
        raise ZeroDivisionError("a bug")

    evaluate = render = condition


class Troubles(ExecutionRecorder):
    """Notes what an engine complains about."""

    def __init__(self) -> None:
        super().__init__()
        self.troubles: list[str] = []

    def trouble(self, message: str) -> None:
        self.troubles.append(message)


def begin(live: Live, driver: Driver, path: Path) -> int:
    [run_id] = live.service.changes.create(prepare(load(path), {}, live.folder), driver)
    return run_id


def poisoned(live: Live, driver: Driver, text: str = ASKING) -> int:
    """A run that crashes the engine whenever it asks for a value."""
    run_id = begin(live, driver, live.write("asking.yaml", text))
    driver.engine.drivers[run_id].evaluator = Poisoned()  # type: ignore[assignment]
    return run_id


@pytest.mark.postgres
def test_a_run_that_crashes_the_engine_is_paused_and_the_others_go_on(live: Live):
    watcher = Troubles()
    with live.service.driving.driver(ROOM, watcher) as driver:
        sick = poisoned(live, driver)
        well = [begin(live, driver, live.write("healthy.yaml", HEALTHY)) for _ in range(3)]
        driver.serve(until=lambda: len(watcher.troubles) > 0 and all(one not in driver.engine.drivers for one in well))

    found = live.look(sick)
    assert [live.look(run_id).status for run_id in well] == ["completed"] * 3
    assert (found.status, found.shown["reason"]) == ("paused", REASON)
    assert found.facts(e.RunPaused) == [e.RunPaused("engine", REASON)]
    assert watcher.troubles[0] == f"run {sick} is paused because of a bug in Mulligan: {REASON} (at TaskEnded)"


def test_its_own_process_ends_as_one_that_waits_for_a_person_and_resume_goes_on(live: Live):
    with live.service.driving.driver(ROOM, ExecutionRecorder()) as driver:
        run_id = poisoned(live, driver)
        ending = driver.drive(run_id)
    assert ending == "waiting"

    live.service.changes.resume(run_id)
    ran = live.resume(run_id)

    # The process has left in the inbox what the first attempt came to, and what crashed it: nothing is done again.
    assert (ran.status, live.lines("trace")) == ("completed", ["first", "second"])
    assert (ran.facts(e.AttemptLost), ran.facts(e.RetryScheduled)) == ([], [])


def test_where_the_bug_is_still_there_it_is_paused_once_more(live: Live):
    with live.service.driving.driver(ROOM, ExecutionRecorder()) as driver:
        run_id = poisoned(live, driver, f"{ASKING}  - {{step: third, needs: [second], when: 1 == 1, shell: 'true'}}\n")
        driver.drive(run_id)
    live.service.changes.resume(run_id)

    with live.service.driving.driver(ROOM, ExecutionRecorder()) as driver:
        driver.engine.take_up([run_id])
        driver.engine.drivers[run_id].evaluator = Poisoned()  # type: ignore[assignment]
        ending = driver.drive(run_id)

    found = live.look(run_id)
    assert (ending, found.status, found.shown["reason"]) == ("waiting", "paused", REASON)
    assert len(found.facts(e.RunPaused)) == 2


def test_a_worker_that_lives_on_tells_the_run_what_it_could_not_when_it_is_resumed(live: Live):
    with live.service.driving.driver(ROOM, ExecutionRecorder()) as driver:
        run_id = poisoned(live, driver)

        def is_over() -> bool:
            drive = driver.engine.drivers.get(run_id)
            if drive is not None and drive.is_paused_after_crash and isinstance(drive.evaluator, Poisoned):
                drive.evaluator = driver.engine.evaluator
                live.service.reader.store.put(run_id, r.ResumeRequested(datetime.now(UTC), "somebody"))
                driver.engine.request_poll()
            return drive is None

        driver.serve(until=is_over)

    ran = live.look(run_id)
    assert (ran.status, live.lines("trace")) == ("completed", ["first", "second"])


def test_the_story_of_it_says_what_happened_and_what_to_do(live: Live):
    with live.service.driving.driver(ROOM, ExecutionRecorder()) as driver:
        run_id = poisoned(live, driver)
        driver.drive(run_id)

    found = live.look(run_id)

    assert found.story[-1] == f"paused by engine: {REASON}"


class Cancelling(ExecutionRecorder):
    """Cancels the run as soon as its first step runs, and poisons it."""

    driver: Driver

    def tick(self) -> None:
        super().tick()
        for drive in self.driver.engine.drivers.values():
            if not isinstance(drive.evaluator, Poisoned) and self.driver.executor and self.driver.executor.running:
                drive.evaluator = Poisoned()  # type: ignore[assignment]
                self.driver.store.put(drive.run_id, r.CancelRequested(datetime.now(UTC), "somebody"))
                # Written by its own connection, which is no news to it.
                self.driver.engine.request_poll()


def test_a_stopping_run_that_meets_a_bug_ends_its_process_and_not_the_run(live: Live):
    text = ASKING.replace("shell: echo first >> trace", "shell: sleep 1000") + "outputs: {x: '${steps.first.output}'}\n"
    watcher = Cancelling()
    with live.service.driving.driver(ROOM, watcher) as driver:
        watcher.driver = driver
        run_id = begin(live, driver, live.write("stopping.yaml", text))
        with pytest.raises(RunAbandoned) as left:
            driver.drive(run_id)

    assert left.value.message == f"run {run_id} triggers a bug in Mulligan and cannot be continued by this version"
    assert live.resume(run_id).status == "cancelled"

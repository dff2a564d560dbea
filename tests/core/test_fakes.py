"""Faked steps: they run nothing and end in a given way; everything after their end is real."""

from __future__ import annotations

from tests.support.run_json import run_json

from mulligan.core.deciding.fakes import FakeEnd, with_fakes
from mulligan.core.effects import effects as fx
from mulligan.core.model import events as e
from mulligan.core.model.failure import failure
from mulligan.core.model.workflow import Action, Command, Handler, Map, Workflow, decode, encode
from mulligan.core.turn import fold
from mulligan.history.story import story
from mulligan.testing.history import History, command, edge, expression, retry, step, workflow

FAILS = FakeEnd(failure=failure("EXIT_NONZERO", "broken", exit_code=11))


def faked(definition: Workflow, **ends: tuple[FakeEnd, ...]) -> History:
    return History(with_fakes(definition, ends)).start()


def test_a_faked_step_ends_at_once_with_its_output_and_no_worker_has_it() -> None:
    run = faked(workflow(step("a"), step("b", needs=["a"])), a=(FakeEnd({"rows": 3}),))

    assert run["a"].output == {"rows": 3}
    assert run.queued == ["b"]
    assert not any(isinstance(effect, fx.QueueTask) and effect.place == "a" for effect in run.effects)


def test_the_log_the_story_and_the_run_say_that_it_was_faked() -> None:
    run = faked(workflow(step("a"), step("b", needs=["a"])), a=(FakeEnd(),)).ok("b")

    assert {fact.place: fact.is_faked for fact in run.facts(e.AttemptStarted)} == {"a": True}
    assert "completed (faked)" in [line.text for line in story(run.log, run.state.workflow)]
    assert {name: one["faked"] for name, one in run_json(run.state)["steps"].items()} == {"a": True, "b": False}


def test_its_failure_climbs_as_any_other() -> None:
    run = faked(
        workflow(step("a", next=[edge("fix", "failure", then="rerun")]), step("fix")), a=(FAILS, FakeEnd("well"))
    )

    assert run["a"].failure is not None
    assert (run["a"].failure.code, run["a"].failure.exit_code) == ("EXIT_NONZERO", 11)
    run.ok("fix")
    assert (run.status, run["a"].output) == ("completed", "well")


def test_attempts_end_one_after_the_other_as_said_and_the_last_end_stays() -> None:
    run = faked(workflow(step("a", rules=retry(5))), a=(FAILS, FAILS, FakeEnd("third time")))

    assert (run["a"].attempt, run["a"].output) == (3, "third time")


def test_its_handler_is_real() -> None:
    run = faked(workflow(step("a", on_failure=Handler((command("mend"),)))), a=(FAILS,))

    assert run.queued == ["a.on_failure@1.0"]


def test_its_output_is_checked_as_a_real_one_is() -> None:
    definition = workflow(step("a", validate=expression("fine", "output")))
    run = History(with_fakes(definition, {"a": (FakeEnd("bad"),)}), {"fine": False}).start()

    assert run["a"].failure is not None
    assert run["a"].failure.code == "VALIDATION_FAILED"


def test_the_files_that_it_should_write_are_looked_for() -> None:
    definition = workflow(step("a", writes=("model",)), files={"model": "model.bin"})

    run = faked(definition, a=(FakeEnd(),))

    assert run.queued == ["a.validator@1"]
    assert run["a.validator@1"].spec.writes == ("model",)


def test_a_map_is_faked_as_a_whole() -> None:
    mapped = step("m", map=Map(over=expression("items", "inputs")), do=(Command(action=Action("shell")),))

    run = faked(workflow(mapped), m=(FakeEnd([1, 2]),))

    assert (run.status, run["m"].output) == ("completed", [1, 2])


def test_a_faked_step_waits_for_the_end_of_a_pause() -> None:
    definition = with_fakes(workflow(step("a"), step("b", needs=["a"])), {"b": (FakeEnd("late"),)})
    run = History(definition).start().pause().ok("a")
    assert run["b"].status == "ready"

    run.resume()

    assert run.status == "completed"


def test_a_workflow_with_fakes_is_pinned_and_its_log_folds() -> None:
    definition = with_fakes(workflow(step("a", rules=retry(1))), {"a": (FAILS, FakeEnd({"n": 1.5}))})
    run = History(definition).start()

    assert decode(encode(definition)) == definition
    assert fold(definition, run.log) == run.state

"""A round with `adjust`: more memory or time for steps that ran out of it."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.deciding.workers.resource_usage import MIB, peak_memory_by_step, proposals
from mulligan.core.effects.tasks import make_task
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.event_types import Adjusted
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import Action, Adjust, Map, Resources, Rule
from mulligan.core.turn import fold
from mulligan.testing.history import History, command, expression, step, workflow


def run_of(*steps: Any, **answers: Any) -> History:
    return History(workflow(*steps), answers).start()


def out_of_memory(run: History, key: str, peak: int | None = None) -> History:
    usage = {} if peak is None else {"peak_memory": peak * MIB}
    run.tasks.pop(key, None)
    return run.report(
        r.TaskEnded(run.clock, key, run[key].attempt, Outcome(signal=9, is_out_of_memory=True), usage=usage)
    )


def late(run: History, key: str) -> History:
    return run.fail(key, is_timed_out=True)


def memory(mib: int) -> Resources:
    return Resources(memory=mib * MIB)


def given(run: History) -> dict[str, Adjusted]:
    found: dict[str, Adjusted] = run.facts(e.RunReopened)[-1].adjustments
    return found


def texts(run: History, **measured: int) -> list[str]:
    steps = [place.key for place in run.state.steps()]
    return [f"{one.step}: {one.text}" for one in proposals(run.state, steps, measured)]


# -- what is proposed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "peak", "mib", "text"),
    [
        # The larger of asked and measured counts, whichever that is.
        (512, 510, 768, "memory 512MiB -> 768MiB, because it ran out at 510MiB"),
        (512, 700, 1050, "memory 512MiB -> 1.0GiB, because it ran out at 700MiB"),
        (512, None, 768, "memory 512MiB -> 768MiB, because it ran out"),
        # The machine was out of memory: the workflow had asked for none.
        (None, 101, 152, "memory 152MiB, because it ran out at 101MiB"),
    ],
)
def test_what_ran_out_of_memory_gets_half_as_much_again(asked: int | None, peak: int | None, mib: int, text: str):
    run = run_of(step("solve", resources=memory(asked) if asked else None))
    out_of_memory(run, "solve", peak)
    assert texts(run) == [f"solve: {text}"]

    run.retry(adjust=True)

    assert given(run) == {"solve": Adjusted(memory=mib * MIB)}
    assert make_task(run.state, "solve").memory == mib * MIB
    assert fold(run.state.workflow, run.log) == run.state


def test_what_was_not_done_in_time_gets_twice_the_time_in_whole_seconds():
    run = late(run_of(step("solve", timeout=1.2)), "solve")
    assert texts(run) == ["solve: timeout 1.2s -> 3s, because it timed out"]

    run.retry(adjust=True)

    assert given(run) == {"solve": Adjusted(timeout=3.0)}
    assert make_task(run.state, "solve").timeout == 3.0


def test_where_nothing_is_known_and_where_something_else_went_wrong_nothing_is_given():
    run = run_of(step("plain"), step("dark"), step("fine", resources=memory(1)))

    out_of_memory(run.ok("fine").fail("plain"), "dark").retry(adjust=True)

    assert given(run) == {}


def test_a_round_without_adjust_gives_what_the_workflow_says():
    run = out_of_memory(run_of(step("solve", resources=memory(512))), "solve", 510)

    run.retry()

    assert (given(run), make_task(run.state, "solve").memory) == ({}, 512 * MIB)


def test_the_most_that_any_attempt_was_seen_to_use_counts():
    run = run_of(step("solve", resources=memory(100)))

    out_of_memory(run, "solve", 90).retry(adjust=True, peaks={"solve": 400 * MIB})

    assert given(run) == {"solve": Adjusted(memory=600 * MIB)}


def test_the_peaks_of_a_step_are_those_of_its_attempts_and_of_its_items_not_of_its_handlers():
    def succeeded(place: str, peak: Any) -> e.Entry:
        return e.Entry(1, run.clock, 0, e.AttemptSucceeded(place, 1, usage={"peak_memory": peak}))

    run = run_of(step("a"))
    used = [("m[0].0", 5), ("m[7].1", 9), ("m[7].1.on_failure@2.0", 90), ("a", 3), ("a.undo@1", 50), ("b", None)]

    assert peak_memory_by_step(succeeded(place, peak) for place, peak in used) == {"m": 9, "a": 3}


# -- in the round ----------------------------------------------------------------------------------------------------


def test_a_rule_that_adjusts_builds_on_what_the_round_gave():
    rule = Rule(codes=("OUT_OF_MEMORY",), max_retries=1, adjust=Adjust(memory=2.0))
    run = run_of(step("solve", resources=memory(100), rules=(rule,)))
    out_of_memory(out_of_memory(run, "solve", 100), "solve", 200)
    assert texts(run) == ["solve: memory 200MiB -> 300MiB, because it ran out at 200MiB"]

    out_of_memory(run.retry(adjust=True), "solve", 300)

    assert make_task(run.state, "solve").memory == 600 * MIB


def test_what_a_round_gave_is_for_that_round():
    run = out_of_memory(run_of(step("solve", resources=memory(100))), "solve", 100)

    run.retry(adjust=True).fail("solve")
    run.retry()

    assert make_task(run.state, "solve").memory == 100 * MIB


def test_a_second_round_that_adjusts_goes_on_from_the_first():
    run = out_of_memory(run_of(step("solve", resources=memory(100))), "solve", 100)

    out_of_memory(run.retry(adjust=True), "solve", 150).retry(adjust=True)

    assert make_task(run.state, "solve").memory == 225 * MIB


def test_every_visit_of_the_round_gets_it():
    flaky = step("solve", resources=memory(100), on_lost="rerun")
    run = out_of_memory(run_of(flaky), "solve", 100).retry(adjust=True)

    run.lose("solve")

    assert (run["solve"].attempt, make_task(run.state, "solve").memory) == (3, 150 * MIB)


def test_items_get_what_the_worst_of_them_needs_and_no_command_less_than_it_asks_for():
    small = command("small", resources=memory(100), timeout=5)
    large = command("large", resources=memory(900))
    run = run_of(step("m", map=Map(over=expression("list")), do=(small, large)), list=[1, 2])

    out_of_memory(run, "m[0].0", 100)
    out_of_memory(run, "m[1].0", 120).retry(adjust=True)

    assert given(run) == {"m": Adjusted(memory=180 * MIB)}
    assert make_task(run.state, "m[0].0").memory == 180 * MIB
    run.ok("m[0].0")
    assert make_task(run.state, "m[0].1").memory == 900 * MIB


def test_a_command_of_an_item_without_a_timeout_gets_none():
    run = run_of(
        step("m", map=Map(over=expression("list")), do=(command("quick", timeout=5), command("slow"))), list=[1]
    )

    late(run, "m[0].0").retry(adjust=True)

    assert make_task(run.state, "m[0].0").timeout == 10
    run.ok("m[0].0")
    assert make_task(run.state, "m[0].1").timeout is None


def test_one_step_may_get_both():
    one = command("one", resources=memory(10), timeout=5)
    run = run_of(step("m", map=Map(over=expression("list")), do=(one,)), list=[1, 2])

    late(out_of_memory(run, "m[0].0", 10), "m[1].0").retry(adjust=True)

    assert given(run) == {"m": Adjusted(memory=15 * MIB, timeout=10.0)}


def test_a_child_run_gets_more_time():
    run = run_of(step("child", action=Action("workflow", {"file": "child.yaml"}), timeout=60))
    run.wait(60).child_ended("child", "cancelled")

    run.retry(adjust=True)

    assert given(run) == {"child": Adjusted(timeout=120.0)}
    assert run["child"].due == run.clock.replace(minute=run.clock.minute + 2)

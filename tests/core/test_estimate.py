"""How long a run will still take, from how long its steps took before; and nothing where nobody can know."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from mulligan.core.deciding.fakes import FakeEnd, with_fakes
from mulligan.core.model import events as e
from mulligan.core.model.workflow import Action, Map, Resources, Triage
from mulligan.history.estimate import Measured, about, measured, remaining_seconds, typical
from mulligan.testing.history import T0, History, edge, expression, retry, step, workflow


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def usual(**seconds: float) -> dict[str, Measured]:
    return {name: Measured(took) for name, took in seconds.items()}


def left(run: History, known: dict[str, Measured], *, slots: float = 2.0, now: float = 0.0, **since: float) -> Any:
    return remaining_seconds(run.state, known, at(now), slots, {name: at(began) for name, began in since.items()})


def run_of(*steps: Any, answers: dict[str, Any] | None = None, **fields: Any) -> History:
    return History(workflow(*steps, **fields), answers).start()


# -- what was ----------------------------------------------------------------------------------------------------------


def test_a_step_took_the_time_from_its_first_attempt_to_its_end_with_its_retries():
    run = run_of(step("a", rules=retry(1, delay=5)))

    run.started("a").wait(2).fail("a").wait(5).started("a").wait(1).ok("a")

    found = measured(run.log)
    assert found is not None and found["a"] == Measured(8.0)


def test_a_step_that_took_over_an_earlier_result_tells_nothing_of_its_time():
    run = run_of(step("a"), step("b"))
    run.started("a").wait(2).ok("a").started("b").wait(1).ok("b")
    reused = [
        msgspec.structs.replace(entry, fact=msgspec.structs.replace(entry.fact, reused_run_id=7))
        if isinstance(entry.fact, e.AttemptSucceeded) and entry.fact.place == "a"
        else entry
        for entry in run.log
    ]

    found = measured(reused)

    assert found is not None and (set(found) - {"end"}, found["b"]) == ({"b"}, Measured(1.0))


def test_a_faked_step_tells_nothing_of_its_time():
    faked = with_fakes(workflow(step("a"), step("b")), {"a": [FakeEnd(output=1)]})
    run = History(faked).start()
    run.started("b").wait(1).ok("b")

    found = measured(run.log)

    assert found is not None and (set(found) - {"end"}, found["b"]) == ({"b"}, Measured(1.0))


def test_nobody_knows_how_long_somebody_holds_a_step():
    run = run_of(step("a"), step("b", needs=["a"]))
    known = usual(a=8.0, b=4.0)

    run.pause_step("b")
    held = left(run, known)
    run.resume_step("b")

    assert (held, left(run, known)) == (None, 12.0)


def test_a_step_that_was_skipped_took_nothing_and_a_map_says_how_many_items_it_had():
    run = run_of(
        step("m", map=Map(over=expression("list")), do=(step("c"),)),
        step("no", when="never"),
        answers={"list": [1, 2, 3], "never": False},
    )

    run.wait(6).ok("m[0].0", "m[1].0", "m[2].0")

    found = measured(run.log)
    assert found is not None and (found["m"], found["no"]) == (Measured(6.0, 3), Measured(0.0))


def test_a_run_with_loops_or_rounds_says_nothing_of_the_next():
    looping = run_of(step("a", next=["a"], max_visits=2)).ok("a").fire_all().ok("a")
    reopened = run_of(step("a")).fail("a").retry().ok("a")

    assert (measured(looping.log), measured(reopened.log)) == (None, None)


def test_what_is_typical_is_the_middle_of_the_runs_that_know_a_step():
    runs = [usual(a=1.0), {"a": Measured(9.0, 4)}, {"a": Measured(2.0, 2), "b": Measured(5.0)}]

    assert typical(runs) == {"a": Measured(2.0, 2), "b": Measured(5.0)}
    assert typical([usual(a=1.0), usual(a=2.0)]) == usual(a=1.5)
    assert typical([]) == {}


# -- what will be ------------------------------------------------------------------------------------------------------


def test_steps_that_follow_each_other_add_up_and_what_has_run_of_one_is_taken_off():
    run = run_of(step("a"), step("b", needs=["a"])).started("a")

    assert left(run, usual(a=10.0, b=20.0), now=4.0, a=0.0) == 26.0
    assert left(run.ok("a"), usual(a=10.0, b=20.0), now=10.0) == 20.0


def test_steps_side_by_side_share_the_slots():
    run = run_of(*(step(f"s{n}") for n in range(4)))

    known = {f"s{n}": Measured(10.0) for n in range(4)}
    assert [left(run, known, slots=slots) for slots in (1, 2, 4, 100)] == [40.0, 20.0, 10.0, 10.0]


def test_a_step_that_asks_for_several_cpus_has_them_to_itself():
    run = run_of(step("wide", resources=Resources(cpus=2.0)), step("a"), step("b"))

    assert left(run, usual(wide=10.0, a=5.0, b=5.0), slots=2.0) == 15.0


def test_a_group_and_edges_are_waited_for_as_needs_are():
    run = run_of(step("a", next=["c"]), step("b"), step("c"), step("d", needs=["b"]))

    assert left(run, usual(a=3.0, b=1.0, c=4.0, d=1.0), slots=10) == 7.0


def test_a_step_that_takes_longer_than_ever_is_as_good_as_done_and_alone_it_is_unknown():
    run = run_of(step("a"), step("b", needs=["a"])).started("a")

    assert left(run, usual(a=1.0, b=5.0), now=60.0, a=0.0) == 5.0
    assert left(run, usual(a=1.0, b=0.0), now=60.0, a=0.0) is None


def test_a_map_is_as_far_as_its_items_are_and_longer_with_more_of_them():
    run = run_of(
        step("m", map=Map(over=expression("list"), max_parallel=1), do=(step("c"),)), answers={"list": [1, 2, 3, 4]}
    )

    known = {"m": Measured(10.0, 2)}
    assert left(run, known) == 20.0
    assert left(run.ok("m[0].0"), known) == 15.0


def test_a_wait_ends_when_it_is_due():
    run = run_of(step("pause", action=Action("wait", {"seconds": 30})))

    assert left(run, usual(other=1.0), now=10.0) == 20.0


@pytest.mark.parametrize(
    "steps",
    [
        [step("new")],
        [step("a"), step("ask", needs=["a"], action=Action("approve", {"message": "go?"}))],
    ],
)
def test_what_was_never_seen_or_waits_for_a_person_makes_all_of_it_unknown(steps: list[Any]):
    assert left(run_of(*steps), usual(a=1.0, ask=100.0)) is None


def test_a_parked_step_and_one_that_is_being_repaired_make_all_of_it_unknown():
    parked = run_of(step("a", triage=Triage())).fail("a")
    repaired = run_of(step("a", next=[edge("fix", "failure", then="rerun")]), step("fix")).fail("a")

    known = usual(a=1.0, fix=1.0)
    assert (left(parked, known), left(repaired, known)) == (None, None)


def test_a_run_that_is_paused_or_has_ended_or_has_no_past_has_no_estimate():
    run = run_of(step("a"))

    assert left(run, {}) is None
    assert left(run.pause(), usual(a=1.0)) is None
    assert left(run.resume().ok("a"), usual(a=1.0)) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "a few s"),
        (12, "about 10 s"),
        (13, "about 15 s"),
        (41, "about 40 s"),
        (58, "about 1 min"),
        (225, "about 4 min"),
        (3_580, "about 1 h"),
        (4_230, "about 1 h 10 min"),
    ],
)
def test_a_length_is_said_as_roughly_as_it_is_known(seconds: float, text: str):
    assert about(seconds) == text


def test_the_estimate_of_a_finished_history_agrees_with_what_it_took():
    first = run_of(step("a"), step("b", needs=["a"]), step("c"))
    first.started("a").started("c").wait(4).ok("a").started("b").wait(3).ok("b").ok("c")
    found = measured(first.log)
    assert found is not None
    assert [type(entry.fact) for entry in first.log][-1] is e.RunCompleted

    assert left(run_of(step("a"), step("b", needs=["a"]), step("c")), typical([found])) == 7.0

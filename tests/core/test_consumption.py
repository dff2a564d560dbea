"""What steps asked for and used, and what they should ask for: more, less, or for the first time."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.failure import failure
from mulligan.core.model.workflow import END_TIMEOUT_SECONDS, Resources, Step
from mulligan.history.consumption import (
    GIB,
    MIB,
    Advice,
    Consumption,
    Requested,
    Usage,
    advice,
    consumption,
    written_duration,
    written_size,
)
from mulligan.testing.history import T0, command, step, workflow


def well(place: str, attempt: int = 1, **usage: Any) -> e.Fact:
    return e.AttemptSucceeded(place, attempt, usage=usage)


def bad(place: str, code: str, details: dict[str, Any] | None = None, attempt: int = 1, **usage: Any) -> e.Fact:
    return e.AttemptFailed(place, attempt, failure(code, "", details=details or {}), usage)


def killed(place: str, **usage: Any) -> e.Fact:
    return e.AttemptFailed(place, 1, failure("SIGNALED", "", exit_code=137, signal=9), usage)


def consumption_of(*steps: Step, facts: list[e.Fact]) -> tuple[Consumption, ...]:
    return consumption(workflow(*steps), [e.Entry(seq, T0, 0, fact) for seq, fact in enumerate(facts, 1)])


def pieces(found: tuple[Advice, ...]) -> list[tuple[str, str, str, str]]:
    return [(one.what, one.written, one.why, one.text) for one in found]


# -- what was used ---------------------------------------------------------------------------------------------------


def test_attempts_are_added_up_and_the_most_that_one_had_is_kept() -> None:
    asked = step("solve", resources=Resources(cpus=2, memory=GIB, gpus=1, labels=("big",)), timeout=600)

    [found] = consumption_of(
        asked,
        facts=[
            bad("solve", "EXIT_NONZERO", wall_seconds=2.0, cpu_seconds=3.0, peak_memory=700 * MIB, tokens=10),
            well("solve", 2, wall_seconds=4.0, cpu_seconds=2.0, peak_memory=600 * MIB, tokens=5),
        ],
    )

    assert (found.name, found.parts, found.asked) == ("solve", 1, Requested(GIB, 2, 1, ("big",), 600))
    assert found.used == Usage(
        attempts=2,
        wall_seconds=6.0,
        cpu_seconds=5.0,
        memory=700 * MIB,
        memory_well=600 * MIB,
        seconds_well=4.0,
        cpus=1.5,
        tokens=15,
        ended_well=1,
    )


def test_all_items_of_a_map_are_one_and_their_commands_ask_for_it() -> None:
    checked = step("check", do=(command(resources=Resources(memory=256 * MIB), timeout=5), command(timeout=9)))

    [found] = consumption_of(
        checked,
        facts=[
            well("check[0].0", peak_memory=100 * MIB),
            well("check[0].1", peak_memory=20 * MIB),
            well("check[1].0", peak_memory=200 * MIB),
        ],
    )

    assert (found.parts, found.used.attempts, found.used.memory) == (2, 3, 200 * MIB)
    assert found.asked == Requested(memory=256 * MIB, timeout=9)


def test_all_steps_of_a_matrix_are_one() -> None:
    sweep = [step(f"sim_{i}", matrix={"i": i}, sweep="sim") for i in (1, 2)]

    [found] = consumption_of(*sweep, facts=[well("sim_1", peak_memory=MIB), well("sim_2", peak_memory=3 * MIB)])

    assert (found.name, found.parts, found.used.memory) == ("sim", 2, 3 * MIB)


def test_handlers_scripts_and_what_nobody_measured_count_for_nothing() -> None:
    found = consumption_of(
        step("a"),
        step("b"),
        facts=[well("a.on_failure@1.0", peak_memory=GIB), well("a.script@1", peak_memory=GIB), well("b")],
    )

    assert found == ()


def test_steps_are_told_in_the_order_of_the_file() -> None:
    facts = [well("b", peak_memory=1), well("a", peak_memory=1), well("end", peak_memory=1)]

    assert [one.name for one in consumption_of(step("a"), step("b"), facts=facts)] == ["a", "b", "end"]


def test_the_time_that_every_end_has_was_asked_for_by_nobody() -> None:
    plan = workflow(step("solve"), end=Step(name="end", timeout=END_TIMEOUT_SECONDS))

    [found] = consumption(plan, [e.Entry(1, T0, 0, well("end", wall_seconds=0.1))])

    assert (found.name, found.asked, found.advice) == ("end", Requested(), ())


@pytest.mark.parametrize("said", [None, "much", float("nan"), [1]])
def test_a_figure_that_is_none_counts_for_nothing(said: Any) -> None:
    [found] = consumption_of(
        step("a"), facts=[well("a", peak_memory=said, wall_seconds=said, cpu_seconds=said, other=1)]
    )

    assert (found.used.memory, found.used.wall_seconds, found.advice) == (0, 0.0, ())


# -- attempts that did not end by themselves -------------------------------------------------------------------------

LARGE = step("a", resources=Resources(cpus=4, memory=8 * GIB), timeout=60)


def test_nothing_is_proposed_from_an_attempt_that_hung_until_its_timeout() -> None:
    hung = bad("a", "TIMEOUT", {"timeout": 60}, wall_seconds=60.0, cpu_seconds=0.4, peak_memory=20 * MIB)

    [found] = consumption_of(LARGE, facts=[hung])

    assert (found.used.hung, found.used.timed_out, found.used.memory, found.used.cpus) == (1, 0, 0, 0.0)
    assert found.advice == ()


def test_one_that_worked_until_its_timeout_asks_for_more_time_and_for_nothing_less() -> None:
    slow = bad("a", "TIMEOUT", {"timeout": 60}, wall_seconds=60.0, cpu_seconds=59.0, peak_memory=20 * MIB)

    [found] = consumption_of(LARGE, facts=[slow])

    assert [(one.what, one.why) for one in found.advice] == [("timeout", "ran_out")]


def test_nothing_is_proposed_from_an_attempt_that_was_killed() -> None:
    [found] = consumption_of(LARGE, facts=[killed("a", wall_seconds=30.0, cpu_seconds=0.1, peak_memory=20 * MIB)])

    assert (found.used.killed, found.used.memory, found.advice) == (1, 0, ())


def test_one_that_ran_out_of_memory_says_how_much_is_too_little_and_nothing_else() -> None:
    short = bad("a", "OUT_OF_MEMORY", wall_seconds=30.0, cpu_seconds=0.1, peak_memory=8 * GIB)

    [found] = consumption_of(LARGE, facts=[short])

    assert [(one.what, one.written) for one in found.advice] == [("memory", "12GiB")]


def test_a_failed_attempt_alone_is_no_reason_to_ask_for_less() -> None:
    [found] = consumption_of(
        LARGE, facts=[bad("a", "EXIT_NONZERO", wall_seconds=2.0, cpu_seconds=0.1, peak_memory=MIB)]
    )

    assert found.advice == ()


def test_those_that_ended_well_are_advised_from_beside_one_that_hung() -> None:
    hung = bad("a", "TIMEOUT", {"timeout": 60}, wall_seconds=60.0, cpu_seconds=0.4, peak_memory=GIB)
    done = well("a", 2, wall_seconds=5.0, cpu_seconds=10.0, peak_memory=7 * GIB)

    [found] = consumption_of(LARGE, facts=[hung, done])

    assert (found.used.memory, found.used.cpus, found.advice) == (7 * GIB, 2.0, ())


# -- memory ----------------------------------------------------------------------------------------------------------

MEMORY = [
    # close to its limit, and above what only watching would allow
    (512 * MIB, Usage(memory=500 * MIB), [("memory", "640MiB", "close", "it used 500MiB of 512MiB")]),
    # far more than it needs
    (8 * GIB, Usage(memory=700 * MIB), [("memory", "896MiB", "too_much", "it used 700MiB of 8.0GiB")]),
    # less than twice is none of our business
    (GIB, Usage(memory=600 * MIB), []),
    # a small step is not made smaller than any limit is good for
    (512 * MIB, Usage(memory=3 * MIB), [("memory", "64MiB", "too_much", "it used 3MiB of 512MiB")]),
    (64 * MIB, Usage(memory=3 * MIB), []),
    # nothing was asked for
    (None, Usage(memory=2 * GIB), [("memory", "2560MiB", "not_asked", "it used 2.0GiB and requested none")]),
    (None, Usage(memory=63 * MIB), []),
    (None, Usage(), []),
    (GIB, Usage(), []),
    # ran out, and never ended well
    (
        512 * MIB,
        Usage(memory=510 * MIB, out_of_memory=2, too_little_memory=512 * MIB),
        [("memory", "768MiB", "ran_out", "it ran out at 512MiB")],
    ),
    # ran out, and then ended well with more: what it took then is known
    (
        512 * MIB,
        Usage(memory=600 * MIB, memory_well=600 * MIB, out_of_memory=1, too_little_memory=512 * MIB),
        [("memory", "768MiB", "ran_out", "it ran out at 512MiB")],
    ),
    # others ended well with less: they say nothing of the one that ran out
    (
        512 * MIB,
        Usage(memory=512 * MIB, memory_well=100 * MIB, out_of_memory=1, too_little_memory=512 * MIB),
        [("memory", "768MiB", "ran_out", "it ran out at 512MiB")],
    ),
]


@pytest.mark.parametrize(("asked", "used", "expected"), MEMORY)
def test_memory_is_proposed_by_what_was_used(asked: int | None, used: Usage, expected: list[Any]) -> None:
    assert pieces(advice(Requested(memory=asked), used)) == expected


def test_the_failure_says_what_was_too_little_where_the_attempt_had_more_than_the_workflow_says() -> None:
    [found] = consumption_of(
        step("solve", resources=Resources(memory=512 * MIB)),
        facts=[bad("solve", "OUT_OF_MEMORY", {"memory": 768 * MIB}, wall_seconds=1.0, peak_memory=760 * MIB)],
    )

    assert pieces(found.advice) == [("memory", "1152MiB", "ran_out", "it ran out at 768MiB")]


# -- cpus ------------------------------------------------------------------------------------------------------------

CPUS = [
    (4.0, Usage(cpus=0.9), [("cpus", "2", "too_much", "it used 0.9 of 4")]),
    (4.0, Usage(cpus=0.1), [("cpus", "0.25", "too_much", "it used 0.1 of 4")]),
    (0.25, Usage(cpus=0.01), []),
    (2.0, Usage(cpus=1.2), []),
    (2.0, Usage(cpus=3.7), [("cpus", "4", "close", "it used 3.7 of 2")]),
    (None, Usage(cpus=3.7), [("cpus", "4", "not_asked", "it used 3.7")]),
    (None, Usage(cpus=1.2), []),
    # Nobody asked: whoever waits for a network is not told to.
    (None, Usage(cpus=0.01), []),
    (4.0, Usage(), []),
]


@pytest.mark.parametrize(("asked", "used", "expected"), CPUS)
def test_cpus_are_proposed_by_how_many_were_busy(asked: float | None, used: Usage, expected: list[Any]) -> None:
    assert pieces(advice(Requested(cpus=asked), used)) == expected


def test_a_moment_says_nothing_of_cpus() -> None:
    [found] = consumption_of(
        step("a", resources=Resources(cpus=8)), facts=[well("a", wall_seconds=0.9, cpu_seconds=0.1)]
    )

    assert found.advice == ()


# -- time ------------------------------------------------------------------------------------------------------------

TIME = [
    (60.0, Usage(seconds_well=58.0), [("timeout", "3m", "close", "it took 58s of 60s")]),
    (7200.0, Usage(seconds_well=100.0), [("timeout", "5m", "too_much", "it took 1m40s of 2h00m")]),
    # ten times is what a timeout may be
    (600.0, Usage(seconds_well=60.0), []),
    # a step that takes no time needs no better timeout
    (60.0, Usage(seconds_well=0.1), []),
    (None, Usage(seconds_well=1300.0), [("timeout", "1h30m", "not_asked", "it took 21m40s and has no timeout")]),
    (None, Usage(seconds_well=59.0), []),
    (30.0, Usage(timed_out=1, too_little_seconds=30.0), [("timeout", "1m", "ran_out", "it did not finish in 30s")]),
    (
        30.0,
        Usage(seconds_well=40.0, timed_out=1, too_little_seconds=30.0),
        [("timeout", "50s", "ran_out", "it did not finish in 30s")],
    ),
    # the deadline of its visit: another timeout would not help
    (None, Usage(timed_out=1), []),
]


@pytest.mark.parametrize(("asked", "used", "expected"), TIME)
def test_a_timeout_is_proposed_by_how_long_it_took(asked: float | None, used: Usage, expected: list[Any]) -> None:
    assert pieces(advice(Requested(timeout=asked), used)) == expected


def test_an_attempt_that_was_not_done_says_how_much_time_was_too_little() -> None:
    [found] = consumption_of(
        step("a", timeout=10),
        facts=[
            bad("a", "TIMEOUT", {"timeout": 10}, wall_seconds=10.0),
            bad("a", "TIMEOUT", {"timeout": 20}, attempt=2, wall_seconds=20.0),
        ],
    )

    assert pieces(found.advice) == [("timeout", "40s", "ran_out", "it did not finish in 20s")]


# -- what to write ---------------------------------------------------------------------------------------------------


def test_what_to_write_keeps_what_else_is_asked_for() -> None:
    asked = Requested(memory=GIB, cpus=2, gpus=1, labels=("big", "fast"), timeout=10)
    used = Usage(memory=GIB, seconds_well=10.0, cpus=1.5)

    found = Consumption("solve", 1, asked, used, advice(asked, used))

    assert found.to_write == {
        "resources": "{cpus: 2, memory: 1280MiB, gpus: 1, labels: [big, fast]}",
        "timeout": "1m",
    }


def test_where_all_fits_there_is_nothing_to_write() -> None:
    assert Consumption("solve", 1, Requested(), Usage()).to_write == {}


@pytest.mark.parametrize(
    ("value", "text"), [(GIB, "1GiB"), (1536 * MIB, "1536MiB"), (GIB + 1, "1073741825B"), (0, "0GiB")]
)
def test_a_size_is_written_exactly(value: int, text: str) -> None:
    assert written_size(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.0, "0s"), (0.2, "1s"), (90.0, "1m30s"), (5400.0, "1h30m")])
def test_a_duration_is_written_as_files_write_it(value: float, text: str) -> None:
    assert written_duration(value) == text

"""Where advice begins and ends: the last figure that is well, and the first that is not."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.failure import failure
from mulligan.core.model.workflow import END_TIMEOUT_SECONDS, Resources, Step
from mulligan.history import consumption as c
from mulligan.history.consumption import GIB, MIB, Consumption, Requested, Usage, advice, consumption
from mulligan.testing.history import T0, command, step, workflow


def well(place: str, **usage: Any) -> e.Fact:
    return e.AttemptSucceeded(place, 1, usage=usage)


def bad(place: str, code: str, details: dict[str, Any], **usage: Any) -> e.Fact:
    return e.AttemptFailed(place, 1, failure(code, "", details=details), usage)


def consumption_of(*steps: Step, facts: list[e.Fact]) -> tuple[Consumption, ...]:
    return consumption(workflow(*steps), [e.Entry(seq, T0, 0, fact) for seq, fact in enumerate(facts, 1)])


def written(asked: Requested, used: Usage) -> list[tuple[str, str]]:
    return [(one.why, one.written) for one in advice(asked, used)]


# -- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "used", "expected"),
    [
        # Nine tenths of what was asked for are not yet too near.
        (1000 * MIB, 900 * MIB, []),
        (1000 * MIB, 901 * MIB, [("close", "1152MiB")]),
        # Half of it is not yet waste.
        (1000 * MIB, 500 * MIB, []),
        (1000 * MIB, 499 * MIB, [("too_much", "640MiB")]),
        # Less would be asked for, and with room above it that is as much as before.
        (65 * MIB, 32 * MIB, [("too_much", "64MiB")]),
        (64 * MIB, 31 * MIB, []),
        # Whoever uses little need not ask.
        (None, 64 * MIB - 1, []),
        (None, 64 * MIB, [("not_asked", "80MiB")]),
    ],
)
def test_what_memory_is_well_and_what_is_not(asked: int | None, used: int, expected: list[tuple[str, str]]) -> None:
    assert written(Requested(memory=asked), Usage(memory=used)) == expected


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        # Up to 512 MiB in steps of 16, up to 4 GiB in steps of 128, from there on in whole GiB.
        (400 * MIB, "512MiB"),
        (401 * MIB, "512MiB"),
        (410 * MIB, "640MiB"),
        (3276 * MIB, "4GiB"),
        (3277 * MIB, "5GiB"),
        (8 * GIB, "10GiB"),
        (8 * GIB + 1, "11GiB"),
    ],
)
def test_memory_is_rounded_up_to_figures_that_people_write(used: int, expected: str) -> None:
    assert written(Requested(), Usage(memory=used)) == [("not_asked", expected)]


@pytest.mark.parametrize(
    ("well_with", "expected"),
    [
        # One that ended well with more says what is needed: that, and a quarter.
        (513, "768MiB"),
        # One that ended well with just as much was lucky.
        (512, "768MiB"),
        (1024, "1280MiB"),
    ],
)
def test_after_running_out_what_ended_well_with_more_is_the_measure(well_with: int, expected: str) -> None:
    used = Usage(memory=well_with * MIB, memory_well=well_with * MIB, out_of_memory=1, too_little_memory=512 * MIB)

    assert written(Requested(memory=512 * MIB), used) == [("ran_out", expected)]


def test_what_ran_out_is_the_most_of_what_was_given_what_is_written_and_what_was_seen() -> None:
    solve = step("solve", resources=Resources(memory=512 * MIB))

    given = consumption_of(solve, facts=[bad("solve", "OUT_OF_MEMORY", {"memory": 256 * MIB}, peak_memory=100 * MIB)])
    as_written = consumption_of(solve, facts=[bad("solve", "OUT_OF_MEMORY", {}, peak_memory=100 * MIB)])
    seen = consumption_of(solve, facts=[bad("solve", "OUT_OF_MEMORY", {}, peak_memory=600 * MIB)])
    unknown = consumption_of(step("solve"), facts=[bad("solve", "OUT_OF_MEMORY", {}, wall_seconds=1.0)])

    found = [one[0].used.too_little_memory for one in (given, as_written, seen, unknown)]
    assert found == [256 * MIB, 512 * MIB, 600 * MIB, 0]
    assert [one[0].used.out_of_memory for one in (given, unknown)] == [1, 1]


# -- cpus ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "busy", "expected"),
    [
        # A quarter more than was asked for is not yet too much.
        (2.0, 2.5, []),
        (2.0, 2.6, [("close", "3")]),
        (None, 1.25, []),
        (None, 1.3, [("not_asked", "2")]),
        # Half of what was asked for is not yet too little.
        (2.0, 1.0, []),
        (2.0, 0.9, []),
        (3.0, 1.4, [("too_much", "2")]),
        # Below one in quarters, from one on in whole ones, and never less than a quarter.
        (2.0, 0.4, [("too_much", "0.5")]),
        (2.0, 0.79, [("too_much", "1")]),
        (2.0, 0.6, [("too_much", "0.75")]),
        (1.0, 0.01, [("too_much", "0.25")]),
        (4.0, 1.6, [("too_much", "2")]),
        # Fewer would do, and it is not worth a word.
        (4.0, 2.0, []),
        (4.0, 2.2, []),
    ],
)
def test_how_many_cpus_are_well_and_how_many_are_not(
    asked: float | None, busy: float, expected: list[tuple[str, str]]
) -> None:
    assert written(Requested(cpus=asked), Usage(cpus=busy)) == expected


def test_an_attempt_of_a_second_says_how_many_cpus_it_kept_busy_and_the_busiest_counts() -> None:
    facts = [
        well("a", wall_seconds=1.0, cpu_seconds=1.5),
        well("a", wall_seconds=3.0, cpu_seconds=1.0),
        # Over in a moment, whatever it did in it.
        well("a", wall_seconds=0.99, cpu_seconds=9.0),
    ]

    [found] = consumption_of(step("a"), facts=facts)

    assert (found.used.cpus, found.used.attempts) == (1.5, 3)
    [rounded] = consumption_of(step("a"), facts=[well("a", wall_seconds=3.0, cpu_seconds=1.0)])
    assert rounded.used.cpus == 0.333


# -- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "took", "expected"),
    [
        (100.0, 90.0, []),
        (100.0, 90.1, [("close", "5m")]),
        # Ten times what it takes is well; more is too much, if what would do is half of it or less.
        (1000.0, 100.0, []),
        (1001.0, 100.0, [("too_much", "5m")]),
        (121.0, 1.0, [("too_much", "1m")]),
        (120.0, 1.0, [("too_much", "1m")]),
        (119.0, 1.0, []),
        # Nothing was ever done in it: that says nothing.
        (7200.0, 0.0, []),
        (None, 60.0, [("not_asked", "3m")]),
        (None, 59.9, []),
    ],
)
def test_what_time_is_well_and_what_is_not(asked: float | None, took: float, expected: list[tuple[str, str]]) -> None:
    assert written(Requested(timeout=asked), Usage(seconds_well=took)) == expected


@pytest.mark.parametrize(
    ("too_little", "expected"),
    [
        # Up to a minute in tens of seconds, to ten minutes in minutes, to an hour in fives, from there on in halves.
        (26.0, "1m"),
        (30.0, "1m"),
        (30.2, "2m"),
        (300.0, "10m"),
        (300.2, "15m"),
        (1800.0, "1h"),
        (1800.2, "1h30m"),
    ],
)
def test_time_is_rounded_up_to_figures_that_people_write(too_little: float, expected: str) -> None:
    used = Usage(timed_out=1, too_little_seconds=too_little)

    assert written(Requested(timeout=too_little), used) == [("ran_out", expected)]


def test_time_that_was_too_little_is_what_was_given_or_else_what_is_written() -> None:
    late = step("a", timeout=10)

    given = consumption_of(late, facts=[bad("a", "TIMEOUT", {"timeout": 5}, wall_seconds=5.0)])
    as_written = consumption_of(late, facts=[bad("a", "TIMEOUT", {}, wall_seconds=10.0)])
    unknown = consumption_of(step("a"), facts=[bad("a", "TIMEOUT", {}, wall_seconds=10.0)])

    found = [(one[0].used.timed_out, one[0].used.too_little_seconds) for one in (given, as_written, unknown)]
    assert found == [(1, 5.0), (1, 10.0), (1, 0.0)]


def test_a_failure_for_another_reason_ran_out_of_nothing() -> None:
    details = {"memory": GIB, "timeout": 5}

    [found] = consumption_of(step("a"), facts=[bad("a", "EXIT_NONZERO", details, wall_seconds=2.5, peak_memory=MIB)])

    assert found.used == Usage(attempts=1, wall_seconds=2.5, memory=MIB)


# -- what was asked --------------------------------------------------------------------------------------------------


def test_the_most_that_any_step_of_a_matrix_asks_for_is_asked_for() -> None:
    steps = [
        step("s1", sweep="s", timeout=5, resources=Resources(cpus=0, memory=MIB)),
        step("s2", sweep="s", timeout=9, resources=Resources(gpus=2, labels=("big",))),
        step("s3", sweep="s", timeout=7, resources=Resources(cpus=0.5, memory=3 * MIB, gpus=1, labels=("other",))),
    ]

    [found] = consumption_of(*steps, facts=[well("s2", wall_seconds=0.1)])

    assert found.asked == Requested(3 * MIB, 0.5, 2, ("big",), 9)
    assert (found.name, found.parts) == ("s", 1)


def test_no_cpus_at_all_are_asked_for_too() -> None:
    [found] = consumption_of(step("a", resources=Resources(cpus=0)), facts=[well("a", wall_seconds=0.1)])

    assert found.asked == Requested(cpus=0)


def test_only_the_time_that_every_end_has_is_nobodys_wish() -> None:
    def asked(name: str, seconds: float) -> float | None:
        last = Step(name="end", timeout=seconds if name == "end" else None)
        steps = [step("a", timeout=seconds)] if name == "a" else [step("a")]
        found = consumption(workflow(*steps, end=last), [e.Entry(1, T0, 0, well(name, wall_seconds=0.1))])
        return found[0].asked.timeout

    assert (asked("end", END_TIMEOUT_SECONDS), asked("end", 60.0)) == (None, 60.0)
    assert asked("a", END_TIMEOUT_SECONDS) == END_TIMEOUT_SECONDS


def test_a_command_of_an_item_that_has_just_the_time_of_an_end_has_asked_for_it() -> None:
    checked = step("m", do=(command(timeout=END_TIMEOUT_SECONDS),))

    [found] = consumption_of(checked, facts=[well("m[0].0", wall_seconds=0.1)])

    assert found.asked.timeout == END_TIMEOUT_SECONDS


# -- what was used ---------------------------------------------------------------------------------------------------


def test_what_is_not_measured_hides_nothing_that_is() -> None:
    facts = [well("a"), e.AttemptStarted("a", 1), well("a.script@1", wall_seconds=9.0), well("b", wall_seconds=1.5)]

    found = consumption_of(step("a"), step("b"), facts=facts)

    assert [(one.name, one.used.wall_seconds) for one in found] == [("b", 1.5)]


def test_tokens_are_counted_where_somebody_counted_them() -> None:
    facts = [well("a", tokens=0), well("b", wall_seconds=0.5), well("c", tokens="many"), well("c", tokens=7)]

    found = consumption_of(step("a"), step("b"), step("c"), facts=facts)

    assert [one.used.tokens for one in found] == [0, None, 7]


def test_times_add_up_without_the_dust_of_floats() -> None:
    [found] = consumption_of(step("a"), facts=[well("a", wall_seconds=0.1, cpu_seconds=0.1) for _ in range(3)])

    assert (found.used.wall_seconds, found.used.cpu_seconds) == (0.3, 0.3)
    [fine] = consumption_of(step("a"), facts=[well("a", wall_seconds=0.1234567, cpu_seconds=0.7654321)])
    assert (fine.used.wall_seconds, fine.used.cpu_seconds) == (0.123457, 0.765432)


def test_the_longest_that_ended_well_counts_not_the_last() -> None:
    facts = [well("a", wall_seconds=9.0, peak_memory=9), well("a", wall_seconds=1.0, peak_memory=1)]

    [found] = consumption_of(step("a"), facts=facts)

    assert (found.used.seconds_well, found.used.memory_well, found.used.memory) == (9.0, 9, 9)


# -- what to write ---------------------------------------------------------------------------------------------------


def of(asked: Requested, *given: c.Advice) -> dict[str, str]:
    return Consumption("a", 1, asked, Usage(), given).to_write


def test_only_what_is_advised_is_written() -> None:
    memory = c.Advice("memory", GIB, "close", "")
    cpus = c.Advice("cpus", 1.5, "close", "")
    timeout = c.Advice("timeout", 90.0, "close", "")
    asked = Requested(memory=GIB, cpus=0, timeout=10)

    assert of(asked, timeout) == {"timeout": "1m30s"}
    assert of(asked, cpus) == {"resources": "{cpus: 1.5, memory: 1GiB}"}
    assert of(asked, memory) == {"resources": "{cpus: 0, memory: 1GiB}"}
    assert of(Requested(), memory) == {"resources": "{memory: 1GiB}"}
    assert of(Requested(labels=("a",)), cpus, timeout) == {"resources": "{cpus: 1.5, labels: [a]}", "timeout": "1m30s"}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(59.0, "59s"), (60.0, "1m"), (61.0, "1m1s"), (3599.5, "1h"), (3661.0, "1h1m1s"), (7200.0, "2h")],
)
def test_a_duration_has_the_units_that_it_needs(seconds: float, text: str) -> None:
    assert c.written_duration(seconds) == text

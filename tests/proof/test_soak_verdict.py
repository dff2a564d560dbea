"""The verdict of the soak over made-up samples: what leaks must be found, what only scatters must not."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from proof.soak.machine import MachineTime, own_seconds, parent_of, sample_machine, share_of_others
from proof.soak.verdict import (
    Expected,
    Latency,
    Sample,
    Submission,
    judge_holdings,
    judge_latencies,
    judge_rest,
    judge_runs,
    percentile,
    trend_line,
)

SECONDS = 3600.0
MIB = 2**20
OK, FAILED = Expected("completed", 1), Expected("failed", 2)


def samples(memory: Callable[[float], float], files: Callable[[float], float] = lambda at: 40) -> list[Sample]:
    """One process for an hour, looked at every 20 s; `at` goes from 0 to 1."""
    moments = [n / 180 for n in range(181)]
    return [Sample(at * SECONDS, "server", 7, {"memory": int(memory(at)), "files": int(files(at))}) for at in moments]


def latencies(seconds: Callable[[float, random.Random], float]) -> list[Latency]:
    chance = random.Random(1)
    return [Latency(n / 5000 * SECONDS, "submit", seconds(n / 5000, chance)) for n in range(5000)]


def machine(others: Callable[[float], float] = lambda at: 0.0) -> list[MachineTime]:
    """Two cores, of which the soak uses one; `others` is the share that others use at a moment."""
    times = [MachineTime(0.0, 0.0, 0.0, 0.0, 0.0)]
    for n in range(1, 361):
        last = times[-1]
        used = 20 * others((n - 0.5) / 360)
        times.append(MachineTime(n * 10.0, last.total + 20, last.busy + 10 + used, 0.0, last.own + 10))
    return times


def judged(answers: list[Latency], times: list[MachineTime]) -> list[str]:
    return [trend.finding for trend in judge_latencies(answers, SECONDS, times) if trend.finding]


def findings(samples: list[Sample]) -> list[str]:
    return [trend.finding for trend in judge_holdings(samples, SECONDS) if trend.finding]


@pytest.mark.parametrize(
    "memory",
    [
        lambda at: 100 * MIB,
        # Caches that fill in the warm-up.
        lambda at: (40 + 60 * min(1.0, at * 7)) * MIB,
        # A collector that comes and goes, and one moment of much work.
        lambda at: (100 + 8 * (at * 40 % 1) + 300 * (0.5 < at < 0.53)) * MIB,
        lambda at: (100 + 4.5 * at) * MIB,
        # 5 % of little is less than a page of an allocator.
        lambda at: (4 + 0.4 * at) * MIB,
    ],
    ids=["flat", "fills", "scatters", "a little", "small"],
)
def test_memory_that_scatters_or_settles_has_not_grown(memory: Callable[[float], float]) -> None:
    assert findings(samples(memory)) == []


@pytest.mark.parametrize(
    "memory",
    [
        lambda at: (100 + 8 * at) * MIB,
        # Hidden behind a scatter that is larger than itself.
        lambda at: (100 + 10 * at + 20 * (at * 40 % 1)) * MIB,
        # Freed at the very end, or dropped once in the middle.
        lambda at: (100 + 20 * at * (at < 0.99)) * MIB,
        # A process with little memory that grows all the same.
        lambda at: (8 + 1.5 * at) * MIB,
    ],
    ids=["steady", "hidden", "freed at the end", "small"],
)
def test_memory_that_leaks_is_found(memory: Callable[[float], float]) -> None:
    (found,) = findings(samples(memory))

    assert found.startswith("memory grew from ")


def test_descriptors_may_come_and_go_but_not_grow() -> None:
    coming = samples(lambda at: MIB, lambda at: 40 + 30 * (at * 50 % 1))
    leaking = samples(lambda at: MIB, lambda at: 40 + 30 * (at * 50 % 1) + 6 * at)

    assert findings(coming) == []
    assert findings(leaking) == ["files grew from 54 to 59"]


def test_a_process_that_was_replaced_or_hardly_seen_is_not_called_flat() -> None:
    flat = samples(lambda at: 100 * MIB)
    replaced = [*flat[:120], *(Sample(one.at, one.name, 8, one.holdings) for one in flat[120:])]

    assert findings(replaced) == ["it was replaced: there were 2 of it"]
    assert findings(flat[-5:]) == ["5 samples of it are too few to judge"]
    assert findings(flat[:20]) == ["no process was sampled after the warm-up"]


def test_descriptors_that_stay_when_all_clients_are_gone_are_found() -> None:
    before = {"server": 20, "worker 1": 15}

    assert judge_rest(before, {"server": 44, "worker 1": 15, "worker 2": 900}) == []
    assert judge_rest(before, {"server": 45}) == [
        "server: 20 descriptors before the first client, 45 after the last one"
    ]


@pytest.mark.parametrize(
    ("seconds", "is_found"),
    [
        (lambda at, chance: 0.05 * chance.expovariate(1), False),
        # Slow while it warms up, and in one bad moment of the last third.
        (lambda at, chance: 0.05 * chance.expovariate(1) * (1 + 20 * (at < 0.1) + 20 * (0.9 < at < 0.93)), False),
        # Twice as slow, of nearly nothing.
        (lambda at, chance: 0.001 * chance.expovariate(1) * (1 + at), False),
        (lambda at, chance: 0.05 * chance.expovariate(1) * (1 + 2 * at), True),
        # The median stays where it is, and one answer of thirty gets slower and slower.
        (lambda at, chance: 0.05 + (chance.random() < 1 / 30) * 0.5 * at, True),
    ],
    ids=["flat", "bad moments", "nearly nothing", "slower", "some are slower"],
)
def test_a_p99_that_rises_over_hours_is_found(seconds: Callable[[float, random.Random], float], is_found: bool) -> None:
    found = [trend.what for trend in judge_latencies(latencies(seconds), SECONDS, machine()) if trend.finding]

    assert found == (["p99"] if is_found else [])


def test_times_are_compared_with_times_in_which_others_used_as_much_of_the_machine() -> None:
    def busy(at: float) -> float:
        """Others use half of the machine, for a third of the first third and most of the last one."""
        return 0.5 * (0.2 < at < 0.3 or at > 0.82)

    def slow(at: float, chance: random.Random) -> float:
        return 0.05 * chance.expovariate(1) * (1 + 4 * busy(at))

    def slower(at: float, chance: random.Random) -> float:
        return slow(at, chance) * (1 + at)

    assert judged(latencies(slow), machine(busy)) == []
    assert [found[:3] for found in judged(latencies(slower), machine(busy))] == ["p99"]
    # The same answers on a machine that nobody else used have become slower.
    assert [found[:3] for found in judged(latencies(slow), machine())] == ["p99"]


def test_nothing_is_said_of_times_in_different_conditions() -> None:
    found = judged(latencies(lambda at, chance: 0.01), machine(lambda at: 0.4 * (at > 0.5)))

    assert found == ["only 0 of 10 windows had the same conditions in both thirds"]


def test_the_share_of_others_is_what_is_busy_beside_the_soak() -> None:
    times = machine(lambda at: 0.25 if at < 0.5 else 0.0)

    assert share_of_others(times, 600, 1200) == pytest.approx(0.25)
    assert share_of_others(times, 1795, 1805) == pytest.approx(0.125)
    assert share_of_others(times, 2400, 9999) == 0.0


def test_the_time_of_a_process_and_of_its_descendants_is_own_time() -> None:
    mine = sample_machine(7.0, {os.getpid()})

    assert (mine.at, own_seconds({0})) == (7.0, 0.0)
    assert 0 < mine.own <= own_seconds({os.getppid()})
    assert mine.own < mine.busy < mine.total
    assert parent_of(os.getpid()) == os.getppid()


def test_answers_that_stop_are_no_good_p99() -> None:
    stopped = [one for one in latencies(lambda at, chance: 0.01) if one.at < SECONDS / 2]

    (trend,) = judge_latencies(stopped, SECONDS, machine())

    assert trend.finding == "0 answers in a third are too few to judge"


def test_runs_that_are_lost_doubled_or_open_are_found() -> None:
    asked = {
        1: Submission(OK, {11}),
        2: Submission(FAILED, {12}),
        3: Submission(OK, {13, 14}),
        4: Submission(OK, {15}),
        5: Submission(OK, set()),
        6: Submission(OK, {16}),
        7: Submission(OK, {11}),
    }
    statuses = {11: "completed", 12: "failed", 13: "completed", 14: "completed", 15: "running", 17: "completed"}
    lines = {11: 1, 12: 2, 13: 2, 14: 1, 15: 1, 16: 1}

    assert sorted(judge_runs(asked, statuses, lines)) == [
        "nobody was told of run 17",
        "request 3 was answered with several runs: [13, 14]",
        "request 5 was never answered",
        "request 7 was answered with a run of another request: [11]",
        "run 15 is running, not completed",
        "run 16 is lost",
        "the steps of run 13 wrote 2 lines, not 1",
    ]
    assert judge_runs({1: Submission(OK, {11})}, {11: "completed"}, {11: 1}) == []


def test_many_findings_of_one_kind_are_told_in_a_few_lines() -> None:
    asked = {n: Submission(OK, {n}) for n in range(50)}

    found = judge_runs(asked, dict.fromkeys(range(50), "completed"), dict.fromkeys(range(50), 2))

    assert len(found) == 11
    assert found[-1] == "and 40 more: effects"


def test_the_line_through_the_samples_is_not_moved_by_a_peak() -> None:
    assert trend_line([(0, 10), (1, 11), (2, 500), (3, 13), (4, 14)]) == pytest.approx((10, 14))
    assert trend_line([(5, 3)]) == (3, 3)


def test_the_percentile_is_one_of_the_values() -> None:
    assert percentile(range(1, 101), 0.99) == 99
    assert percentile(range(1, 101), 0.5) == 50
    assert percentile([7.0], 0.99) == 7.0

"""Whether anything grew: pure functions over samples, latencies and runs.

The first sixth of the time is warm-up and is not judged: caches fill, pools open, modules are imported. A trend is the
line of Theil and Sen through the rest, the median of the slopes between all pairs of samples: a peak does not move it,
and steady growth does, however much the samples scatter.

How long things take depends on what else the machine does. So the p99 of a part of the last third is compared with that
of a part of the first third in which others used as much of the machine.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import msgspec

from proof.soak.machine import MachineTime, share_of_others

WARM_UP_SHARE = 1 / 6
# Growth of memory from the end of the warm-up to the end. Less than the slack is not counted: it is 5 % of 10 MiB.
MEMORY_GROWTH_MAX, MEMORY_SLACK_BYTES = 0.05, 512 * 1024
# Growth of descriptors, sockets, threads and connections of the database, by the trend.
HANDLES_GROWTH_MAX = 2.0
# More descriptors than before the first request, when all clients are gone: the pools that it has opened meanwhile.
HANDLES_AT_REST_MAX = 24
# p99 of the last third beside that of the first. Less than the slack is the scheduler of the machine.
P99_RATIO_MAX, P99_SLACK_SECONDS = 1.5, 0.01
# Fewer samples, or answers in a third, say nothing.
SAMPLES_MIN, ANSWERS_MIN = 12, 100
# A third is cut into so many windows; its p99 is the median of theirs, so that one bad moment is not the verdict.
WINDOWS_PER_THIRD = 10
# Two windows are compared if the shares of the machine that others used in them differ by this at most. With fewer
# pairs than this the conditions were not the same, and nothing can be said.
SHARES_DIFFER_MAX, PAIRS_MIN = 0.1, 5
# The first of a kind are enough.
TOLD_MAX = 10

MEMORY = "memory"


class Sample(msgspec.Struct, frozen=True):
    """What a process held at a moment."""

    # Seconds since the load began.
    at: float
    name: str
    pid: int
    # Of "memory" the bytes that it shares with nobody, in RAM or swapped out; and how many files, sockets, threads.
    holdings: dict[str, int]


class Latency(msgspec.Struct, frozen=True):
    """How long something took that ended at a moment."""

    at: float
    kind: str
    seconds: float


class Trend(msgspec.Struct, frozen=True):
    """How a number moved from the end of the warm-up to the end, and what is wrong with that; "" for nothing."""

    name: str
    what: str
    first: float
    last: float
    finding: str = ""


class Expected(NamedTuple):
    """What must have become of a run: how it ended, and how many lines its steps wrote."""

    status: str
    lines: int


class Submission(msgspec.Struct):
    """A run that was asked for, perhaps several times under one key, and the ids that were answered."""

    expected: Expected
    run_ids: set[int] = msgspec.field(default_factory=set)


# -- numbers


def trend_line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Where the line of Theil and Sen through the points begins and ends."""
    slopes = [(b - a) / (t - s) for (s, a), (t, b) in combinations(points, 2) if t != s]
    slope = statistics.median(slopes) if slopes else 0.0
    base = statistics.median(value - slope * at for at, value in points)
    return base + slope * points[0][0], base + slope * points[-1][0]


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1)]


# -- what processes hold


def judge_holdings(samples: Sequence[Sample], seconds: float) -> Iterator[Trend]:
    """The trend of everything that each process holds."""
    by_name: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.at >= WARM_UP_SHARE * seconds:
            by_name[sample.name].append(sample)
    if not by_name:
        yield Trend("samples", "number", 0, 0, "no process was sampled after the warm-up")
    for name, own in by_name.items():
        pids = {sample.pid for sample in own}
        if len(own) < SAMPLES_MIN:
            yield Trend(name, "samples", 0, len(own), f"{len(own)} samples of it are too few to judge")
        elif len(pids) > 1:
            yield Trend(name, "processes", 1, len(pids), f"it was replaced: there were {len(pids)} of it")
        else:
            for what in own[0].holdings:
                yield _trend(name, what, [(sample.at, sample.holdings[what]) for sample in own])


def _trend(name: str, what: str, points: Sequence[tuple[float, float]]) -> Trend:
    first, last = trend_line(points)
    more = last - first
    finding = ""
    if what == MEMORY:
        if more > max(MEMORY_GROWTH_MAX * first, MEMORY_SLACK_BYTES):
            share = 100 * more / first
            finding = f"memory grew from {first / 2**20:.1f} to {last / 2**20:.1f} MiB, by {share:.1f} %"
    elif more > HANDLES_GROWTH_MAX:
        finding = f"{what} grew from {first:.0f} to {last:.0f}"
    return Trend(name, what, first, last, finding)


def judge_rest(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """Descriptors of each process before the first client came, and when the last one was gone."""
    return [
        f"{name}: {before[name]} descriptors before the first client, {count} after the last one"
        for name, count in after.items()
        if name in before and count > before[name] + HANDLES_AT_REST_MAX
    ]


# -- how long things took


class Window(NamedTuple):
    """A part of the time: its answers, and the share of the machine that others used."""

    seconds: list[float]
    others: float


def judge_latencies(latencies: Sequence[Latency], seconds: float, machine: Sequence[MachineTime]) -> Iterator[Trend]:
    """The p99 of the first third after the warm-up beside that of the last, for each kind."""
    by_kind: dict[str, list[Latency]] = defaultdict(list)
    for latency in latencies:
        by_kind[latency.kind].append(latency)
    begin = WARM_UP_SHARE * seconds
    third = (seconds - begin) / 3
    for kind, own in sorted(by_kind.items()):
        first, last = (windows_of(own, start, third, machine) for start in (begin, seconds - third))
        counts = [sum(len(window.seconds) for window in windows) for windows in (first, last)]
        if min(counts) < ANSWERS_MIN:
            yield Trend(kind, "answers", counts[0], counts[1], f"{min(counts)} answers in a third are too few to judge")
            continue
        pairs = paired(first, last)
        if len(pairs) < PAIRS_MIN:
            said = f"only {len(pairs)} of {WINDOWS_PER_THIRD} windows had the same conditions in both thirds"
            yield Trend(kind, "windows", WINDOWS_PER_THIRD, len(pairs), said)
            continue
        for share in (0.5, 0.99):
            before, after = (statistics.median(percentile(pair[n].seconds, share) for pair in pairs) for n in (0, 1))
            finding = ""
            if share > 0.5 and after > P99_RATIO_MAX * before and after - before > P99_SLACK_SECONDS:
                finding = f"p99 went from {before * 1000:.0f} to {after * 1000:.0f} ms, {after / before:.2f} times"
            yield Trend(kind, f"p{share * 100:.0f}", before, after, finding)


def windows_of(
    latencies: Iterable[Latency], begin: float, seconds: float, machine: Sequence[MachineTime]
) -> list[Window]:
    """The windows of a third that have answers."""
    size = seconds / WINDOWS_PER_THIRD
    answers: dict[int, list[float]] = defaultdict(list)
    for latency in latencies:
        if begin <= latency.at < begin + seconds:
            answers[min(WINDOWS_PER_THIRD - 1, int((latency.at - begin) / size))].append(latency.seconds)
    return [
        Window(found, share_of_others(machine, begin + n * size, begin + (n + 1) * size))
        for n, found in sorted(answers.items())
    ]


def paired(first: Sequence[Window], last: Sequence[Window]) -> list[tuple[Window, Window]]:
    """Windows of both thirds in the same conditions, the most similar ones first; each is used once."""
    differences = sorted((abs(a.others - b.others), n, m) for n, a in enumerate(first) for m, b in enumerate(last))
    found: dict[int, int] = {}
    for difference, n, m in differences:
        if difference <= SHARES_DIFFER_MAX and n not in found and m not in found.values():
            found[n] = m
    return [(first[n], last[m]) for n, m in found.items()]


# -- what became of the runs


def judge_runs(
    submissions: Mapping[int, Submission], statuses: Mapping[int, str], lines: Mapping[int, int]
) -> list[str]:
    """No run is lost, doubled or left open. `statuses`, and how many `lines` its steps wrote, by run id."""
    found = [*_started(submissions, statuses), *_ended(submissions, statuses, lines)]
    kinds = Counter(kind for kind, _ in found)
    told = [text for kind in kinds for text in [said for other, said in found if other == kind][:TOLD_MAX]]
    return told + [f"and {count - TOLD_MAX} more: {kind}" for kind, count in kinds.items() if count > TOLD_MAX]


def _started(submissions: Mapping[int, Submission], statuses: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    known: set[int] = set()
    for number, submission in submissions.items():
        ids = submission.run_ids
        if not ids:
            yield "not answered", f"request {number} was never answered"
        elif len(ids) > 1:
            yield "doubled", f"request {number} was answered with several runs: {sorted(ids)}"
        if known & ids:
            yield "shared", f"request {number} was answered with a run of another request: {sorted(known & ids)}"
        known |= ids
    for run_id in statuses.keys() - known:
        yield "unasked", f"nobody was told of run {run_id}"


def _ended(
    submissions: Mapping[int, Submission], statuses: Mapping[int, str], lines: Mapping[int, int]
) -> Iterator[tuple[str, str]]:
    for submission in submissions.values():
        expected = submission.expected
        for run_id in submission.run_ids:
            status, written = statuses.get(run_id), lines.get(run_id, 0)
            if status is None:
                yield "lost", f"run {run_id} is lost"
            elif status != expected.status:
                yield "status", f"run {run_id} is {status}, not {expected.status}"
            if written != expected.lines:
                yield "effects", f"the steps of run {run_id} wrote {written} lines, not {expected.lines}"

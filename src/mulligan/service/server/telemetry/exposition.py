"""Metrics in the text format of Prometheus. The extra `server` has the library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from mulligan.engine.timings import BOUNDS, Histogram, Timings
from mulligan.service.server.telemetry.run_counts import RunCounts


def render(families: Iterable[Metric]) -> bytes:
    """These families as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(list(families)))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def merged(texts: Sequence[bytes]) -> bytes:
    """Several texts of metrics in one: a family that two of them have is described once."""
    families: dict[bytes, list[bytes]] = {}
    described: dict[bytes, list[bytes]] = {}
    for text in texts:
        name = b""
        for line in text.splitlines():
            if line.startswith((b"# HELP ", b"# TYPE ")):
                name = line.split(b" ", 3)[2]
                head = described.setdefault(name, [])
                if not any(one.split(b" ", 2)[1] == line.split(b" ", 2)[1] for one in head):
                    head.append(line)
            elif line:
                families.setdefault(name, []).append(line)
    return b"".join(b"\n".join([*described.get(name, []), *lines]) + b"\n" for name, lines in families.items())


def worker_families(counts: RunCounts, timings: Timings, *, tasks: int, runs: int) -> Iterator[Metric]:
    """What one worker shows."""
    yield counter("mulligan_runs_started", "Runs that this worker began", ("workflow",), alone(counts.runs_started))
    yield counter(
        "mulligan_runs_ended",
        "Rounds of runs that ended, by outcome",
        ("workflow", "outcome"),
        counts.runs_ended.items(),
    )
    yield counter("mulligan_steps_ended", "Visits of steps that ended", ("outcome",), alone(counts.steps_ended))
    yield counter("mulligan_attempts_ended", "Attempts that ended", ("outcome", "code"), counts.attempts_ended.items())
    yield counter("mulligan_rungs_tried", "Rungs of the ladder that were tried", ("rung",), alone(counts.rungs_tried))
    yield counter("mulligan_rungs_won", "Rungs of the ladder that worked", ("rung",), alone(counts.rungs_won))
    yield histogram("mulligan_turn_seconds", "How long deciding a turn took", timings.turns)
    yield histogram("mulligan_commit_seconds", "How long writing turns to the store took", timings.commits)
    yield gauge("mulligan_worker_tasks", "Tasks that this worker has", (), [((), tasks)])
    yield gauge("mulligan_worker_runs", "Runs that this worker drives", (), [((), runs)])


def request_families(
    answered: Mapping[tuple[str, str, str], int], seconds: Histogram, streams: int
) -> Iterator[Metric]:
    """What the HTTP process of a server shows."""
    yield counter(
        "mulligan_http_requests", "Requests that were answered", ("method", "route", "status"), answered.items()
    )
    yield histogram("mulligan_http_request_seconds", "How long answering a request took", seconds)
    yield gauge("mulligan_http_streams", "Live streams that are open", (), [((), streams)])


def _family(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    help_text: str,
    labels: tuple[str, ...],
    values: Iterable[tuple[tuple[str, ...], float]],
) -> Metric:
    family = kind(name, help_text, labels=labels)
    for given, value in values:
        family.add_metric(given, value)
    return family


# A number that only grows, whose name gets `_total`; and one that goes up and down.
counter = partial(_family, CounterMetricFamily)
gauge = partial(_family, GaugeMetricFamily)


def histogram(name: str, help_text: str, found: Histogram) -> Metric:
    """Durations in buckets."""
    bounds = [*(repr(bound) for bound in BOUNDS), "+Inf"]
    buckets = list(zip(bounds, accumulate(found.counts), strict=True))
    return HistogramMetricFamily(name, help_text, buckets=buckets, sum_value=found.seconds)


def alone(values: Mapping[str, int]) -> Iterator[tuple[tuple[str, ...], float]]:
    """Numbers by the values of a single label."""
    return (((name,), value) for name, value in values.items())

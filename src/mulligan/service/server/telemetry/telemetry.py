"""What a face can ask about metrics and traces: `Service.telemetry`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from types import ModuleType

from mulligan.core.effects.run_lists import RunFilter
from mulligan.engine.timings import Histogram
from mulligan.errors import InputInvalid
from mulligan.history.spans import Span, SpanReader
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.server.telemetry.trace_export import PAGE, TraceExporter, read_records
from mulligan.service.server.telemetry.worker_metrics import load_exposition, refuse_missing_library

# The variables with which a collector is named everywhere.
ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
# Unfinished runs whose tasks are counted.
OPEN_RUNS_MAX = 10_000
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_OPEN = ("new", "running", "paused")


class Telemetry:
    """Metrics of a store, and traces of its runs."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader

    # -- traces ------------------------------------------------------------------------------------------------------

    def spans(self, run_id: int) -> list[Span]:
        """The spans of a run and of the runs below it that have ended so far."""
        return [span for spans in self._spans(run_id).values() for span in spans]

    def _spans(self, run_id: int) -> dict[int, list[Span]]:
        store = self._reader.store
        found: dict[int, list[Span]] = {}
        run_ids = [store.run(run_id).run_id]
        for one in run_ids:
            reader, after, found[one] = SpanReader(), 0, []
            while entries := store.log(one, after, PAGE):
                found[one] += reader.read(entries)
                after = entries[-1].seq
            run_ids.extend(child.run_id for child in store.children(one))
        return found

    def send_spans(self, run_id: int, endpoint: str = "") -> int:
        """Send these spans to a collector; how many. Sending them twice does no harm."""
        return int(_otlp().Sender(_checked(endpoint)).send(self.spans(run_id)))

    def send_records(self, run_id: int, endpoint: str = "") -> int:
        """Send what the steps of these runs wrote with `logging`; how many records. Each call sends them again."""
        sender = _otlp().Sender(_checked(endpoint))
        records = (read_records(self._reader, one, spans) for one, spans in self._spans(run_id).items())
        return int(sender.send_records(chain.from_iterable(records)))

    def exporter(self, endpoint: str = "", *, with_records: bool = False) -> TraceExporter:
        """Sends what ends from now on, whenever it is asked; also what steps wrote with `logging`, if that is asked."""
        sender = _otlp().Sender(_checked(endpoint))

        def send(run_id: int, spans: Sequence[Span]) -> None:
            # Spans first: if these are refused no record was sent, which would be there twice later.
            sender.send(spans)
            if with_records:
                sender.send_records(read_records(self._reader, run_id, spans))

        return TraceExporter(self._reader.store, send)

    # -- metrics -----------------------------------------------------------------------------------------------------

    def store_metrics(self) -> bytes:
        """How many runs there are, what waits and what runs, in the text format of Prometheus."""
        exposition = load_exposition()
        return bytes(exposition.render(self._families(exposition)))

    def _families(self, exposition: ModuleType) -> Iterator[object]:
        store = self._reader.store
        runs = self._reader.counts.status_counts(store, self._reader.project)
        opened = store.lists.find(RunFilter(statuses=_OPEN), limit=OPEN_RUNS_MAX)
        tasks = dict.fromkeys(("queued", "waiting_for_breaker", "leased"), 0)
        for one in store.lists.open_tasks([record.run_id for record in opened]):
            state = "leased" if one.worker else "waiting_for_breaker" if one.breaker else "queued"
            tasks[state] += one.count
        waiting = Counter(place.kind for place in store.waiting_places())
        workers = dict.fromkeys(("alive", "in_trouble", "expired"), 0)
        for worker in store.workers():
            # The workers of a file send no heartbeats: their locks say whether they live.
            is_alive = self._reader.is_alive(worker)
            workers["expired" if not is_alive else "in_trouble" if worker.trouble else "alive"] += 1
        breakers = Counter(breaker.status for breaker in store.breakers())
        for name, words, label, counts in (
            ("mulligan_runs", "Runs by status", "status", runs),
            ("mulligan_tasks", "Tasks of unfinished runs", "state", tasks),
            ("mulligan_waiting_for_people", "Places that wait for a person", "kind", waiting),
            ("mulligan_workers", "Workers of the store", "state", workers),
            ("mulligan_breakers", "Circuit breakers", "state", breakers),
        ):
            yield exposition.gauge(name, words, (label,), exposition.alone(counts))


def _otlp() -> ModuleType:
    with refuse_missing_library("traces", "opentelemetry", extra="otel"):
        from mulligan.service.server.telemetry import otlp

        return otlp


def _checked(endpoint: str) -> str:
    """The address of the collector; "" leaves it to the environment."""
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise InputInvalid(
            f"'{endpoint}' is not the address of a collector", hint="write it like http://127.0.0.1:4318"
        )
    if not endpoint and not any(os.environ.get(name) for name in ENDPOINT_VARIABLES):
        raise InputInvalid(
            "no collector of traces is named",
            hint=f"give its address with --endpoint URL, or set {ENDPOINT_VARIABLES[1]}",
        )
    return endpoint


def request_metrics(answered: Mapping[tuple[str, str, str], int], seconds: Histogram, streams: int) -> bytes:
    """How many requests a server answered, by method, route and status, and how long that took."""
    exposition = load_exposition()
    return bytes(exposition.render(exposition.request_families(answered, seconds, streams)))


def merge_metrics(texts: Sequence[bytes]) -> bytes:
    """Several texts of metrics in one."""
    return bytes(load_exposition().merged(texts))

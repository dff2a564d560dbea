"""Sends spans and log records to a collector: OTLP over HTTP. The extra `otel` has the library."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from mulligan import __version__
from mulligan.errors import StoreUnavailable
from mulligan.history.spans import Span
from mulligan.service.server.telemetry.trace_export import StepRecord

# Spans or records in one request.
BATCH = 500
SEND_SECONDS_MAX = 10.0
_TRACES, _LOGS = "/v1/traces", "/v1/logs"
_SEVERITIES = {
    "debug": SeverityNumber.DEBUG,
    "info": SeverityNumber.INFO,
    "warning": SeverityNumber.WARN,
    "error": SeverityNumber.ERROR,
    "critical": SeverityNumber.FATAL,
}
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_STATUSES = {"unset": StatusCode.UNSET, "ok": StatusCode.OK, "error": StatusCode.ERROR}
_SCOPE = InstrumentationScope("mulligan", __version__)


class CollectorUnavailable(StoreUnavailable):
    """The collector did not take what was sent. It is sent again later."""

    code = "telemetry.collector_unavailable"


class Sender:
    """Sends spans and log records to one collector. `endpoint` is its address; "" takes that of the environment."""

    def __init__(self, endpoint: str = "") -> None:
        self._address = endpoint.rstrip("/").removesuffix(_TRACES)
        self._reasons = _Reasons()
        self._spans = OTLPSpanExporter(self._at(_TRACES), timeout=SEND_SECONDS_MAX)
        # Made when it is first asked for: most collectors get spans alone.
        self._records: OTLPLogExporter | None = None
        self._resource = Resource.create({"service.version": __version__}).merge(Resource(_service_name()))

    def send(self, spans: Iterable[Span]) -> int:
        """Send spans, in batches; how many. CollectorUnavailable if the collector does not take them."""
        return self._send(map(self._readable, spans), self._spans, "spans", "traces")

    def send_records(self, records: Iterable[StepRecord]) -> int:
        """Send what steps wrote with `logging`, in batches; how many."""
        if self._records is None:
            self._records = OTLPLogExporter(self._at(_LOGS), timeout=SEND_SECONDS_MAX)
        return self._send(map(self._readable_record, records), self._records, "records", "logs")

    def _at(self, path: str) -> str | None:
        """The address for a kind of signal; None leaves it to the environment."""
        return f"{self._address}{path}" if self._address else None

    def _send(self, items: Iterator[Any], exporter: Any, what: str, of: str) -> int:
        count = 0
        while batch := list(islice(items, BATCH)):
            with self._reasons:
                result = exporter.export(batch)
            if result is not type(result).SUCCESS:
                reason = self._reasons.last or "it did not answer"
                raise CollectorUnavailable(
                    f"the collector of {of} did not accept the {what}: {reason}",
                    hint="check the address in OTEL_EXPORTER_OTLP_ENDPOINT, or in [otel] of server.toml",
                )
            count += len(batch)
        return count

    def _readable(self, span: Span) -> ReadableSpan:
        parent = _context(span.trace_id, span.parent_id) if span.parent_id else None
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace_id, span.span_id),
            parent=parent,
            resource=self._resource,
            attributes=span.attributes,
            events=[Event(one.name, one.attributes, _nanoseconds(one.at)) for one in span.events],
            kind=SpanKind.INTERNAL,
            status=Status(_STATUSES[span.status], span.message or None if span.status == "error" else None),
            start_time=_nanoseconds(span.start),
            end_time=_nanoseconds(span.end),
            instrumentation_scope=_SCOPE,
        )

    def _readable_record(self, record: StepRecord) -> ReadableLogRecord:
        span = NonRecordingSpan(_context(record.span.trace_id, record.span.span_id))
        at = _nanoseconds(record.at)
        made = LogRecord(
            timestamp=at,
            observed_timestamp=at,
            context=set_span_in_context(span),
            severity_text=record.level.upper(),
            # Levels of a program's own are between those that we know.
            severity_number=_SEVERITIES.get(record.level, SeverityNumber.INFO),
            body=record.text,
            attributes={**record.span.attributes, "mulligan.logger": record.logger},
        )
        return ReadableLogRecord(made, self._resource, _SCOPE)


def _service_name() -> dict[str, Any]:
    """`mulligan`, unless the environment names the service: the library says `unknown_service` then."""
    found = str(Resource.create().attributes.get("service.name", ""))
    return {"service.name": "mulligan"} if found.startswith("unknown_service") or not found else {}


def _context(trace: str, span: str) -> SpanContext:
    return SpanContext(int(trace, 16), int(span, 16), is_remote=False, trace_flags=_SAMPLED)


def _nanoseconds(moment: datetime) -> int:
    seconds = int(moment.replace(microsecond=0).timestamp())
    return seconds * 1_000_000_000 + moment.microsecond * 1_000


class _Reasons(logging.Handler):
    """What the library says while it sends: it gives no other reason for a refusal. Nothing of it is printed."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""
        self._logger = logging.getLogger("opentelemetry")
        self._before = True

    def emit(self, record: logging.LogRecord) -> None:
        self.last = " ".join(record.getMessage().split())

    def __enter__(self) -> _Reasons:
        self.last = ""
        self._before = self._logger.propagate
        self._logger.propagate = False
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = self._before

"""Sends spans to a collector: OTLP over HTTP. The extra `otel` has the library."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from mulligan import __version__
from mulligan.errors import StoreUnavailable
from mulligan.history.spans import Span

BATCH_SPANS = 500
SEND_SECONDS_MAX = 10.0
_PATH = "/v1/traces"
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_STATUSES = {"unset": StatusCode.UNSET, "ok": StatusCode.OK, "error": StatusCode.ERROR}
_SCOPE = InstrumentationScope("mulligan", __version__)


class CollectorUnavailable(StoreUnavailable):
    """The collector did not take the spans. They are sent again later."""

    code = "telemetry.collector_unavailable"


class SpanSender:
    """Sends spans to one collector. `endpoint` is its address; "" takes that of the environment (`OTEL_…`)."""

    def __init__(self, endpoint: str = "") -> None:
        address = endpoint.rstrip("/")
        where = None if not address else address if address.endswith(_PATH) else f"{address}{_PATH}"
        self._reasons = _Reasons()
        self._exporter = OTLPSpanExporter(where, timeout=SEND_SECONDS_MAX)
        self._resource = Resource.create({"service.version": __version__}).merge(Resource(_service_name()))

    def send(self, spans: Iterable[Span]) -> int:
        """Send them, in batches; how many. CollectorUnavailable if the collector does not take them."""
        count = 0
        remaining = iter(spans)
        while batch := [self._readable(span) for span in islice(remaining, BATCH_SPANS)]:
            with self._reasons:
                result = self._exporter.export(batch)
            if result is not SpanExportResult.SUCCESS:
                reason = self._reasons.last or "it did not answer"
                raise CollectorUnavailable(
                    f"the collector of traces did not accept the spans: {reason}",
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

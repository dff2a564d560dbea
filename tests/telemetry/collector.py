"""A collector of traces for tests: takes what is sent to it, on a port of its own."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """The spans that were sent, by id: one that comes twice is there once."""

    def __init__(self) -> None:
        self.spans: dict[str, Any] = {}
        # Records have no ids: one that is sent twice is there twice.
        self.records: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.paths: list[str] = []
        # The status with which it answers.
        self.status = 200
        self.url = ""

    def take(self, path: str, body: bytes) -> None:
        self.paths.append(path)
        if self.status != 200:
            return
        if path == "/v1/logs":
            for logs in ExportLogsServiceRequest.FromString(body).resource_logs:
                self.records += [record for scope in logs.scope_logs for record in scope.log_records]
            return
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            self.resources.append({one.key: one.value.string_value for one in resource.resource.attributes})
            for scope in resource.scope_spans:
                self.spans.update((span.span_id.hex(), span) for span in scope.spans)

    def named(self, name: str) -> Any:
        (span,) = (one for one in self.spans.values() if one.name == name)
        return span


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.take(self.path, body)
            self.send_response(collector.status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()

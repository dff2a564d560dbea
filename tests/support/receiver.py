"""A webhook receiver of the tests' own: it answers as it is asked to, and keeps what it got."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """What came, as (headers, body), and the statuses of the next answers; then 204."""

    url: str = ""
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    # What each answer asks a sender to wait, as its header says it.
    retry_after: str = ""
    # Called with each request before it is answered.
    hook: Callable[[], None] = lambda: None
    arrived: threading.Condition = field(default_factory=threading.Condition)

    @property
    def ids(self) -> list[str]:
        return [headers["webhook-id"] for headers, _ in self.requests]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.requests]

    def wait_for(self, count: int) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.requests) >= count, 30), f"only {len(self.requests)} came"


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.hook()
            with receiver.arrived:
                receiver.requests.append(({name.lower(): value for name, value in self.headers.items()}, body))
                status = receiver.statuses.pop(0) if receiver.statuses else 204
                receiver.arrived.notify_all()
            self.send_response(status)
            self.send_header("content-length", "0")
            if status == 302:
                self.send_header("location", "http://127.0.0.1:9/elsewhere")
            if receiver.retry_after:
                self.send_header("retry-after", receiver.retry_after)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook?token=s3cret"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

"""A model on loopback: it answers as the test says, and remembers every request that has reached it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

import pytest

# SQL, or the status of a failure.
Reply = str | int


class StubModel(ThreadingHTTPServer):
    """`replies` are given one after the other; the last one is given for ever."""

    daemon_threads = True

    def __init__(self, replies: Sequence[Reply]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies = list(replies)
        # The text for the user of each request.
        self.prompts: list[str] = []
        # Called when a request has come, before it is answered.
        self.on_request: Callable[[], object] | None = None
        self._lock = Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def reply_to(self, body: dict[str, Any]) -> Reply:
        with self._lock:
            self.prompts.append(body["messages"][-1]["content"])
            reply = self.replies[min(len(self.prompts), len(self.replies)) - 1]
        if self.on_request is not None:
            self.on_request()
        return reply


class _Handler(BaseHTTPRequestHandler):
    server: StubModel

    def do_POST(self) -> None:
        reply = self.server.reply_to(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        status = reply if isinstance(reply, int) else 200
        said = "" if isinstance(reply, int) else json.dumps({"sql": reply})
        answer = {"model": "stub", "choices": [{"message": {"content": said}, "finish_reason": "stop"}]}
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def stub_model(monkeypatch: pytest.MonkeyPatch, *replies: Reply) -> Iterator[StubModel]:
    """The planner `openai` of this process, and of those that it starts, asks the stub."""
    with StubModel(replies) as model:
        Thread(target=model.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("OPENAI_BASE_URL", model.url)
        monkeypatch.setenv("NL2SQL_MODEL", "stub")
        yield model
        model.shutdown()

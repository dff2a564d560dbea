"""A client of the chaos that asks a server: it asks again until it knows its run, and under the same key."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from proof.chaos.http_client import Address, HttpClient, last_address


class Asked(BaseHTTPRequestHandler):
    """Answers with the next of the prepared statuses; 0 cuts the connection before the answer."""

    statuses: list[int]
    seen: list[tuple[str, str, str, str]]

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        token, key = self.headers["Authorization"], self.headers.get("Idempotency-Key", "")
        self.seen.append((f"{self.command} {self.path}", token, key, body))
        status = self.statuses.pop(0)
        if status:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps({"run_id": 7}).encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def server(*statuses: int) -> Iterator[tuple[int, list[tuple[str, str, str, str]]]]:
    asked = type("Prepared", (Asked,), {"statuses": list(statuses), "seen": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), asked) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield running.server_port, asked.seen
        finally:
            running.shutdown()
            thread.join()


def test_a_client_asks_again_with_its_key_and_with_the_token_of_the_last_start() -> None:
    with server(201, 0, 401, 503, 201, 201) as (port, seen):
        tokens = iter(("a", "a", "b", "c", "c", "c"))
        places: Iterator[Address | None] = iter([None, *(Address("127.0.0.1", port, one) for one in tokens)])
        client = HttpClient(lambda: next(places), sleep=lambda _: None)

        first, second = client.start("chain", 3), client.start("family", 4)

    assert (first, second) == (7, 7)
    starts = [(token, key) for what, token, key, _ in seen if what == "POST /api/v1/runs"]
    assert starts == [*((f"Bearer {token}", "run 3") for token in "abcc"), ("Bearer c", "run 4")]
    # The workflow is published once; a flow that needs another file is replaced.
    assert [what for what, *_ in seen if what.startswith("PUT")] == ["PUT /api/v1/workflows/chain"]
    assert json.loads(seen[-1][3]) == {"workflow": "chain", "inputs": {"n": 4}}


def test_a_refusal_ends_the_client() -> None:
    with server(201, 422) as (port, _):
        client = HttpClient(lambda: Address("127.0.0.1", port, "a"), sleep=lambda _: None)

        with pytest.raises(SystemExit, match="422"):
            client.start("chain", 3)


def test_the_address_is_what_the_server_said_last(tmp_path: Path) -> None:
    said = tmp_path / "said"

    assert last_address(said) is None
    said.write_text('{"url": "http://127.0.0.1:8642", "token": "a"}\n{"url": "http://127.0.0.1:8642", "token": "b"}\n')
    assert last_address(said) == Address("127.0.0.1", 8642, "b")

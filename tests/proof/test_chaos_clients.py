"""A client of the chaos that asks a server: it asks again until it knows its run, and under the same key."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from proof.chaos.flows import FLOWS, choose_flow, labels_of
from proof.chaos.http_client import Address, HttpClient, last_address
from proof.chaos.sender import Sender, accepted


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
        token, key = self.headers.get("Authorization", ""), self.headers.get("Idempotency-Key", "")
        self.seen.append((f"{self.command} {self.path}", token, key, body))
        status = self.statuses.pop(0)
        if status:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps({"run_id": 7, "run_ids": [7]}).encode())

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
    assert json.loads(seen[-1][3]) == {"workflow": "chain", "inputs": {"n": 4}, "labels": labels_of(4)}


def test_a_run_that_waits_for_events_is_started_by_a_signed_delivery_that_is_sent_until_it_is_accepted() -> None:
    with server(0, 503, 202) as (port, seen):
        client = HttpClient(lambda: Address("127.0.0.1", port, "a"), sleep=lambda _: None)

        assert client.start("ordered", 3) == 7

    assert [what for what, *_ in seen] == ["POST /hooks/start-ordered"] * 3
    assert {(token, body) for _, token, _, body in seen} == {("", '{"n": 3, "lot": "0"}')}


def test_a_sender_that_was_killed_goes_on_with_what_it_has_not_said(tmp_path: Path) -> None:
    paper = tmp_path / "sender-0"
    awaiting = [n for n in range(40) if FLOWS[choose_flow(1, n)].awaits]
    paper.write_text(f"0 {awaiting[0]} 0 7\n0 {awaiting[1]} 0 8\n0 {awaiting[1]} 1 8\n0 -1 0 8\n")

    found = Sender(1, 0, 40, paper)

    assert found.left == {awaiting[0]: [1], awaiting[1]: [], **{n: [0, 1] for n in awaiting[2:]}}
    assert [one.sent.n for one in accepted([paper])] == [awaiting[0], awaiting[1], awaiting[1], -1]


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

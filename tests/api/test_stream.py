"""`GET stream`, as a client of the server sees it."""

from __future__ import annotations

import pytest
from tests.support.api_client import Client, start_run

from mulligan.service.service import Service


def test_a_stream_begins_with_what_to_read_and_has_a_cursor(client: Client, service: Service) -> None:
    run_id = start_run(service)

    reply = client.request("GET", "stream", query={"watch": f"runs,run:{run_id}"}, pieces_max=1, scope="read")
    cursor = reply.body.decode().rpartition("\nid: ")[2].strip()
    again = client.request(
        *("GET", "stream"),
        query={"watch": f"runs,run:{run_id}"},
        headers={"last-event-id": cursor},
        pieces_max=1,
        scope="read",
    )

    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream")
    assert (reply.headers["cache-control"], reply.headers["x-accel-buffering"]) == ("no-store", "no")
    assert reply.body.count(b"event: reset\n") == 2
    assert again.body == f"retry: 1000\n\nid: {cursor}\n\n".encode()
    assert client.api.hub.clients == []


@pytest.mark.parametrize(
    ("watch", "scope", "status", "code"),
    [
        ("run:99", "read", 404, "run.unknown"),
        ("runs,steps", "read", 422, "input.invalid"),
        ("runs", None, 401, "token.refused"),
        ("runs", "worker", 403, "token.scope"),
        ("runs", "expired", 401, "token.refused"),
    ],
)
def test_a_stream_that_is_refused_says_why(
    client: Client, watch: str, scope: str | None, status: int, code: str
) -> None:
    reply = client.request("GET", "stream", query={"watch": watch}, scope=scope)

    assert (reply.status, reply.code) == (status, code)


def test_a_stream_ends_with_the_server(client: Client) -> None:
    client.api.closing.set()

    reply = client.request("GET", "stream", query={"watch": "runs"})

    assert b'event: end\ndata: {"reason":"server_ended"}\n\n' in reply.body

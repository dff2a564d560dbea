"""What somebody outside may try at a webhook: forged, repeated, huge, costly and slow deliveries."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

from mulligan.service.server.notices.targets import sign
from proof.attacks.attacked_server import ORDERS_SECRET, OTHER_SECRET, AttackedServer, Client, Reply
from proof.attacks.callers import RED

TARGET = f"/hooks/{RED}/orders"
_HUGE, _REPEATED, _FORGED, _SLOW = 4_000_000, 40, 200, 50
_STATUSES = frozenset({202, 400, 401, 404, 405, 408, 411, 413, 415, 422, 429})


def hostile_deliveries(server: AttackedServer) -> Iterator[str]:
    """Whoever does not know the secret does nothing; a delivery does one thing, however often and how it comes."""
    webhook = {
        "secret": "orders",
        "filter": "body.items.all(one, body.items.exists(other, other == one))",
        "start": {"workflow": "pulse", "labels": {"delivered": "${body.order}"}},
    }
    server.client.change("admin", "PUT", "webhooks/orders", webhook)
    yield from _forged(server)
    yield from _repeated(server)
    yield from _costly(server)
    yield from _slow(server)
    answered = server.client.ask("admin", "DELETE", "/api/v1/webhooks/orders")
    if answered.status != 200:
        yield f"others_are_served: the webhook is removed with {answered.status}"


def _delivery(
    order: str, message_id: str, *, secret: str = ORDERS_SECRET, items: Any = ()
) -> tuple[bytes, dict[str, str]]:
    body, now = json.dumps({"order": order, "items": list(items)}).encode(), int(time.time())
    signature = sign([secret.encode()], message_id, now, body)
    headers = {"webhook-id": message_id, "webhook-timestamp": str(now), "webhook-signature": signature}
    return body, {"Content-Type": "application/json", **headers}


def _send(server: AttackedServer, body: bytes, headers: dict[str, str], target: str = TARGET) -> Reply:
    with closing(Client(server.port)) as client:
        return client.ask("nobody", "POST", target, body, headers)


def _runs(server: AttackedServer, order: str) -> int:
    found = server.client.ask("admin", "GET", f"/api/v1/runs?label=delivered={order}").json
    return len(found["runs"])


def _forged(server: AttackedServer) -> Iterator[str]:
    body, good = _delivery("forged", "msg_1")
    _, other = _delivery("forged", "msg_1", secret=OTHER_SECRET)
    old = int(time.time()) - 400
    expired = {"webhook-timestamp": str(old), "webhook-signature": sign([ORDERS_SECRET.encode()], "msg_1", old, body)}
    tried = [
        (body, other),
        (body, {"Content-Type": "application/json"}),
        (body + b" ", good),
        (body, {**good, "webhook-id": "msg_2"}),
        (body, {**good, "webhook-signature": "v1,"}),
        (body, {**good, **expired}),
        (body, {**good, "webhook-signature": " ".join(["v1,AAAA"] * 10_000)}),
        *[(body, other)] * _FORGED,
    ]
    for sent, headers in tried:
        try:
            status = _send(server, sent, headers).status
        except http.client.HTTPException:
            status = 431
        # A line that is too long is refused before anybody reads it.
        if status not in (401, 429, 431, 400, 0):
            yield f"a_delivery_is_signed: one that is not is answered with {status}"
    if _runs(server, "forged"):
        yield "a_delivery_is_signed: a forged one has started a run"


def _repeated(server: AttackedServer) -> Iterator[str]:
    body, headers = _delivery("repeated", "msg_repeated")
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: _send(server, body, headers), range(_REPEATED)))
    statuses = Counter(one.status for one in replies)
    if set(statuses) - {202, 429, 503} or not statuses[202]:
        yield f"a_delivery_counts_once: {dict(statuses)}"
    if (count := _runs(server, "repeated")) != 1:
        yield f"a_delivery_counts_once: it has started {count} runs"


def _costly(server: AttackedServer) -> Iterator[str]:
    items = list(range(20_000))
    body, headers = _delivery("costly", "msg_costly", items=items)
    deep = b'{"items": ' * 20_000
    signed = _delivery("deep", "msg_deep")[1]
    now = int(time.time())
    signed |= {
        "webhook-timestamp": str(now),
        "webhook-signature": sign([ORDERS_SECRET.encode()], "msg_deep", now, deep),
    }
    sent = [(body, headers), (deep, signed), (b"x" * _HUGE, headers), (b"x" * _HUGE, {})] * 4
    with ThreadPoolExecutor(8) as pool:
        replies = [pool.submit(_send, server, *one) for one in sent]
        yield from server.pulse()
        for one in replies:
            # 0: the server closes the connection of what it does not read.
            if (status := one.result().status) not in (_STATUSES - {202}) | {0, 503}:
                yield f"a_delivery_is_bounded: one that is too large or too costly is answered with {status}"


def _slow(server: AttackedServer) -> Iterator[str]:
    head = (
        f"POST {TARGET} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{"
    )
    with ExitStack() as opened:
        for _ in range(_SLOW):
            connection = opened.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            connection.sendall(head.encode())
        yield from server.pulse()
        body, headers = _delivery("beside", "msg_beside")
        if (status := _send(server, body, headers).status) not in (202, 429):
            yield f"others_are_served: a delivery beside slow ones is answered with {status}"

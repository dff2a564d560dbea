"""Whoever starts runs through the server: `http_client SEED FIRST RUNS STEP PER_SECOND`, as `client` does at the store.

Asks again under the same key until it is answered, whatever happens to the server. What was answered is a line each on
stdout: number and run id.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from proof.chaos.flows import AWAITING, FLOWS, choose_flow, labels_of
from proof.chaos.hooks import signed

# A server that is away is asked again so soon; one that says nothing is given up after a while.
AGAIN_SECONDS = 0.2
TIMEOUT_SECONDS = 10.0
# Answers after which the same question may be asked again: a token of an earlier start, too many, the store is away.
AGAIN = frozenset({401, 429, 502, 503})
# The server takes texts that need no other file.
INSTEAD = {"family": "chain"}
NOTHING: Mapping[str, str] = MappingProxyType({})


class Address(NamedTuple):
    host: str
    port: int
    token: str


class HttpClient:
    """One client. `address` is asked before every request, since each start of the server has a token of its own."""

    def __init__(self, address: Callable[[], Address | None], sleep: Callable[[float], None] = time.sleep) -> None:
        self._address = address
        self._sleep = sleep
        self._published: set[str] = set()

    def start(self, flow: str, n: int) -> int:
        """Retry until the run's id is known."""
        flow = INSTEAD.get(flow, flow)
        if flow in AWAITING:
            # Its number by a webhook, in place of a key.
            return int(self.deliver(f"start-{flow}", f"start {n}", {"n": n, "lot": labels_of(n)["lot"]})["run_ids"][0])
        if flow not in self._published:
            self._ask("PUT", f"/api/v1/workflows/{flow}", {"text": FLOWS[flow].text.lstrip()})
            self._published.add(flow)
        asked = {"workflow": flow, "inputs": {"n": n}, "labels": labels_of(n)}
        answer = self._ask("POST", "/api/v1/runs", asked, {"Idempotency-Key": f"run {n}"})
        return int(answer["run_id"])

    def deliver(self, webhook: str, message_id: str, body: Any) -> Any:
        """Send to a webhook as a program outside does, until it says what it has done."""
        return self._ask("POST", f"/hooks/{webhook}", body, message_id=message_id)

    def _ask(
        self, method: str, path: str, body: Any, headers: Mapping[str, str] = NOTHING, *, message_id: str = ""
    ) -> Any:
        while True:
            status, answer = self.ask_once(method, path, body, headers, message_id=message_id)
            if status in (200, 201, 202):
                return json.loads(answer)
            if status and status not in AGAIN:
                raise SystemExit(f"{method} {path} was answered with {status}: {answer.decode(errors='replace')}")
            self._sleep(AGAIN_SECONDS)

    def ask_once(
        self, method: str, path: str, body: Any, headers: Mapping[str, str] = NOTHING, *, message_id: str = ""
    ) -> tuple[int, bytes]:
        """Status and body; 0 where no answer came. With `message_id` it is a delivery to a webhook, signed now."""
        address = self._address()
        if address is None:
            return 0, b""
        data = json.dumps(body).encode()
        proof = signed(message_id, data) if message_id else {"Authorization": f"Bearer {address.token}"}
        connection = http.client.HTTPConnection(address.host, address.port, timeout=TIMEOUT_SECONDS)
        try:
            connection.request(method, path, data, {"Content-Type": "application/json", **proof, **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()


def last_address(file: Path) -> Address | None:
    """What the server said at its last start; None before its first."""
    lines = [line for line in file.read_text().splitlines() if line.startswith("{")] if file.exists() else []
    if not lines:
        return None
    said = json.loads(lines[-1])
    host, _, port = said["url"].partition("://")[2].rstrip("/").rpartition(":")
    return Address(host, int(port), said["token"])


def start_all(seed: int, numbers: range, per_second: float) -> None:
    begun_at = time.monotonic()
    client = HttpClient(lambda: last_address(Path("api-server.stdout")))
    for done, n in enumerate(numbers):
        due = begun_at + done / per_second if per_second else 0.0
        time.sleep(max(0.0, due - time.monotonic()))
        print(n, client.start(choose_flow(seed, n), n), flush=True)


if __name__ == "__main__":
    seed, first, runs, step = map(int, sys.argv[1:5])
    start_all(seed, range(first, runs, step), float(sys.argv[5]))

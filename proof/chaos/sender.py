"""Whoever sends events from outside: `sender SEED NUMBER RUNS`. Sends each until it is accepted, in its order.

Of a run it knows the key and the label, which may be known before the run is there; and its number, once it was said.
What was accepted is a line each on stdout, so that a sender that was killed goes on with the first that is not there.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from mulligan.errors import RunFinished, StoreUnavailable, UnknownRun
from mulligan.service.home import find_home
from mulligan.service.runs.changes.event_receivers import send_to_all
from mulligan.service.service import Service
from proof.chaos.flows import FLOWS, choose_flow, labels_of
from proof.chaos.http_client import AGAIN, HttpClient, last_address

# Who sends, and how many events each to a run that waits for all of them.
SENDERS, EVENTS_EACH = 2, 2
EVENT, NEWS = "paid", "news"
TOKEN_FILE = "send.token"
# How many runs ahead of those that are known to have started: what is sent to them comes early.
AHEAD = 3
LOOK_SECONDS, AGAIN_SECONDS = 0.1, 2.0
# In one of so many looks something is sent to all runs with a label.
NEWS_ONE_IN = 8
# One of so many events is sent again although it was accepted.
REPEATS_ONE_IN = 3


class Sent(NamedTuple):
    """One event: the `number`-th of a sender for run `n`; of what goes to many runs, the `number`-th of all, and -1."""

    sender: int
    n: int
    number: int

    @property
    def key(self) -> str:
        return " ".join(map(str, self))


class Accepted(NamedTuple):
    sent: Sent
    run_id: int


class Sender:
    """One of them. `paper`: what it has said on its stdout, and those before it that were killed."""

    def __init__(self, seed: int, number: int, runs: int, paper: Path) -> None:
        self._seed, self._number = seed, number
        self._chance = random.Random()
        self._http = HttpClient(lambda: (at := last_address(Path("api-server.stdout"))) and at._replace(token=token()))
        said = list(accepted([paper]))
        before = [one.sent.number for one in said if one.sent.n == -1]
        self._news = max(before, default=-1) + 1
        awaiting = [n for n in range(runs) if FLOWS[choose_flow(seed, n)].awaits]
        # What is left to send, run by run; and when it is tried again.
        had = {(one.sent.n, one.sent.number) for one in said}
        self.left = {n: [k for k in range(EVENTS_EACH) if (n, k) not in had] for n in awaiting}
        self._due = dict.fromkeys(awaiting, 0.0)

    def serve(self) -> None:
        while True:
            known = dict(started())
            newest = max(known, default=-1) + AHEAD
            for n in [n for n, left in self.left.items() if left and n <= newest and self._due[n] < time.monotonic()]:
                self._send_next(n, known.get(n, 0))
            if known and self._chance.randrange(NEWS_ONE_IN) == 0:
                self._send_news(labels_of(self._chance.choice(list(known)))["lot"])
            time.sleep(LOOK_SECONDS)

    def _send_next(self, n: int, run_id: int) -> None:
        sent = Sent(self._number, n, self.left[n][0])
        got = self._send(sent, run_id)
        if got:
            say(sent, got)
            self.left[n].pop(0)
            if self._chance.randrange(REPEATS_ONE_IN) == 0:
                # As if the answer had been lost: by now the run may have taken it, or may have ended.
                self._send(sent, run_id)
        else:
            # It is not there yet, or has ended, and may be tried again; or nobody has answered.
            self._due[n] = time.monotonic() + self._chance.uniform(0.0, AGAIN_SECONDS)

    def _send(self, sent: Sent, run_id: int) -> int:
        """Send it in one of the ways; return who has got it, or 0. A delivery has a key of its own, and stays one."""
        body: dict[str, Any] = {"name": EVENT, "value": sent._asdict()}
        labels = {"order": str(sent.n)}
        webhook = random.Random(f"{self._seed} {sent}").choice(("by-key", "by-label", "", "", ""))
        if webhook:
            delivery = {"event": EVENT, "value": sent._asdict(), "n": sent.n}
            return _first(self._ask(f"/hooks/{webhook}", delivery, message_id=sent.key))
        way = self._chance.choice(("store by key", "store by label", "run", "key", "label"))
        key = {"Idempotency-Key": sent.key}
        if way.startswith("store"):
            by = {"key": f"run {sent.n}"} if way == "store by key" else {"labels": labels}
            return self._send_at_store(sent, by)
        if way == "run" and run_id:
            found = self._ask(f"/api/v1/runs/{run_id}/events", body, key)
            return run_id if found else 0
        whom = {"run_key": f"run {sent.n}"} if way != "label" else {"labels": labels}
        return _first(self._ask("/api/v1/events", {**body, **whom}, key))

    def _send_at_store(self, sent: Sent, by: dict[str, Any]) -> int:
        with closing(Service(find_home(), by="sender")) as service:
            try:
                (run_id,) = service.runs.find_receivers(**by)
                service.changes.send_event(run_id, EVENT, sent._asdict(), key=sent.key)
            except (StoreUnavailable, UnknownRun, RunFinished):
                return 0
            return run_id

    def _send_news(self, lot: str) -> None:
        """To all open runs with a label; a second try reaches those that are open then."""
        sent = Sent(self._number, -1, self._news)
        self._news += 1
        for _ in range(3):
            if self._chance.randrange(2):
                body = {"name": NEWS, "value": sent._asdict(), "labels": {"lot": lot}}
                found = self._ask("/api/v1/events", body, {"Idempotency-Key": sent.key}) or {"run_ids": []}
                run_ids = found["run_ids"]
            else:
                run_ids = self._send_news_at_store(sent, lot)
            for run_id in run_ids:
                say(sent, run_id)
            if run_ids:
                return

    def _send_news_at_store(self, sent: Sent, lot: str) -> list[int]:
        with closing(Service(find_home(), by="sender")) as service:
            try:
                found = service.runs.find_receivers(labels={"lot": lot})
                send = service.changes.send_event
                return send_to_all(found, lambda one: send(one, NEWS, sent._asdict(), key=sent.key)).run_ids
            except (StoreUnavailable, UnknownRun):
                return []

    def _ask(self, path: str, body: Any, headers: dict[str, str] | None = None, *, message_id: str = "") -> Any:
        """What was answered if it was accepted; None if there is no such run, or there was no answer."""
        status, answer = self._http.ask_once("POST", path, body, headers or {}, message_id=message_id)
        if status in (200, 202):
            return json.loads(answer)
        if status and status not in AGAIN | {404, 409}:
            raise SystemExit(f"{path} was answered with {status}: {answer.decode(errors='replace')}")
        return None


def _first(found: Any) -> int:
    """The run that has got it; 0 if none has, since it has ended."""
    return int(found["run_ids"][0]) if found and found["run_ids"] else 0


def say(sent: Sent, run_id: int) -> None:
    print(*sent, run_id, flush=True)


def accepted(papers: Iterable[Path]) -> Iterator[Accepted]:
    """What senders have said."""
    for line in (line for paper in papers for line in paper.read_text().splitlines()):
        *sent, run_id = map(int, line.split())
        yield Accepted(Sent(*sent), run_id)


def started() -> Iterator[tuple[int, int]]:
    """The runs that were answered to clients, by their numbers."""
    for paper in Path().glob("client-[0-9]"):
        for line in paper.read_text().rpartition("\n")[0].splitlines():
            n, run_id = line.split()
            yield int(n), int(run_id)


def token() -> str:
    return Path(TOKEN_FILE).read_text()


if __name__ == "__main__":
    seed, number, runs = map(int, sys.argv[1:4])
    Sender(seed, number, runs, Path(f"sender-{number}")).serve()

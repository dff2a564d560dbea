"""How many notices a second a webhook gets, if it takes all of them and if it refuses one in five, in the same rounds.

    python bench/notices.py                      # SQLite and PostgreSQL, 20,000 waiting, three rounds of 10 s each
    python bench/notices.py sqlite --seconds 3   # a small one, to check that it works

The bar: with 20 % refusals at least 60 % of the rate without. The real sender, webhooks and stores; the receiver is a
process of its own on this machine. The rounds alternate, and the sum of each kind counts.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from mulligan.history.notice_text import NoticeBody
from mulligan.ports import NoticeRecord
from mulligan.service.home import Home
from mulligan.service.service import Service
from mulligan.testing.postgres import own_server

BAR = 0.6
WAITING = 20_000


def receive(said: Connection, refused_every: int) -> None:
    """A receiver that refuses every n-th request with 503; 0 for none."""
    numbers = itertools.count(1)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            is_refused = refused_every and next(numbers) % refused_every == 0
            self.send_response(503 if is_refused else 204)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    said.send(server.server_address[1])
    server.serve_forever()


@contextmanager
def receiver(refused_every: int) -> Iterator[int]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=receive, args=(theirs, refused_every), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join()


def sent_in(folder: Path, store: str, refused_every: int, seconds: float) -> int:
    """How many of the notices that wait are sent in this time."""
    folder.mkdir()
    with receiver(refused_every) as port:
        target = f"{folder.name}-{refused_every}"
        (folder / "server.toml").write_text(f'[targets.{target}]\nwebhook = "http://127.0.0.1:{port}/"\n')
        with Service(Home(folder, store)) as service:
            now = datetime.now(UTC)
            body = msgspec.json.encode(NoticeBody(event="failed", title="run 1 of w failed", at=now, run_id=1))
            service.reader.store.server_records.put_notices(
                [NoticeRecord(f"{target}-{n}", target, body, now, due_at=now) for n in range(WAITING)]
            )
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                service.notices.send_due(datetime.now(UTC))
            found = service.notices.sender.sent
            service.notices.close(is_hurried=True)
    return found


def measure(kind: str, store: str, rounds: int, seconds: float) -> bool:
    sums = {0: 0, 5: 0}
    with TemporaryDirectory(prefix="mulligan-bench-") as folder:
        for number in range(rounds):
            for refused_every in sums:
                place = Path(folder) / f"{kind}{number}{refused_every}"
                sums[refused_every] += sent_in(place, store, refused_every, seconds)
    rates = {every: sent / rounds / seconds for every, sent in sums.items()}
    ratio = rates[5] / rates[0] if rates[0] else 0.0
    print(f"{kind:9} all taken {rates[0]:6.1f}/s   one in five refused {rates[5]:6.1f}/s   {ratio:.0%} (bar {BAR:.0%})")
    return ratio >= BAR


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="*", metavar="sqlite|postgres", help="both by default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    stores, is_good = given.stores or ["sqlite", "postgres"], True
    if "sqlite" in stores:
        is_good = measure("sqlite", "", given.rounds, given.seconds)
    if "postgres" in stores:
        with own_server() as server:
            is_good = measure("postgres", server.url, given.rounds, given.seconds) and is_good
    return 0 if is_good else 1


if __name__ == "__main__":
    raise SystemExit(main())

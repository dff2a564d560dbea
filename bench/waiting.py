"""Tasks that wait for another machine: queries at databases, and requests, beside an earlier source tree.

    python bench/waiting.py [--queries 1000] [--requests 200] [--answer 0.05] [--rounds 1] [--before OTHER/src]

A map of queries at PostgreSQL and at SQLite, the same loop in a playbook of NoETL, and a map of requests to a server on
loopback that answers after `--answer` seconds. Each is one `mulligan run`, timed from outside, with the processor time
of all its processes. Prints the cost of one item, without that of a run with one item, and the ratio to that tree.
PostgreSQL is the one of `$MULLIGAN_TEST_POSTGRES`, otherwise a server of the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from mulligan.testing.postgres import own_server

SRC = Path(__file__).parent.parent / "src"
# NoETL's loop is slow enough in an earlier tree to be measured with fewer items.
PLAYBOOK_SHARE = 5


class Spent(NamedTuple):
    """Wall time and processor time."""

    seconds: float
    cpu: float


class Case(NamedTuple):
    """A file with so many items, and the environment of its run."""

    name: str
    items: int
    file: str
    text: str
    environ: dict[str, str]

    def with_items(self, count: int) -> Case:
        return self._replace(items=count)


def mapped(name: str, action: str) -> str:
    """A map of ours over COUNT items, 10 at once."""
    return (
        f"name: {name}\nsecrets: {{db: {{env: BENCH_DB}}}}\nsteps:\n  - step: all\n"
        f"    map: {{over: COUNT, as: n, max_parallel: 10}}\n    do:\n      - {action}\n"
    )


PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: loop, path: bench/loop}
workload: {numbers: COUNT}
workflow:
  - step: start
    loop: {in: "{{ workload.numbers }}", iterator: n, spec: {mode: parallel, max_in_flight: 10}}
    tool: {kind: postgres, auth: db, query: "select {{ iter.n }}::int as n"}
"""


def cases(queries: int, requests: int, url: str, address: str, folder: Path) -> list[Case]:
    query = 'sql: {connection: "%s", query: "select :n as n", params: {n: "${n}"}}'
    return [
        Case("sql at PostgreSQL", queries, "pg.yaml", mapped("pg", query % "${secrets.db}"), {"BENCH_DB": url}),
        Case(
            "sql at SQLite",
            queries,
            "lite.yaml",
            mapped("lite", query % f"sqlite:///{folder}/a.db"),
            {"BENCH_DB": "-"},
        ),
        Case("NoETL's postgres", queries // PLAYBOOK_SHARE, "loop.yaml", PLAYBOOK, {"NOETL_DB": url}),
        Case("http", requests, "web.yaml", mapped("web", f'http: {{url: "{address}"}}'), {"BENCH_DB": "-"}),
    ]


def measure(src: Path, case: Case, folder: Path) -> Spent:
    path = folder / case.file
    path.write_text(case.text.replace("COUNT", json.dumps(list(range(case.items)))), encoding="utf-8")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MULLIGAN_")}
    environ |= {"PYTHONPATH": str(src.resolve()), **case.environ}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(dir=folder) as home:
        started, before = time.perf_counter(), _cpu_of_children()
        command = [sys.executable, "-m", "mulligan", "run", str(path)]
        done = subprocess.run(command, cwd=home, env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{case.name} failed:\n{done.stdout}{done.stderr}")
        return Spent(time.perf_counter() - started, _cpu_of_children() - before)


def _cpu_of_children() -> float:
    spent = os.times()
    return spent.children_user + spent.children_system


def per_item(src: Path, case: Case, folder: Path, rounds: int) -> Spent:
    """The best of the rounds, without what a run with one item takes."""
    whole = [measure(src, case, folder) for _ in range(rounds)]
    one = [measure(src, case.with_items(1), folder) for _ in range(rounds)]
    best, start = (Spent(*map(min, zip(*each, strict=True))) for each in (whole, one))
    return Spent((best.seconds - start.seconds) / (case.items - 1), (best.cpu - start.cpu) / (case.items - 1))


class _Slow(BaseHTTPRequestHandler):
    answer_seconds = 0.0

    def do_GET(self) -> None:
        time.sleep(self.answer_seconds)
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def slow_server(answer_seconds: float) -> Iterator[str]:
    _Slow.answer_seconds = answer_seconds
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()


@contextmanager
def database() -> Iterator[str]:
    if given := os.environ.get("MULLIGAN_TEST_POSTGRES"):
        yield given
        return
    with own_server() as server:
        yield server.url


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--answer", type=float, default=0.05, help="how long the server takes, in seconds")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="", help="only cases whose name has this text")
    parser.add_argument("--before", type=Path, help="the source tree to compare with")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER", "/var/tmp")) as name,
        database() as url,
        slow_server(asked.answer) as address,
    ):
        print("| one item | items | ms | cpu ms | before ms | before cpu ms | faster | cpu |")
        print("|---|---:|---:|---:|---:|---:|---:|---:|")
        for case in cases(asked.queries, asked.requests, url, address, Path(name)):
            if asked.only not in case.name:
                continue
            now = per_item(SRC, case, Path(name), asked.rounds)
            line = f"| {case.name} | {case.items:,} | {now.seconds * 1000:.1f} | {now.cpu * 1000:.1f} |"
            if asked.before:
                then = per_item(asked.before, case, Path(name), asked.rounds)
                line += f" {then.seconds * 1000:.1f} | {then.cpu * 1000:.1f} |"
                line += f" {then.seconds / now.seconds:.1f}x | {then.cpu / now.cpu:.1f}x |"
            print(line, flush=True)


if __name__ == "__main__":
    main()

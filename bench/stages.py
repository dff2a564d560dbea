"""Where the time of one step goes: a chain of no-op Python steps, stage by stage, on SQLite and on PostgreSQL.

    python bench/stages.py                          both stores
    python bench/stages.py sqlite --count 200       one store, fewer steps

The program wraps functions of the product from outside (`staging/stages.py` has the table); the product itself has no
code for it. A stage is the time in its functions, without that in functions of other stages; all stages of the process
that drives the run add up to its wall time. The wrapping costs time too: the last lines say how much, and what the same
run takes without it. Counts come from further runs: calls from `cProfile`, system calls from `strace`, if it is there.
All figures are the best of the rounds, for one step.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import psycopg
from growing.measuring import Spent, run
from growing.server import database, server
from peers import ours
from peers.contestants import Task
from peers.processes import Command, fresh_folder
from staging.figures import best, count_calls, per_step, table

_STAGED = str(Path(__file__).parent / "staging" / "staged_run.py")


class Place(NamedTuple):
    """A fresh folder and, on PostgreSQL, a fresh database."""

    folder: Path
    url: str

    def command(self, count: int) -> Command:
        return ours.chain(Task(self.folder, count, 1, self.url))


@contextmanager
def _place(server_url: str) -> Iterator[Place]:
    with fresh_folder() as folder, database(server_url) if server_url else nullcontext("") as url:
        yield Place(folder, url)


def plain(server_url: str, count: int) -> Spent:
    """The same run without any wrapping."""
    with _place(server_url) as place:
        return run(place.command(count), place.folder)


def staged(server_url: str, count: int, how: str) -> dict[str, Any]:
    """What `staged_run.py` found."""
    with _place(server_url) as place:
        command = place.command(count)
        words = [sys.executable, _STAGED, how, str(place.folder / "found.json"), *command.arguments[1:]]
        run(Command(words, command.environment), place.folder)
        found: dict[str, Any] = json.loads((place.folder / "found.json").read_text())
        return found


# -- counts ----------------------------------------------------------------------------------------------------------


def counts(server_url: str, count: int) -> dict[str, float]:
    """What a run counts, of the process that drives it."""
    called = staged(server_url, count, "calls")
    found = {"calls of Python functions": called["python"], "calls of built-in functions": called["builtin"]}
    with _place(server_url) as place:
        before = _wal_position(place.url)
        run(place.command(count), place.folder)
        found["event rows"] = _event_rows(place)
        if place.url:
            found["bytes of WAL"] = _wal_position(place.url) - before
    if shutil.which("strace"):
        found |= _system_calls(server_url, count)
    return found


def _event_rows(place: Place) -> int:
    asked = "SELECT count(*) FROM events"
    if place.url:
        with psycopg.connect(place.url) as connection:
            return int((connection.execute(asked).fetchone() or (0,))[0])
    database = apsw.Connection(str(place.folder / ours.HOME / "mulligan.db"))
    return int(next(iter(database.execute(asked)))[0])


def _wal_position(url: str) -> int:
    """How many bytes of WAL the server has written so far, for whatever database."""
    if not url:
        return 0
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn").fetchone()
    return int(row[0]) if row else 0


def _system_calls(server_url: str, count: int) -> dict[str, float]:
    """System calls by name, and the bytes that the process has written to the WAL of SQLite."""
    with _place(server_url) as place:
        command, trace = place.command(count), place.folder / "trace"
        words = ["strace", "-qq", "-y", "-s", "0", "-o", str(trace), *command.arguments]
        run(Command(words, command.environment), place.folder)
        return count_calls(trace.read_text(errors="replace").splitlines())


def measured(title: str, server_url: str, count: int, rounds: int) -> str:
    spent: dict[int, list[Spent]] = {1: [], count: []}
    timed: dict[int, list[dict[str, Any]]] = {1: [], count: []}
    for _ in range(rounds):
        for size in (1, count):
            spent[size].append(plain(server_url, size))
            timed[size].append(staged(server_url, size, "times"))
    micros = []
    for clock in ("wall", "cpu"):
        seconds = {size: best([one[clock] for one in found]) for size, found in timed.items()}
        micros.append({name: value * 1e6 for name, value in per_step(seconds[count], seconds[1], count).items()})
    calls = (sum(timed[count][0]["calls"].values()) - sum(timed[1][0]["calls"].values())) / (count - 1)
    overhead = min(one["overhead"] for one in timed[count])
    wall, cpu = (
        (min(one[index] for one in spent[count]) - min(one[index] for one in spent[1])) / (count - 1) * 1e6
        for index in (0, 1)
    )
    counted = per_step(counts(server_url, count), counts(server_url, 1), count)
    return (
        f"{table(title, *micros, counted)}\n"
        f"- without the wrapping: {wall:,.0f} µs of wall, {cpu:,.0f} µs of all processes' processor time\n"
        f"- the wrapping: {calls:.1f} calls for a step, {overhead * 1e6:.2f} µs each, {calls * overhead * 1e6:.0f} µs\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("stores", nargs="*", metavar="STORE", help="sqlite, postgres (default: both)")
    parser.add_argument("--count", type=int, default=1_000, help="how many steps (default: 1,000)")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    unknown = set(asked.stores) - {"sqlite", "postgres"}
    if unknown or asked.count < 2:
        parser.error(
            "--count must be at least 2" if not unknown else f"no store is called {', '.join(sorted(unknown))}"
        )
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    ours.compile_bytecode()
    stores = asked.stores or ["sqlite", "postgres"]
    for store in stores:
        with server() if store == "postgres" else nullcontext("") as url:
            title = f"{'PostgreSQL' if url else 'SQLite'}, a chain of {asked.count:,} no-op Python steps"
            print(measured(title, url, asked.count, asked.rounds), flush=True)


if __name__ == "__main__":
    main()

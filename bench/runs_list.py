"""How long a filter over 100,000 runs takes: each one alone, several together, and page after page.

    python bench/runs_list.py                            100,000 runs on SQLite and on PostgreSQL (some minutes)
    python bench/runs_list.py --runs 2000                a small store, to see that it works
    python bench/runs_list.py --store sqlite --keep DIR  leave the store there, for a second look with `mulligan list`

The store is filled through its own methods, a thousand runs a transaction, with logs of one event. A figure is the
median of the calls in this process, and the longest: what a server would take to find the runs (`find`), and to make
the whole page with failures and waits (`page`). See bench/README.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from growing.server import database, server

from mulligan.core.effects.run_lists import RunFilter, run_failures
from mulligan.core.effects.snapshot import Row
from mulligan.core.model.events import Entry, RunCompleted, RunFailed, RunStarted
from mulligan.core.model.failure import Failure
from mulligan.core.model.reports import RunRequested
from mulligan.core.state.state import FailureRecord
from mulligan.ports import Commit, NewRun, Store, WorkerRecord
from mulligan.service.runs.views.run_list import RunQuery, run_page
from mulligan.store import open_store

BATCH = 1_000
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
EVERY = timedelta(minutes=3)
# The bar for one filter, in the process that asks.
BAR_MS = 10.0


# -- filling ---------------------------------------------------------------------------------------------------------


def fill(store: Store, runs: int) -> None:
    """Runs of two hundred workflows, three in four of one; 5 % fail, 0.2 % still run, one in a thousand is special."""
    store.register(WorkerRecord("bench", "here", 1))
    for first in range(0, runs, BATCH):
        numbers = range(first, min(runs, first + BATCH))
        turns = store.create([_new(number) for number in numbers], "bench")
        messages = {message.run_id: message.id for message in store.inbox([turn.run_id for turn in turns])}
        commits = []
        for number, turn in zip(numbers, turns, strict=True):
            commits.append(_commit(number, turn, messages[turn.run_id]))
        store.commit(commits)
        print(f"\r{numbers[-1] + 1:,} runs", end="", file=sys.stderr)
    print(file=sys.stderr)


def _new(number: int) -> NewRun:
    name = "nightly-load" if number % 4 else f"report-{number % 800 // 4}"
    labels = {"team": ("data", "web", "core")[number % 3], **({"incident": "4711"} if number % 1_000 == 7 else {})}
    inputs = {"order": f"ord-{number}", "region": ("east", "west")[number % 2], "n": number}
    request = RunRequested(FIRST + EVERY * number, 0, inputs, by=f"user{number % 50}", labels=labels)
    return NewRun(b'{"name":"bench"}', "v1", name, request)


def _commit(number: int, turn: Any, message_id: int) -> Commit:
    at = FIRST + EVERY * number
    new = _new(number)
    started = RunStarted(turn.run_id, new.name, "v1", new.request.inputs, new.request.by, labels=new.request.labels)
    drained = [(message_id, None)]
    if number % 500 == 3:
        entries = [Entry(1, at, 0, started)]
        return Commit(turn=turn, after=0, entries=entries, rows=(), status="running", round=1, at=at, drained=drained)
    failure = _failure(number, at) if number % 20 == 9 else None
    entries = [Entry(1, at, 0, started), Entry(2, at, 1, RunFailed() if failure else RunCompleted())]
    rows: list[Row] = [] if failure is None else [("failures", "0", "", msgspec.msgpack.encode(failure))]
    return Commit(
        turn=turn,
        after=0,
        entries=entries,
        rows=rows,
        status="failed" if failure else "completed",
        round=1,
        at=at + timedelta(seconds=40),
        drained=drained,
        is_last=True,
        failures=None if failure is None else run_failures([failure]),
    )


def _failure(number: int, at: datetime) -> FailureRecord:
    code = "OUT_OF_MEMORY" if number % 2_000 == 9 else "EXIT_NONZERO"
    message = "no space left on device" if number % 10_000 == 9 else f"order ord-{number} was refused"
    return FailureRecord(0, "load", 1, Failure(code, message, exit_code=1), 2, at)


# -- measuring -------------------------------------------------------------------------------------------------------


def queries(runs: int) -> dict[str, RunQuery]:
    """What is asked, by what the table calls it."""
    end = FIRST + EVERY * runs
    old = FIRST + EVERY * (runs // 10)
    return {
        "no filter": RunQuery(),
        "workflow, of most runs": RunQuery(workflows=("nightly-load",)),
        "workflow, of few": RunQuery(workflows=("report-7",)),
        "workflow, of none": RunQuery(workflows=("report",)),
        "status completed": RunQuery(statuses=("completed",)),
        "status failed": RunQuery(statuses=("failed",)),
        "status open": RunQuery(statuses=("running", "new", "paused")),
        "status ended": RunQuery(statuses=("completed", "failed", "cancelled")),
        "since yesterday": RunQuery(since=end - timedelta(days=1)),
        "until long ago": RunQuery(until=old),
        "an old day": RunQuery(since=old - timedelta(days=1), until=old),
        "who": RunQuery(starters=("user7",)),
        "who, of none": RunQuery(starters=("nobody",)),
        "label, of many": RunQuery(labels={"team": "data"}),
        "label, of few": RunQuery(labels={"incident": "4711"}),
        "input, of one": RunQuery(inputs={"order": f"ord-{runs // 3}"}),
        "text, of most": RunQuery(text="nightly"),
        "text, of few": RunQuery(text="no space left"),
        "text, of one": RunQuery(text=f"ord-{runs // 3}"),
        "text, of none": RunQuery(text="zebra"),
        "failure EXIT_NONZERO": RunQuery(failure_codes=("EXIT_NONZERO",)),
        "failure OUT_OF_MEMORY": RunQuery(failure_codes=("OUT_OF_MEMORY",)),
        "failed, workflow, team": RunQuery(statuses=("failed",), workflows=("nightly-load",), labels={"team": "data"}),
        "failed, of an old week": RunQuery(statuses=("failed",), since=old - timedelta(days=7), until=old),
        "two that exclude each other": RunQuery(workflows=("nightly-load",), inputs={"n": "8"}),
        "two common, never together": RunQuery(labels={"team": "data"}, inputs={"region": "east"}, starters=("user7",)),
        "text of most, failed, who": RunQuery(text="nightly", statuses=("failed",), starters=("user9",)),
    }


def measure(store: Store, runs: int, rounds: int) -> Iterator[tuple[str, int, list[float]]]:
    """A name, how many runs were found, and how long each call took."""
    for name, query in queries(runs).items():
        yield f"find: {name}", *_timed(lambda wanted=query.filter: len(store.lists.find(wanted, limit=51)), rounds)
    now = FIRST + EVERY * runs
    for name in ("no filter", "status failed", "status open"):
        query = queries(runs)[name]
        yield (
            f"page: {name}",
            *_timed(lambda query=query: len(run_page(store, query, lambda _: None, now).runs), rounds),
        )
    yield (
        "count: status failed",
        *_timed(lambda: store.lists.count(RunFilter(statuses=("failed",)), limit=10_000), rounds),
    )
    yield "count: each status", *_timed(lambda: sum(store.lists.status_counts().values()), rounds)
    yield "100 pages of a label", *_timed(lambda: _walk(store, 100), 1, pages=100)


def _timed(call: Callable[[], int], rounds: int, *, pages: int = 1) -> tuple[int, list[float]]:
    found, spent = 0, []
    for _ in range(rounds):
        begun = time.perf_counter()
        found = call()
        spent.append((time.perf_counter() - begun) * 1000 / pages)
    return found, spent


def _walk(store: Store, pages: int) -> int:
    """Page after page of one filter, each from where the last one ended."""
    wanted, before, count = RunFilter(attributes=(("label", "team", "data"),)), None, 0
    for _ in range(pages):
        page = store.lists.find(wanted, limit=50, before=before)
        count += len(page)
        before = page[-1].run_id if page else 0
    return count


@contextmanager
def stores(which: str, keep: str | None) -> Iterator[Iterator[tuple[str, str]]]:
    """The names and addresses of the stores to be filled."""
    with ExitStack() as stack:

        def places() -> Iterator[tuple[str, str]]:
            if which != "postgres":
                folder = keep or stack.enter_context(TemporaryDirectory(prefix="mulligan-bench-", dir="/var/tmp"))
                yield "SQLite", str(Path(folder) / "mulligan.db")
            if which != "sqlite":
                yield "PostgreSQL", stack.enter_context(database(stack.enter_context(server())))

        yield places()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--store", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--keep", metavar="DIR")
    asked = parser.parse_args()
    is_slow = False
    with stores(asked.store, asked.keep) as places:
        for title, where in places:
            store = open_store(where)
            begun = time.perf_counter()
            if not store.runs(limit=1):
                fill(store, asked.runs)
            print(f"\n{title}: {asked.runs:,} runs, filled in {time.perf_counter() - begun:.0f} s\n")
            print(f"{'':44}{'found':>8}{'median':>10}{'longest':>10}  ms")
            for name, found, spent in measure(store, asked.runs, asked.rounds):
                median = statistics.median(spent)
                is_over = name.startswith("find") and median > BAR_MS
                is_slow = is_slow or is_over
                print(f"{name:44}{found:8,}{median:10.2f}{max(spent):10.2f}{'  over the bar' if is_over else ''}")
            store.close()
    return 1 if is_slow else 0


if __name__ == "__main__":
    sys.exit(main())

"""An onlooker sees every kind of store alike, has nothing to say of one that is well, and finds what is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import psycopg
import pytest

from mulligan.core.effects.tasks import Task
from mulligan.core.model import reports as r
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import encode, version
from mulligan.engine.engine import Engine
from mulligan.language import load_text
from mulligan.language.expressions import Cel
from mulligan.ports import NewRun, Store, WorkerRecord
from mulligan.store.postgres.postgres import PostgresStore
from mulligan.store.sqlite.sqlite import SqliteStore
from mulligan.testing.clock import JumpingClock
from mulligan.testing.fake_executor import FakeExecutor
from mulligan.testing.memory.memory_store import MemoryStore
from mulligan.testing.memory.memory_tables import MemoryTables
from proof.invariants.store_contents import (
    POSTGRES_TABLES,
    StoreContents,
    memory_values,
    read_memory,
    read_tables,
    table_values,
)
from proof.invariants.store_invariants import promise_9_no_secret_is_kept
from proof.simulator.invariant_checker import InvariantChecker

WORKFLOW = """
name: release
breakers: {net: {failures: 1, reset: 5s}}
steps:
  - {step: build, shell: make, retry: {max_retries: 2, delay: 2s}}
  - {step: fetch, shell: get, breaker: net, retry: {max_retries: 3, delay: 1s}}
  - {step: ask, needs: [build], approve: {message: "ship it?"}, next: end}
"""


class Shop:
    """A store of some kind with a worker in it, and somebody who looks on."""

    def __init__(
        self,
        store: Store,
        look: Callable[[], StoreContents],
        contents: Callable[[], Iterable[bytes]],
        clock: JumpingClock,
    ) -> None:
        self.store, self.clock, self.contents = store, clock, contents
        self.checker = InvariantChecker(store, look, contents, secret="hunter2")
        store.register(WorkerRecord("w", "here", 1))
        self.engine = Engine(store, clock, Cel({}), "w", FakeExecutor("w", clock, ends=_ends))

    def start(self, text: str = WORKFLOW) -> int:
        data = encode(load_text(text))
        request = r.RunRequested(self.clock.now(), 0, {}, version(data))
        (turn,) = self.store.create([NewRun(data, request.version, "release", request)])
        return turn.run_id

    def work(self, ticks: int = 12) -> None:
        """Whatever happens, the onlooker is shown it."""
        for _ in range(ticks):
            self.engine.tick(0.0)
            self.checker.check_new()


def _ends(task: Task) -> Outcome:
    return Outcome(exit_code=int(task.attempt == 1))


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    opened = {"memory": _memory, "sqlite": _sqlite, "postgres": _postgres}[request.param]
    with opened(request, tmp_path / "runs.db", JumpingClock()) as found:
        yield found


@contextmanager
def _memory(request: pytest.FixtureRequest, path: Path, clock: JumpingClock) -> Iterator[Shop]:
    tables = MemoryTables()
    store = MemoryStore(clock=clock, tables=tables)
    yield Shop(store, lambda: read_memory(tables), lambda: memory_values(tables), clock)


@contextmanager
def _sqlite(request: pytest.FixtureRequest, path: Path, clock: JumpingClock) -> Iterator[Shop]:
    store = SqliteStore(path, clock=clock)
    connection = apsw.Connection(str(path))
    yield Shop(store, lambda: read_tables(connection), lambda: table_values(connection), clock)
    connection.close()
    store.close()


@contextmanager
def _postgres(request: pytest.FixtureRequest, path: Path, clock: JumpingClock) -> Iterator[Shop]:
    url = request.getfixturevalue("store_schema_url")
    store = PostgresStore(url)
    with psycopg.connect(url, autocommit=True) as connection:
        yield Shop(
            store,
            lambda: read_tables(connection),
            lambda: table_values(connection, POSTGRES_TABLES),
            clock,
        )
    store.close()


def test_what_a_store_holds_is_seen_in_every_kind_of_store_alike(shop: Shop) -> None:
    run_id = shop.start()
    message = shop.store.put(run_id, r.PauseRequested(shop.clock.now(), "someone"), is_asking=True)
    before = shop.checker.look()

    shop.work()

    contents = shop.checker.look()
    assert [(found.run_id, found.is_asking) for found in before.messages] == [(run_id, False), (run_id, True)]
    assert (before.runs[run_id].seq, before.runs[run_id].holder, contents.runs[run_id].holder) == (0, "", "w")
    assert (contents.runs[run_id].status, contents.messages, contents.answers) == ("paused", [], {message})
    assert list(contents.workers) == ["w"]


def test_tasks_timers_and_breakers_are_seen(shop: Shop) -> None:
    run_id = shop.start()

    shop.work()

    contents = shop.checker.look()
    outside = contents.pending_work_of(run_id)
    assert {kind for kind, _, _ in outside.timers} <= {"retry"}
    assert [(breaker.name, breaker.status, breaker.probe) for breaker in contents.breakers] == [("net", "open", None)]
    assert all(lease.worker == "w" for lease in contents.leases)


def test_the_checker_knows_a_run_from_its_log_alone_and_the_tables_agree(shop: Shop) -> None:
    run_id = shop.start()

    shop.work()
    shop.checker.check_tables()

    watched = shop.checker.runs[run_id]
    assert watched.log == shop.store.log(run_id)
    assert watched.state.run.seq == len(watched.log) > 0


def test_everything_that_is_kept_is_looked_through_for_a_secret(shop: Shop) -> None:
    run_id = shop.start()
    shop.work()

    shop.store.put(run_id, r.CancelRequested(shop.clock.now(), "someone", "it is aHVudGVyMg=="))

    with pytest.raises(
        AssertionError, match=r"^promise 9: the store keeps a secret, as base64, in [0-9]+ bytes of its contents$"
    ):
        _tell_no_secret(shop)


def _tell_no_secret(shop: Shop) -> None:
    promise_9_no_secret_is_kept(shop.contents(), "hunter2")

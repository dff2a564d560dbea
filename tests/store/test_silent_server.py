"""A server that does not answer any more, though its connection stands: nobody waits for it for ever."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from threading import Thread

import psycopg
import pytest

from mulligan.core.model import reports as r
from mulligan.errors import StoreUnavailable
from mulligan.ports import NewRun, WorkerRecord
from mulligan.store.postgres.postgres import PostgresStore
from mulligan.store.postgres.postgres_pipeline import SQL
from proof.chaos.proxy import Proxy
from proof.stage import wait_until

LEASE_SECONDS = 1.0
WORKER = WorkerRecord("one", "here", 1)
RUN = NewRun(b"{}", "v1", "flow", r.RunRequested(datetime(2026, 1, 1, tzinfo=UTC), 0))


@pytest.fixture
def proxy(schema_url: str) -> Iterator[Proxy]:
    with Proxy(schema_url) as proxy:
        yield proxy


@pytest.fixture
def store(proxy: Proxy) -> Iterator[PostgresStore]:
    store = PostgresStore(proxy.url, lease_seconds=LEASE_SECONDS)
    store.register(WORKER)
    yield store
    store.close()


@pytest.mark.parametrize(
    ("direction", "ask"),
    [
        # One statement, several in a transaction, several in one round trip: each waits in its own way.
        pytest.param("server", lambda store: store.record_heartbeat("one"), id="one statement"),
        pytest.param("client", lambda store: store.expire("one", is_dead=True), id="a transaction"),
        pytest.param("client", lambda store: store.take_turns([1], "one"), id="a pipeline"),
    ],
)
def test_an_answer_that_does_not_come_within_the_lease_is_given_up(
    store: PostgresStore, proxy: Proxy, direction: str, ask: Callable[[PostgresStore], object]
) -> None:
    proxy.swallow(direction)

    with pytest.raises(StoreUnavailable) as refused:
        ask(store)

    assert refused.value.message == (
        "the PostgreSQL database 'postgres' on '127.0.0.1' does not answer: no answer for 1 seconds"
    )


def test_who_has_given_up_a_silent_connection_goes_on_with_a_new_one(store: PostgresStore, proxy: Proxy) -> None:
    proxy.swallow("client")
    with pytest.raises(StoreUnavailable):
        store.take_turns([1], "one")
    proxy.heal()

    is_known = store.record_heartbeat("one")
    turns = store.create([RUN], "one")

    assert is_known is not None
    assert [turn.holder for turn in turns] == ["one"]


def test_to_make_the_tables_may_take_longer_than_a_lease(schema_url: str) -> None:
    opened: list[PostgresStore] = []
    opening = Thread(target=lambda: opened.append(PostgresStore(schema_url, lease_seconds=LEASE_SECONDS)))
    with psycopg.connect(schema_url) as other:
        other.execute(SQL["lock_schema"])

        opening.start()
        with psycopg.connect(schema_url, autocommit=True) as checker:
            wait_until(lambda: checker.execute(WAITS_FOR_LONG, [LEASE_SECONDS + 0.5]).fetchall(), "it does not wait")
    opening.join()

    assert [store.workers() for store in opened] == [[]]
    opened[0].close()


WAITS_FOR_LONG = """
SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND NOT granted AND clock_timestamp() - xact_start > make_interval(secs => %s)
"""


def test_a_statement_that_is_prepared_for_the_first_time_is_given_up_too(store: PostgresStore, proxy: Proxy) -> None:
    store.take_turns([1], "one")
    proxy.swallow("client")

    with pytest.raises(StoreUnavailable):
        store.release([])


def test_a_process_with_a_thousand_open_files_still_hears_its_server(schema_url: str) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2_000, limits[1]))
    null = os.open(os.devnull, os.O_RDONLY)
    many = [os.dup(null) for _ in range(1_100)]
    try:
        store = PostgresStore(schema_url)
        fd, is_news = store.fileno(), store.has_changes()
        store.close()
    finally:
        for each in (null, *many):
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert (fd is not None and fd > 1_023, is_news) == (True, True)

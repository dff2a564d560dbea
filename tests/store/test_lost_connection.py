"""A server that goes away: a clear error, a new connection with the next call, and no news missed."""

from __future__ import annotations

import select
from collections.abc import Iterator

import psycopg
import pytest
from tests.support.keeping import T0, PostgresSchema, commit, has_news, started

from mulligan.core.model import reports as r
from mulligan.errors import StoreUnavailable
from mulligan.ports import Store
from mulligan.store.postgres.postgres import PostgresStore
from mulligan.testing.postgres import PostgresServer, own_server

CANCEL = r.CancelRequested(T0)


@pytest.fixture
def store(store_schema_url: str) -> Iterator[Store]:
    opened = PostgresSchema(store_schema_url).open()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One that may be stopped without harm to others."""
    with own_server() as found:
        yield found


def test_while_the_server_is_down_calls_say_so_and_afterwards_they_work_again(server: PostgresServer) -> None:
    store = PostgresStore(server.url)
    turn = started(store)
    store.commit([commit(turn)])

    server.stop()
    for _ in range(2):
        with pytest.raises(StoreUnavailable) as unavailable:
            store.commit([commit(turn, 1)])
        with pytest.raises(StoreUnavailable):
            store.record_heartbeat("w")
    server.start()

    assert unavailable.value.render() == (
        f"error[store.unavailable]: the PostgreSQL database 'postgres' on '{server.folder}' does not answer: "
        f'connection to server on socket "{server.folder}/.s.PGSQL.5432" failed: No such file or directory '
        "Is the server running locally and accepting connections on that socket?\n"
        "  check that the server runs and try again"
    )
    store.commit([commit(turn, 1)])
    assert store.run(turn.run_id).seq == 2
    store.close()


@pytest.mark.parametrize("how", ["immediate", "fast"])
def test_a_server_that_was_restarted_costs_one_call(server: PostgresServer, how: str) -> None:
    store = PostgresStore(server.url)
    turn = started(store)

    server.stop(how)
    server.start()

    with pytest.raises(StoreUnavailable) as unavailable:
        store.commit([commit(turn)])
    assert unavailable.value.message.startswith(
        f"the PostgreSQL database 'postgres' on '{server.folder}' does not answer: "
    )
    store.commit([commit(turn)])
    assert store.run(turn.run_id).seq == 1
    store.close()


def test_news_of_the_time_without_a_connection_is_not_missed(server: PostgresServer) -> None:
    store = PostgresStore(server.url)
    turn = started(store)
    has_news(store)
    descriptor = store.fileno()

    server.stop("fast")
    server.start()

    assert descriptor is not None
    # Whoever waits for it is woken up by the end of the connection itself.
    assert select.select([descriptor], [], [], 60)[0]
    other = PostgresStore(server.url)
    other.put(turn.run_id, CANCEL)
    assert store.has_changes()
    assert store.fileno() is not None
    other.close()
    store.close()


def test_no_transaction_is_left_open_by_a_refusal(store: Store, store_schema_url: str) -> None:
    turn = started(store)
    with pytest.raises(Exception, match="void"):
        store.commit([commit(turn, 5)])

    with psycopg.connect(store_schema_url) as connection:
        rows = connection.execute(
            "SELECT count(*) FROM pg_stat_activity JOIN pg_locks USING (pid) JOIN pg_class ON relation = pg_class.oid "
            "WHERE relnamespace = current_schema()::regnamespace AND pid <> pg_backend_pid()"
        ).fetchall()

    assert rows == [(0,)]
    store.commit([commit(turn)])

"""A worker on PostgreSQL that is not notified: of a listening connection that ends, and of what nobody tells it."""

from __future__ import annotations

import select
from collections.abc import Iterator

import psycopg
import pytest
from tests.support.keeping import has_news

from mulligan.core.model import reports as r
from mulligan.core.model.outcome import Outcome
from mulligan.engine.change_watch import NOTIFIED_IDLE_SECONDS, POLL_SECONDS
from mulligan.engine.engine import Engine
from mulligan.language.expressions import Cel
from mulligan.ports import WorkerRecord
from mulligan.store.encoding import encoded
from mulligan.store.postgres.postgres import PostgresStore
from mulligan.testing.clock import JumpingClock
from mulligan.testing.fake_executor import FakeExecutor

from .conftest import World

WORKFLOW = """
name: w
steps: [{step: a, shell: build}]
"""
# The retry of a failed step is a timer, which is due at once.
RETRIED = """
name: w
steps: [{step: a, shell: build, retry: {max_retries: 1, delay: 1ms}}]
"""


class WatchingExecutor(FakeExecutor):
    """Notes which descriptor wakes it."""

    watched: int | None = None

    def watch(self, fd: int | None) -> None:
        self.watched = fd

    def is_woken(self, seconds: float = 0.0) -> bool:
        return self.watched is not None and bool(select.select([self.watched], [], [], seconds)[0])


class Shared:
    """A store on PostgreSQL with one worker that has settled, and a second connection to it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store, self.other = PostgresStore(url), PostgresStore(url)
        self.world = World(self.store, JumpingClock())
        self.store.register(WorkerRecord("w", "here", 1))
        self.executor = WatchingExecutor("w", self.world.clock)
        self.engine = Engine(self.store, self.world.clock, Cel({}), "w", self.executor)
        self.settle()

    def settle(self) -> None:
        """Until it has heard of all that was written so far."""
        self.world.settle(self.engine)
        self.world.pass_time(self.engine, seconds=1)

    def start_without_notice(self) -> int:
        """A run of which nobody is notified, as if the connection had been lost between the two transactions."""
        run_id = World(self.other, self.world.clock).start(WORKFLOW, None)
        assert has_news(self.store)
        return run_id

    def end_listener(self) -> None:
        """Until it is closed: the server says that it ends the connection, and ends it a moment later."""
        listener = self.store._client._listening()
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(%s)", [listener.info.backend_pid])
        closed = select.poll()
        closed.register(listener.fileno(), select.POLLRDHUP)
        assert closed.poll(60_000)

    def close(self) -> None:
        self.store.close()
        self.other.close()


@pytest.fixture
def shared(store_schema_url: str) -> Iterator[Shared]:
    found = Shared(store_schema_url)
    yield found
    found.close()


def test_the_end_of_the_listening_connection_wakes_a_worker_which_listens_again_and_looks_at_once(
    shared: Shared,
) -> None:
    run_id = shared.start_without_notice()
    shared.world.clock.advance(POLL_SECONDS)
    shared.engine.tick(0.0)
    assert shared.world.facts(run_id) == []
    assert not shared.executor.is_woken()

    shared.end_listener()

    assert shared.executor.is_woken(60)
    shared.world.clock.advance(POLL_SECONDS)
    shared.world.settle(shared.engine)
    assert shared.world.status(run_id) == "completed"
    # The new connection wakes it as well.
    World(shared.other, shared.world.clock).start(WORKFLOW, None)
    assert shared.executor.is_woken(60)


def test_what_nobody_tells_a_worker_is_found_ten_seconds_later(shared: Shared) -> None:
    run_id = shared.start_without_notice()
    shared.world.pass_time(shared.engine, seconds=NOTIFIED_IDLE_SECONDS - 1)
    assert shared.world.facts(run_id) == []

    shared.world.pass_time(shared.engine, seconds=1.1)

    assert shared.world.status(run_id) == "completed"


def test_a_message_whose_notification_is_lost_is_found_ten_seconds_later(shared: Shared) -> None:
    run_id = shared.world.start("name: w\nsteps: [{step: a, approve: 'Go on?'}]", shared.engine)
    shared.settle()
    cancel = r.CancelRequested(shared.world.clock.now())
    shared.other._client.query("put", encoded(cancel), False, run_id)
    shared.world.pass_time(shared.engine, seconds=NOTIFIED_IDLE_SECONDS - 1)
    assert shared.world.status(run_id) == "running"

    shared.world.pass_time(shared.engine, seconds=1.1)

    assert shared.world.status(run_id) == "cancelled"


def test_a_timer_of_a_worker_that_was_killed_is_fired_by_another_one(shared: Shared) -> None:
    failing = shared.world.engine(ends=lambda task: Outcome(exit_code=1))
    run_id = shared.world.start(RETRIED, failing)
    while "RetryScheduled" not in shared.world.facts(run_id):
        failing.tick(0.0)

    # It is killed before it fires the timer, and others expire it.
    shared.world.expire(failing)
    shared.world.pass_time(shared.engine, seconds=NOTIFIED_IDLE_SECONDS + 0.1)
    while shared.world.status(run_id) != "completed":
        shared.world.pass_time(shared.engine, seconds=0.1)

    assert shared.world.facts(run_id).count("AttemptStarted") == 2

"""A server that no worker reaches for longer than a lease: nobody is taken for dead, no finished step runs again."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from mulligan.core.model import events as e
from mulligan.language import load_text
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.testing.postgres import PostgresServer, own_server
from mulligan.worker.supervisor.processes import send_signal
from proof.chaos.faults import family_of
from proof.stage import Stage, heard, wait_until

from .forked_stage import ForkedStage
from .three import begun, expect_done_once

# So long that a worker renews it in time on a machine that has much else to do: the test waits, and computes nothing.
LEASE_SECONDS = 5.0
OUTAGE_LEASES = 1.2
WORKERS = 3
# Two for each worker: five that end in the outage, and one that still runs when its worker may run nothing any more.
SHORT = ("a", "b", "c", "d", "e")
WAITS = "until test -e {}; do sleep 0.01; done"
FLOW = "name: outage\nsteps:\n" + "".join(
    f"  - {{step: {name}, shell: 'sh $ACT {name}; {WAITS.format(until)}'}}\n"
    for name, until in (*((name, "go") for name in SHORT), ("long", "back"))
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with own_server() as started:
        yield started


@contextmanager
def workers(stage: Stage) -> Iterator[list[subprocess.Popen[str]]]:
    """Workers that take two tasks at a time each."""
    started = [stage.start_program("-m", "proof.serving", LEASE_SECONDS) for _ in range(WORKERS)]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def crash(server: PostgresServer, pids: list[int]) -> Callable[[], None]:
    """All of its processes die; what is returned starts it again."""
    send_signal(pids, signal.SIGKILL)
    return server.start


def stay_silent(server: PostgresServer, pids: list[int]) -> Callable[[], None]:
    """It lives, its clock goes on, and nobody hears from it; what is returned ends that."""
    return lambda: send_signal(pids, signal.SIGCONT)


def full(server: PostgresServer) -> tuple[str, Callable[[], None]]:
    """A user that may have two connections, of which one is in use; what is returned with its URL ends that."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE busy LOGIN SUPERUSER CONNECTION LIMIT 2")
        connection.execute("ALTER ROLE busy NOSUPERUSER")
        connection.execute("CREATE SCHEMA busy AUTHORIZATION busy")
    url = server.url.replace("postgres@", "busy@")
    return url, psycopg.connect(url).close


def down(server: PostgresServer) -> tuple[str, Callable[[], None]]:
    server.stop()
    return server.url, server.start


@pytest.mark.parametrize("begin", [full, down], ids=["has no free connection", "is down"])
def test_a_worker_that_starts_while_the_server_waits_until_it_is_served(
    tmp_path: Path, server: PostgresServer, begin: Callable[[PostgresServer], tuple[str, Callable[[], None]]]
) -> None:
    url, end = begin(server)
    process = ForkedStage(tmp_path, url).start("worker")

    said = heard(process, "; waiting for it")
    end()
    said += heard(process, " is up: ")
    process.send_signal(signal.SIGTERM)
    said += process.communicate()[1]

    assert process.returncode == 0, said
    # Once for each reason: a server that was down may be seen while it starts up.
    waits = [line for line in said.splitlines() if "; waiting for it" in line]
    assert waits == list(dict.fromkeys(waits)) != []


def test_a_process_that_drives_runs_holds_two_connections(tmp_path: Path, named_url: str) -> None:
    """This is the figure of docs/operate/workers.md."""
    stage = ForkedStage(tmp_path, named_url)
    name = conninfo_to_dict(named_url)["application_name"]
    with psycopg.connect(named_url, application_name="onlooker", autocommit=True) as checker:

        def count() -> int:
            return checker.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", [name]
            ).fetchall()[0][0]

        worker = stage.start("worker")
        heard(worker, " is up: ")
        of_worker = count()
        run = begun(stage)
        of_both = count()
        worker.send_signal(signal.SIGTERM)
        worker.communicate()
        (tmp_path / "go").touch()
        expect_done_once(stage, run)

    assert (of_worker, of_both) == (2, 4)


def test_a_worker_that_waits_for_its_server_can_be_told_to_end(tmp_path: Path) -> None:
    process = ForkedStage(tmp_path, "postgresql://nobody@127.0.0.1:1/nowhere").start("worker")
    heard(process, "; waiting for it")

    process.send_signal(signal.SIGTERM)

    assert process.communicate()[1] == "the worker was stopped before the store answered\n"
    assert process.returncode == 0


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(crash, id="the server is down"),
        pytest.param(stay_silent, id="the server cannot be reached", marks=pytest.mark.nightly),
    ],
)
def test_an_outage_longer_than_a_lease_costs_no_finished_step_and_no_loss(
    tmp_path: Path, server: PostgresServer, begin: Callable[[PostgresServer, list[int]], Callable[[], None]]
) -> None:
    stage = ForkedStage(tmp_path, server.url)
    with workers(stage) as fleet:
        with stage.service() as service:
            (run_id,) = service.changes.create(prepare(load_text(FLOW), {}, tmp_path))
        for name in (*SHORT, "long"):
            wait_until(lambda name=name: stage.has_begun(name), f"'{name}' did not begin")

        # From now on nothing can be written, also not what the short steps come to.
        pids = family_of(server.pid)
        send_signal(pids, signal.SIGSTOP)
        down_at = time.monotonic()
        (tmp_path / "go").touch()
        wait_until(lambda: not any("test -e go" in left for left in stage.leftovers()), "the steps do not end")
        end = begin(server, pids)
        wait_until(lambda: time.monotonic() > down_at + OUTAGE_LEASES * LEASE_SECONDS, "time stands still")
        wait_until(lambda: not any("test -e back" in left for left in stage.leftovers()), "its task still runs")
        end()
        (tmp_path / "back").touch()
        with stage.service() as service:
            wait_until(lambda: service.reader.store.run(run_id).status == "completed", "the run does not end")
            stage.expect_promises(service, run_id)
            facts = [entry.fact for entry in service.reader.events(run_id)]
        for process in fleet:
            process.send_signal(signal.SIGTERM)
        said = [process.communicate()[1] for process in fleet]

    began = Counter(line.name for line in stage.lines() if line.verb == "start")
    assert began == {**dict.fromkeys(SHORT, 1), "long": 2}
    assert [fact for fact in facts if isinstance(fact, e.AttemptLost)] == []
    assert [fact.place for fact in facts if isinstance(fact, e.AttemptInterrupted)] == ["long"]
    assert not any("taken for dead" in words for words in said), said
    stage.expect_no_overlap()
    stage.expect_nothing_left()

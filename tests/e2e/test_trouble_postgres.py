"""A server that goes away, comes back, or is held up: the run waits, says so, and loses nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mulligan.language import load_text
from mulligan.ports import WorkerRecord
from mulligan.service.driving.local_worker import open_driver
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.store.postgres.postgres import PostgresStore
from mulligan.testing.postgres import own_server
from proof.crashes.command_server import lose_connections
from proof.stage import Stage, answered, heard, wait_until

from .forked_stage import ForkedStage
from .three import THREE, begun, expect_done_once

LEASE_SECONDS = 0.5


@pytest.mark.parametrize("how", ["immediate", pytest.param("fast", marks=pytest.mark.nightly)])
def test_a_server_that_is_restarted_in_the_middle_of_a_run_is_waited_for(tmp_path: Path, how: str) -> None:
    with own_server() as server:
        stage = ForkedStage(tmp_path, server.url)
        process = begun(stage)

        server.stop(how)
        said = heard(process, "; waiting for it")
        (tmp_path / "go").touch()
        wait_until(lambda: not any("until test" in left for left in stage.leftovers()), "the step does not end")
        server.start()

        expect_done_once(stage, process, said)
        # "yet" where it still says that it is shutting down or starting up.
        where = re.escape(f"! the PostgreSQL database 'postgres' on '{server.folder}' does not answer")
        assert re.search(rf"{where}(?: yet)?: ", said)


@pytest.mark.nightly
def test_a_run_can_be_interrupted_while_its_server_is_away_and_be_resumed_when_it_is_back(tmp_path: Path) -> None:
    with own_server() as server:
        stage = ForkedStage(tmp_path, server.url)
        process = stage.start("run", stage.workflow(THREE))
        wait_until(lambda: stage.has_begun("two"), "it did not begin")

        server.stop()
        said = heard(process, "; waiting for it")
        process.send_signal(signal.SIGINT)
        said += process.communicate()[1]
        stage.expect_nothing_left()
        server.start()
        (tmp_path / "go").touch()
        code, shown, said_then = answered(stage.start("resume", "--json"))

        assert process.returncode == 130, said
        assert code == 0, said_then
        assert shown["status"] == "completed"
        assert [line.name for line in stage.lines() if line.verb == "start"] == ["one", "two", "two", "three"]


@pytest.fixture
def worker(tmp_path: Path, named_url: str) -> Iterator[tuple[Stage, subprocess.Popen[str]]]:
    """A worker with a short lease, and the stage it serves."""
    stage = ForkedStage(tmp_path, named_url)
    process = stage.start_program("-m", "proof.serving", LEASE_SECONDS)
    assert process.stdout is not None
    assert process.stdout.readline() == "serving\n"
    yield stage, process
    process.kill()
    process.communicate()


def test_a_worker_that_was_given_up_while_it_had_no_connection_starts_anew(
    worker: tuple[Stage, subprocess.Popen[str]], store_schema_url: str, named_url: str
) -> None:
    stage, process = worker
    other = PostgresStore(store_schema_url, lease_seconds=LEASE_SECONDS)
    # Its own connection is not cut.
    with ForkedStage(stage.folder, store_schema_url).service() as service:
        (run_id,) = service.changes.create(prepare(load_text(THREE), {}, stage.folder))
        wait_until(lambda: stage.has_begun("two"), "it did not begin")
        (before,) = other.workers()

        os.kill(process.pid, signal.SIGSTOP)
        wait_until(lambda: other.expire(before.name), "it is not given up")
        lose_connections(named_url)
        os.kill(process.pid, signal.SIGCONT)
        (after,) = wait_until(other.workers, "it does not come back")
        (stage.folder / "go").touch()
        wait_until(lambda: other.run(run_id).status == "completed", "it does not go on")
        process.send_signal(signal.SIGTERM)
        said = process.communicate()[1]

        assert process.returncode == 0, said
        assert before.name != after.name
        assert "this worker sent no heartbeat in time and has expired; it starts again under a new name\n" in said
        assert [line.name for line in stage.lines() if line.verb == "start"] == ["one", "two", "two", "three"]
        stage.expect_promises(service, run_id)
    other.close()
    stage.expect_no_overlap()
    stage.expect_nothing_left()


def test_a_worker_that_hangs_in_a_transaction_holds_up_nobody(store_schema_url: str) -> None:
    hung = PostgresStore(store_schema_url, lease_seconds=0.6)
    other = PostgresStore(store_schema_url)
    hung.register(WorkerRecord("hung", "here", 1))
    hung._client.connection().execute("BEGIN")
    hung._client.execute("record_heartbeat", "hung")

    is_expired = other.expire("hung", is_dead=True)

    assert is_expired
    hung.close()
    other.close()


def test_a_worker_whose_connection_was_lost_while_it_was_idle_still_says_farewell(
    tmp_path: Path, named_url: str
) -> None:
    stage = ForkedStage(tmp_path, named_url)
    with stage.service() as service, open_driver(service.reader):
        lose_connections(named_url)

    with stage.service() as later:
        assert later.reader.store.workers() == []

"""Logs that go to the store: when a task has ended, while somebody watches, and after a crash."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.work import Work

from mulligan.core.effects.tasks import Task
from mulligan.core.model.clusters.shipped_logs import WATCH_KIND, encode_watch
from mulligan.core.model.reports import TaskEnded
from mulligan.errors import StoreRefused, StoreUnavailable
from mulligan.ports import Document, Lease, LogChunk, LogKey, ServerRecords
from mulligan.testing.memory.memory_store import MemoryStore
from mulligan.worker import lock
from mulligan.worker.folders import Folders
from mulligan.worker.logs.log_shipping import LogShipping


class Records:
    """The records of a store in memory, which may be down or refuse logs."""

    def __init__(self) -> None:
        self.stored: ServerRecords = MemoryStore(is_shared=True).server_records
        self.trouble: Exception | None = None
        self.calls = 0
        # Where the chunks began.
        self.starts: list[int] = []

    def append_log(self, chunks: Iterable[LogChunk]) -> None:
        self.calls += 1
        if self.trouble is not None:
            raise self.trouble
        found = list(chunks)
        self.starts += [chunk.start for chunk in found]
        self.stored.append_log(found)

    def log_size(self, key: LogKey) -> tuple[int, bool] | None:
        return self.stored.log_size(key)

    def documents(self, kind: str, project: str | None = None) -> list[Document]:
        return self.stored.documents(kind, project)

    def text(self, lease: Lease, stream: str = "stdout") -> str | None:
        """What the store has of a log, with a mark at its end."""
        task = lease.task
        key = LogKey(task.run_id, task.place, task.attempt, stream)  # type: ignore[arg-type]
        found = self.stored.log_size(key)
        if found is None:
            return None
        return self.stored.read_log(key, 0, found[0]).decode() + ("." if found[1] else "…")

    def watch(self, run_id: int) -> None:
        until = encode_watch(datetime.now(UTC) + timedelta(minutes=1))
        self.stored.put_document(Document(kind=WATCH_KIND, name=str(run_id), data=until, updated_at=datetime.now(UTC)))


@pytest.fixture
def records() -> Records:
    return Records()


@pytest.fixture
def work(tmp_path: Path, records: Records) -> Iterator[Work]:
    work = Work(tmp_path, shipped_logs=lambda: records)
    yield work
    work.close()


def notes_of_unshipped_logs(work: Work) -> list[str]:
    """The notes for the next worker. The folder is there once a task has run for a while."""
    folder = Folders(work.home).unshipped
    return os.listdir(folder) if os.path.exists(folder) else []


def test_logs_are_in_the_store_before_the_end_is_reported(work: Work, records: Records):
    lease = work.shell("echo hello; echo oops >&2")

    work.run(lease)

    assert (records.text(lease), records.text(lease, "stderr")) == ("hello\n.", "oops\n.")
    assert work.log(lease).read_text() == "hello\n"
    assert not notes_of_unshipped_logs(work)


def test_a_task_that_writes_nothing_ships_nothing(work: Work, records: Records):
    lease = work.shell("true")

    work.run(lease)

    assert (records.text(lease), records.calls) == (None, 0)


def test_an_end_waits_for_a_store_that_is_down_and_is_not_lost(work: Work, records: Records):
    lease = work.shell("echo hello")
    records.trouble = StoreUnavailable("it is down")
    work.start(lease)

    with pytest.raises(StoreUnavailable):
        while not work.executor.collect(5.0):
            pass
    held = [one.token for one in work.executor.running]
    records.trouble = None
    (report,) = work.reports()

    assert held == [lease.token]
    assert isinstance(report, TaskEnded)
    assert records.text(lease) == "hello\n."


def test_a_result_counts_without_its_log(work: Work, records: Records):
    records.trouble = StoreRefused("there is no space")

    report = work.run(work.shell("echo hello"))

    assert report.outcome.code == ""


def test_while_somebody_watches_logs_are_shipped_as_they_are_written(work: Work, records: Records, tmp_path: Path):
    lease = work.shell(f"echo first; while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; echo second")
    work.start(lease)
    records.watch(lease.task.run_id)
    work.executor.renew(0.0)

    work.wait_for(lambda: records.text(lease) == "first\n…")
    (tmp_path / "go").touch()
    work.reports()

    assert records.text(lease) == "first\nsecond\n."


def test_what_a_dead_worker_left_is_shipped_by_the_next_one(tmp_path: Path, records: Records):
    folders = Folders(tmp_path)
    lease = Lease(
        Task(
            run_id=7,
            place="build",
            attempt=2,
            kind="shell",
            params={},
            workflow="w",
            version="v",
            step="build",
            visit=1,
        ),
        "dead",
        1,
    )
    task = lease.task
    log = Path(folders.logs(task.run_id, "build", 2).out)
    log.parent.mkdir(parents=True)
    log.write_text("one\ntwo\n")
    held = lock.acquire(tmp_path / "workers", "dead")
    LogShipping(folders, "dead", lambda: records).begin(task)
    records.append_log([LogChunk(LogKey(task.run_id, "build", 2, "stdout"), 0, b"one\n")])
    next_one = LogShipping(folders, "next", lambda: records)

    next_one.poll(is_running=False)
    while_it_lives = records.text(lease)
    held.release(is_recorded=False)
    records.trouble = StoreUnavailable("it is down")
    next_one.poll(is_running=False)
    records.trouble = None
    next_one.poll(is_running=False)

    assert (while_it_lives, records.text(lease)) == ("one\n…", "one\ntwo\n.")
    assert os.listdir(folders.unshipped) == []


def test_what_is_left_and_cannot_be_read_is_dropped(tmp_path: Path, records: Records):
    unshipped = Path(Folders(tmp_path).unshipped)
    unshipped.mkdir()
    (unshipped / "dead#1").write_text("{")
    (unshipped / "dead#2").write_text('{"run_id": 1, "place": "gone", "attempt": 1}')

    LogShipping(Folders(tmp_path), "next", lambda: records).ship_left()

    assert os.listdir(unshipped) == []
    assert records.calls == 0

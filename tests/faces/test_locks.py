"""What the lock files of workers prove, seen from a home that may have been moved or copied."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mulligan.ports import WorkerRecord
from mulligan.service.driving.locks import Locks
from mulligan.service.home import Home, this_host
from mulligan.worker import lock
from mulligan.worker.lock import Lock


class Seconds:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def home(folder: Path) -> Home:
    return Home(folder, lease_seconds=30.0)


def worker(held: Lock, host: str = "") -> WorkerRecord:
    return WorkerRecord("w1", host or this_host(), 1, held.path)


def locks(folder: Path, *, is_shared: bool = False, monotonic: Callable[[], float] = lambda: 0.0) -> Locks:
    return Locks(home(folder), is_shared=is_shared, monotonic=monotonic)


def test_the_lock_of_a_worker_is_found_in_a_home_that_was_moved(tmp_path: Path) -> None:
    held = lock.acquire(home(tmp_path / "old").locks, "w1")
    found = worker(held)

    (tmp_path / "old").rename(tmp_path / "new")

    assert locks(tmp_path / "new").state(found) == "held"
    held.release(is_recorded=False)
    assert locks(tmp_path / "new").state(found) == "free"


def test_a_worker_of_the_home_that_this_one_is_a_copy_of_is_alive(tmp_path: Path) -> None:
    held = lock.acquire(home(tmp_path / "one").locks, "w1")

    shutil.copytree(tmp_path / "one", tmp_path / "copy")

    assert locks(tmp_path / "copy").state(worker(held)) == "held"
    assert locks(tmp_path / "copy").original_home(worker(held)) == str(tmp_path / "one")
    assert locks(tmp_path / "one").original_home(worker(held)) == ""
    held.release(is_recorded=False)
    assert locks(tmp_path / "copy").state(worker(held)) == "free"


@pytest.mark.parametrize("move", ["copied and removed", "removed"])
def test_a_lock_that_proves_nothing_counts_as_free_after_a_lease(tmp_path: Path, move: str) -> None:
    held, seconds = lock.acquire(home(tmp_path / "one").locks, "w1"), Seconds()
    if move == "copied and removed":
        shutil.copytree(tmp_path / "one", tmp_path / "copy")
    shutil.rmtree(tmp_path / "one")
    looking = locks(tmp_path / "copy", monotonic=seconds)

    states = []
    for passed in (0.0, 29.0, 1.0):
        seconds.now += passed
        states.append(looking.confirmed_state(worker(held)))

    assert states == ["unknown", "unknown", "free"]
    held.release()


def test_a_lock_that_is_seen_again_has_proved_something_since(tmp_path: Path) -> None:
    held, seconds = lock.acquire(home(tmp_path / "one").locks, "w1"), Seconds()
    looking, found = locks(tmp_path / "one", monotonic=seconds), worker(held)
    (tmp_path / "one").rename(tmp_path / "aside")
    assert looking.confirmed_state(found) == "unknown"

    (tmp_path / "aside").rename(tmp_path / "one")
    assert looking.confirmed_state(found) == "held"
    (tmp_path / "one").rename(tmp_path / "aside")
    seconds.now += 31.0

    assert looking.confirmed_state(found) == "unknown"
    held.release()


def test_where_machines_share_a_store_a_lock_of_this_one_counts_whatever_the_host_was_called(tmp_path: Path) -> None:
    held = lock.acquire(home(tmp_path).locks, "w1")

    assert locks(tmp_path, is_shared=True).state(worker(held, host="another-name")) == "held"
    held.release(is_recorded=False)
    assert locks(tmp_path, is_shared=True).state(worker(held, host="another-name")) == "free"


def test_where_machines_share_a_store_a_lock_that_another_one_made_is_not_looked_at(tmp_path: Path) -> None:
    held = lock.acquire(home(tmp_path).locks, "w1")
    Path(held.path).write_text("another-boot 1 2\n")

    assert locks(tmp_path, is_shared=True).state(worker(held, host="another-name")) == "unknown"
    held.release()


def test_where_machines_share_a_store_a_lock_that_is_not_there_never_counts_as_free(tmp_path: Path) -> None:
    held, seconds = lock.acquire(home(tmp_path).locks, "w1"), Seconds()
    held.release()
    looking = locks(tmp_path, is_shared=True, monotonic=seconds)

    assert looking.confirmed_state(worker(held)) == "unknown"
    seconds.now += 3600.0
    assert looking.confirmed_state(worker(held)) == "unknown"

"""A lock file says whether a worker is alive, where it can be seen."""

from __future__ import annotations

import shutil
from pathlib import Path
from threading import Barrier, Thread

from mulligan.worker.lock import acquire, boot_id, free_locks, is_of_this_machine, state_of


def test_a_lock_that_is_held_says_that_its_worker_is_alive(tmp_path: Path) -> None:
    lock = acquire(tmp_path, "w1")

    assert (state_of(lock.path), is_of_this_machine(lock.path)) == ("held", True)
    lock.release()


def test_a_lock_that_its_holder_left_behind_is_free(tmp_path: Path) -> None:
    lock = acquire(tmp_path, "w1")

    lock.release(is_recorded=False)

    assert state_of(lock.path) == "free"


def test_two_that_look_at_once_do_not_take_each_other_for_the_worker(tmp_path: Path) -> None:
    lock = acquire(tmp_path, "w1")
    lock.release(is_recorded=False)
    seen: list[str] = []

    def look() -> None:
        together.wait()
        seen.extend(state_of(lock.path) for _ in range(500))

    together = Barrier(2)
    threads = [Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert set(seen) == {"free"}


def test_a_lock_of_an_older_version_says_who_lives_too(tmp_path: Path) -> None:
    (tmp_path / "w1.lock").touch()

    assert state_of(str(tmp_path / "w1.lock")) == "free"
    assert not is_of_this_machine(str(tmp_path / "w1.lock"))


def test_a_lock_that_is_not_there_proves_nothing(tmp_path: Path) -> None:
    assert state_of(str(tmp_path / "gone.lock")) == state_of(str(tmp_path / "gone" / "w1.lock")) == "unknown"


def test_a_copy_of_a_lock_proves_nothing(tmp_path: Path) -> None:
    lock = acquire(tmp_path, "w1")

    shutil.copy(lock.path, tmp_path / "copy.lock")

    assert state_of(str(tmp_path / "copy.lock")) == "unknown"
    lock.release()


def test_a_copy_from_before_the_machine_was_started_is_free(tmp_path: Path) -> None:
    said = b"another-boot 1 2\n"
    (tmp_path / "w1.lock").write_bytes(said)

    assert boot_id() not in said
    assert state_of(str(tmp_path / "w1.lock")) == "free"


def test_a_lock_whose_end_the_store_does_not_know_stays_to_be_found(tmp_path: Path) -> None:
    lock = acquire(tmp_path, "w1")

    lock.release(is_recorded=False)

    assert Path(lock.path).exists()


def test_a_lock_that_was_released_leaves_no_file(tmp_path: Path) -> None:
    lock = acquire(tmp_path / "locks", "w1")

    lock.release()

    assert list((tmp_path / "locks").iterdir()) == []


def test_a_lock_whose_folder_is_moved_is_held_at_its_new_place_and_removed_there(tmp_path: Path) -> None:
    lock = acquire(tmp_path / "old", "w1")
    assert lock.is_in_place

    (tmp_path / "old").rename(tmp_path / "new")

    assert not lock.is_in_place
    assert lock.moved_to == tmp_path / "new" / "w1.lock"
    assert state_of(str(tmp_path / "new" / "w1.lock")) == "held"
    lock.release()
    assert list((tmp_path / "new").iterdir()) == []


def test_a_lock_in_whose_place_another_file_stands_is_not_in_place(tmp_path: Path) -> None:
    lock = acquire(tmp_path, "w1")

    Path(lock.path).unlink()
    Path(lock.path).touch()

    assert not lock.is_in_place
    assert lock.moved_to is None
    lock.release()


def test_the_locks_of_dead_workers_are_found_and_no_others(tmp_path: Path) -> None:
    held, dead = acquire(tmp_path, "held.1"), acquire(tmp_path, "dead.2")
    dead.release(is_recorded=False)
    # A worker is about to take it.
    (tmp_path / "new.3.lock").touch()

    assert free_locks(tmp_path) == ["dead.2"]
    assert free_locks(tmp_path / "nowhere") == []
    held.release()

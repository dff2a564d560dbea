"""A lock file says whether a worker is alive, where it can be seen."""

from __future__ import annotations

from pathlib import Path

from mulligan.worker.lock import hold, is_free, is_left


def test_a_lock_that_is_held_is_not_free(tmp_path: Path) -> None:
    lock = hold(tmp_path, "w1")

    assert (is_free(lock.path), is_left(lock.path)) == (False, False)
    lock.release()


def test_a_lock_that_its_holder_left_behind_is_free(tmp_path: Path) -> None:
    (tmp_path / "w1.lock").touch()

    assert is_free(str(tmp_path / "w1.lock"))
    assert is_left(str(tmp_path / "w1.lock"))


def test_a_lock_that_is_not_there_may_be_on_another_host_of_the_same_name(tmp_path: Path) -> None:
    path = str(tmp_path / "elsewhere.lock")

    assert (is_free(path), is_left(path)) == (True, False)


def test_a_lock_that_was_released_leaves_no_file(tmp_path: Path) -> None:
    lock = hold(tmp_path / "locks", "w1")

    lock.release()

    assert list((tmp_path / "locks").iterdir()) == []

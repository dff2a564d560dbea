"""A lock file says whether a worker is alive, where it can be seen."""

from __future__ import annotations

from pathlib import Path

from mulligan.worker.lock import hold, is_free


def test_a_lock_that_is_held_is_not_free(tmp_path: Path) -> None:
    lock = hold(tmp_path, "w1")

    assert not is_free(lock.path)
    lock.release()


def test_a_lock_that_its_holder_left_behind_is_free(tmp_path: Path) -> None:
    (tmp_path / "w1.lock").touch()

    assert is_free(str(tmp_path / "w1.lock"))


def test_a_lock_that_is_not_there_was_released(tmp_path: Path) -> None:
    assert is_free(str(tmp_path / "gone.lock"))


def test_a_lock_whose_end_the_store_does_not_know_stays_to_be_found(tmp_path: Path) -> None:
    lock = hold(tmp_path, "w1")

    lock.release(is_known=False)

    assert Path(lock.path).exists()
    assert is_free(lock.path)


def test_a_lock_that_was_released_leaves_no_file(tmp_path: Path) -> None:
    lock = hold(tmp_path / "locks", "w1")

    lock.release()

    assert list((tmp_path / "locks").iterdir()) == []

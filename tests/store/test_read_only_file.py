"""A SQLite file that is only read: beside a writer it shows whole states, and it refuses every change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mulligan.errors import HomeReadOnly
from mulligan.store.sqlite.sqlite import SqliteStore
from mulligan.store.sqlite.sqlite_file import SqliteFile
from mulligan.store.sqlite.sqlite_read_only import ReadOnlyFile, connect_to_read

COUNT = "SELECT count(*) FROM counters WHERE name LIKE 'more%'"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of an empty store, closed."""
    SqliteStore(tmp_path / "mulligan.db").close()
    return tmp_path / "mulligan.db"


def add_counter(path: Path, name: str) -> None:
    file = SqliteFile(path, 5.0)
    file.write(lambda: file.read("INSERT INTO counters VALUES (?, 1)", name))
    file.close()


def test_a_closed_file_is_read_without_making_another_one_beside_it(path: Path):
    file = ReadOnlyFile(path, 5.0)

    assert file.read(COUNT) == [(0,)]
    assert [one.name for one in path.parent.iterdir()] == ["mulligan.db"]
    file.close()


def test_what_another_process_writes_is_seen_and_the_version_is_another_one(path: Path):
    file = ReadOnlyFile(path, 5.0)
    before = file.version()
    assert file.version() == before

    add_counter(path, "more")

    assert file.version() != before
    assert file.read_snapshot(lambda: file.cursor.execute(COUNT).fetchall()) == [(1,)]
    file.close()


def test_a_read_during_which_another_process_writes_is_repeated(path: Path):
    file, seen = ReadOnlyFile(path, 5.0), []

    def work() -> int:
        seen.append(True)
        if len(seen) == 1:
            add_counter(path, "more")
        return len(seen)

    assert file.read_snapshot(work) == 2
    file.close()


def test_beside_an_open_writer_it_is_read_as_always(path: Path):
    writer = SqliteFile(path, 5.0)
    writer.write(lambda: writer.read("INSERT INTO counters VALUES ('more', 1)"))

    db, is_guarded = connect_to_read(str(path))

    assert is_guarded
    assert db.execute(COUNT).fetchall() == [(1,)]
    db.close()
    writer.close()


def test_what_is_left_in_the_log_counts_without_the_index_of_the_log(path: Path, tmp_path: Path):
    writer = SqliteFile(path, 5.0)
    writer.write(lambda: writer.read("INSERT INTO counters VALUES ('more', 1)"))
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("mulligan.db", "mulligan.db-wal"):
        shutil.copy(tmp_path / name, copy / name)
    writer.close()

    file = ReadOnlyFile(copy / "mulligan.db", 5.0)

    assert file.read(COUNT) == [(1,)]
    assert sorted(one.name for one in copy.iterdir()) == ["mulligan.db", "mulligan.db-wal"]
    file.close()


def test_a_change_is_refused_whichever_way_it_comes(path: Path):
    file = ReadOnlyFile(path, 5.0)

    with pytest.raises(HomeReadOnly):
        file.write(lambda: None)
    with pytest.raises(HomeReadOnly):
        file.read("INSERT INTO counters VALUES ('more', 1)")
    with pytest.raises(HomeReadOnly):
        file.read_snapshot(lambda: file.cursor.execute("DELETE FROM counters").fetchall())
    file.close()


def test_a_file_of_an_older_version_is_refused_since_it_cannot_be_migrated(path: Path):
    older = SqliteFile(path, 5.0)
    older.connection.pragma("user_version", 3)
    older.close()

    with pytest.raises(HomeReadOnly, match="of an older Mulligan, and has to be migrated"):
        ReadOnlyFile(path, 5.0)

"""Files as they are recorded: by content, and by size and time where that is enough."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mulligan.core.model.file_records import FileRecord
from mulligan.worker.file_hashes import (
    FileHashCache,
    are_small_enough,
    is_untouched,
    problem_of,
    record_file,
    record_files,
)
from mulligan.worker.loop_limits import LOOP_BYTES_MAX

LONG_AGO = 10**18
A = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"


def write(path: Path, text: str = "a", at: int = LONG_AGO) -> str:
    path.write_text(text)
    os.utime(path, ns=(at, at))
    return str(path)


def recorded(path: Path | str) -> FileRecord:
    found = record_file(str(path))
    assert found is not None
    return found


def test_a_file_is_recorded_with_its_content_its_size_and_its_time(tmp_path: Path) -> None:
    path = write(tmp_path / "file")

    assert recorded(path) == FileRecord(path, path, A, 1, LONG_AGO)


def test_what_is_not_there_is_none_and_what_cannot_be_read_has_no_content(tmp_path: Path) -> None:
    below = write(tmp_path / "file") + "/below"
    os.mkfifo(tmp_path / "pipe")
    pipe, no_path, too_long = str(tmp_path / "pipe"), "/a\0b", "/" + "x" * 5000

    assert record_file(str(tmp_path / "gone")) is None
    assert record_file(below) is None
    assert [recorded(path) for path in (pipe, no_path, too_long)] == [
        FileRecord(path, path) for path in (pipe, no_path, too_long)
    ]


def test_a_folder_has_the_size_of_its_files_and_no_order(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, names in ((one, "abc"), (other, "cba")):
        folder.mkdir()
        for name in names:
            (folder / name).mkdir()
            write(folder / name / "file", name * 3)
        (folder / "link").symlink_to("a")
        os.mkfifo(folder / "pipe")
    plain = tmp_path / "plain"
    (plain / "link").mkdir(parents=True)

    assert recorded(one).size == 9
    assert (recorded(one).sha256, recorded(one).mtime_ns) == (recorded(other).sha256, 0)
    assert len({recorded(folder).sha256 for folder in (one, plain, one / "a")}) == 3


def test_a_name_is_told_from_the_content_and_from_the_kind(tmp_path: Path) -> None:
    hashes = set()
    for number, make in enumerate(
        (
            lambda path: write(path / "x"),
            lambda path: write(path / "y"),
            lambda path: (path / "x").mkdir(),
            lambda path: (path / "x").symlink_to("a"),
            lambda path: os.mkfifo(path / "x"),
            lambda path: None,
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        make(folder)
        hashes.add(recorded(folder).sha256)

    assert len(hashes) == 6


def test_the_hash_of_a_folder_is_the_same_in_later_versions(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    write(tmp_path / "inner" / "file")
    (tmp_path / "link").symlink_to("inner")

    assert recorded(tmp_path).sha256 == "f7fa443399293cb53743366518c8067bcda6a8be65e0598f71185e4353b71c11"


def test_a_child_answers_with_plain_data(tmp_path: Path) -> None:
    path = write(tmp_path / "file")

    assert record_files([path, str(tmp_path / "gone")]) == [
        {"name": path, "path": path, "sha256": A, "size": 1, "mtime_ns": LONG_AGO},
        None,
    ]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (FileRecord("f", "f", A, 1, LONG_AGO), True),
        (FileRecord("f", "f", A, 2, LONG_AGO), False),
        (FileRecord("f", "f", A, 1, LONG_AGO + 1), False),
        (FileRecord("f", "f", A, 1, 0), False),
    ],
)
def test_size_and_time_show_that_nobody_wrote_to_a_file(tmp_path: Path, record: FileRecord, expected: bool) -> None:
    path = write(tmp_path / "f")

    assert is_untouched(record, path) == expected
    assert not is_untouched(record, str(tmp_path / "gone"))
    assert not is_untouched(record, "/a\0b")


def test_a_folder_is_always_read(tmp_path: Path) -> None:
    os.utime(tmp_path, ns=(LONG_AGO, LONG_AGO))
    info = os.stat(tmp_path)

    assert not is_untouched(FileRecord("f", "f", A, info.st_size, info.st_mtime_ns), str(tmp_path))


def test_a_record_of_a_run_without_a_folder_has_the_path_from_the_root(tmp_path: Path) -> None:
    path = write(tmp_path / "file")

    assert problem_of(FileRecord("f", path.lstrip("/"), A), "") is None
    assert problem_of(FileRecord("f", path.lstrip("/"), "other"), "") == "changed"


def test_what_was_read_is_known_until_the_file_is_another_one(tmp_path: Path) -> None:
    path = write(tmp_path / "file")
    cache = FileHashCache()
    cache.keep(recorded(path))
    assert cache.find(path) == recorded(path)

    # The same size and time, and another file.
    other = write(tmp_path / "other", "b")
    os.replace(other, path)
    os.utime(path, ns=(LONG_AGO, LONG_AGO))

    assert cache.find(path) is None
    os.unlink(path)
    assert cache.find(path) is None


def test_only_what_is_known_for_sure_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "file")
    cache = FileHashCache()

    for record in (
        FileRecord(path, path, "", 1, LONG_AGO),
        FileRecord(path, path, A, 2, LONG_AGO),
        FileRecord(path, path, A, 1),
    ):
        cache.keep(record)

    assert cache.find(path) is None


def test_a_loop_reads_a_mebibyte_of_files_and_no_folder(tmp_path: Path) -> None:
    half, more = tmp_path / "half", tmp_path / "more"
    for path, size in ((half, LOOP_BYTES_MAX // 2), (more, LOOP_BYTES_MAX // 2 + 1)):
        path.touch()
        os.truncate(path, size)

    assert are_small_enough([])
    assert are_small_enough([str(half), str(half), str(tmp_path / "gone"), "/a\0b"])
    assert not are_small_enough([str(half), str(more)])
    assert not are_small_enough([str(tmp_path / "gone"), str(tmp_path)])

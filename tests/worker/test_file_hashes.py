"""Files as they are recorded: by content, and by size and time where that is enough."""

from __future__ import annotations

import os
import time
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from msgspec.structs import replace

from mulligan.core.model.file_records import FileRecord
from mulligan.worker.outputs.file_hashes import (
    _CACHED_MAX,
    RECORD_FILES,
    SETTLED_NANOSECONDS,
    FileHashCache,
    _is_settled,
    are_small_enough,
    is_untouched,
    problem_of,
    record_file,
)
from mulligan.worker.slots.loop_limits import LOOP_BYTES_MAX

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
    os.mkfifo(tmp_path / "pipe")
    for name in "gfedcba":
        (tmp_path / name).mkdir()

    assert recorded(tmp_path).sha256 == "8a19158284931c2a10401e651c0143b1ba73f8ef8b8e7cfa4e9e5bfc7c8a9279"


def test_a_folder_may_have_names_that_are_no_text(tmp_path: Path) -> None:
    empty = recorded(tmp_path).sha256
    (tmp_path / os.fsdecode(b"\xff")).mkdir()
    write(tmp_path / os.fsdecode(b"\xff") / os.fsdecode(b"\xfe"))

    assert recorded(tmp_path).sha256 not in ("", empty)


def test_a_child_finds_the_function_by_its_name_and_answers_with_plain_data(tmp_path: Path) -> None:
    path = write(tmp_path / "file")

    assert resolve_name(RECORD_FILES)([path, str(tmp_path / "gone")]) == [
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


@pytest.mark.parametrize("becomes", ["longer", None])
def test_what_becomes_of_a_file_while_its_record_is_kept_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, becomes: str | None
) -> None:
    path = write(tmp_path / "file")
    record, cache = recorded(path), FileHashCache()

    def look_and_lose(*asked: Any) -> bool:
        found = is_untouched(*asked)
        os.unlink(path)
        if becomes is not None:
            write(tmp_path / "file", becomes)
        return found

    monkeypatch.setattr("mulligan.worker.outputs.file_hashes.is_untouched", look_and_lose)
    cache.keep(record)

    assert cache.find(path) is None


def test_several_files_are_known_at_once(tmp_path: Path) -> None:
    paths = [write(tmp_path / name) for name in "ab"]
    cache = FileHashCache()
    for path in paths:
        cache.keep(recorded(path))

    assert [cache.find(path) for path in paths] == [recorded(path) for path in paths]


def test_a_file_that_was_written_to_while_it_was_read_is_not_settled(tmp_path: Path) -> None:
    path = write(tmp_path / "file")
    before = os.stat(path)
    assert _is_settled(path, before)

    write(tmp_path / "file", "longer")

    assert not _is_settled(path, before)


@pytest.mark.skipif(os.getuid() == 0, reason="root reads every folder")
def test_a_folder_of_which_a_part_cannot_be_read_has_no_content(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir(mode=0)

    assert recorded(tmp_path).sha256 == ""


def test_a_folder_that_is_too_deep_to_be_read_has_no_content(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("x" * 250, dir_fd=folder)
        inner = os.open("x" * 250, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)

    assert recorded(tmp_path) == FileRecord(str(tmp_path), str(tmp_path))


def test_the_cache_starts_again_when_it_is_full(tmp_path: Path) -> None:
    record = recorded(write(tmp_path / "file"))
    # Many paths of one file.
    paths = [f"{tmp_path}{'/.' * (number // 100)}{'/' * (number % 100)}/file" for number in range(_CACHED_MAX + 1)]
    cache = FileHashCache()

    for path in paths[:-1]:
        cache.keep(replace(record, path=path))
    assert [cache.find(path) is not None for path in (paths[0], paths[-2])] == [True, True]
    cache.keep(replace(record, path=paths[-1]))

    assert [cache.find(path) is not None for path in (paths[0], paths[-2], paths[-1])] == [False, False, True]


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


def test_a_folder_is_known_by_all_that_is_in_it(tmp_path: Path):
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "a").write_text("a")
    (folder / "link").symlink_to("inner")
    hashes = [_sha256(folder)]

    for change in (
        lambda: (folder / "inner" / "a").write_text("b"),
        lambda: (folder / "inner" / "a").rename(folder / "inner" / "b"),
        lambda: (folder / "empty").mkdir(),
        lambda: ((folder / "link").unlink(), (folder / "link").symlink_to("empty")),
        lambda: (folder / "inner" / "b").rename(folder / "b"),
    ):
        change()
        hashes.append(_sha256(folder))

    assert len(set(hashes)) == len(hashes)


def _sha256(path: Path) -> str:
    found = record_file(str(path))
    assert found is not None and found.mtime_ns == 0
    return found.sha256


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda path: None, None),
        (lambda path: os.utime(path, ns=(1, 1)), None),
        (lambda path: path.unlink(), "gone"),
        (lambda path: path.write_text("1234"), "changed"),
        (lambda path: (path.unlink(), path.mkdir()), "changed"),
    ],
    ids=["untouched", "touched", "removed", "written", "made a folder"],
)
def test_what_has_become_of_a_file(tmp_path: Path, change: Any, problem: str | None):
    path = tmp_path / "file"
    path.write_text("1233")
    record = record_file(str(path))
    assert record is not None

    change(path)

    assert problem_of(record, "/") == problem


def test_of_an_old_log_only_the_existence_is_known(tmp_path: Path):
    (tmp_path / "there").write_text("whatever")

    assert problem_of(FileRecord("n", "there"), str(tmp_path)) is None
    assert problem_of(FileRecord("n", "elsewhere"), str(tmp_path)) == "gone"


def test_the_time_of_a_file_that_was_written_just_now_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "file"
    path.write_text("new")
    written_at = os.stat(path).st_mtime_ns
    monkeypatch.setattr(time, "time_ns", lambda: written_at + SETTLED_NANOSECONDS)
    fresh = record_file(str(path))
    monkeypatch.setattr(time, "time_ns", lambda: written_at + SETTLED_NANOSECONDS + 1)
    old = record_file(str(path))
    cache = FileHashCache()

    for record in (fresh, old):
        assert record is not None
        cache.keep(record)

    assert (fresh and fresh.mtime_ns, bool(old and old.mtime_ns)) == (0, True)
    assert cache.find(str(path)) == old
    path.write_text("other")
    os.utime(path, ns=(0, written_at + 1))
    assert cache.find(str(path)) is None

"""Artifacts: kept whole or not at all, never written over, known by size and hash; one suite for every kind."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg
import pytest
from tests.support.keeping import Memory, Open, Place, PostgresSchema, SqliteFolder

from mulligan.core.model.artifacts import Artifact, describe_artifact
from mulligan.errors import ArtifactDamaged, ArtifactGone
from mulligan.ports import Artifacts, Store
from mulligan.store.artifact_files import ArtifactFiles

pytestmark = pytest.mark.postgres

SRC = Path(__file__).parents[2] / "src"
NAME = "17/build/1/2/output.json"
Spoil = Callable[[str, bytes], None]


@pytest.fixture
def artifacts(store: Store) -> Artifacts:
    return store.artifacts


@pytest.fixture
def spoil(place: Place) -> Spoil:
    """Puts other bytes in the place of an artifact, as a failing disk or a hand would."""

    def spoiled(name: str, data: bytes) -> None:
        if isinstance(place, SqliteFolder):
            (place.path.parent / "artifacts" / name).write_bytes(data)
        elif isinstance(place, PostgresSchema):
            with psycopg.connect(place.url) as connection:
                connection.execute("UPDATE artifacts SET data = %s WHERE name = %s", [data, name])
        else:
            assert isinstance(place, Memory)
            place.tables.artifacts[name] = (data, place.now())

    return spoiled


def synced_and_renamed(work: Callable[[], object]) -> list[str]:
    """In which order the disk is told to keep a file or a folder, and a file is given its name."""
    calls: list[str] = []

    def note(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called is os.rename:
            calls.append("renamed")
        elif event == "c_call" and called is os.fsync:
            is_folder = stat.S_ISDIR(os.fstat(frame.f_locals["fd"]).st_mode)
            calls.append("folder synced" if is_folder else "file synced")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def names(artifacts: Artifacts) -> list[str]:
    return sorted(record.name for record in artifacts.records())


@pytest.mark.parametrize("data", [b"[1,2]", b"", b"\x00\xff" * 100_000], ids=["json", "nothing", "large"])
def test_what_is_kept_is_fetched_as_it_was(artifacts: Artifacts, data: bytes) -> None:
    kept = artifacts.keep(NAME, data, "json")

    assert kept == describe_artifact(NAME, data, "json")
    assert artifacts.fetch(kept) == data


def test_a_file_is_on_the_disk_before_it_has_its_name_and_its_name_before_anybody_hears_of_it(tmp_path: Path) -> None:
    artifacts = ArtifactFiles(tmp_path / "artifacts")
    artifacts.keep("17/build/1/1/output.json", b"1", "json")

    new = synced_and_renamed(lambda: artifacts.keep(NAME, b"[1,2]", "json"))

    # Its own folder, and the one above in which that is new.
    assert new == ["file synced", "renamed", "folder synced", "folder synced"]


def test_another_process_sees_it(opened: Open) -> None:
    kept = opened().artifacts.keep(NAME, b"{}", "json")

    assert opened().artifacts.fetch(kept) == b"{}"


def test_what_is_kept_is_never_written_over(artifacts: Artifacts) -> None:
    first = artifacts.keep(NAME, b"first", "text")
    second = artifacts.keep(NAME, b"second", "text")

    assert second.name == "17/build/1/2/output-2.json"
    assert (artifacts.fetch(first), artifacts.fetch(second)) == (b"first", b"second")


def test_all_that_is_there_is_told_with_its_size_and_time(artifacts: Artifacts, place: Place) -> None:
    artifacts.keep(NAME, b"12345", "text")
    artifacts.keep("18/check[3].0/1/1/output.txt", b"", "text")

    found = sorted(artifacts.records(), key=lambda record: record.name)

    assert [(one.name, one.size, one.is_whole) for one in found] == [
        (NAME, 5, True),
        ("18/check[3].0/1/1/output.txt", 0, True),
    ]
    if not isinstance(place, SqliteFolder):  # of a file the clock of the disk tells
        assert all(abs((place.now() - one.kept_at).total_seconds()) < 60 for one in found)


def test_what_is_removed_is_gone_and_said_to_be(artifacts: Artifacts) -> None:
    kept, other = artifacts.keep(NAME, b"1", "json"), artifacts.keep("17/test/1/1/output.json", b"2", "json")

    artifacts.remove([kept.name, "99/never/1/1/output.json"])

    assert names(artifacts) == [other.name]
    with pytest.raises(ArtifactGone) as gone:
        artifacts.fetch(kept)
    assert gone.value.render() == "error[artifact.gone]: artifact '17/build/1/2/output.json' is gone"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"12345", "its hash does not match"),
        (b"123", "it has 3 bytes instead of 4"),
        (b"123456789", "it has {} bytes instead of 4"),
    ],
    ids=["changed", "cut short", "grown"],
)
def test_one_that_is_not_what_was_kept_is_damaged(
    artifacts: Artifacts, spoil: Spoil, place: Place, data: bytes, reason: str
) -> None:
    kept = artifacts.keep(NAME, b"1234", "json")
    spoil(kept.name, data if len(data) != 5 else b"9999")

    with pytest.raises(ArtifactDamaged) as damaged:
        artifacts.fetch(kept)

    # Of a file that has grown no more is read than shows it.
    seen = 5 if isinstance(place, SqliteFolder) else len(data)
    assert damaged.value.render() == f"error[artifact.damaged]: artifact '{NAME}' is damaged: {reason.format(seen)}"


def test_an_artifact_that_was_never_kept_is_gone(artifacts: Artifacts) -> None:
    assert list(artifacts.records()) == []

    with pytest.raises(ArtifactGone):
        artifacts.fetch(Artifact(NAME, 1, "0" * 64))


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_file_is_for_its_owner_alone_and_says_where_it_is(tmp_path: Path) -> None:
    files = ArtifactFiles(tmp_path / "artifacts")

    path = Path(files.path(files.keep(NAME, b"1", "json")))

    assert path == tmp_path / "artifacts" / NAME
    assert [oct(os.stat(one).st_mode & 0o777) for one in (path, path.parent)] == ["0o600", "0o700"]


def test_folders_in_which_nothing_is_left_go_with_the_last_file(tmp_path: Path) -> None:
    files = ArtifactFiles(tmp_path / "artifacts")
    first, second = files.keep(NAME, b"1", "json"), files.keep("17/test/1/1/output.json", b"2", "json")

    files.remove([first.name])

    assert [path.name for path in (tmp_path / "artifacts" / "17").iterdir()] == ["test"]
    files.remove([second.name])
    assert list((tmp_path / "artifacts").iterdir()) == []


def test_a_folder_that_gc_removes_before_anything_is_in_it_is_made_again(tmp_path: Path) -> None:
    artifacts = ArtifactFiles(tmp_path)
    removed: list[Path] = []

    def remove_once(frame: FrameType, event: str, called: Any) -> None:
        # Asked for the name of what is about to be written.
        if event == "c_call" and called is os.urandom and not removed:
            removed.append((tmp_path / NAME).parent)
            removed[0].rmdir()

    sys.setprofile(remove_once)
    try:
        kept = artifacts.keep(NAME, b"[]", "json")
    finally:
        sys.setprofile(None)

    assert (len(removed), artifacts.fetch(kept)) == (1, b"[]")


def test_one_that_may_not_be_read_is_said_to_be_so(tmp_path: Path) -> None:
    files = ArtifactFiles(tmp_path / "artifacts")
    kept = files.keep(NAME, b"1", "json")
    Path(files.path(kept)).unlink()
    Path(files.path(kept)).mkdir()

    with pytest.raises(ArtifactDamaged) as unread:
        files.fetch(kept)

    assert unread.value.message == f"artifact '{NAME}' cannot be read: it is not a regular file"


# A file that may not grow is as good as a full disk, and needs no disk of its own.
FILLED = """
import resource, signal, sys
from pathlib import Path
from mulligan.errors import StoreRefused
from mulligan.store.artifact_files import ArtifactFiles

files = ArtifactFiles(Path(sys.argv[1]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
try:
    files.keep("17/build/1/1/output.txt", b"x" * 2000, "text")
except StoreRefused as error:
    print(error.message)
print([record.name for record in files.records()])
"""


def test_what_there_is_no_room_for_leaves_nothing_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILLED, str(tmp_path / "artifacts")],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.stdout.splitlines(), done.stderr) == (["file too large", "[]"], "")


# Dies when all is written but the name: as with kill -9 between the two.
DYING = """
import os, sys
from pathlib import Path
from mulligan.store.artifact_files import ArtifactFiles

sys.addaudithook(lambda event, _: os.kill(os.getpid(), 9) if event == "os.rename" else None)
ArtifactFiles(Path(sys.argv[1])).keep("17/build/1/1/output.txt", b"whole", "text")
"""


def test_one_whose_writer_died_is_half_written_and_in_nobodys_way(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", DYING, str(tmp_path)], env={**os.environ, "PYTHONPATH": str(SRC)}, check=False
    )

    files = ArtifactFiles(tmp_path)
    kept = files.keep("17/build/1/1/output.txt", b"again", "text")

    assert files.fetch(kept) == b"again"
    assert [record.is_whole for record in files.records()].count(False) == 1

"""The files of a published version on a worker: fetched once, checked, never half there, never outside their folder."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from mulligan.core.effects.tasks import Task
from mulligan.errors import InputInvalid, StoreUnavailable
from mulligan.ports import Lease
from mulligan.ports.bundles import (
    BUNDLE_BYTES_MAX,
    FILE_BYTES_MAX,
    FILES_MAX,
    Bundle,
    BundleFile,
    check_bundle,
    digest_of,
    encode_bundle,
)
from mulligan.worker.bundles import ABANDONED_SECONDS, Bundles
from mulligan.worker.folders import Folders
from mulligan.worker.secrets.secret_commands import NotReady
from mulligan.worker.work_folders import WorkFolders

DEFINITION = digest_of(b"{}")


class Contents:
    """A store of contents that counts what it is asked for."""

    def __init__(self, files: dict[str, bytes], executable: tuple[str, ...] = ()) -> None:
        described = [BundleFile(path, len(data), digest_of(data), path in executable) for path, data in files.items()]
        manifest = encode_bundle(Bundle(DEFINITION, tuple(described)))
        self.known = {digest_of(one): one for one in (*files.values(), manifest)}
        self.digest = digest_of(manifest)
        self.asked: list[str] = []

    def __call__(self, run_id: int, digest: str) -> bytes | None:
        self.asked.append(digest)
        return self.known.get(digest)


def found_in(folder: str) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in Path(folder).rglob("*") if path.is_file()}


FILES = {"sales.py": b"import lib", "lib/__init__.py": b"", "run.sh": b"echo"}


def test_a_version_is_fetched_once_and_nobody_may_write_where_it_is(tmp_path: Path) -> None:
    contents = Contents(FILES, executable=("run.sh",))
    bundles = Bundles(str(tmp_path), contents)

    folder = bundles.unpacked(7, contents.digest)
    asked = len(contents.asked)
    again = bundles.unpacked(8, contents.digest)
    other = Bundles(str(tmp_path), contents).unpacked(9, contents.digest)

    assert folder == again == other == f"{tmp_path}/bundles/{contents.digest}"
    assert found_in(folder) == {path: data.decode() for path, data in FILES.items()}
    assert asked == len(contents.asked) == 4
    modes = {path.name: path.stat().st_mode & 0o777 for path in Path(folder).rglob("*")}
    assert modes == {"sales.py": 0o400, "lib": 0o500, "__init__.py": 0o400, "run.sh": 0o500}


def test_steps_work_in_a_copy_that_they_may_change(tmp_path: Path) -> None:
    contents = Contents(FILES, executable=("run.sh",))
    bundles = Bundles(str(tmp_path), contents)
    source = bundles.unpacked(7, contents.digest)
    work = Path(bundles.work_folder(contents.digest))

    (work / "sales.py").write_text("changed")
    (work / "lib" / "more.txt").write_text("new")

    assert Bundles(str(tmp_path), contents).work_folder(contents.digest) == str(work)
    assert (work / "sales.py").read_text() == "changed"
    assert os.access(work / "run.sh", os.X_OK)
    assert source is not None and found_in(source) == {path: data.decode() for path, data in FILES.items()}


def test_what_takes_long_is_fetched_in_several_looks(tmp_path: Path) -> None:
    contents = Contents({f"{number}.txt": b"%d" % number for number in range(3)})
    bundles = Bundles(str(tmp_path), contents)

    looks = [bundles.unpacked(7, contents.digest, seconds=-1) for _ in range(3)]

    assert looks == [None, None, None]
    assert bundles.unpacked(7, contents.digest) == f"{tmp_path}/bundles/{contents.digest}"
    assert len(contents.asked) == 4


def test_two_workers_of_a_home_fetch_the_same_version_at_once(tmp_path: Path) -> None:
    contents = Contents(FILES)
    one, other = Bundles(str(tmp_path), contents), Bundles(str(tmp_path), contents)
    one.unpacked(7, contents.digest, seconds=-1)
    other.unpacked(7, contents.digest, seconds=-1)

    folders = {one.unpacked(7, contents.digest), other.unpacked(7, contents.digest)}

    assert folders == {f"{tmp_path}/bundles/{contents.digest}"}
    assert len(found_in(folders.pop() or "")) == 3
    assert os.listdir(tmp_path / "bundles") == [contents.digest]


def test_what_a_killed_worker_has_left_is_never_used_and_is_removed_later(tmp_path: Path) -> None:
    contents = Contents(FILES)
    Bundles(str(tmp_path), contents).unpacked(7, contents.digest, seconds=-1)
    (half,) = (tmp_path / "bundles").iterdir()
    long_ago = half.stat().st_mtime - 2 * ABANDONED_SECONDS
    os.utime(half, (long_ago, long_ago))

    folder = Bundles(str(tmp_path), contents).unpacked(7, contents.digest)

    assert folder is not None and len(found_in(folder)) == 3
    assert os.listdir(tmp_path / "bundles") == [contents.digest]


def test_a_content_that_is_not_the_published_one_is_refused_and_nothing_stays(tmp_path: Path) -> None:
    contents = Contents(FILES)
    contents.known[digest_of(b"import lib")] = b"import evil"

    with pytest.raises(InputInvalid, match=r"'sales\.py' is not the file that was published"):
        Bundles(str(tmp_path), contents).unpacked(7, contents.digest)

    assert os.listdir(tmp_path / "bundles") == []


def test_a_manifest_that_was_changed_is_refused(tmp_path: Path) -> None:
    contents = Contents(FILES)
    other = Contents({"evil.py": b""})
    contents.known[contents.digest] = other.known[other.digest]

    with pytest.raises(InputInvalid, match="not the one that was published"):
        Bundles(str(tmp_path), contents).unpacked(7, contents.digest)


def test_a_version_that_the_store_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputInvalid, match="not in the store"):
        Bundles(str(tmp_path), lambda run_id, digest: None).unpacked(7, "a" * 64)


def test_a_store_that_is_away_for_a_while_loses_nothing(tmp_path: Path) -> None:
    contents = Contents(FILES)
    is_away = True

    def read(run_id: int, digest: str) -> bytes | None:
        if is_away and len(contents.asked) == 2:
            raise StoreUnavailable("the server does not answer")
        return contents(run_id, digest)

    bundles = Bundles(str(tmp_path), read)
    with pytest.raises(StoreUnavailable):
        bundles.unpacked(7, contents.digest)
    is_away = False

    assert bundles.unpacked(7, contents.digest) is not None
    assert len(contents.asked) == 4


def file(path: str, size: int = 0) -> BundleFile:
    return BundleFile(path, size, digest_of(b""))


@pytest.mark.parametrize(
    "files",
    [
        [file("../outside")],
        [file("a/../../outside")],
        [file("/etc/passwd")],
        [file("")],
        [file("a//b")],
        [file("./a")],
        [file("a\\b")],
        [file("a\0b")],
        [file("a\nb")],
        [file("\ud800")],
        [file("a" * 300)],
        [file("/".join("a" * 30))],
        [file(".git/hooks/post-checkout")],
        [file(".mulligan/mulligan.db")],
        [file("lib/__PYCACHE__/x.pyc")],
        [file("Sales.py"), file("sales.py")],
        [file("a"), file("a")],
        [file("e\u0301.py"), file("\u00e9.py")],
        [file("lib/a.py"), file("LIB/b.py")],
        [file("lib"), file("lib/a.py")],
        [file("a", -1)],
        [file("a", FILE_BYTES_MAX + 1)],
        [file(str(number), FILE_BYTES_MAX) for number in range(BUNDLE_BYTES_MAX // FILE_BYTES_MAX + 1)],
        [file(str(number)) for number in range(FILES_MAX + 1)],
        [BundleFile("a", 0, "../../etc/passwd")],
    ],
)
def test_no_manifest_leads_out_of_its_folder_or_means_two_things(files: list[BundleFile], tmp_path: Path) -> None:
    bundle = Bundle(DEFINITION, tuple(files))
    with pytest.raises(InputInvalid):
        check_bundle(bundle)
    try:
        data = msgspec.json.encode(bundle)
    except UnicodeEncodeError:
        return
    with pytest.raises(InputInvalid):
        Bundles(str(tmp_path), lambda run_id, digest: data).unpacked(7, digest_of(data))
    assert not list(tmp_path.rglob("*/*"))


def test_a_digest_is_no_path(tmp_path: Path) -> None:
    with pytest.raises(InputInvalid):
        Bundles(str(tmp_path), lambda run_id, digest: b"").unpacked(7, "../../etc")


def lease(home: str, called_from: str = "") -> Lease:
    about = {"run_id": 1, "place": "a", "attempt": 1, "kind": "shell", "params": {}, "workflow": "w"}
    return Lease(Task(**about, version="v", step="a", visit=1, home=home, called_from=called_from), "w", 1)  # type: ignore[arg-type]


def test_a_task_imports_what_was_published_and_works_in_the_copy(tmp_path: Path) -> None:
    contents = Contents(FILES)
    folders = WorkFolders(Folders(tmp_path), "here", contents)

    plain = folders.place(lease(f"bundle:{contents.digest}")).task
    in_worktree = folders.place(lease(str(tmp_path), f"bundle:{contents.digest}")).task

    source, work = f"{tmp_path}/bundles/{contents.digest}", f"{tmp_path}/work/{contents.digest[:16]}"
    assert (plain.home, plain.started_in, plain.imports_from) == (work, work, source)
    assert (in_worktree.home, in_worktree.started_in, in_worktree.imports_from) == (str(tmp_path), work, source)


def test_a_task_waits_while_its_files_are_fetched(tmp_path: Path) -> None:
    contents = Contents({f"{number}.txt": b"%d" % number for number in range(3)})
    folders = WorkFolders(Folders(tmp_path), "here", contents, look_seconds=-1)

    for _ in range(3):
        with pytest.raises(NotReady):
            folders.place(lease(f"bundle:{contents.digest}"))
        assert folders.due == 0.0
    task = folders.place(lease(f"bundle:{contents.digest}")).task

    assert task.source.endswith(contents.digest)
    assert folders.due > 0

"""The files of published versions on this host: fetched once for each version, checked, and never changed.

    HOME/bundles/DIGEST/     the files as they were published, read-only: what Python imports
    HOME/work/DIGEST[:16]/   a copy, in which the steps work; what they write stays there

Each is made beside its name and renamed, so that nobody sees half of it, whoever is killed meanwhile.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from mulligan.core.state.workspace import BUNDLE_FOLDER
from mulligan.errors import InputInvalid
from mulligan.ports.bundles import Bundle, ReadContent, check_digest, decode_bundle, digest_of
from mulligan.worker.folders import make_private

# How long one look at a bundle may fetch: the loop of a worker has heartbeats to send.
FETCH_SECONDS = 1.0
# What was begun longer ago belongs to a process that was killed.
ABANDONED_SECONDS = 3600.0
WORK_CHARS = 16
_HALF = ".half-"


class _Half:
    """A bundle that is being fetched: its manifest, the folder, and how many files are there."""

    def __init__(self, bundle: Bundle, folder: str) -> None:
        self.bundle, self.folder, self.done = bundle, folder, 0


class Bundles:
    """The bundles in one home. Several workers may share it."""

    def __init__(self, home: str, read_content: ReadContent | None) -> None:
        self._folder = f"{home}/bundles"
        self._work = f"{home}/work"
        self._read = read_content
        self._halves: dict[str, _Half] = {}

    def unpacked(self, run_id: int, digest: str, *, seconds: float = FETCH_SECONDS) -> str | None:
        """The folder with the files; None if they are not all here yet: ask again.

        `InputInvalid` if the store has no such bundle, or another content than was published. What was fetched halfway
        is then removed.
        """
        folder = f"{self._folder}/{check_digest(digest)}"
        if os.path.isdir(folder):
            self._forget(digest)
            return folder
        try:
            half = self._halves.get(digest)
            if half is None or not os.path.isdir(half.folder):
                half = self._halves[digest] = self._begin(run_id, digest)
            until = time.monotonic() + seconds
            while half.done < len(half.bundle.files):
                self._fetch(run_id, half)
                if time.monotonic() > until:
                    return None
        except (InputInvalid, OSError):
            self._forget(digest)
            raise
        self._finish(half.folder, folder)
        self._forget(digest)
        return folder

    def work_folder(self, digest: str) -> str:
        """The folder in which the steps of this version work: a copy of its files that they may change."""
        work = f"{self._work}/{digest[:WORK_CHARS]}"
        if os.path.isdir(work):
            return work
        make_private(self._work)
        half = self._new_half(self._work)
        try:
            _copy(f"{self._folder}/{digest}", half)
            with suppress(OSError):  # another worker has made it
                os.rename(half, work)
        finally:
            remove_tree(half)
        return work

    def _begin(self, run_id: int, digest: str) -> _Half:
        bundle = decode_bundle(self._content(run_id, digest), digest)
        make_private(self._folder)
        self._remove_abandoned()
        return _Half(bundle, self._new_half(self._folder))

    def _fetch(self, run_id: int, half: _Half) -> None:
        one = half.bundle.files[half.done]
        content = self._content(run_id, one.digest)
        if len(content) != one.size or digest_of(content) != one.digest:
            raise InputInvalid(f"'{one.path}' is not the file that was published: its content has changed")
        path = f"{half.folder}/{one.path}"
        make_private(os.path.dirname(path))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o500 if one.executable else 0o400), "wb") as file:
            file.write(content)
        half.done += 1

    def _content(self, run_id: int, digest: str) -> bytes:
        found = None if self._read is None else self._read(run_id, digest)
        if found is None:
            raise InputInvalid("the files of this version are not in the store", hint="publish it again")
        return found

    def _finish(self, half: str, folder: str) -> None:
        """Give the complete folder its name. The content is on the disk before the name is."""
        for path, names, files in os.walk(half, topdown=False):
            for name in files:
                _sync(f"{path}/{name}")
            for name in names:
                os.chmod(f"{path}/{name}", 0o500)
            _sync(path)
        try:
            os.rename(half, folder)
        except OSError:
            if not os.path.isdir(folder):
                raise
            return  # another worker was faster
        os.chmod(folder, 0o500)
        _sync(self._folder)

    def _forget(self, digest: str) -> None:
        if (half := self._halves.pop(digest, None)) is not None:
            remove_tree(half.folder)

    def _new_half(self, above: str) -> str:
        folder = f"{above}/{_HALF}{os.urandom(8).hex()}"
        os.mkdir(folder, 0o700)
        return folder

    def _remove_abandoned(self) -> None:
        for name in os.listdir(self._folder):
            path = f"{self._folder}/{name}"
            with suppress(OSError):
                if name.startswith(_HALF) and time.time() - os.stat(path).st_mtime > ABANDONED_SECONDS:
                    remove_tree(path)


def bundle_of(folder: str) -> str:
    """The digest in the folder of a task that works with the files of a published version; "" for any other."""
    return folder.removeprefix(BUNDLE_FOLDER) if folder.startswith(BUNDLE_FOLDER) else ""


def remove_tree(folder: str) -> None:
    """Remove a folder whose folders may be read-only; nothing if it is gone."""
    if not os.path.isdir(folder):
        return
    for path, _, _ in os.walk(folder):
        with suppress(OSError):
            os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _copy(source: str, target: str) -> None:
    for path, names, files in os.walk(source):
        # What Python has compiled there belongs to that folder.
        names[:] = [name for name in names if name != "__pycache__"]
        beside = Path(target, os.path.relpath(path, source))
        beside.mkdir(mode=0o700, exist_ok=True)
        for name in files:
            shutil.copyfile(f"{path}/{name}", beside / name)
            (beside / name).chmod(0o700 if os.stat(f"{path}/{name}").st_mode & 0o100 else 0o600)


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

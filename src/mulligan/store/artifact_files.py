"""Artifacts as files in one folder: for a store of one host."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from mulligan.core.model.artifacts import Artifact, Format, describe_artifact, verify_content
from mulligan.core.model.text.formatting import error_reason
from mulligan.errors import ArtifactDamaged, ArtifactGone, StoreRefused
from mulligan.ports import ArtifactRecord
from mulligan.store.artifact_names import names_like

# Names of artifacts never begin with a dot.
_HALF_WRITTEN = ".half-"
# gc removes empty folders, and may do so between creating a folder and writing into it; hardly twenty times in a row.
KEEP_ATTEMPTS_MAX = 20
_COPY_BYTES = 1 << 20


class ArtifactFiles:
    """Each artifact is a file of that name. The folder is created with the first one."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def path(self, artifact: Artifact) -> str:
        return f"{self._folder}/{artifact.name}"

    def keep(self, name: str, data: bytes, format: Format) -> Artifact:
        return describe_artifact(self._kept(name, lambda folder: self._keep(name, folder, data)), data, format)

    def keep_file(self, artifact: Artifact, path: str) -> Artifact:
        try:
            name = self._kept(artifact.name, lambda folder: self._take(artifact.name, folder, path))
        finally:
            with suppress(OSError):
                os.unlink(path)
        return msgspec.structs.replace(artifact, name=name)

    def _kept(self, name: str, put: Callable[[str], str]) -> str:
        """Call `put` with the existing folder of the artifact. Return the name that the artifact got."""
        try:
            for _ in range(KEEP_ATTEMPTS_MAX):
                # If gc has just removed the empty folder, it is created again.
                with suppress(FileNotFoundError):
                    return self._keep_durably(name, put)
            return self._keep_durably(name, put)
        except OSError as error:
            raise StoreRefused((error.strerror or str(error)).lower(), hint="free space on its disk") from error

    def _keep_durably(self, name: str, put: Callable[[str], str]) -> str:
        folder = os.path.dirname(f"{self._folder}/{name}")
        grown = _make(folder)
        kept = put(folder)
        # Last: by then most of it was written with the file. Syncing each folder at once would cost a write each.
        for one in (folder, *grown):
            _sync_folder(one)
        return kept

    def _take(self, name: str, folder: str, path: str) -> str:
        """Rename the file into the folder; copy it if it is on another disk."""
        if os.stat(path).st_dev == os.stat(folder).st_dev:
            return self._name(path, name)
        with open(path, "rb") as source:
            return self._write(name, folder, source)

    def _keep(self, name: str, folder: str, data: bytes) -> str:
        return self._write(name, folder, io.BytesIO(data))

    def _write(self, name: str, folder: str, source: BinaryIO) -> str:
        half = f"{folder}/{_HALF_WRITTEN}{os.urandom(8).hex()}"
        try:
            _write_durably(half, source)
            return self._name(half, name)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(half)

    def _name(self, half: str, name: str) -> str:
        """Rename a complete file to its name, or to a similar one if that is taken.

        The name is reserved first by creating the file exclusively, so that two writers never rename onto each other.
        """
        for wanted in names_like(name):
            path = f"{self._folder}/{wanted}"
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
                os.rename(half, path)
                return wanted
        raise AssertionError("unreachable: there is always another name")

    def fetch(self, artifact: Artifact) -> bytes:
        try:
            with open(self.path(artifact), "rb", opener=_opened) as file:
                # One byte more than expected detects a file that has grown, without reading all of it.
                return verify_content(artifact, file.read(artifact.size + 1))
        except FileNotFoundError:
            raise ArtifactGone(f"artifact '{artifact.name}' is gone", name=artifact.name) from None
        except OSError as error:
            message = f"artifact '{artifact.name}' cannot be read: {error_reason(error)}"
            raise ArtifactDamaged(message, name=artifact.name) from error

    def records(self) -> Iterator[ArtifactRecord]:
        for folder, _, files in os.walk(self._folder):
            for file in files:
                path = f"{folder}/{file}"
                with suppress(FileNotFoundError):
                    found = os.stat(path)
                    at = datetime.fromtimestamp(found.st_mtime, UTC)
                    name = path[len(self._folder) + 1 :]
                    yield ArtifactRecord(name, found.st_size, at, not file.startswith(_HALF_WRITTEN))

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            path = f"{self._folder}/{name}"
            with suppress(FileNotFoundError):
                os.unlink(path)
            self._remove_empty(os.path.dirname(path))

    def _remove_empty(self, folder: str) -> None:
        """Remove the folder and its parents while they are empty."""
        with suppress(OSError):
            while folder != self._folder:
                os.rmdir(folder)
                folder = os.path.dirname(folder)


def _make(folder: str) -> list[str]:
    """Create the folder and its parents for their owner only. Return the folders with a new entry, deepest first."""
    if os.path.isdir(folder):
        return []
    above = os.path.dirname(folder)
    grown = _make(above)
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    return [above, *grown]


def _opened(path: str, flags: int) -> int:
    """Open a regular file only: reading a pipe may never end, and a link leads elsewhere."""
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return fd


def _write_durably(path: str, source: BinaryIO) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        while part := source.read(_COPY_BYTES):
            file.write(part)
        file.flush()
        os.fsync(fd)


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

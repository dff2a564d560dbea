"""Checked workflows, kept between processes by the content of their files: who reads a file again need not check it.

What a workflow is depends on the text of its file and of those that it includes, on the name of the file, and on the
program that reads it. All of that is in the key, or compared when it is found: nothing has to announce a
change. Files of other systems and workflows with actions that packages add are not kept, since what they depend on is
known to those packages alone.
"""

from __future__ import annotations

import _thread
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

import msgspec

from mulligan import __version__
from mulligan.cache_folder import users_folder
from mulligan.core.model.workflow import Workflow, decode
from mulligan.errors import CodecError, Problem
from mulligan.language.garbage_collection import pause_garbage_collection

FOLDER = "workflows"
# All that is kept: the ones that were used last.
FILES_MAX = 500
BYTES_MAX = 64 * 1024 * 1024
# A use is noted in the time of its file, at most this often.
USE_NOTED_SECONDS = 3600.0
_DIGEST_BYTES = 32
_OTHERS_MAY_WRITE = 0o022
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The folders whose modules decide what a text of ours means, and that it is one of ours: here not the systems below.
_READ_BY = {"language": True, "core": True, "formats": False}
# Where packages are installed: their times change with every one that is added, updated or removed.
_PACKAGES = ("site-packages", "dist-packages")


class LoadResult(NamedTuple):
    """A checked workflow, and the warnings about its file, in file order."""

    workflow: Workflow
    warnings: tuple[Problem, ...]


class _Kept(msgspec.Struct, array_like=True):
    """What is kept of a file: the digests of those that it includes, by their paths, its warnings, its workflow."""

    included: dict[str, str]
    warnings: tuple[Problem, ...]
    workflow: bytes


class CheckedFiles:
    """The cache of one user. It never fails: what cannot be read or written is as if it were not there."""

    def __init__(self, folder: str, files_max: int = FILES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._folder = folder
        self._files_max, self._bytes_max = files_max, bytes_max

    def find(self, path: str, data: bytes) -> LoadResult | None:
        """The workflow in a file with this content, if it is kept."""
        file = self._file(path, data)
        if file is None:
            return None
        try:
            with open(file, "rb") as opened:
                stored = opened.read()
        except OSError:
            return None
        found = _read(stored)
        if found is None:
            # It was written halfway, or damaged since.
            with suppress(OSError):
                os.unlink(file)
            return None
        kept, workflow = found
        if any(digest_of_file(name) != digest for name, digest in kept.included.items()):
            return None
        _note_use(file)
        return LoadResult(workflow, kept.warnings)

    def keep(self, path: str, data: bytes, included: Mapping[str, str], result: LoadResult) -> None:
        """Keep what was found in a file with this content, and in others that it includes."""
        file = self._file(path, data, is_new=True)
        if file is None:
            return
        # With the keys in the order of the file, which is that in which people see them: not as a store has it.
        workflow = msgspec.json.encode(result.workflow)
        body = msgspec.msgpack.encode(_Kept(dict(included), result.warnings, workflow))
        if len(body) > self._bytes_max // 4:
            return
        new = f"{file}.{os.getpid()}.{_thread.get_ident()}"
        try:
            # Without waiting for the disk: a file that a crash has left halfway does not have its digest.
            with open(new, "xb") as opened:
                opened.write(sha256(body).digest() + body)
            os.replace(new, file)
        except OSError:
            with suppress(OSError):
                os.unlink(new)
            return
        self._forget_oldest()

    def _file(self, path: str, data: bytes, *, is_new: bool = False) -> str | None:
        """The name under which it is kept; None where nothing can be kept safely."""
        program = _program()
        if not self._folder or program is None:
            return None
        try:
            if is_new:
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
            about = os.stat(self._folder)
        except OSError:
            return None
        if about.st_uid != os.geteuid() or about.st_mode & _OTHERS_MAY_WRITE:
            # Another user could put a workflow there, which would run with our rights.
            return None
        key = sha256(b"%b\0%b\0" % (program, os.fsencode(path)))
        key.update(data)
        return f"{self._folder}/{key.hexdigest()}"

    def _forget_oldest(self) -> None:
        found = []
        with suppress(OSError):
            for entry in os.scandir(self._folder):
                with suppress(OSError):
                    about = entry.stat()
                    found.append((about.st_mtime, about.st_size, entry.path))
        count = size = 0
        for _, length, name in sorted(found, reverse=True):
            count, size = count + 1, size + length
            if count > self._files_max or size > self._bytes_max:
                with suppress(OSError):
                    os.unlink(name)


def users_files() -> CheckedFiles:
    """The cache of the user of this process; without a folder for caches nothing is kept."""
    folder = users_folder(os.environ)
    return CheckedFiles(f"{folder}/{FOLDER}" if folder else "")


def digest_of_file(path: str) -> str:
    """The digest of a file's content; "" if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return digest_of(file.read())
    except (OSError, ValueError):
        return ""


def digest_of(data: bytes) -> str:
    return sha256(data).hexdigest()


def _read(stored: bytes) -> tuple[_Kept, Workflow] | None:
    digest, body = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
    if sha256(body).digest() != digest:
        return None
    try:
        with pause_garbage_collection():
            kept = msgspec.msgpack.decode(body, type=_Kept)
            return kept, decode(kept.workflow)
    except (msgspec.DecodeError, CodecError, RecursionError):
        return None


def _note_use(file: str) -> None:
    with suppress(OSError):
        if time.time() - os.stat(file).st_mtime > USE_NOTED_SECONDS:
            os.utime(file)


@lru_cache(maxsize=1)
def _program() -> bytes | None:
    """What reads files here: our version and modules, the interpreter, installed packages; None if it is not known."""
    about = sha256(f"{__version__} {sys.version} {os.environ.get('MULLIGAN_CEL', '')}".encode())
    try:
        for name, is_whole in _READ_BY.items():
            for path, stamp in sorted(_modules(f"{_PACKAGE}/{name}", is_whole=is_whole)):
                about.update(f"{path} {stamp}\n".encode("utf-8", "surrogateescape"))
        for folder in sys.path:
            if folder.endswith(_PACKAGES) and os.path.isdir(folder):
                about.update(f"{folder} {os.stat(folder).st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    except OSError:
        return None
    return about.digest()


def _modules(folder: str, *, is_whole: bool) -> Iterator[tuple[str, str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                about = entry.stat()
                yield entry.path, f"{about.st_mtime_ns} {about.st_size}"
            elif is_whole and entry.is_dir() and entry.name != "__pycache__":
                yield from _modules(entry.path, is_whole=True)

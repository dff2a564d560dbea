"""Load the artifacts that the arguments of a step refer to, in the process that runs the step.

Runs in any interpreter, like `child_main`: so the worker neither reads nor parses what it only passes on.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat

from mulligan.values.files import INLINE_FORMATS, StoredFile
from mulligan.worker.json_encoding import ArtifactUnreadable

# `typing` itself is not imported: a process that is about to start should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

KEY = "$artifact"
READ_BYTES = 1 << 20


def with_contents(value: object, paths: dict[str, Any], *, are_files_paths: bool = False) -> object:
    """Return `value` with the content of artifacts in place of references. `paths` has the file of each by name.

    An artifact that is a file becomes a `StoredFile`, or its path for functions of ours.
    """
    return _Contents(paths, are_files_paths).of(value)


class _Contents:
    """Read each file once, and make a new value for each reference: a step may change its arguments."""

    def __init__(self, paths: dict[str, Any], are_files_paths: bool) -> None:
        self._paths = paths
        self._are_files_paths = are_files_paths
        self._read: dict[str, Any] = {}

    def of(self, value: object) -> object:
        if isinstance(value, dict):
            if len(value) == 1 and KEY in value:
                return self._content(value[KEY])
            return {key: self.of(inner) for key, inner in value.items()}
        return [self.of(inner) for inner in value] if isinstance(value, list) else value

    def _content(self, artifact: dict[str, Any]) -> object:
        name = artifact["name"]
        if artifact["format"] not in INLINE_FORMATS:
            check_file(artifact, self._paths[name])
            return self._paths[name] if self._are_files_paths else StoredFile(artifact, self._paths[name])
        if name not in self._read:
            self._read[name] = checked_bytes(artifact, self._paths[name])
        text = self._read[name].decode()
        return text if artifact["format"] == "text" else json.loads(text)


def checked_bytes(artifact: dict[str, Any], path: str) -> bytes:
    """Return the content of the file if it is intact; otherwise raise ArtifactUnreadable."""
    pieces: list[bytes] = []
    _read(artifact, path, pieces.append, artifact["size"] + 1)
    return b"".join(pieces)


def check_file(artifact: dict[str, Any], path: str) -> None:
    """Raise ArtifactUnreadable if the file is not intact. It may be larger than the memory."""
    _read(artifact, path, lambda _: None, READ_BYTES)


def _read(artifact: dict[str, Any], path: str, take: Callable[[bytes], None], piece_bytes: int) -> None:
    name, size = artifact["name"], artifact["size"]
    digest, length = hashlib.sha256(), 0
    try:
        # Only a regular file: a pipe may never end, a link leads elsewhere.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise ArtifactUnreadable(f"artifact '{name}' cannot be read: it is not a file")
            # Do not read all of a file that has grown.
            while length <= size and (data := file.read(min(piece_bytes, size + 1 - length))):
                take(data)
                digest.update(data)
                length += len(data)
    except FileNotFoundError:
        raise ArtifactUnreadable(f"artifact '{name}' is gone") from None
    except OSError as error:
        raise ArtifactUnreadable(
            f"artifact '{name}' cannot be read: {(error.strerror or str(error)).lower()}"
        ) from None
    if length != size:
        raise ArtifactUnreadable(f"artifact '{name}' is damaged: it has {length} bytes instead of {size}")
    if digest.hexdigest() != artifact["sha256"]:
        raise ArtifactUnreadable(f"artifact '{name}' is damaged: its content has changed")

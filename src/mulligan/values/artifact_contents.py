"""Load the artifacts that the arguments of a step refer to, in the process that runs the step.

Runs in any interpreter, like `child_main`: so the worker neither reads nor parses what it only passes on.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from mulligan.values.annotations import ArtifactUnreadable

# `typing` itself is not imported: a process that is about to start should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

KEY = "$artifact"
# The formats whose content is a value; others are files.
VALUE_FORMATS = ("json", "text")
READ_BYTES = 1 << 20


def with_contents(value: object, paths: dict[str, Any], make_path: Callable[[str, dict[str, Any]], object]) -> object:
    """Return `value` with the content of artifacts in place of references. `paths` has the file of each by name.

    In place of a file that an earlier step keeps stands `make_path(path, reference)`.
    """
    return _Contents(paths, make_path).of(value)


class _Contents:
    """Read each file once, and make a new value for each reference: a step may change its arguments."""

    def __init__(self, paths: dict[str, Any], make_path: Callable[[str, dict[str, Any]], object]) -> None:
        self._paths = paths
        self._make_path = make_path
        self._read: dict[str, Any] = {}

    def of(self, value: object) -> object:
        if isinstance(value, dict):
            if len(value) == 1 and KEY in value:
                return self._content(value[KEY])
            return {key: self.of(inner) for key, inner in value.items()}
        return [self.of(inner) for inner in value] if isinstance(value, list) else value

    def _content(self, artifact: dict[str, Any]) -> object:
        name = artifact["name"]
        if artifact["format"] not in VALUE_FORMATS:
            check_file(artifact, self._paths[name])
            return self._make_path(self._paths[name], {KEY: artifact})
        if name not in self._read:
            self._read[name] = checked_bytes(artifact, self._paths[name])
        text = self._read[name].decode()
        return text if artifact["format"] == "text" else json.loads(text)


def checked_bytes(artifact: dict[str, Any], path: str) -> bytes:
    """Return the content of the file if it is intact; otherwise raise ArtifactUnreadable."""
    size = artifact["size"]
    with _opened(artifact, path) as file:
        data: bytes = file.read(size + 1)  # do not read all of a file that has grown
    _check(artifact, len(data), hashlib.sha256(data))
    return data


def check_file(artifact: dict[str, Any], path: str) -> None:
    """Raise ArtifactUnreadable unless the file is intact."""
    digest, size = hashlib.sha256(), 0
    with _opened(artifact, path) as file:
        while size <= artifact["size"] and (data := file.read(READ_BYTES)):
            digest.update(data)
            size += len(data)
    _check(artifact, size, digest)


@contextmanager
def _opened(artifact: dict[str, Any], path: str) -> Iterator[Any]:
    name = artifact["name"]
    try:
        # Only a regular file: a pipe may never end, a link leads elsewhere.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise ArtifactUnreadable(f"artifact '{name}' cannot be read: it is not a file")
            yield file
    except FileNotFoundError:
        raise ArtifactUnreadable(f"artifact '{name}' is gone") from None
    except OSError as error:
        raise ArtifactUnreadable(
            f"artifact '{name}' cannot be read: {(error.strerror or str(error)).lower()}"
        ) from None


def _check(artifact: dict[str, Any], size: int, digest: Any) -> None:
    name = artifact["name"]
    if size != artifact["size"]:
        raise ArtifactUnreadable(f"artifact '{name}' is damaged: it has {size} bytes instead of {artifact['size']}")
    if digest.hexdigest() != artifact["sha256"]:
        raise ArtifactUnreadable(f"artifact '{name}' is damaged: its content has changed")

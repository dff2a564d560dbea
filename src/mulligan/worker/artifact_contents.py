"""Load the artifacts that the arguments of a step refer to, in the process that runs the step.

Runs in any interpreter, like `child_main`: so the worker neither reads nor parses what it only passes on.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat

from mulligan.worker.json_encoding import ArtifactUnreadable

# `typing` itself is not imported: a process that is about to start should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KEY = "$artifact"


def with_contents(value: object, paths: dict[str, Any]) -> object:
    """Return `value` with the content of artifacts in place of references. `paths` has the file of each by name."""
    return _Contents(paths).of(value)


class _Contents:
    """Read each file once, and make a new value for each reference: a step may change its arguments."""

    def __init__(self, paths: dict[str, Any]) -> None:
        self._paths = paths
        self._read: dict[str, Any] = {}

    def of(self, value: object) -> object:
        if isinstance(value, dict):
            if len(value) == 1 and KEY in value:
                return self._content(value[KEY])
            return {key: self.of(inner) for key, inner in value.items()}
        return [self.of(inner) for inner in value] if isinstance(value, list) else value

    def _content(self, artifact: dict[str, Any]) -> object:
        name = artifact["name"]
        if name not in self._read:
            self._read[name] = checked_bytes(artifact, self._paths[name])
        text = self._read[name].decode()
        return text if artifact["format"] == "text" else json.loads(text)


def checked_bytes(artifact: dict[str, Any], path: str) -> bytes:
    """Return the content of the file if it is intact; otherwise raise ArtifactUnreadable."""
    name, size = artifact["name"], artifact["size"]
    try:
        # Only a regular file: a pipe may never end, a link leads elsewhere.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise ArtifactUnreadable(f"artifact '{name}' cannot be read: it is not a file")
            data = file.read(size + 1)  # do not read all of a file that has grown
    except FileNotFoundError:
        raise ArtifactUnreadable(f"artifact '{name}' is gone") from None
    except OSError as error:
        raise ArtifactUnreadable(
            f"artifact '{name}' cannot be read: {(error.strerror or str(error)).lower()}"
        ) from None
    if len(data) != size:
        raise ArtifactUnreadable(f"artifact '{name}' is damaged: it has {len(data)} bytes instead of {size}")
    if hashlib.sha256(data).hexdigest() != artifact["sha256"]:
        raise ArtifactUnreadable(f"artifact '{name}' is damaged: its content has changed")
    return data

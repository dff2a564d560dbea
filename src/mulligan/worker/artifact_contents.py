"""What is in the artifacts that the arguments of a step refer to, read by the process that runs the step.

For any interpreter, as `child` is: so the driver of a run neither reads nor parses what it only passes on.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat

from mulligan.worker.encodable import NotReadable

KEY = "$artifact"


def with_contents(value: object, paths: dict) -> object:
    """`value` with what is in artifacts in the place of their references. `paths` has the file of each by its name."""
    return _Contents(paths).of(value)


class _Contents:
    """Reads each file once, and makes a value of its own for each reference: a step may change what it is given."""

    def __init__(self, paths: dict) -> None:
        self._paths = paths
        self._read: dict = {}

    def of(self, value: object) -> object:
        if isinstance(value, dict):
            if len(value) == 1 and KEY in value:
                return self._content(value[KEY])
            return {key: self.of(inner) for key, inner in value.items()}
        return [self.of(inner) for inner in value] if isinstance(value, list) else value

    def _content(self, artifact: dict) -> object:
        name = artifact["name"]
        if name not in self._read:
            self._read[name] = checked_bytes(artifact, self._paths[name])
        text = self._read[name].decode()
        return text if artifact["format"] == "text" else json.loads(text)


def checked_bytes(artifact: dict, path: str) -> bytes:
    """What is in the file, if it is what was kept; NotReadable if not."""
    name, size = artifact["name"], artifact["size"]
    try:
        # A file, and nothing that somebody has put in its place: a pipe may never end, a link leads elsewhere.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise NotReadable(f"artifact '{name}' cannot be read: it is no file")
            data = file.read(size + 1)  # a file that has grown is not read whole
    except FileNotFoundError:
        raise NotReadable(f"artifact '{name}' is gone") from None
    except OSError as error:
        raise NotReadable(f"artifact '{name}' cannot be read: {(error.strerror or str(error)).lower()}") from None
    if len(data) != size:
        raise NotReadable(f"artifact '{name}' is damaged: it has {len(data)} bytes instead of {size}")
    if hashlib.sha256(data).hexdigest() != artifact["sha256"]:
        raise NotReadable(f"artifact '{name}' is damaged: its hash does not match")
    return data

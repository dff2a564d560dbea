"""Files that a step keeps. They are written beside a manifest, and the worker stores them when the attempt has ended.

A reference that the step may return is `{"$artifact": {"name": "new/81-1", "size": …, "sha256": …, "format": "file"}}`;
the worker replaces it by a reference to the stored file. Standard library only, like `step_context`.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from itertools import count
from pathlib import Path

from mulligan.step_context.errors import NotInStep

# `typing` itself is not imported: a step that imports this should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import PathLike
    from typing import Any

KEY = "$artifact"
# The path of the manifest: a line of JSON for each file. The files are beside it, and begin with its name.
MANIFEST = "MULLIGAN_ARTIFACTS"
# The name of a file that is not stored yet, in a reference.
NEW = "new/"
NAME_CHARS_MAX = 120
FILES_MAX = 1000
READ_BYTES = 1 << 20

_numbers = count(1)


class ArtifactPath(type(Path())):  # type: ignore[misc]
    """The path of a file that the run keeps. In the output of a step it stands for the file itself."""

    # Encoders put this reference into the output of the step.
    __mulligan_artifact__: dict[str, Any] | None = None


def make_path(path: str, reference: dict[str, Any]) -> ArtifactPath:
    """Return the path of a file, which stands for the artifact."""
    found = ArtifactPath(path)
    found.__mulligan_artifact__ = reference
    return found


def keep_copy(path: str | PathLike[str], name: str | None) -> ArtifactPath:
    """Copy a file and register the copy: the step may change its own file later."""
    source = os.fspath(path)
    if not os.environ.get(MANIFEST):
        raise NotInStep("artifact")
    if not stat.S_ISREG(os.stat(source).st_mode):
        raise ValueError(f"'{source}' is not a file: an artifact is one file, so pack a folder first (tar, zip)")
    shown = os.path.basename(source) if name is None else name
    if not isinstance(shown, str) or not shown.strip() or "/" in shown or shown in (".", ".."):
        raise ValueError(f"the name of an artifact must be the name of a file, without folders: {shown!r}")
    # The bytes of a file name need not be UTF-8, and those of the manifest must be.
    shown = shown.encode("utf-8", "replace").decode()
    kept = new_artifact_path(os.path.splitext(shown)[1], function="artifact")
    with open(source, "rb") as original, open(kept, "xb") as copy:
        while data := original.read(READ_BYTES):
            copy.write(data)
    return make_path(source, register_artifact(kept, name=shown, format="file"))


def new_artifact_path(ending: str = "", *, function: str = "artifact") -> str:
    """Return a path for a new file to register. Raises NotInStep outside of a step."""
    manifest = os.environ.get(MANIFEST)
    if not manifest:
        raise NotInStep(function)
    # First: the worker looks for the files of an attempt that has a manifest.
    os.close(os.open(manifest, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
    number = next(_numbers)
    if number > FILES_MAX:
        _refuse_too_many(manifest)
    return f"{manifest}-{os.getpid()}-{number}{ending if ending.isascii() and ending.isprintable() else ''}"


def _refuse_too_many(manifest: str) -> None:
    with open(manifest, "rb") as file:
        if sum(1 for _ in file) >= FILES_MAX:
            raise ValueError(f"a step may keep {FILES_MAX:,} files: pack them into one (tar, zip)")


def register_artifact(
    path: str, *, name: str, format: str, is_listed: bool = True, preview: dict[str, Any] | None = None, **extra: Any
) -> dict[str, dict[str, Any]]:
    """Register a file at a path of `new_artifact_path`; return the reference to it, for the output of the step.

    The file is written to the disk and must not change any more. One that is not listed is part of the output only.
    The worker adds the preview to the reference when it stores the output.
    """
    manifest = os.environ.get(MANIFEST)
    if not manifest:
        raise NotInStep("artifact")
    size, digest = _fix(path)
    reference = {"name": NEW + path[len(manifest) + 1 :], "size": size, "sha256": digest, "format": format, **extra}
    entry = {"reference": reference, "name": name[-NAME_CHARS_MAX:], "is_listed": is_listed, "preview": preview}
    line = json.dumps(entry).encode() + b"\n"
    fd = os.open(manifest, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)
    return {KEY: reference}


def _fix(path: str) -> tuple[int, str]:
    """Make a file durable and read-only; return its size and its hash."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while data := file.read(READ_BYTES):
            digest.update(data)
        os.fsync(file.fileno())
        os.fchmod(file.fileno(), 0o400)
        return os.fstat(file.fileno()).st_size, digest.hexdigest()

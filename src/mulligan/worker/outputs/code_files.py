"""The code of a Python step as its result is known by: a hash of each part, and the files that they are from."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from mulligan.core.effects.tasks import Task

CODE_DIGEST = "mulligan.worker.outputs.code_digest:digest_call"
# The module of a text that is written into the step.
INLINE = "<step>"
OUR_MODULES = "mulligan."
_INSTALLED = ("/site-packages", "/dist-packages")

# The stamp of a file: None if there is none.
Stamp = tuple[int, ...] | None


class Code(msgspec.Struct, frozen=True):
    """The code of a step: a hash for each part that counts, by `file: name`; and the files, with their stamps.

    `files` also has the paths at which a module was looked for and there was none.
    """

    parts: dict[str, str] = {}
    files: dict[str, tuple[int, ...] | None] = {}

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr(sorted(self.parts.items())).encode()).hexdigest()

    @property
    def is_unchanged(self) -> bool:
        """Whether all of its files are as they were read."""
        return all(stamp_of(path) == (None if stamp is None else tuple(stamp)) for path, stamp in self.files.items())

    @property
    def changed_at(self) -> float:
        """When one of its files changed last, whatever its time of modification says."""
        return max((stamp[-1] / 1e9 for stamp in self.files.values() if stamp), default=0.0)


def stamp_of(path: str) -> Stamp:
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return None
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


class CodeRequest(NamedTuple):
    """Whose code is asked for: `module:name`, the folders to import from, and texts of modules that are no files."""

    call: str
    folders: tuple[str, ...]
    sources: tuple[tuple[str, str], ...] = ()

    @property
    def arguments(self) -> dict[str, Any]:
        return {"call": self.call, "folders": list(self.folders), "sources": dict(self.sources)}


def code_request_of(task: Task) -> CodeRequest | None:
    """What has to be asked for the code of a Python task: it imports from the folder of its run, and from its file.

    None if its text, which is part of its parameters, is all of its code.
    """
    params: Mapping[str, Any] = task.params
    if "call" not in params and "import" not in params.get("code", ""):
        return None
    if str(params.get("call", "")).startswith(OUR_MODULES):
        return None
    home = task.started_in or "/"
    folders = [home]
    if "import_from" in params or "file" in params:
        own = params["import_from"] if "import_from" in params else os.path.dirname(params["file"])
        folders.insert(0, os.path.join(home, own))
    # A project that is installed from its folder.
    folders += [entry for entry in sys.path if entry.startswith(f"{home}/") and not entry.endswith(_INSTALLED)]
    folders = list(dict.fromkeys(folders))
    if "call" not in params:
        return CodeRequest(f"{INLINE}:", tuple(folders), ((INLINE, str(params.get("code", ""))),))
    call = str(params["call"])
    sources = ((call.partition(":")[0], str(params["source"])),) if params.get("source") else ()
    return CodeRequest(call, tuple(folders), sources)

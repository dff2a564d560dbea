"""Where the files of a run are, seen from the page: a link where they can be reached from there, else their path."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import PurePath
from urllib.parse import quote

from mulligan.service.page.markup import Html, element, joined

# Of a path: `.mulligan/runs/7/logs/build#1.err`. What is above says more of a person than of a run.
_PARTS_SHOWN = 5
_STREAMS = {".err": "stderr", ".out": "stdout"}


def log_files(files: Sequence[str], folder: str | None) -> Html:
    """The log files of an attempt. `folder`: where the page will be; None where nobody knows."""
    if not files:
        return Html("")
    return element("p", "All of it: ", joined((_file(file, folder) for file in files), ", "), class_="note files")


def _file(file: str, folder: str | None) -> Html:
    near = folder is not None and os.path.commonpath([folder, file]) != os.sep
    if not near:
        return element("code", "/".join(PurePath(file).parts[-_PARTS_SHOWN:]))
    name = _STREAMS.get(PurePath(file).suffix, PurePath(file).name)
    return element("a", name, href=quote(os.path.relpath(file, folder)))

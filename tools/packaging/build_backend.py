"""The build backend: flit, and the pages of docs/ for users in one file, so that `docs` of an agent finds them.

A checkout has the pages themselves, so an editable installation needs no copy.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

from flit_core import buildapi
from flit_core.buildapi import (
    build_editable as build_editable,
)
from flit_core.buildapi import (
    build_sdist as build_sdist,
)
from flit_core.buildapi import (
    get_requires_for_build_editable as get_requires_for_build_editable,
)
from flit_core.buildapi import (
    get_requires_for_build_sdist as get_requires_for_build_sdist,
)
from flit_core.buildapi import (
    get_requires_for_build_wheel as get_requires_for_build_wheel,
)
from flit_core.buildapi import (
    prepare_metadata_for_build_editable as prepare_metadata_for_build_editable,
)
from flit_core.buildapi import (
    prepare_metadata_for_build_wheel as prepare_metadata_for_build_wheel,
)

PAGES = "mulligan/pages.json"
# As `mulligan.service.rendering.documentation` leaves them out.
LEFT_OUT = ("project/",)


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """The wheel of flit with the pages in it."""
    name: str = buildapi.build_wheel(wheel_directory, config_settings, metadata_directory)
    add_file(Path(wheel_directory) / name, PAGES, json.dumps(read_pages(Path("docs")), ensure_ascii=False).encode())
    return name


def read_pages(folder: Path) -> dict[str, str]:
    """The pages for users, by name."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.md"))
    return {name: (folder / name).read_text(encoding="utf-8") for name in names if not name.startswith(LEFT_OUT)}


def add_file(wheel: Path, name: str, data: bytes) -> None:
    """Add a file to a wheel and to its record. Its time is that of the other files that a build makes."""
    changed = wheel.with_suffix(".new")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            content = old.read(entry)
            if entry.filename.endswith(".dist-info/RECORD"):
                content = _recorded(content, name, data)
                made = zipfile.ZipInfo(name, entry.date_time)
                made.external_attr, made.compress_type = entry.external_attr, zipfile.ZIP_DEFLATED
                new.writestr(made, data)
            new.writestr(entry, content)
    os.replace(changed, wheel)


def _recorded(record: bytes, name: str, data: bytes) -> bytes:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    text = io.StringIO(newline="")
    csv.writer(text).writerow((name, f"sha256={digest}", len(data)))
    return text.getvalue().encode() + record

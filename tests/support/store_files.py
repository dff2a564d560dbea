"""SQLite files that hold the tables of an empty store, for tests that do not care how these tables are made.

To make the tables takes SQLite seven times as long as to open a file that has them.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from mulligan.store import open_store


def write_empty_store(file: Path) -> None:
    """Write what opening a store for the first time leaves: the file and its folder, for their owner alone."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as store:
        store.write(_empty_store())


@cache
def _empty_store() -> bytes:
    with TemporaryDirectory(prefix="mulligan-store-") as folder:
        file = Path(folder) / "store.db"
        open_store(file).close()
        return file.read_bytes()

"""SQLite files that hold the tables of an empty store, for tests that do not care how these tables are made.

To make the tables takes SQLite seven times as long as to open a file that has them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import get_ident

import pytest

from mulligan.store import open_store
from mulligan.store.sqlite import sqlite_file


def write_empty_store(file: Path) -> None:
    """Write what opening a store for the first time leaves: the file and its folder, for their owner alone."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as store:
        store.write(_empty_store())


def create_stores_with_tables(patch: pytest.MonkeyPatch) -> None:
    """From now on, a file that this process makes to open a store has the tables from the start."""
    _empty_store()
    patch.setattr(sqlite_file, "_create_private", _create_with_tables)


def _create_with_tables(path: Path, create: Callable[[Path], None] = sqlite_file._create_private) -> None:
    if path.exists():
        return
    # Another process may open it: it appears with all of its content.
    unfinished = path.with_name(f"{path.name}.{os.getpid()}-{get_ident()}")
    create(unfinished)
    try:
        unfinished.write_bytes(_empty_store())
        os.link(unfinished, path)
    except FileExistsError:
        pass  # another process was first
    finally:
        unfinished.unlink()


@cache
def _empty_store() -> bytes:
    with TemporaryDirectory(prefix="mulligan-store-") as folder:
        file = Path(folder) / "store.db"
        open_store(file).close()
        return file.read_bytes()

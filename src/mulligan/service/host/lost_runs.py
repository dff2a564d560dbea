"""Runs of which the home has the files, and the database knows nothing: it is an older copy, or a new one.

Their numbers are never given to other runs, whose logs would end up beside theirs, and `gc` leaves their files alone.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from datetime import UTC, datetime

from mulligan.ports import Store
from mulligan.ports.server_records import Document
from mulligan.service.home import DATABASE, Home

# A document for each range of numbers that was skipped since the home had their files: its name is `7-9`.
KIND = "lost_runs"


def keep_lost_numbers(home: Home, store: Store) -> None:
    """Let no run get a number that a folder of this home has. Called before runs are created."""
    last = max(folder_numbers(home), default=0)
    if not last:
        return
    highest = store.skip_run_ids(0)
    if last > highest:
        # Written first: without it `gc` would take their folders for those of runs that were removed.
        name = f"{highest + 1}-{last}"
        store.server_records.put_document(Document(KIND, name, b"", datetime.now(UTC)))
        store.skip_run_ids(last)


def find_lost_runs(home: Home, store: Store, numbers: Collection[int] | None = None) -> list[int]:
    """Those of the numbers, by default of all folders of runs, that the database has never given to a run of its own.

    A number that it has given out and does not know any more belongs to a run that `gc` has removed.
    """
    candidates = folder_numbers(home) if numbers is None else numbers
    if not candidates:
        return []
    highest = store.skip_run_ids(0)
    skipped = [range(*_bounds(one.name)) for one in store.server_records.documents(KIND)]
    beyond = [one for one in candidates if one > highest or any(one in some for some in skipped)]
    known = {record.run_id for record in store.lists.records(beyond)} if beyond else set()
    return sorted({*beyond} - known)


def _bounds(name: str) -> tuple[int, int]:
    first, _, last = name.partition("-")
    return int(first), int(last) + 1


def folder_numbers(home: Home) -> list[int]:
    """The numbers of the folders of runs; none where another store has runs, too, or the files are on a server."""
    if home.is_remote or (home.store_url and (home.folder / DATABASE).exists()):
        return []
    try:
        with os.scandir(home.folder / "runs") as entries:
            return [int(one.name) for one in entries if one.name.isascii() and one.name.isdecimal()]
    except (FileNotFoundError, NotADirectoryError):
        return []

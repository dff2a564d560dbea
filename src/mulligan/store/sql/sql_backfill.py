"""What a migration adds to runs that are there already, where SQL alone cannot: it has to read what is stored.

A log or a row that cannot be read costs its run what it would have been found by, and does not stop the migration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from mulligan.core.effects.run_lists import RunFailures, run_failures, search_words, start_words, unhandled_by_records
from mulligan.core.effects.snapshot import read_failure
from mulligan.core.state.state import FailureRecord
from mulligan.errors import CodecError
from mulligan.store.sql.sql_arrays import Bigints, Texts
from mulligan.store.sql.sql_database import SqlDatabase
from mulligan.store.sql.sql_rows import ATTRIBUTE

# How many runs are read at once.
_PAGE = 1_000

_decode: Callable[[bytes], Any] = msgspec.json.decode


def backfill_search(database: SqlDatabase) -> None:
    """Make all stored runs searchable by who started them, by their words and by their failures.

    To be called in the transaction of the migration. A child run has no words.
    """
    after = -1
    # The first event of a run, or its request that is still in its inbox, is JSON.
    while some := database.execute("stored_runs", after, _PAGE):
        run_ids = [run_id for run_id, *_ in some]
        labels: dict[int, dict[str, str]] = {}
        inputs: dict[int, list[str]] = {}
        for run_id, kind, name, value in database.execute("stored_attributes", Bigints(run_ids)):
            if kind == "label":
                labels.setdefault(run_id, {})[name] = value
            else:
                inputs.setdefault(run_id, []).append(value)
        failed = Bigints(run_id for run_id, _, is_failed, _, _ in some if is_failed)
        failures = _failures(database.execute("stored_failures", failed))
        starters = {run_id: _starter(first) for run_id, *_, first in some}
        codes = [(run_id, "failure", code, "") for run_id, found in failures.items() for code in found.codes]
        words = [
            (
                run_id,
                start_words(workflow, starters[run_id], labels.get(run_id, {})),
                " ".join(search_words(inputs.get(run_id, ()))),
                failures[run_id].words if run_id in failures else "",
            )
            for run_id, workflow, _, is_child, _ in some
            if not is_child
        ]
        database.execute_rows("fill_starters", (Bigints, Texts), starters.items())
        database.execute_rows("insert_attributes", ATTRIBUTE, codes)
        database.execute_rows("fill_words", (Bigints, Texts, Texts, Texts), words)
        after = run_ids[-1]


def _starter(first: bytes | None) -> str:
    """Who started a run, from its first event or its request; "" if that cannot be read."""
    try:
        found = _decode(first or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError, RecursionError):
        return ""
    fact = found.get("fact", found) if isinstance(found, dict) else {}
    by = fact.get("by", "") if isinstance(fact, dict) else ""
    return by.replace("\0", "\ufffd") if isinstance(by, str) else ""


def _failures(rows: Iterable[tuple[int, bytes]]) -> Mapping[int, RunFailures]:
    records: dict[int, list[FailureRecord]] = {}
    for run_id, data in rows:
        try:
            records.setdefault(run_id, []).append(read_failure(data))
        except CodecError:
            continue
    return {run_id: run_failures(unhandled_by_records(found)) for run_id, found in records.items()}

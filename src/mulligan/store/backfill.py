"""What a migration adds to runs that are there already, where SQL alone cannot: it has to read what is stored.

A log or a row that cannot be read costs its run what it would have been found by, and does not stop the migration.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from mulligan.core.effects.run_lists import RunFailures, run_failures, search_words, start_words, unhandled_by_records
from mulligan.core.effects.snapshot import read_failure
from mulligan.core.state.state import FailureRecord
from mulligan.errors import CodecError

# How many runs are read at once.
_PAGE = 1_000

_decode: Callable[[bytes], Any] = msgspec.json.decode


class StoredRun(NamedTuple):
    """What a store has of a run that a release without search has written."""

    run_id: int
    workflow: str
    is_failed: bool
    is_child: bool
    # Its first event, or its request that is still in its inbox; JSON.
    first: bytes | None


class FilledRun(NamedTuple):
    """What the migration adds to a run. A child run has no words."""

    run_id: int
    is_child: bool
    started_by: str
    start_words: str
    input_words: str
    failures: RunFailures


class BackfillTables(Protocol):
    def stored_runs(self, after: int, limit: int) -> list[StoredRun]:
        """The runs with higher ids, in order."""

    def stored_attributes(self, run_ids: Collection[int]) -> list[tuple[int, str, str, str]]:
        """Run, kind, name and value."""

    def stored_failures(self, run_ids: Collection[int]) -> list[tuple[int, bytes]]:
        """The rows of failures of these runs."""

    def fill(self, runs: Iterable[FilledRun]) -> None: ...


def backfill_search(tables: BackfillTables) -> None:
    """Make all stored runs searchable by who started them, by their words and by their failures."""
    after = -1
    while some := tables.stored_runs(after, _PAGE):
        labels: dict[int, dict[str, str]] = {}
        inputs: dict[int, list[str]] = {}
        for run_id, kind, name, value in tables.stored_attributes([run.run_id for run in some]):
            if kind == "label":
                labels.setdefault(run_id, {})[name] = value
            else:
                inputs.setdefault(run_id, []).append(value)
        failures = _failures(tables.stored_failures([run.run_id for run in some if run.is_failed]))
        tables.fill(
            FilledRun(
                run_id=run.run_id,
                is_child=run.is_child,
                started_by=(starter := _starter(run.first)),
                start_words=start_words(run.workflow, starter, labels.get(run.run_id, {})),
                input_words=" ".join(search_words(inputs.get(run.run_id, ()))),
                failures=failures.get(run.run_id, RunFailures()),
            )
            for run in some
        )
        after = some[-1].run_id


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

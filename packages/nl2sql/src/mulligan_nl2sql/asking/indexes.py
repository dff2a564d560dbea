"""`nl2sql index`: read databases once, and keep that for later questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from mulligan import StepError
from mulligan_nl2sql.asking.answers import EXIT_CODES, Problem, Status
from mulligan_nl2sql.asking.questions import read_databases
from mulligan_nl2sql.asking.shown_answers import printable
from mulligan_nl2sql.indexing.kept_indexes import KeptIndex, keep_index
from mulligan_nl2sql.policed_databases import find_database


class IndexedDatabase(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of one database, or why nothing is. What a policy hides counts in none of the figures."""

    database: str
    read_at: datetime | None = None
    tables: int = 0
    columns: int = 0
    values: int = 0
    failure: Problem | None = None


class IndexReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `nl2sql index --json` prints."""

    status: Status
    exit_code: int
    folder: str
    databases: list[IndexedDatabase]


def make_indexes(given: Sequence[str], policy: str, folder: Path, now: datetime) -> IndexReport:
    """Read each database and keep its index. One that cannot be read keeps no other from it, nor an old index."""
    done = [_make_index(one.name, one.given_url, policy, folder, now) for one in read_databases(given, policy)]
    failed = sum(one.failure is not None for one in done)
    status = Status.ANSWERED if not failed else Status.FAILED if failed == len(done) else Status.PARTIAL
    return IndexReport(status=status, exit_code=EXIT_CODES[status], folder=str(folder), databases=done)


def _make_index(name: str, url: str, policy: str, folder: Path, now: datetime) -> IndexedDatabase:
    try:
        database, rules = find_database(url, policy, name)
        kept = keep_index(folder, database, rules, now)
        readable = msgspec.structs.replace(kept, schema=rules.apply(kept.schema))
    except StepError as failure:
        problem = Problem(
            code=failure.code,
            message=failure.message,
            severity=failure.severity or "error",
            retryable=bool(failure.retryable),
        )
        return IndexedDatabase(database=name, failure=problem)
    return _figures(readable)


def _figures(kept: KeptIndex) -> IndexedDatabase:
    columns = [column for table in kept.schema.tables for column in table.columns]
    return IndexedDatabase(
        database=kept.database,
        read_at=kept.read_at,
        tables=len(kept.schema.tables),
        columns=len(columns),
        values=sum(len(column.values) for column in columns),
    )


def show_indexes(report: IndexReport) -> Iterator[str]:
    """The lines for a terminal."""
    for one in report.databases:
        if one.failure is not None:
            yield printable(f"{one.database}: not read: {one.failure.code}: {one.failure.message}")
        else:
            yield f"{one.database}: {one.tables:,} tables, {one.columns:,} columns, {one.values:,} values"
    yield f"kept in {report.folder}"

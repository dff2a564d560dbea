"""What is asked all the time costs the same however many runs have ended: SQLite says how it would look."""

from __future__ import annotations

from pathlib import Path

import apsw
import apsw.ext
import pytest

from mulligan.store import open_store
from mulligan.store.sqlite.sqlite_file import SqliteFile, admit
from mulligan.store.statements import statements

SQL = statements("sqlite")
# These look at every run there is, and mean to: sums over all runs, what nobody refers to any more.
LOOK_AT_ALL = {"tallies", "recent_rows", "records_containing", "remove_workflow", "table_bytes"}
# The tables that only grow.
GROWING = ("runs", "rows", "events")


def test_no_statement_reads_a_table_that_only_grows_from_end_to_end(database: apsw.Connection):
    plans = {
        name: apsw.ext.query_info(database, SQL[name], explain_query_plan=True).query_plan
        for name in SQL.keys() - LOOK_AT_ALL
    }

    assert plans
    assert [(name, line) for name, plan in plans.items() for line in _lines(plan) if _is_whole(line)] == []


@pytest.mark.parametrize("name", ["tallies", "records_containing"])
def test_one_that_does_is_seen(database: apsw.Connection, name):
    plan = apsw.ext.query_info(database, SQL[name], explain_query_plan=True).query_plan

    assert any(_is_whole(line) for line in _lines(plan))


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("runs", (9, "[]", 5), (8, '["new"]', 5)),
        ("guarded_tasks", (1, 1, 1, "[]", "here", None, 0, "w1"), (1, 1, 1, "[]", "here", None, 0, "w2")),
    ],
)
def test_no_plan_is_made_again_for_other_values(tmp_path: Path, name, first, second):
    file, planned = SqliteFile(tmp_path / "mulligan.db", busy_seconds=5.0), []

    def asked(*what) -> int:
        """Called while a statement is planned, for all that it reads."""
        planned.append(what)
        return apsw.SQLITE_OK

    file.connection.authorizer = asked
    file.read(SQL[name], *first)
    assert planned
    planned.clear()
    file.read(SQL[name], *second)

    assert planned == []


@pytest.mark.parametrize(("name", "is_written"), [("advance_run", False), ("advance_run_to_status", True)])
def test_a_turn_that_leaves_the_status_as_it_is_writes_no_index(database: apsw.Connection, name, is_written):
    steps = database.execute(f"EXPLAIN {SQL[name]}", (None,) * 11)

    assert any(step[1] in ("IdxInsert", "IdxDelete") for step in steps) == is_written


@pytest.fixture(scope="module")
def database(tmp_path_factory) -> apsw.Connection:
    path: Path = tmp_path_factory.mktemp("plans") / "mulligan.db"
    open_store(str(path)).close()
    connection = apsw.Connection(str(path))
    admit(connection)
    return connection


def _lines(plan) -> list[str]:
    return [] if plan is None else [plan.detail, *(line for below in plan.sub or () for line in _lines(below))]


def _is_whole(line: str) -> bool:
    """Whether it is a scan of a whole table; through a partial index it reads what is in that alone."""
    words = line.split()
    return words[0] == "SCAN" and words[1] in (*GROWING, "r", "s") and "INDEX" not in words

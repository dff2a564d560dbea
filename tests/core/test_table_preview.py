"""What is recorded of a table: bounded plain text, and compared without the file."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mulligan.core.model.artifacts import KEY, Artifact, make_reference, parse_reference
from mulligan.core.model.text.table_preview import (
    BYTES_MAX,
    COLUMNS_MAX,
    Table,
    TablePreview,
    bounded_preview,
    read_table,
    table_changes,
)

SAME = "the same columns and types"


def table(*columns: tuple[str, str], rows: int = 400, count: int | None = None) -> Table:
    return Table(TablePreview(columns), rows, len(columns) if count is None else count)


@pytest.mark.parametrize("columns", [1, 12, 40, 10_000])
@pytest.mark.parametrize("text", ["x" * 100, "ü\n" * 50, '"' * 100, "1"])
def test_a_preview_is_small_whatever_a_step_has_written(columns: int, text: str):
    head = (text, text)
    given = TablePreview((head,) * columns, ((text,) * columns,) * 50, index=7)

    found = bounded_preview(given)

    assert len(msgspec.json.encode(found)) <= BYTES_MAX
    assert 1 <= len(found.columns) <= COLUMNS_MAX
    assert found.rows
    assert all(len(cell) <= 40 for row in (*found.columns, *found.rows) for cell in row)
    assert found.index <= len(found.columns)


def test_rows_that_do_not_fit_the_columns_are_cut_to_them():
    found = bounded_preview(TablePreview((("a", "int"), ("b", "int")), (("1", "2", "3"), ("1",), ()), index=-1))

    assert (found.rows, found.index) == (((), (), ()), 0)


def test_nothing_of_a_preview_is_obeyed_by_a_terminal():
    found = bounded_preview(TablePreview((("a\x1b[31m\n\u202e", "\x00int"),), (("\r\x07b\ud800",),)))

    assert all(text.isprintable() for row in (*found.columns, *found.rows) for text in row)
    assert found.columns[0][0].startswith("a")


def test_a_reference_keeps_a_preview_and_an_old_one_has_none():
    preview = TablePreview((("a", "int"),), (("1",),), index=1)
    artifact = Artifact("1/a/output", 9, "s", "parquet", "pandas.DataFrame", 1, 0, preview=preview)
    old = {"name": "1/a/output", "size": 9, "sha256": "s", "format": "parquet", "type": "pandas.DataFrame", "rows": 1}

    assert parse_reference(msgspec.json.decode(msgspec.json.encode(make_reference(artifact)))) == artifact
    assert make_reference(parse_reference({KEY: old})) == {KEY: old}


@pytest.mark.parametrize(
    ("before", "now", "changes"),
    [
        (table(("a", "int")), table(("a", "int")), ["400 rows, as before", SAME]),
        (table(("a", "int")), table(("a", "int"), rows=410), ["400 → 410 rows (+10, +2.5%)", SAME]),
        (table(("a", "int"), rows=0), table(("a", "str"), rows=1), ["0 → 1 rows (+1)", "1 type changed: a int → str"]),
        (
            table(("a", "int"), ("b", "int")),
            table(("c", "int"), ("a", "int")),
            ["400 rows, as before", "1 column added: 'c'", "1 column removed: 'b'"],
        ),
        # Columns of one name are told apart by their order.
        (table(("x", "int")), table(("x", "int"), ("x", "str")), ["400 rows, as before", "1 column added: 'x'"]),
        # What is not recorded is neither added nor removed.
        (
            table(("a", "int"), count=50),
            table(("b", "int"), count=50),
            ["400 rows, as before", "the same types, of the columns that are recorded"],
        ),
        (
            table(("a", "int")),
            table(("b", "int"), count=50),
            ["400 rows, as before", "1 → 50 columns", "columns added: 'b', …"],
        ),
    ],
)
def test_what_has_changed_is_read_from_two_previews(before: Table, now: Table, changes: list[str]):
    assert table_changes(before, now) == changes


def test_a_broken_preview_is_no_table():
    broken: list[Any] = [None, 7, {}, {"preview": 7}, {"preview": {"columns": [["a"]]}}]

    assert [read_table(one) for one in broken] == [None] * len(broken)

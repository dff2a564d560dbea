from __future__ import annotations

import pytest

from mulligan_nl2sql.databases.sqlite_comments import read_comments

DEFINITION = """CREATE TABLE "products" ( -- articles
  -- list price,
  -- in euros
  price REAL CHECK (price > 0), -- net
  "Weight" NUMERIC(8, 2) DEFAULT '-- no comment', /* in
     kilograms */
  [stock] INTEGER,
  note TEXT NOT NULL -- free text
, PRIMARY KEY (price) -- of no column
)"""


def test_comments_belong_to_the_column_before_or_below_them() -> None:
    found = read_comments(DEFINITION)

    assert found.table == "articles"
    assert found.columns == {"price": "list price, in euros net", "weight": "in kilograms", "note": "free text"}


@pytest.mark.parametrize(
    "definition",
    [
        "",
        "CREATE TABLE t (a, b)",
        "CREATE TABLE t (a TEXT, b TEXT) -- behind",
        "CREATE VIEW v AS SELECT 1 -- x",
        "(((",
        "/*",
    ],
)
def test_a_definition_without_comments_has_none(definition: str) -> None:
    found = read_comments(definition)

    assert (found.table, found.columns) == ("", {})


def test_columns_on_one_line_have_the_comments_that_follow_them() -> None:
    found = read_comments("CREATE TABLE t (a INTEGER /* first */, b INTEGER /* second */)")

    assert found.columns == {"a": "first", "b": "second"}

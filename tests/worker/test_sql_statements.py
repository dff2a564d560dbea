"""How a query is taken apart: its statements, and the places in which a value is bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.worker.databases.statements import Dialect, statements

EVERYWHERE = list(Dialect)
DOLLARED = [Dialect.POSTGRES, Dialect.DUCKDB]


def names(query: str, dialect: Dialect) -> list[str]:
    return [placeholder.name for statement in statements(query, dialect) for placeholder in statement.placeholders]


def texts(query: str, dialect: Dialect) -> list[str]:
    return [query[statement.start : statement.end].strip() for statement in statements(query, dialect)]


@pytest.mark.parametrize("dialect", EVERYWHERE)
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("select :a, :b_2, :a", ["a", "b_2", "a"]),
        ("select (:a)=:b||:c", ["a", "b", "c"]),
        # A cast, also of a value; an assignment.
        ("select x::int, :a::text, f(y := 1)", ["a"]),
        # Strings, with quotes in them.
        ("select ':a', ''':a', 'it''s :a', :b", ["b"]),
        ('select ":a", "x"":a", :b', ["b"]),
        # Comments.
        ("select 1 -- :a\n, :b", ["b"]),
        ("select /* :a ' */ :b", ["b"]),
        ("select :b -- to the end :a", ["b"]),
        # What is never closed goes on to the end.
        ("select :b, ':a", ["b"]),
        ('select :b, ":a', ["b"]),
        ("select :b /* :a", ["b"]),
        # A key or a bound of a slice is no value.
        ("select {'a':b, c:d}", []),
        ("select (x)[1:2], :a", ["a"]),
        # No name begins with a digit.
        ("select :1", []),
        ("select :größe", ["größe"]),
    ],
)
def test_a_value_is_bound_where_a_name_follows_a_colon_outside_of_quotes(
    query: str, found: list[str], dialect: Dialect
) -> None:
    assert names(query, dialect) == found


@pytest.mark.parametrize(
    ("query", "dialect", "found"),
    [
        ("select $$ :a; ' $$, :b", Dialect.POSTGRES, ["b"]),
        ("select $x$ :a $y$ $$ :a $x$, :b", Dialect.DUCKDB, ["b"]),
        # There it is a parameter of SQLite's own, and no quote.
        ("select $x$, :b, $x$", Dialect.SQLITE, ["b"]),
        (r"select e'\':a', E'\\', :b", Dialect.POSTGRES, ["b"]),
        # A backslash is a character like any other.
        (r"select '\', :b", Dialect.POSTGRES, ["b"]),
        (r"select '\', :b", Dialect.SQLITE, ["b"]),
        ("select /* /* :a */ :a */ :b", Dialect.POSTGRES, ["b"]),
        ("select /* /* :a */ :b", Dialect.SQLITE, ["b"]),
        ("select [:a], `:a`, :b", Dialect.SQLITE, ["b"]),
        # A list, an index.
        ("select [:a, x[:b]]", Dialect.DUCKDB, ["a", "b"]),
    ],
)
def test_each_database_has_quotes_of_its_own(query: str, dialect: Dialect, found: list[str]) -> None:
    assert names(query, dialect) == found


@pytest.mark.parametrize("dialect", EVERYWHERE)
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("select 1", ["select 1"]),
        ("select 1;", ["select 1"]),
        (" ; ;select 1;; -- ;\n select 2 ;/* x */", ["select 1", "-- ;\n select 2"]),
        ("select ';'; select \";\"", ["select ';'", 'select ";"']),
        ("-- nothing", []),
        # Nonsense, which is for the database to say.
        ("select 1; 5; 'x'; +; select 2", ["select 1", "5", "'x'", "+", "select 2"]),
        ("", []),
    ],
)
def test_a_query_is_split_at_semicolons_that_are_not_quoted(query: str, found: list[str], dialect: Dialect) -> None:
    assert texts(query, dialect) == found


@pytest.mark.parametrize("dialect", EVERYWHERE)
@pytest.mark.parametrize(
    "body",
    [
        "create trigger t after insert on a begin update a set b = case when c then 1 end; select 1; end",
        "create temp trigger t after insert on a begin select 1; end",
        "create or replace function f() returns int begin atomic select 1; select 2; end",
        "create rule r as on insert to a do (select 1; select 2)",
    ],
)
def test_the_statements_within_a_statement_are_part_of_it(body: str, dialect: Dialect) -> None:
    assert texts(f"{body}; select 3", dialect) == [body, "select 3"]


@pytest.mark.parametrize("dialect", DOLLARED)
def test_a_function_in_dollar_quotes_is_one_statement(dialect: Dialect) -> None:
    query = "create function f() as $$ begin select 1; end $$; select 2"

    assert texts(query, dialect) == ["create function f() as $$ begin select 1; end $$", "select 2"]


def test_a_mark_in_the_text_that_is_sent_leads_back_to_the_line_that_was_written() -> None:
    (_, statement) = statements("select 1;\nselect :long_name,\n  nope", Dialect.POSTGRES)

    rendered = statement.render(["$1"])

    assert rendered.text == "\nselect $1,\n  nope"
    assert rendered.excerpt(char=rendered.text.index("nope")) == "\n  3 |   nope\n    |   ^"
    assert rendered.excerpt(char=rendered.text.index("$1")) == "\n  2 | select :long_name,\n    |        ^"


def test_of_a_long_line_what_is_around_the_caret_is_shown() -> None:
    (statement,) = statements("select " + "x, " * 100 + "nope" + ", y" * 100, Dialect.SQLITE)

    shown = statement.render([]).excerpt(char=307).split("\n")

    assert shown[1] == "  1 | " + "x, " * 20 + "nope" + ", y" * 18 + ", "[:1]
    assert shown[2].index("^") == shown[1].index("nope")


@given(st.text("ab:;'\"$/*-\\[]`eE \n?()", max_size=60), st.sampled_from(Dialect))
def test_any_text_is_taken_apart_and_nothing_is_taken_twice(query: str, dialect: Dialect) -> None:
    found = statements(query, dialect)

    ends = [0] + [statement.end for statement in found]
    assert all(before <= statement.start <= statement.end for before, statement in zip(ends, found, strict=False))
    for statement in found:
        assert statement.render(
            [f":{'?' if placeholder.is_question_mark else placeholder.name}" for placeholder in statement.placeholders]
        ).text
        assert all(
            statement.start <= placeholder.start < placeholder.end <= statement.end
            for placeholder in statement.placeholders
        )

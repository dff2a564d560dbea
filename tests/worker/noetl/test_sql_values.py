"""Values in the queries of `postgres` and `duckdb`: the database sees exactly the value, or the step is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from mulligan.formats.noetl.runtime.placeholders import mark_values
from mulligan.formats.noetl.runtime.sql_text import bind_query
from mulligan.worker.databases.statements import Dialect, statements

from .asking import reported, result, seen

VALUES = [
    "plain",
    "O'Brien",
    "'",
    "''",
    "'; drop table canary; --",
    "'); drop table canary; --",
    "x'; copy (select 1) to 'pwned.csv'; select 'y",
    "\\'; drop table canary; --",
    "\\",
    "\\\\",
    "a\\nb",
    '"; drop table canary; --',
    "$$; drop table canary; $$",
    "$a$; drop table canary; --",
    "1; drop table canary",
    "--",
    "/*",
    "*/ drop table canary; /*",
    "\n; drop table canary;\n",
    ":name ? ?1 $1 %s {{ x }}",
    "ünïcödé \u202e \U0001f600",
    "ソ\\",
    "\U000f00000\U000f0001",
    "null",
    " 5",
    "1,2",
    "-1; drop table canary",
]
# Where a value may stand, and what the query gives of a value.
POSITIONS = {
    "select '{{ x }}' as v": "{}",
    "select 'a {{ x }} b' as v": "a {} b",
    "select '{{ x }}{{ x }}' as v": "{}{}",
    "select 'it''s {{ x }}' as v": "it's {}",
    "select 'a\\{{ x }}\\' as v": "a\\{}\\",
    "select E'a\\n{{ x }}\\\\' as v": "a\n{}\\",
    "select e'''{{ x }}' as v": "'{}",
    "select lower(upper('{{ x | lower }}')) is not null as v": True,
    "select w as v from (values ({{ x }})) t(w)": "{}",
    "select w as v from (values (1, '{{ x }}', {{ x }})) t(a, b, w)": "{}",
    "select coalesce({{ x }}, 'b') as v": "{}",
    "select 'a' || {{ x }} as v": "a{}",
    "select cast({{ x }} as text) as v": "{}",
    "select ({{ x }} = '{{ x }}') as v": True,
    "select ({{ x }} in ({% for y in xs %}{{ y }}{{ ', ' if not loop.last }}{% endfor %})) as v": True,
    "select ('{{ x }}' in ({% for y in xs %}'{{ y }}'{{ ', ' if not loop.last }}{% endfor %})) as v": True,
    "select case when {{ x }} = 'nothing' then 'a' else {{ x }} end as v": "{}",
    "select 'a' as v -- {{ x }}\n": "a",
    "select 'b' as v /* {{ x }} */": "b",
    "select '{{ x }}' as \"v\"": "{}",
    "select '{{ {'k': x} | tojson }}' is not null as v": True,
    # as playbooks do it
    "select '{{ x | replace(\"'\", \"''\") }}' as v": "{}",
    "select '{{ x.replace(\"'\", \"''\") }}' as v": "{}",
    "select '{{ [x] | tojson | replace(\"'\", \"''\") }}'::json ->> 0 as v": "{}",
    "select $${{ x }}$$ as v": "{}",
    "select $tag$it's {{ x }}$tag$ as v": "it's {}",
}


def expected(position: str, value: str) -> Any:
    text = POSITIONS[position]
    return text.replace("{}", value) if isinstance(text, str) else text


def found(tool: dict[str, Any], cases: list[tuple[str, str]], **known: Any) -> list[Any]:
    """What each of the queries gives, all in one transaction that begins and ends with the canary."""
    steps = {f"s{number}": seen({"x": value, "xs": ["other", value]}) for number, (_, value) in enumerate(cases)}
    queries = [
        f"{{% with x = s{number}.x, xs = s{number}.xs %}}{position}{{% endwith %}}"
        for number, (position, _) in enumerate(cases)
    ]
    canary = ["create table canary (n integer)", *queries, "select count(*) as n from canary"]
    ran = result(tool={**tool, "commands": canary}, seen=steps, **known)
    assert ran["rows"] == [{"n": 0}]
    return [ran[f"command_{1 + number}"]["rows"][0]["v"] for number in range(len(cases))]


CASES = [(position, value) for position in POSITIONS for value in VALUES]


def test_duckdb_sees_exactly_the_value_wherever_one_may_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    # Every value is in half of the positions, fewer by day: statements cost DuckDB more than others.
    cases = CASES[:: examples(8, 2)]

    values = found({"kind": "duckdb", "database": ":memory:"}, cases)

    assert values == [expected(*case) for case in cases]
    assert list(tmp_path.iterdir()) == []


def test_postgres_sees_exactly_the_value_wherever_one_may_stand(schema_url: str) -> None:
    # By day every value is in a quarter of the positions.
    cases = CASES[:: examples(4, 1)]

    values = found({"kind": "postgres", "auth": "pg"}, cases, auth={"pg": schema_url})

    assert values == [expected(*case) for case in cases]


def test_postgres_sees_exactly_the_value_where_backslashes_escape(schema_url: str) -> None:
    """As they once did in every literal, and still do where the server is told so."""
    cases = [
        (position, value)
        for position, value in CASES
        # what the file writes with a backslash means something else there
        if position.startswith("select '") and "\\{{" not in position and ("\\" in value or "'" in value)
    ]
    setting = ("select set_config('standard_conforming_strings', 'off', true) as v", "")

    first, *values = found({"kind": "postgres", "auth": "pg"}, [setting, *cases], auth={"pg": schema_url})

    assert first == "off"
    assert values == [expected(*case) for case in cases]


def test_postgres_sees_exactly_the_value_in_the_encoding_of_the_connection(schema_url: str) -> None:
    """In this one a backslash is the second half of some characters."""
    url = f"{schema_url}{'&' if '?' in schema_url else '?'}client_encoding=SJIS"
    cases = [("select '{{ x }}' as v", "\u3042\\' || 'pwned"), ("select ('a' || {{ x }}) as v", "\u30bd\\")]

    values = found({"kind": "postgres", "auth": "pg"}, cases, auth={"pg": url})

    assert values == ["\u3042\\' || 'pwned", "a\u30bd\\"]
    lacking = {"kind": "postgres", "auth": "pg", "query": "select '{{ x }}'"}
    assert reported(tool=lacking, auth={"pg": url}, workload={"x": "\U0001f600"})["code"] == "INPUT_INVALID"


@settings(max_examples=examples(60, 200))
@given(value=st.text(st.sampled_from("'\"\\$;-/*:? \nabE1")), position=st.sampled_from(list(POSITIONS)))
def test_no_value_changes_how_a_query_is_read(value: str, position: str) -> None:
    """Whatever is put in, there is one statement, and its words are those of the file."""
    for dialect in (Dialect.POSTGRES, Dialect.DUCKDB):
        words = []
        for x in ("harmless", value):
            query = bind_query(mark_values(position, {"x": x, "xs": ["a", "b"]}, is_query=True), dialect)
            (statement,) = statements(query.text, dialect)
            words.append([word for word in statement.words if word != "E"])

        assert words[0] == words[1]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("{{ x }}", "is a statement, or the beginning of one"),
        ("select 1; {{ x }}", "is a statement, or the beginning of one"),
        ("select * from {{ x }}", "stands for a name"),
        ("select * from a join {{ x }} on true", "stands for a name"),
        ("insert into {{ x }} values (1)", "stands for a name"),
        ("update {{ x }} set a = 1", "stands for a name"),
        ("drop table {{ x }}", "stands for a name"),
        ("select 1 order by {{ x }}", "stands for a name"),
        ("select 1 as {{ x }}", "stands for a name"),
        ("select * from s.{{ x }}", "is a part of a name"),
        ("select * from t_{{ x }}", "is a part of a name"),
        ("select * from a where b = {{ x }}_c", "is a part of a name"),
        ("select 1::{{ x }}", "is a part of a name"),
        ("select * from a where b = {{ x }}(1)", "is a part of a name"),
        ("select * from a where b = {{ x }}{{ x }}", "is a part of a name"),
        ('select "{{ x }}" from a', "is part of a name"),
        ("do $${{ x }}$$", "is part of a program between dollars"),
        ("create function f() returns int as $${{ x }}$$", "is part of a program between dollars"),
        ("select $${{ x }}", "is part of a program between dollars"),
        ('select coalesce({{ "\'" ~ x ~ "\'" }})', "writes quotes itself"),
        ("select '{{ x | replace(\"'\", \"''\") | upper }}'", "doubles quotes, which is done automatically"),
        ("select U&'{{ x }}'", "is part of a literal with Unicode escapes"),
        ("select E'\\{{ x }}'", "follows a '\\'"),
        ("select {{ x }} from a", "stands where the query has no value"),
        ("select a, {{ x }} from a", "stands where the query has no value"),
        ("select (select a, {{ x }} from a)", "stands where the query has no value"),
        ("select 1 where {{ x }}", "stands where the query has no value"),
        ("select 1 where true and {{ x }}", "stands where the query has no value"),
        ("insert into a ({{ x }}) values (1)", "stands where the query has no value"),
        ("select 'a' in ({{ xs | join(',') }})", "is a list joined to one text"),
        ("select 'a' in ('{{ xs | join(\"','\") }}')", "is a list joined to one text"),
    ],
)
def test_a_value_that_would_be_part_of_the_query_is_refused(query: str, said: str) -> None:
    tool = {"kind": "duckdb", "database": ":memory:", "query": query}

    report = reported(tool=tool, workload={"x": "prices", "xs": ["a", "b"]})

    assert (report["code"], report["retryable"]) == ("INPUT_INVALID", False)
    assert said in report["message"]
    assert "--trust-templates" in report["message"]


def rows(query: str, **known: Any) -> Any:
    return result(tool={"kind": "duckdb", "database": ":memory:", "query": query}, **known)["rows"]


def test_a_name_of_the_file_is_part_of_the_query() -> None:
    workload = {"table": "range", "columns": "range as a, 2 as b", "names": ["a", "b"]}
    query = "select {{ columns }} from {{ workload.table }}(1) order by {{ names | join(', ') }}"

    assert rows(query, workload=workload, defaults=workload) == [{"a": 0, "b": 2}]
    assert rows(query, workload=workload, trust_templates=True) == [{"a": 0, "b": 2}]


def test_numbers_are_put_in_as_they_are_and_never_begin_a_comment() -> None:
    workload = {"n": 3, "text": "2", "minus": -1, "many": [1, -2, 3.5], "none": None}

    assert rows("select range from range({{ n }}) limit {{ text }}", workload=workload) == [{"range": 0}, {"range": 1}]
    assert rows("select 5 -{{ minus }} as v, 'x-{{ minus }}' as w", workload=workload) == [{"v": 6, "w": "x--1"}]
    assert rows("select 3.5 in ({{ many | join(', ') }}) as v", workload=workload) == [{"v": True}]
    assert rows("select t_{{ n }} as v from (values (1)) t(t_{{ n }})", workload=workload) == [{"v": 1}]
    assert rows("select coalesce({{ none }}, 7) as v", workload=workload) == [{"v": 7}]


def test_a_text_with_a_comma_is_one_value_unless_the_file_joins_a_list() -> None:
    assert rows("select greatest({{ x }}) as v", workload={"x": "1,2"}) == [{"v": "1,2"}]
    assert rows("select greatest({{ x | join(',') }}) as v", workload={"x": [1, 2]}) == [{"v": 2}]


def test_lists_and_mappings_are_bound_as_what_they_are() -> None:
    workload = {"xs": ["a", "it's"], "d": {"k": "it's"}}

    assert rows("select unnest({{ xs }}) as v", workload=workload) == [{"v": "a"}, {"v": "it's"}]
    assert rows("select ({{ d }}::json ->> 'k') as v", workload=workload) == [{"v": "it's"}]
    assert rows("select ('{{ d | tojson }}'::json ->> 'k') as v", workload=workload) == [{"v": "it's"}]


def test_rows_that_a_loop_writes_are_values_whatever_their_number() -> None:
    many = [{"a": f"it's {number}", "n": -number} for number in range(3000)]
    commands = [
        "create table t (a text, n integer, b text)",
        "insert into t values {% for r in rows %}('{{ r.a }}', {{ r.n }}, {{ r.a }})"
        "{{ ', ' if not loop.last }}{% endfor %}",
        "select count(*) as rows, sum(n)::int as n, count(distinct b) as b from t where a = b",
    ]

    found = result(tool={"kind": "duckdb", "database": ":memory:", "commands": commands}, seen={"rows": seen(many)})

    assert found["rows"] == [{"rows": 3000, "n": -sum(range(3000)), "b": 3000}]


def test_quotes_that_the_file_doubles_are_doubled_once() -> None:
    query = "select '{{ x | replace(\"'\", \"''\") }}' as v"

    assert rows(query, workload={"x": "it's"}) == [{"v": "it's"}]
    assert rows(query, workload={"x": "it's"}, defaults={"x": "it's"}) == [{"v": "it's"}]
    assert rows(query, workload={"x": "it's"}, trust_templates=True) == [{"v": "it's"}]
    assert rows("select '{{ x or \"it's\" }}' as v", workload={"x": "'"}) == [{"v": "'"}]


def test_params_are_bound_beside_the_values_of_templates() -> None:
    tool = {"kind": "duckdb", "database": ":memory:"}
    named = {**tool, "query": "select :a || {{ x }} || :b as v", "params": {"a": "<", "b": ">"}}
    listed = {**tool, "query": "select ? || {{ x }} || ? as v", "params": ["<", ">"]}

    assert result(tool=named, workload={"x": ":a"})["rows"] == [{"v": "<:a>"}]
    assert result(tool=listed, workload={"x": "?"})["rows"] == [{"v": "<?>"}]


def test_each_of_several_commands_has_its_own_values() -> None:
    commands = ["select '{{ a }}' as v", "select ({{ b }}) as v", "select ({{ a }}) as v, ({{ b }}) as w"]

    found = result(
        tool={"kind": "duckdb", "database": ":memory:", "commands": commands}, workload={"a": "one", "b": "two"}
    )

    assert [found[f"command_{at}"]["rows"][0] for at in range(3)] == [
        {"v": "one"},
        {"v": "two"},
        {"v": "one", "w": "two"},
    ]


def test_a_path_in_quotes_stays_a_path_where_nothing_can_be_bound(tmp_path: Path) -> None:
    workload = {"path": str(tmp_path / "it's here.csv"), "what": "a'b"}

    rows_of = "select '{{ what }}' as v"
    result(
        tool={"kind": "duckdb", "database": ":memory:", "command": f"copy ({rows_of}) to '{{{{ path }}}}'"},
        workload=workload,
    )

    assert rows("select v from read_csv('{{ path }}', header = true)", workload=workload) == [{"v": "a'b"}]


@pytest.mark.parametrize("value", ["a\0b", "a\ud800"])
def test_a_value_that_no_query_can_hold_is_refused(value: str) -> None:
    report = reported(
        tool={"kind": "duckdb", "database": ":memory:", "query": "select '{{ x }}'"}, workload={"x": value}
    )

    assert report["code"] == "INPUT_INVALID"


def test_a_sink_puts_rows_into_no_table_that_a_value_names(tmp_path: Path) -> None:
    database = str(tmp_path / "d.duckdb")
    result(tool={"kind": "duckdb", "database": database, "command": "create table t (n integer)"})
    sink = {"tool": "duckdb", "database": database, "table": "{{ table }}", "data": {"n": 1}}
    known: dict[str, Any] = {"tool": {"kind": "noop"}, "cases": [{"then": {"sink": sink}}], "workload": {"table": "t"}}

    assert reported(**known)["code"] == "INPUT_INVALID"
    result(**known, defaults={"table": "t"})
    result(**known, trust_templates=True)

    counted = {"kind": "duckdb", "database": database, "query": "select count(*) as n from t"}
    assert result(tool=counted)["rows"] == [{"n": 2}]

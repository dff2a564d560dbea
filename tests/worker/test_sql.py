"""`sql`: a query at each of the databases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.support.nightly import sample
from tests.support.work import Work, kill

from mulligan.core.model.reports import TaskEnded

from .databases import asked, invalid, refused

# By day: none of these tests is about how a child starts.
pytestmark = pytest.mark.usefixtures("forked_children")

KINDS = ["sqlite", "postgres", "duckdb"]


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new database of each kind, with a table of people."""
    if request.param == "postgres":
        found: str = request.getfixturevalue("schema_url")
    else:
        found = f"{request.param}:///{tmp_path}/people.db"
    asked(found, "create table people (name text primary key, age integer check (age > 0))")
    return found


def people(url: str) -> list[Any]:
    return [row["name"] for row in asked(url, "select name from people order by name")]


# -- what it gives


def test_the_output_of_a_query_is_its_rows(url: str) -> None:
    asked(url, "insert into people values ('Ada', 36), ('Max', null)")

    assert asked(url, "select name, age from people order by name") == [
        {"name": "Ada", "age": 36},
        {"name": "Max", "age": None},
    ]


def test_a_query_that_finds_nothing_gives_an_empty_list(url: str) -> None:
    assert asked(url, "select name from people") == []


def test_a_query_that_gives_no_rows_says_how_many_it_has_changed(url: str) -> None:
    query = "insert into people values ('Ada', 36), ('Max', 1); delete from people where name = 'Max'"

    assert asked(url, query) == {"rowcount": 3}


def test_returning_gives_rows(url: str) -> None:
    assert asked(url, "insert into people values ('Ada', 36) returning age") == [{"age": 36}]


def test_of_several_statements_the_last_that_gives_rows_is_the_output(url: str) -> None:
    query = "select 1 as a; insert into people values ('Ada', 36); select name from people; delete from people;"

    assert asked(url, query) == [{"name": "Ada"}]
    assert people(url) == []


def test_rows_that_nobody_wants_are_not_the_output(url: str) -> None:
    assert asked(url, "insert into people values ('Ada', 36); select * from people", rows="none") == {"rowcount": 1}


def test_two_columns_of_one_name_are_refused_also_where_there_is_no_row_and_nothing_is_kept(url: str) -> None:
    query = "insert into people values ('Ada', 36); select 1 as id, 2 as id"

    assert refused(url, query) == invalid("two columns are named 'id': rename one with 'as'")
    assert people(url) == []


# -- values

INJECTIONS = [
    "O'Brien",
    "'; drop table people; --",
    '" or 1=1 --',
    "%s %(name)s {} $1 :name ? \\",
    "$$; drop table people; $$",
    "*/ ; drop table people; /*",
    "",
    "🦆\n\t",
]


@pytest.mark.parametrize("name", sample(INJECTIONS, 4))
def test_a_value_is_only_ever_a_value(url: str, name: str) -> None:
    asked(url, "insert into people values (:name, :age)", {"name": name, "age": 1})

    assert asked(url, "select name from people where name = :name", {"name": name}) == [{"name": name}]
    assert people(url) == [name]


def test_a_value_may_stand_in_several_places_and_statements(url: str) -> None:
    query = "insert into people values (:name, :age); select name from people where name = :name and :age = age"

    assert asked(url, query, {"name": "Ada", "age": 36}) == [{"name": "Ada"}]


def test_values_without_names_go_to_the_question_marks_in_order(url: str) -> None:
    query = "insert into people values (?, ?); select age from people where name = ?"

    assert asked(url, query, ["Ada", 36, "Ada"]) == [{"age": 36}]


def test_a_percent_sign_is_one(url: str) -> None:
    asked(url, "insert into people values ('100%s', 5 % 3)")

    assert asked(url, "select age from people where name like :like", {"like": "100%"}) == [{"age": 2}]


@pytest.mark.parametrize(
    ("params", "query", "message"),
    [
        ({"a": 1}, "select :a, :b, :c", "the query has ':b', but 'params' has no value for it"),
        (None, "select :b", "the query has ':b', but 'params' has no value for it"),
        ({"a": 1}, "select ':a'", "'params' has a value for 'a', but the query has no ':a'"),
        (
            {"mulligan_0": 1},
            "select /* :mulligan_0",
            "a '${…}' is inside quotes or a comment, where no value can be bound",
        ),
        ([1], "select :a", "the query has ':a', but 'params' is a list: write '?' for each value"),
        ([1], "select ?1", "the query has '?1', but 'params' is a list: write '?' for each value"),
        ([1, 2], "select ?", "the query has 1 '?', but 'params' has 2 values"),
        ("x", "select 1", "'params' must be a mapping or a list, and is of type 'str'"),
        (None, "", "the query is empty"),
        (None, " ; -- nothing", "the query is empty"),
        (None, None, "'query' must be text, and is of type 'NoneType'"),
        (None, "select 1; COMMIT", "a step is one transaction: remove 'commit' from its query"),
        (None, "rollback; select 1", "a step is one transaction: remove 'rollback' from its query"),
        (None, "begin; select 1", "a step is one transaction: remove 'begin' from its query"),
    ],
)
def test_values_and_places_that_do_not_fit_are_refused(url: str, params: Any, query: Any, message: str) -> None:
    assert refused(url, query, params) == invalid(message)


@pytest.mark.parametrize("kind", ["SQLite", "DuckDB"])
def test_a_question_mark_without_a_list_is_refused_where_it_is_no_operator(kind: str) -> None:
    assert refused(f"{kind.lower()}://", "select ?", {}) == invalid(
        "the query has '?', which needs 'params' to be a list: write ':name'"
    )


@pytest.mark.parametrize(("kind", "query"), [("SQLite", "select $a"), ("SQLite", "select @a"), ("DuckDB", "select $a")])
def test_a_parameter_as_only_the_database_writes_it_is_refused(kind: str, query: str) -> None:
    assert refused(f"{kind.lower()}://", query) == invalid(
        f"the query uses {kind}'s own syntax for parameters: write ':name' for each value"
    )


def test_a_parameter_as_only_postgresql_writes_it_is_refused(schema_url: str) -> None:
    assert refused(schema_url, "select $1") == invalid(
        "the query uses PostgreSQL's own syntax for parameters: write ':name' for each value"
    )


def test_in_sqlite_lists_and_mappings_are_json_text() -> None:
    query = "select value from json_each(:ids) where value > :least ->> '$.a'"

    assert asked("sqlite://", query, {"ids": [1, 2, 3], "least": {"a": 1}}) == [{"value": 2}, {"value": 3}]


def test_in_duckdb_a_list_is_a_list_and_a_mapping_is_json_text() -> None:
    query = "select a from range(5) r(a) where a in (select unnest(:ids)) and a > (:least ->> '$.a')::int"

    assert asked("duckdb://", query, {"ids": [1, 2, 3], "least": {"a": 1}}) == [{"a": 2}, {"a": 3}]


def test_in_postgresql_a_list_is_an_array_and_what_has_mappings_in_it_is_json(schema_url: str) -> None:
    query = """
        select a from generate_series(1, 5) a
        where a = any(:ids) and a > (:least ->> 'a')::int and :tags ? 'x' and not a = any(:none)
    """
    params = {"ids": [1, 2, 3], "least": {"a": 1}, "tags": ["x", {}], "none": []}

    assert asked(schema_url, query, params) == [{"a": 2}, {"a": 3}]


@pytest.mark.parametrize(
    ("value", "expected"), [(None, None), (True, 1), (1.5, 1.5), ("ü", "ü"), (-(1 << 63), -(1 << 63))]
)
def test_plain_values_come_back_as_they_went_in(value: Any, expected: Any) -> None:
    assert asked("sqlite://", "select :v as v", {"v": value}) == [{"v": expected}]
    assert asked("duckdb://", "select :v as v", {"v": value}) == [{"v": value}]


def test_a_number_that_sqlite_does_not_have_is_refused() -> None:
    assert refused("sqlite://", "select :v", {"v": 1 << 63}) == invalid(
        "the value of ':v' has more than 64 bits, which SQLite cannot store"
    )


def test_a_text_that_postgresql_does_not_have_is_refused(schema_url: str) -> None:
    assert refused(schema_url, "select :v::text", {"v": "a\0b"}) == invalid(
        "PostgreSQL text fields cannot contain NUL (0x00) bytes"
    )


# -- types


def test_types_of_postgresql(schema_url: str) -> None:
    query = """
        select sum(2::bigint) as total, 0.1::numeric(10, 4) as price, 1e30::numeric as large, 'nan'::float8 as nan,
          timestamp '2030-01-31 09:00' as at, timestamptz '2030-01-31 09:00:00.5+00' as zoned, date '2030-01-31' as day,
          time '24:00' as midnight, timestamp 'infinity' as never, date '0044-03-15 BC' as ides,
          interval '1 year 2 days' as span, '{"a": [1]}'::jsonb as doc, array[[1, 2]] as matrix,
          '\\x00ff'::bytea as bytes, '00000000-0000-0000-0000-000000000001'::uuid as id, int4range(1, 5) as range,
          array[timestamp '2030-01-31'] as times
    """

    (row,) = asked(f"{schema_url}%20-ctimezone%3DAsia/Kolkata", query)

    assert row == {
        "total": 2,
        "price": 0.1,
        "large": "1000000000000000000000000000000",
        "nan": "NaN",
        "at": "2030-01-31T09:00:00",
        "zoned": "2030-01-31T14:30:00.5+05:30",
        "day": "2030-01-31",
        "midnight": "24:00:00",
        "never": "infinity",
        "ides": "0044-03-15 BC",
        "span": "P1Y2D",
        "doc": {"a": [1]},
        "matrix": [[1, 2]],
        "bytes": "AP8=",
        "id": "00000000-0000-0000-0000-000000000001",
        "range": "[1, 5)",
        "times": ["2030-01-31T00:00:00"],
    }


def test_types_of_duckdb() -> None:
    query = """
        select sum(2) as total, 0.1::decimal(10, 4) as price, 170141183460469231731687303715884105727 as large,
          timestamp '2030-01-31 09:00' as at, interval '2 days' as span, {'a': [1], b: :x} as struct,
          '{"a": null}'::json as doc, map([1], ['x']) as map, 'a'::blob as bytes, [1, 2, 3][1:2] as slice
    """

    (row,) = asked("duckdb://", query, {"x": "y"})

    assert row == {
        "total": 2,
        "price": 0.1,
        "large": "170141183460469231731687303715884105727",
        "at": "2030-01-31T09:00:00",
        "span": "P2DT0S",
        "struct": {"a": [1], "b": "y"},
        "doc": {"a": None},
        "map": {"1": "x"},
        "bytes": "YQ==",
        "slice": [1, 2],
    }


def test_a_time_with_a_zone_of_duckdb_is_the_same_moment() -> None:
    query = "set timezone = 'Asia/Kolkata'; select timestamptz '2030-01-31 09:00:00+00' as at"

    assert asked("duckdb://", query) == [{"at": "2030-01-31T14:30:00+05:30"}]


def test_types_of_sqlite() -> None:
    assert asked("sqlite://", "select 1e999 as inf, x'00ff' as bytes, '2030' as text, null as none") == [
        {"inf": "Infinity", "bytes": "AP8=", "text": "2030", "none": None}
    ]


def test_a_text_that_is_not_utf8_is_refused() -> None:
    report = refused("sqlite://", "select cast(x'ff' as text) as t")

    assert report["message"] == "a text in the rows is not UTF-8: read it with 'cast(… as blob)'"
    assert report["retryable"] is False


# -- all or nothing


def test_what_fails_leaves_nothing_behind(url: str) -> None:
    report = refused(url, "insert into people values ('Ada', 36); insert into people values ('Max', -1)")

    assert (report["code"], report["retryable"]) == ("EXCEPTION", False)
    assert people(url) == []


def test_a_child_that_is_killed_leaves_nothing_behind(url: str, work: Work, tmp_path: Path) -> None:
    # Without end: it is over when somebody ends it.
    endless = {
        "sqlite": "with recursive c(x) as (select 1 union all select x + 1 from c) select sum(x) from c",
        "postgresql": "select pg_sleep(3600)",
        "duckdb": f"copy (select 1) to '{tmp_path}/begun'; "
        "select sum(a.range * b.range) from range(1 << 30) a, range(1 << 30) b",
    }
    query = f"insert into people values ('Ada', 36); {endless[url.partition(':')[0]]}"
    work.start(work.lease("sql", {"connection": url, "query": query}))
    work.wait_for(lambda: has_inserted(url, tmp_path))

    kill(child_of(work))

    (report,) = work.reports()
    assert isinstance(report, TaskEnded)
    assert report.outcome.signal == 9
    assert people(url) == []


def has_inserted(url: str, folder: Path) -> bool:
    """Whether somebody has begun to write, and is at what comes next."""
    if url.startswith("postgresql"):
        return sleepers(url) == 1
    return (folder / ("people.db-journal" if url.startswith("sqlite") else "begun")).exists()


def sleepers(url: str) -> int:
    """How many sleep in this test's schema."""
    query = "select pid from pg_stat_activity where query like '%select pg_sleep(3600)' and state = 'active'"
    with psycopg.connect(url) as connection:
        pids = [pid for (pid,) in connection.execute(query).fetchall()]
        locks = "select count(distinct pid) from pg_locks where pid = any(%s) and relation = 'people'::regclass"
        return int((connection.execute(locks, [pids]).fetchone() or (0,))[0])


def child_of(work: Work) -> int:
    """The one warm child that has loaded a database."""
    libraries = (b"/apsw/", b"/_duckdb", b"/psycopg_binary/")
    maps = {pid: Path(f"/proc/{pid}/maps").read_bytes() for pid in work.leftovers()}
    (pid,) = [pid for pid, loaded in maps.items() if any(library in loaded for library in libraries)]
    return pid


def test_a_savepoint_is_within_the_transaction(tmp_path: Path) -> None:
    query = """
        create table t (a); insert into t values (1); savepoint s; insert into t values (2); rollback to s;
        select a from t
    """

    assert asked("sqlite://", query) == [{"a": 1}]


def test_foreign_keys_are_enforced_in_sqlite() -> None:
    query = "create table a (id primary key); create table b (a references a (id)); insert into b values (1)"

    assert refused("sqlite://", query) == {
        "code": "EXCEPTION",
        "message": "FOREIGN KEY constraint failed",
        "retryable": False,
        "details": {"sqlite": "SQLITE_CONSTRAINT_FOREIGNKEY"},
    }


# -- reading only

READ_ONLY = "the step has 'read_only: true', but this query writes"


def test_a_step_that_only_reads_reads(url: str) -> None:
    asked(url, "insert into people values ('Ada', 36)")

    assert asked(url, "select age from people", read_only=True) == [{"age": 36}]


@pytest.mark.parametrize(
    "query", ["insert into people values ('Ada', 36)", "drop table people", "create table t (a int)"]
)
def test_a_step_that_only_reads_cannot_write(url: str, query: str) -> None:
    report = refused(url, query, read_only=True)

    assert (report["code"], report["retryable"]) == ("EXCEPTION", False)
    assert report["message"].startswith(READ_ONLY)
    assert people(url) == []


def test_a_query_cannot_make_itself_a_writing_one(schema_url: str) -> None:
    report = refused(schema_url, "set transaction read write; create table t (a int)", read_only=True)

    assert report["message"] == "transaction read-write mode must be set before any query"


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_file_that_is_not_there_is_made_by_who_may_write(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "new.db"

    assert refused(f"{kind}:///{file}", "select 1 as a", read_only=True) == invalid(
        f"there is no file '{file}', and a step with 'read_only: true' does not create it"
    )
    assert not file.exists()
    assert asked(f"{kind}:///{file}", "select 1 as a") == [{"a": 1}]
    assert file.exists()


def test_duckdb_in_memory_reads_files_and_writes_none_when_it_only_reads(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,x\n")

    assert asked("duckdb://", f"select * from '{tmp_path}/a.csv'", read_only=True) == [{"a": 1, "b": "x"}]
    assert refused("duckdb://", f"copy (select 1) to '{tmp_path}/b.csv'", read_only=True)["message"] == READ_ONLY
    assert not (tmp_path / "b.csv").exists()


def test_a_column_that_is_called_like_a_statement_is_read(tmp_path: Path) -> None:
    query = "with a as (select 1 as copy, 2 as delete) select copy, delete from a"

    assert asked("duckdb://", query, read_only=True) == [{"copy": 1, "delete": 2}]


def test_a_statement_of_which_duckdb_makes_several_is_one() -> None:
    query = "pivot (select 'a' as name, 1 as amount union all select 'b', 2) on name using sum(amount)"

    assert asked("duckdb://", query, read_only=True) == [{"a": 1, "b": 2}]


# -- as a step


def test_a_relative_file_is_in_the_folder_of_the_step(work: Work) -> None:
    query = "create table t (a); insert into t values (:a); select a from t"

    ended = work.run(work.lease("sql", {"connection": "sqlite:///t.db", "query": query, "params": {"a": "ü"}}))

    assert ended.output == [{"a": "ü"}]
    assert (work.folder / "t.db").exists()


def test_a_step_that_fails_says_so_in_the_words_of_the_database(work: Work) -> None:
    lease = work.lease("sql", {"connection": "sqlite://", "query": "select 1;\nselec 2"})

    ended = work.run(lease)

    assert work.log(lease, "err").read_text() == 'near "selec": syntax error\n  2 | selec 2\n    | ^\n'
    assert ended.outcome.reported == (
        {
            "code": "EXCEPTION",
            "message": 'near "selec": syntax error\n  2 | selec 2\n    | ^',
            "retryable": False,
            "details": {"sqlite": "SQLITE_ERROR"},
        },
    )
    assert ended.outcome.trace == 'mulligan.StepError: near "selec": syntax error\n  2 | selec 2\n    | ^\n'


def test_what_the_environment_of_the_step_says_to_the_server_is_heard(work: Work, schema_url: str) -> None:
    asked(schema_url, "create table t (a int)")
    plain, _, options = schema_url.partition("options=")
    lease = work.lease(
        "sql",
        {"connection": plain.rstrip("?&"), "query": "select * from t"},
        env={"PGOPTIONS": options.replace("%3D", "=")},
    )

    assert work.run(lease).output == []


@pytest.mark.parametrize("kind", ["postgres", "duckdb"])
def test_a_library_that_is_not_installed_is_named(kind: str) -> None:
    module = {"postgres": "psycopg"}.get(kind, kind)
    program = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from mulligan.worker.actions.sql import run\n"
        f"try: run('{kind}://', 'select 1')\n"
        "except Exception as error: print(error.report()['message'])\n"
    )

    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=_path())

    title = {"postgres": "PostgreSQL", "duckdb": "DuckDB"}[kind]
    assert said.stdout == f"{title} needs a library that this worker does not have: pip install 'mulligan[{kind}]'\n"


def _path() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(sys.path)}


def test_a_step_for_sqlite_loads_no_other_database() -> None:
    program = (
        "import sys\n"
        "from mulligan.worker.actions.sql import run\n"
        "run('sqlite://', 'select 1')\n"
        "print(sorted({'psycopg', 'duckdb', 'msgspec', 'yaml', 'httpx2'} & set(sys.modules)))\n"
    )

    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=_path())

    assert said.stdout == "[]\n"


def test_a_query_that_is_killed_ends_at_the_server_too(schema_url: str, work: Work) -> None:
    asked(schema_url, "create table people (name text)")
    query = "insert into people values ('Ada'); select pg_sleep(3600)"
    work.start(work.lease("sql", {"connection": schema_url, "query": query}))
    work.wait_for(lambda: sleepers(schema_url) == 1)

    kill(child_of(work))

    work.reports()
    work.wait_for(lambda: sleepers(schema_url) == 0)

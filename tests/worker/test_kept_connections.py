"""Connections that a warm child keeps: what the next task finds, and what it must not find."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.support.work import Work

from mulligan.core.model.reports import TaskEnded
from mulligan.core.model.workflow import Secret
from mulligan.worker.databases import kept_connections
from mulligan.worker.databases.kept_connections import CONNECTIONS_MAX, KEPT, KeptConnections
from mulligan.worker.databases.postgres import open_session
from proof.chaos.proxy import Proxy

from .databases import asked, refused, wait_for

# By day: none of these tests is about how a child starts.
pytestmark = pytest.mark.usefixtures("forked_children")

ME = "select pg_backend_pid() as me"


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    KEPT.close_all()
    yield
    KEPT.close_all()


def backend(url: str) -> int:
    (row,) = asked(url, ME)
    return int(row["me"])


def end_session(url: str, pid: int) -> None:
    """The server closes the session, and it is gone when this returns."""
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s, 5000)", [pid])


def test_the_next_task_uses_the_connection_of_the_last(schema_url: str) -> None:
    first = backend(schema_url)

    assert asked(schema_url, "select 1 as one", read_only=True) == [{"one": 1}]
    assert backend(schema_url) == first


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("create temp table t as select 1 as n", "select to_regclass('pg_temp.t')::text as it", None),
        ("prepare p as select 1", "select count(*) as it from pg_prepared_statements", 0),
        (
            "select pg_advisory_lock(7)",
            "select count(*) as it from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()",
            0,
        ),
        ("declare c cursor with hold for select 1", "select count(*) as it from pg_cursors where name = 'c'", 0),
        ("listen news", "select count(*) as it from pg_listening_channels()", 0),
        ("create temp sequence s; select nextval('s')", "select to_regclass('pg_temp.s')::text as it", None),
    ],
)
def test_what_a_task_leaves_in_its_session_is_gone_for_the_next(
    schema_url: str, before: str, after: str, expected: Any
) -> None:
    me = backend(schema_url)
    asked(schema_url, before)

    assert asked(schema_url, after) == [{"it": expected}]
    assert backend(schema_url) == me


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("set search_path to pg_catalog", "select current_setting('search_path') like '%pg_catalog%' as it"),
        ("set session statement_timeout = 77", "select current_setting('statement_timeout') = '77ms' as it"),
        ("set my.tenant = 'a'", "select current_setting('my.tenant', true) is not null as it"),
        ("select set_config('my.tenant', 'a', false)", "select current_setting('my.tenant', true) is not null as it"),
        (
            "do $$ begin perform set_config('my.x', 'a', false); end $$",
            "select current_setting('my.x', true) = '' as it",
        ),
        ("select \"set_config\"('my.z', 'a', false)", "select current_setting('my.z', true) is not null as it"),
        ("set local my.y = 'a'", "select current_setting('my.y', true) is not null as it"),
    ],
)
def test_a_setting_of_a_task_is_unknown_to_the_next(schema_url: str, before: str, after: str) -> None:
    asked(schema_url, before)

    ((found),) = asked(schema_url, after)

    assert not found["it"]


def test_a_setting_that_a_function_makes_is_reset(schema_url: str) -> None:
    body = "begin perform set_config('statement_timeout', '77', false); return 1; end"
    asked(schema_url, f"create function later() returns int language plpgsql as $$ {body} $$")
    me = backend(schema_url)
    asked(schema_url, "select later()")

    assert asked(schema_url, "select current_setting('statement_timeout') as it") == [{"it": "0"}]
    assert backend(schema_url) == me


def test_a_read_only_task_leaves_no_read_only_session(schema_url: str) -> None:
    asked(schema_url, "select 1", read_only=True)

    assert asked(schema_url, "create table t (n int); insert into t values (1)") == {"rowcount": 1}


def test_a_connection_is_dropped_after_an_error(schema_url: str) -> None:
    first = backend(schema_url)

    assert refused(schema_url, "select * from nowhere")["code"] == "EXCEPTION"
    assert KEPT.is_empty
    assert backend(schema_url) != first


def test_a_connection_that_the_server_closed_is_replaced(schema_url: str) -> None:
    asked(schema_url, "create table t (n int)")
    first = backend(schema_url)
    end_session(schema_url, first)

    assert asked(schema_url, "insert into t values (1)") == {"rowcount": 1}
    assert asked(schema_url, "select count(*) as it from t") == [{"it": 1}]
    assert backend(schema_url) != first


def test_a_statement_on_a_kept_connection_is_not_sent_twice(schema_url: str) -> None:
    asked(schema_url, "create sequence s")
    backend(schema_url)

    failure = refused(schema_url, "select nextval('s'); select pg_terminate_backend(pg_backend_pid())")

    assert failure["code"] == "CONNECTION"
    assert asked(schema_url, "select nextval('s') as it") == [{"it": 2}]


def test_a_server_that_is_silent_after_the_commit_delays_no_task(schema_url: str) -> None:
    """A task that has been committed would be tried again if it took longer than its timeout."""
    with Proxy(schema_url) as proxy:
        with KEPT.keep_connections(), open_session(proxy.url, False) as session:
            session.commit()
            proxy.swallow("client")
        assert not KEPT.is_empty
        proxy.heal()

        assert asked(proxy.url, "select 1 as one") == [{"one": 1}]


def test_other_credentials_and_another_environment_have_another_connection(
    schema_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = backend(schema_url)

    assert backend(f"{schema_url}&application_name=other") != first
    monkeypatch.setenv("PGAPPNAME", "other")
    assert backend(schema_url) != first


def test_without_permission_no_connection_is_kept(schema_url: str) -> None:
    first = backend(schema_url)

    # As a step does that also runs code of the workflow, which could read what is kept.
    with open_session(schema_url, False) as session:
        assert session._connection.info.backend_pid != first
        session.commit()
    assert backend(schema_url) == first


def test_a_session_that_is_in_use_is_not_given_to_another(schema_url: str) -> None:
    backend(schema_url)

    with KEPT.keep_connections(), open_session(schema_url, False) as one, open_session(schema_url, False) as two:
        assert one._connection is not two._connection


def test_the_oldest_connection_is_closed_when_there_are_too_many() -> None:
    closed: list[int] = []

    class Fake:
        def __init__(self, number: int) -> None:
            self.number = number

        def close(self) -> None:
            closed.append(self.number)

    kept = KeptConnections()
    for number in range(CONNECTIONS_MAX + 1):
        kept.put_back(b"%d" % number, Fake(number), 0.0)

    assert closed == [0]
    kept.close_all()
    assert sorted(closed) == list(range(CONNECTIONS_MAX + 1))


def test_a_connection_that_is_too_old_is_closed() -> None:
    closed: list[str] = []

    class Fake:
        def close(self) -> None:
            closed.append("closed")

    kept = KeptConnections()
    kept.put_back(b"k", Fake(), -kept_connections.AGE_SECONDS_MAX)

    with kept.keep_connections():
        assert kept.take(b"k") is None
    assert closed == ["closed"]


def same_twice(ask: Callable[[], Any]) -> Any:
    """What is answered twice in a row. A busy machine may take longer than a connection is kept: then once more."""
    for _ in range(20):
        if (first := ask()) == ask():
            return first
    raise AssertionError("no connection was used twice")


def test_a_child_keeps_its_connection_for_a_moment_and_closes_it_when_it_is_idle(work: Work, schema_url: str) -> None:
    params = {"connection": schema_url, "query": ME}

    def ask() -> Any:
        report = work.run(work.lease("sql", params))
        assert isinstance(report, TaskEnded)
        return report.output[0]["me"]

    pid = same_twice(ask)

    assert pid != os.getpid()
    with psycopg.connect(schema_url, autocommit=True) as watching:
        query = "select count(*) from pg_stat_activity where pid = %s"
        wait_for(lambda: (work.executor.collect(0.05), watching.execute(query, [pid]).fetchone() == (0,))[1])


# -- steps of a playbook


def noetl(work: Work, tool: dict[str, Any], url: str, name: str = "run_without_code") -> Any:
    """A step of a playbook that reads a secret: the address of its database."""
    params = {
        "call": f"mulligan.formats.noetl.runtime:{name}",
        "package": "mulligan",
        "args": {"tool": tool, "auth": {"pg": {"${}": "pg"}}},
    }
    late = {"pg": [{"secret": "secrets.pg"}]}
    report = work.run(work.lease("noetl", params, secrets={"pg": Secret(env="KEPT_PG")}, late=late))
    return report.output["result"] if report.output else report.outcome.reported[0]["message"]


@pytest.fixture
def known_url(schema_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("KEPT_PG", schema_url)
    return schema_url


def test_steps_of_a_playbook_without_code_share_a_child_and_its_connection(known_url: str, tmp_path: Path) -> None:
    query = {"kind": "postgres", "auth": "pg", "query": ME}

    with closing(Work(tmp_path)) as work:
        same_twice(lambda: noetl(work, query, known_url)["rows"][0]["me"])
        code = "import os, sys\nresult = [os.getpid(), 'psycopg' in sys.modules]"
        found = [noetl(work, {"kind": "python", "code": code}, known_url, "run") for _ in range(2)]

    # Code that may know the secret has a process of its own, which runs code that knows the same.
    assert found[0][0] == found[1][0]
    assert [loaded for _, loaded in found] == [False, False]


def test_code_is_refused_in_a_process_that_keeps_connections(known_url: str, tmp_path: Path) -> None:
    work = Work(tmp_path)

    for kind in ("python", "shell"):
        message = noetl(work, {"kind": kind, "code": "result = 1", "cmds": ["true"]}, known_url)
        assert message == f"the tool '{kind}' cannot run in a process that keeps connections"
    work.close()

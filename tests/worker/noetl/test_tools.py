"""The other tools, at real servers, databases and shells: what they give, and what their failures are called."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from tests.support.web import as_json, reset, response, serving
from tests.support.work import Work

from mulligan.core.model.reports import TaskEnded
from mulligan.formats.noetl.runtime.credentials import database_address

from .asking import envelope, reported, result, seen

PASSWORD = "hunter2 &'"


@pytest.fixture(autouse=True)
def directly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the terminal of the tests is set to, a loopback server is asked directly."""
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
def shared_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MULLIGAN_OUTPUT_DIR", str(tmp_path))
    return tmp_path


# -- http


def test_a_request_has_all_that_its_keys_say_and_its_answer_is_data() -> None:
    with serving(as_json('{"users": [1]}', 201)) as web:
        tool = {
            "kind": "http",
            "method": "post",
            "url": web.url + "/users/{{ user }}",
            "headers": {"X-Trace": "{{ execution_id }}-t"},
            "params": {"page": "{{ page }}"},
            "body": {"name": "{{ user }}", "tags": ["a"]},
        }

        found = result(tool=tool, input={"user": "ann", "page": 2})

        assert (found["status"], found["status_code"], found["data"]) == (201, 201, {"users": [1]})
        assert found["headers"]["content-type"] == "application/json"
        assert web.line() == "POST /users/ann?page=2 HTTP/1.1"
        assert json.loads(web.body()) == {"name": "ann", "tags": ["a"]}
        assert web.headers()["x-trace"] == "-t"


@pytest.mark.parametrize(
    ("keys", "line", "body"),
    [
        ({"data": {"query": {"a": 1}, "body": {"b": 2}}, "method": "PUT"}, "PUT /?a=1 HTTP/1.1", b'{"b":2}'),
        ({"data": {"a": 1}}, "GET /?a=1 HTTP/1.1", b""),
        ({"data": {"a": 1}, "method": "POST"}, "POST / HTTP/1.1", b'{"a":1}'),
        ({"payload": [1], "method": "POST"}, "POST / HTTP/1.1", b"[1]"),
        ({"body": "plain", "method": "POST"}, "POST / HTTP/1.1", b"plain"),
        (
            {"body": {"a": "b c"}, "method": "POST", "headers": {"Content-Type": "application/x-www-form-urlencoded"}},
            "POST / HTTP/1.1",
            b"a=b+c",
        ),
    ],
)
def test_a_body_is_sent_as_it_is_meant(keys: dict[str, Any], line: str, body: bytes) -> None:
    with serving(as_json("{}")) as web:
        envelope(tool={"kind": "http", "endpoint": web.url, **keys})

        assert (web.line(), web.body()) == (line, body)


BASIC = "Basic " + base64.b64encode(b"ann:pw").decode()


@pytest.mark.parametrize(
    ("auth", "credential", "header", "value"),
    [
        ("api", "t0ken", "authorization", "Bearer t0ken"),
        ("api", '{"token": "t0ken"}', "authorization", "Bearer t0ken"),
        ("api", '{"type": "bearer", "data": {"access_token": "t0ken"}}', "authorization", "Bearer t0ken"),
        ("api", {"username": "ann", "password": "pw"}, "authorization", BASIC),
        ("api", {"api_key": "k"}, "x-api-key", "k"),
        ({"type": "bearer", "credential": "api"}, "t0ken", "authorization", "Bearer t0ken"),
        ({"credential": "api", "header": "X-Token"}, "t0ken", "x-token", "t0ken"),
        ("{{ workload.which }}", "t0ken", "authorization", "Bearer t0ken"),
    ],
)
def test_a_credential_authorizes_a_request(auth: Any, credential: Any, header: str, value: str) -> None:
    with serving(as_json("{}")) as web:
        envelope(
            tool={"kind": "http", "url": web.url, "auth": auth}, auth={"api": credential}, workload={"which": "api"}
        )

        assert web.headers()[header] == value


@pytest.mark.parametrize(
    ("answer", "code", "view"),
    [
        (response(503), "HTTP_5XX", {"kind": "server_error", "code": "HTTP_503", "retryable": True}),
        (response(429, b"", "Retry-After: 7"), "HTTP_429", {"kind": "rate_limit", "retry_after": 7.0}),
        (response(401), "HTTP_4XX", {"kind": "auth", "http_status": 401, "retryable": False}),
        (response(404), "HTTP_4XX", {"kind": "not_found", "status_code": 404}),
        (response(422), "HTTP_4XX", {"kind": "client_error", "code": "HTTP_422"}),
        (reset, "CONNECTION", {"kind": "connection", "code": "CONNECTION"}),
        (as_json("{"), "OUTPUT_INVALID", {"kind": "parse"}),
    ],
)
def test_a_request_that_fails_is_of_a_kind(answer: Any, code: str, view: dict[str, Any]) -> None:
    with serving(answer) as web:
        report = reported(tool={"kind": "http", "url": web.url})

    assert report["code"] == code
    assert {key: report["details"][key] for key in view} == view


def test_a_silent_server_is_a_timeout() -> None:
    with serving(lambda connection: web.hang(connection)) as web:
        report = reported(tool={"kind": "http", "url": web.url, "timeout": 0.05})

    assert (report["code"], report["details"]["kind"]) == ("TIMEOUT", "timeout")
    # A playbook has no key of our names for it.
    assert report["message"].endswith("the server sent nothing for 0.05s")
    assert "limit" not in report["details"]


def test_a_redirect_may_be_the_answer() -> None:
    with serving(response(302, b"", "Location: /there"), as_json("{}")) as web:
        assert result(tool={"kind": "http", "url": web.url})["status"] == 200
        assert len(web.requests) == 2

    with serving(response(302, b"", "Location: /there")) as web:
        assert reported(tool={"kind": "http", "url": web.url, "follow_redirects": False})["code"] == "VALIDATION_FAILED"
        assert len(web.requests) == 1


# -- databases


@pytest.fixture
def database(schema_url: str) -> Iterator[dict[str, Any]]:
    yield {"pg": schema_url}


def postgres(*commands: str, **keys: Any) -> dict[str, Any]:
    return {"kind": "postgres", "auth": "pg", "commands": list(commands), **keys}


def test_commands_are_one_transaction_and_each_has_its_result(database: dict[str, Any]) -> None:
    made = postgres(
        "create table t (n int, w text)", "insert into t values (1, '{{ who }}'), (2, null);", "select * from t"
    )

    found = result(tool=made, auth=database, workload={"who": "ann:x"})

    assert found == {
        "status": "success",
        "rows": [{"n": 1, "w": "ann:x"}, {"n": 2, "w": None}],
        "row_count": 2,
        "columns": ["n", "w"],
        "command_0": {"status": "success", "row_count": 0},
        "command_1": {"status": "success", "row_count": 2},
        "command_2": {
            "status": "success",
            "rows": [{"n": 1, "w": "ann:x"}, {"n": 2, "w": None}],
            "row_count": 2,
            "columns": ["n", "w"],
        },
    }


def test_of_commands_that_fail_nothing_is_kept(database: dict[str, Any]) -> None:
    reported(tool=postgres("create table t (n int)", "insert into t values ('x')"), auth=database)

    report = reported(tool={"kind": "postgres", "auth": "pg", "query": "select * from t"}, auth=database)

    assert report["details"]["pg_code"] == "42P01"


def test_values_of_a_query_may_be_bound(database: dict[str, Any]) -> None:
    tool = postgres("select :who::text as who, ':x' as x", params={"who": "{{ who }}"})

    assert result(tool=tool, auth=database, workload={"who": "'; drop"})["rows"] == [{"who": "'; drop", "x": ":x"}]


@pytest.mark.parametrize(
    ("command", "kind", "state"),
    [
        ("select * from nowhere", "schema", "42P01"),
        ("selec", "parse", "42601"),
        ("select 1 / 0", "transform", "22012"),
        ("create table t (n int unique); insert into t values (1), (1)", "db_constraint", "23505"),
        ("set statement_timeout = 1; select pg_sleep(60)", "db_timeout", "57014"),
    ],
)
def test_what_a_server_refuses_is_of_a_kind(database: dict[str, Any], command: str, kind: str, state: str) -> None:
    report = reported(tool=postgres(command), auth=database)

    assert (report["details"]["kind"], report["details"]["pg_code"]) == (kind, state)


def test_a_server_that_is_not_there_is_a_lost_connection_and_its_password_is_not_told() -> None:
    auth = {"pg": {"db_host": "127.0.0.1", "db_port": 1, "db_user": "ann", "db_password": PASSWORD, "db_name": "d"}}

    report = reported(tool=postgres("select 1"), auth=auth)

    assert (report["code"], report["details"]["kind"]) == ("CONNECTION", "db_connection")
    assert "hunter2" not in json.dumps(report)


@pytest.mark.parametrize(
    "fields",
    [
        {"db_host": "h", "db_port": "5", "db_user": "u@", "db_password": PASSWORD, "db_name": "d"},
        {"host": "h", "port": 5, "user": "u@", "password": PASSWORD, "database": "d"},
        {"hostname": "h", "port": 5, "username": "u@", "password": PASSWORD, "dbname": "d"},
    ],
)
def test_the_fields_of_a_credential_are_an_address(fields: dict[str, Any]) -> None:
    address = urlsplit(database_address(fields))

    assert (address.hostname, address.port, address.path) == ("h", 5, "/d")
    assert (unquote(address.username or ""), unquote(address.password or "")) == ("u@", PASSWORD)


def test_steps_of_a_run_share_a_duckdb_unless_they_name_their_own(shared_folder: Path) -> None:
    envelope(tool={"kind": "duckdb", "command": "create table t as select 1 as n; insert into t values (2)"})

    assert result(tool={"kind": "duckdb", "query": "select sum(n)::int as n from t"})["rows"] == [{"n": 3}]
    own = {"kind": "duckdb", "database": ":memory:", "query": "select * from t"}
    assert reported(tool=own)["details"]["kind"] == "schema"


def test_steps_that_run_side_by_side_take_turns_at_the_shared_duckdb(work: Work) -> None:
    command = (
        "create table if not exists t (n int); insert into t select * from range(1000); select count(*) as n from t"
    )
    params = {
        "call": "mulligan.formats.noetl.runtime:run",
        "package": "mulligan",
        "args": {"tool": {"kind": "duckdb", "command": command}},
    }

    work.start(*(work.lease("noetl", params) for _ in range(2)))
    ended = [report for report in work.reports(2) if isinstance(report, TaskEnded)]

    assert sorted(report.output["result"]["rows"][0]["n"] for report in ended) == [1000, 2000]


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        (
            {"kind": "postgres", "query": "select 1"},
            "the tool 'postgres' has no 'auth', which names the credential of its database",
        ),
        ({"kind": "postgres", "auth": "nobody", "query": "select 1"}, "there is no credential 'nobody' for this step"),
        (
            {"kind": "postgres", "auth": "odd", "query": "select 1"},
            "the credential of a 'postgres' tool must be an address such as postgresql://…, or its fields",
        ),
        ({"kind": "duckdb"}, "the tool 'duckdb' has no 'command'"),
        ({"kind": "duckdb", "command": "  "}, "the query is empty"),
        (
            {"kind": "duckdb", "command": "select 1; commit"},
            "a step is one transaction: remove 'commit' from its query",
        ),
        (
            {"kind": "duckdb", "auth": {"pg": {}}, "command": "select 1"},
            "the tool 'duckdb' does not use credentials: write 'attach' in its command",
        ),
        ({"kind": "http"}, "the tool 'http' has no 'url'"),
        (
            {"kind": "http", "url": "http://127.0.0.1", "auth": 3},
            "'auth' must be the name of a credential, or a mapping",
        ),
        (
            {"kind": "http", "url": "http://127.0.0.1", "auth": {"x": 1}},
            "the credential has neither a token nor a user",
        ),
        ({"kind": "shell"}, "the tool 'shell' has no 'cmds'"),
        (
            {"kind": "http", "url": "http://127.0.0.1:9", "timeout": "soon"},
            "'timeout' is 'soon', a number of seconds is expected",
        ),
        (
            {"kind": "http", "url": "http://127.0.0.1:9", "verify": "maybe"},
            "'verify' is 'maybe', true or false is expected",
        ),
        (
            {"kind": "shell", "cmds": "true", "timeout_seconds": "soon"},
            "'timeout_seconds' is 'soon', a number of seconds is expected",
        ),
        (
            {"kind": "shell", "cmds": "true", "cwd": "/nowhere"},
            "the command cannot be started in '/nowhere': no such file or directory",
        ),
        ({"kind": "teleport"}, "the tool 'teleport' does not exist"),
    ],
)
def test_a_tool_that_is_not_understood_is_refused(shared_folder: Path, tool: dict[str, Any], message: str) -> None:
    report = reported(tool=tool, auth={"odd": "mysql://x"})

    assert (report["code"], report["message"], report["retryable"]) == ("INPUT_INVALID", message, False)


# -- shell


def test_commands_run_one_after_the_other_and_what_they_print_is_the_result(tmp_path: Path) -> None:
    tool = {
        "kind": "shell",
        "cmds": ["printf '%s' \"$WHO\" > a", "cat a; pwd >&2", "echo {{ n }}"],
        "env": {"WHO": "{{ who }}", "NONE": None},
        "cwd": str(tmp_path),
    }

    found = result(tool=tool, workload={"who": "O'Brien $(id)", "n": 3})

    assert found == {
        "status": "success",
        "exit_code": 0,
        "stdout": "O'Brien $(id)3\n",
        "stderr": f"{tmp_path}\n",
    }


def test_the_first_command_that_fails_is_the_last(tmp_path: Path) -> None:
    tool = {"kind": "shell", "cmds": ["echo out", "echo why >&2; exit 3", "touch never"], "cwd": str(tmp_path)}

    report = reported(tool=tool)

    assert (report["code"], report["message"]) == ("EXIT_NONZERO", "why")
    assert report["details"] | {"stdout": "out\n", "stderr": "why\n", "exit_code": 3} == report["details"]
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_a_signal_ends_or_that_takes_too_long_fails_as_such() -> None:
    killed = reported(tool={"kind": "shell", "cmd": "kill -9 $$"})
    slow = reported(tool={"kind": "shell", "command": "sleep 600 & wait", "timeout_seconds": 0.05})

    assert (killed["code"], killed["message"], killed["details"]["exit_code"]) == (
        "SIGNALED",
        "killed by signal 9",
        137,
    )
    assert (slow["code"], slow["details"]["kind"]) == ("TIMEOUT", "timeout")


def test_a_command_that_prints_without_measure_is_not_kept() -> None:
    report = reported(tool={"kind": "shell", "cmds": "head -c 5000000 /dev/zero"})

    assert report["message"] == "the commands printed 5000000 bytes; the limit is 4194304"


# -- secrets


def test_a_secret_is_handed_on_by_its_name_and_never_as_its_value() -> None:
    got = envelope(tool={"kind": "secrets", "provider": "env", "name": "api_key"}, auth={"api_key": "s3cret"})

    later = {"seen": {"get": got}, "auth": {"api_key": "s3cret"}}
    tool = {"kind": "python", "code": "result = len(key)", "input": {"key": "{{ get.secret_value }}"}}

    assert "s3cret" not in json.dumps(got)
    assert result(tool=tool, **later) == 6
    assert result(render="{{ get.data | length }} {{ keychain.api_key | length }}", **later) == "6 6"


def test_the_fields_of_a_credential_are_read_from_the_keychain() -> None:
    auth = {"crm": '{"type": "oauth2", "data": {"token": "t", "site": "s"}}'}

    assert result(render="{{ keychain.crm.site }}", auth=auth, seen={"a": seen(1)}) == "s"

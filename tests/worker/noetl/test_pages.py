"""Pages that a tool walks by itself, and sinks: what a step gave, put somewhere before it goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.web import Web, as_json, response, serving

from .asking import envelope, python, reported, result


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loopback server is asked directly; the steps of a run share a folder."""
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("MULLIGAN_OUTPUT_DIR", str(tmp_path))


def page(number: int, *items: Any, more: bool = True) -> bytes:
    return as_json(json.dumps({"data": list(items), "paging": {"page": number, "hasMore": more}}))


@pytest.fixture
def web() -> Iterator[Web]:
    with serving(page(1, "a", "{{ b }}"), page(2, "c"), page(3, "d", more=False)) as server:
        yield server


NEXT = {"params": {"page": "{{ (response.paging.page | int) + 1 }}"}}
MORE = "{{ response.paging.hasMore == true }}"


def fetch(web: Web, **pages: Any) -> dict[str, Any]:
    rules = {"when": MORE, "next_call": NEXT, **pages}
    return {"kind": "http", "url": web.url, "params": {"page": 1, "size": 2}, "pages": [rules]}


@pytest.mark.parametrize("path", ["data", "data.data", "response.data"])
def test_pages_are_walked_while_there_are_more_and_their_items_are_the_data(web: Web, path: str) -> None:
    found = result(tool=fetch(web, collect={"strategy": "append", "path": path, "into": "pages"}))

    assert [web.line(at) for at in range(3)] == [f"GET /?page={n}&size=2 HTTP/1.1" for n in (1, 2, 3)]
    assert found["data"] == found["pages"] == ["a", "{{ b }}", "c", "d"]
    assert found["status"] == 200


@pytest.mark.parametrize(("strategy", "data"), [("replace", ["d"]), ("append", ["a", "{{ b }}", "c", "d"])])
def test_pages_are_put_together_as_is_said(web: Web, strategy: str, data: Any) -> None:
    assert result(tool=fetch(web, collect={"strategy": strategy, "path": "data"}))["data"] == data


def test_pages_end_with_the_number_of_calls_that_is_allowed(web: Web, capsys: pytest.CaptureFixture[str]) -> None:
    found = result(tool=fetch(web, max_attempts=2, collect={"path": "data"}))

    assert found["data"] == ["a", "{{ b }}", "c"]
    assert capsys.readouterr().err == "there are more pages than 2; the others are not requested\n"


def test_an_api_without_an_end_is_left_after_a_hundred_pages() -> None:
    with serving(page(1, "x")) as web:
        assert len(result(tool=fetch(web, collect={"path": "data"}))["data"]) == 100


def test_a_page_that_fails_fails_the_step() -> None:
    with serving(page(1, "a"), response(500)) as web:
        report = reported(tool=fetch(web, collect={"path": "data"}))

    assert (report["code"], report["details"]["http_status"]) == ("HTTP_5XX", 500)


@pytest.mark.parametrize(
    ("pages", "message"),
    [
        ({"collect": {"path": "nowhere"}}, "a page has no 'nowhere' to collect"),
        (
            {"collect": {"path": "data", "strategy": "stir"}},
            "'stir' is not a strategy for pages: use one of append, extend, concat, merge, replace",
        ),
        ({"next_call": {"verify": False}}, "the next call cannot change 'verify'"),
    ],
)
def test_pages_that_make_no_sense_are_refused(web: Web, pages: dict[str, Any], message: str) -> None:
    assert reported(tool=fetch(web, **pages))["message"] == message


def test_cases_may_walk_pages_and_the_last_of_them_goes_on(web: Web) -> None:
    collect = {"from": "response.data", "into": "all", "mode": "extend"}
    count = {"ctx": {"seen": "{{ ctx.seen | default(0) + (response.data.data | length) }}"}}
    cases = [
        {"when": "{{ event.name == 'step.enter' }}", "then": {"set": {"ctx": {"seen": 99}}}},
        {
            "when": "{{ event.name == 'call.done' and response is defined and response.data.paging.hasMore }}",
            "then": {"collect": collect, "set": count, "call": NEXT},
        },
        {
            "when": "{{ event.name == 'call.done' and response.data.paging.hasMore == false }}",
            "then": {
                "collect": collect,
                "set": count,
                "result": {"from": "all"},
                "next": [{"step": "check", "args": {"items": "{{ all | length }}", "seen": "{{ ctx.seen }}"}}],
            },
        },
    ]

    found = envelope(name="fetch", tool={"kind": "http", "url": web.url}, cases=cases)

    assert (found["result"], found["next"]) == (["a", "{{ b }}", "c", "d"], ["check"])
    # The case about step.enter has set 99 before the first call.
    assert found["ctx"]["args.check"][1] == {"items": 4, "seen": 103}


def test_what_is_collected_may_be_a_template(web: Web) -> None:
    found = result(tool=fetch(web, collect={"from": "{{ result.data.paging.page * 10 }}", "into": "tens"}))
    assert found["tens"] == [10, 20, 30]

    then = {"collect": {"from": "{{ result }}", "into": "all"}}
    cases = [{"when": "{{ event.name == 'call.done' }}", "then": then}]
    assert envelope(tool=python("result = {'n': 1}"), cases=cases)["ctx"]["ctx.all"][1] == [{"n": 1}]


def test_a_retry_of_a_case_that_changes_something_is_the_next_page(web: Web) -> None:
    cases = [
        {
            "when": "{{ event.name == 'call.done' and response.paging.hasMore }}",
            "then": [{"collect": {"path": "data"}}, {"retry": {"max_attempts": 9, **NEXT}}],
        },
    ]

    assert result(tool={"kind": "http", "url": web.url}, cases=cases)["data"] == ["a", "{{ b }}", "c", "d"]


def test_a_list_of_tools_has_no_pages(web: Web) -> None:
    cases = [{"when": MORE, "then": [{"call": NEXT}]}]

    report = reported(tool=[{"kind": "http", "url": web.url}], cases=cases)

    assert report["message"] == "a list of tools cannot have pages: use a rule of the last tool that jumps back"


def test_each_page_is_put_away_once_also_where_the_pages_are_cut_off(web: Web) -> None:
    duckdb("create table t (n int, name text); select 1 as n")
    row = {"n": "{{ response.paging.page }}", "name": "{{ response.data.data[0] }}"}
    then = [{"sink": {"tool": "duckdb", "table": "t", "data": row}}, {"retry": {"max_attempts": 2, **NEXT}}]

    envelope(tool={"kind": "http", "url": web.url}, cases=[{"when": MORE, "then": then}])

    assert duckdb("select * from t") == [{"n": 1, "name": "a"}, {"n": 2, "name": "c"}]


# -- sinks


def duckdb(query: str) -> Any:
    return result(tool={"kind": "duckdb", "query": query})["rows"]


def sink(said: dict[str, Any], code: str = "result = {'id': 1, 'name': \"O'Brien {{ x }}\"}") -> dict[str, Any]:
    cases = [{"when": "{{ event.name == 'call.done' }}", "then": [{"sink": said}, {"next": [{"step": "b"}]}]}]
    return {"name": "s", "tool": python(code), "cases": cases}


def test_what_a_step_gave_becomes_rows_of_a_table() -> None:
    duckdb("create table t (id int primary key, name text); select 1 as n")

    found = envelope(**sink({"tool": {"kind": "duckdb", "table": "t"}}))
    envelope(**sink({"tool": "duckdb", "table": "main.t", "data": [{"id": 2}, {"id": "{{ 1 + 2 }}", "name": "c"}]}))

    assert found["next"] == ["b"]
    assert duckdb("select * from t order by id") == [
        {"id": 1, "name": "O'Brien {{ x }}"},
        {"id": 2, "name": None},
        {"id": 3, "name": "c"},
    ]


def test_a_row_that_is_there_may_be_changed_and_a_table_replaced() -> None:
    duckdb("create table t (id int primary key, name text); insert into t values (1, 'old'), (7, 'x'); select 1 as n")

    envelope(**sink({"tool": {"kind": "duckdb"}, "table": "t", "mode": "upsert", "key": "id"}))
    assert duckdb("select * from t order by id") == [{"id": 1, "name": "O'Brien {{ x }}"}, {"id": 7, "name": "x"}]

    envelope(**sink({"kind": "duckdb", "table": "t", "mode": "replace", "args": {"id": 9}}))
    assert duckdb("select * from t") == [{"id": 9, "name": None}]


def test_the_event_log_has_the_result_anyway_and_other_data_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    envelope(**sink({"tool": {"kind": "event_log"}}))
    assert capsys.readouterr().out == ""

    envelope(**sink({"backend": "event_log", "data": {"n": "{{ result.id + 1 }}"}}))
    assert capsys.readouterr().out == '{"n": 2}\n'


def test_any_tool_may_be_a_sink_and_reads_what_the_step_gave(tmp_path: Path) -> None:
    keep = {"kind": "shell", "cmds": ["printf '%s' \"$WHO\" > kept"], "env": {"WHO": "{{ result.id }}"}}

    envelope(**sink({"tool": {**keep, "cwd": str(tmp_path)}}))

    assert (tmp_path / "kept").read_text() == "1"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"table": "t"}, "the sink has no 'tool'"),
        ({"tool": "http", "table": "t"}, "the sink 'http' has no tables"),
        (
            {"tool": "duckdb", "table": "t", "mode": "stir"},
            "'stir' is not a mode of a sink: use one of insert, append, upsert, replace",
        ),
        ({"tool": "duckdb", "table": "t", "mode": "upsert"}, "a sink with 'mode: upsert' has no 'key'"),
        (
            {"tool": "duckdb", "table": "t", "data": [1]},
            "the data for a table must be a mapping of columns to values, or a list of such mappings",
        ),
    ],
)
def test_a_sink_that_makes_no_sense_is_refused(said: dict[str, Any], message: str) -> None:
    report = reported(**sink(said))

    assert (report["code"], report["message"]) == ("INPUT_INVALID", message)


def test_a_sink_that_fails_fails_the_step() -> None:
    report = reported(**sink({"tool": "duckdb", "table": 't"; drop table x; --'}))

    assert report["message"].startswith('Table with name t"; drop table x; -- does not exist!')

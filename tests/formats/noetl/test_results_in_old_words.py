"""Results as playbooks of all years read them: in `data`, in an envelope, in `storage`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mulligan.formats.noetl.runtime import run

from .playbooks import newer, refused, steps, translated, warned, written

QUERY = {"status": "success", "rows": [{"n": 7}], "row_count": 1, "columns": ["n"]}
RESULT: dict[str, Any] = {**QUERY, "command_0": QUERY}
OLDEST = "apiVersion: noetl.io/v1\nkind: Playbook\nmetadata: {name: test}\n"


@pytest.mark.parametrize(
    "code",
    [
        "result = rows.get('data', {}).get('command_0', {}).get('rows', [{}])[0].get('n', 0)",
        "result = rows['data']['rows'][0]['n'] if 'data' in rows else 0",
        "result = input_data['rows'].get('rows')[0]['n']",
        "def main(rows):\n    return rows.get('data', {})['rows'][0]['n']",
        "def main(query):\n    return query.get('data', {}).get('rows', [{}])[0].get('n', 0)",
    ],
)
def test_code_finds_the_result_of_a_query_in_its_data(code: str):
    seen = {"query": {"result": RESULT, "ctx": {}, "next": [], "status": "ok"}}

    found = run(name="a", seen=seen, tool={"kind": "python", "code": code, "input": {"rows": "{{ query }}"}})

    assert found["result"] == 7


def test_the_result_of_a_query_has_no_other_key_than_before():
    code = "result = {'same': rows, 'other': rows.get('other', 1), 'keys': sorted(rows)}"

    found = run(name="a", tool={"kind": "python", "code": code}, input={"rows": RESULT})

    assert found["result"] == {"same": RESULT, "other": 1, "keys": sorted(RESULT)}


def test_an_agent_gives_an_envelope_and_is_waited_for_without_a_warning():
    written(newer("workflow: [{step: a, tool: {kind: noop}}]"), "child.yaml")
    text = newer("workflow: [{step: call, tool: {kind: agent, framework: noetl, entrypoint: child}}]")

    found = steps(text)["call_done"]["noetl"]["result"]

    assert found.startswith("""${{"status": "ok", "framework": "noetl", "entrypoint": 'child', "data": """)
    assert "waits for the playbook" not in warned(text)


def test_a_sink_reads_the_result_as_data(tmp_path: Path):
    sink = {
        "tool": "python",
        "code": "def main(data):\n    __import__('pathlib').Path('found').write_text(data['text'])",
    }
    cases = [{"when": "{{ event.name == 'call.done' }}", "then": {"sink": {**sink, "args": {"data": "{{ data }}"}}}}]

    run(name="a", tool={"kind": "python", "code": "result = {'text': 'hello'}"}, cases=cases)

    assert (tmp_path / "found").read_text() == "hello"


def test_storage_with_keys_of_its_own_is_a_sink_and_the_one_for_events_is_none():
    found = steps(
        OLDEST
        + """
workflow:
  - step: start
    type: python
    code: result = 1
    save: {storage: {type: postgres, table: t, auth: pg}, args: {n: "{{ result }}"}}
    next: [{step: b}]
  - {step: b, type: python, code: result = 1, save: {storage: event, args: {n: 1}}}
"""
    )

    (case,) = found["start"]["noetl"]["cases"]
    expected = {"tool": "postgres", "table": "t", "auth": "pg", "args": {"n": "{{ result }}"}}
    assert case["then"][0]["sink"] == expected
    assert "cases" not in found["b"]["noetl"]


def test_an_input_whose_default_is_a_template_may_be_of_any_type():
    text = newer("""
        workload: {user: "{{ payload.user }}", name: x}
        workflow: [{step: a, tool: {kind: noop}}]
        """)

    found = translated(text)["inputs"]

    assert {name: one["type"] for name, one in found.items()} == {"user": "any", "name": "string"}


def test_an_input_that_a_called_playbook_does_not_have_is_refused_with_what_to_write_there():
    written(newer("workload: {n: 1}\nworkflow: [{step: a, tool: {kind: noop}}]"), "child.yaml")

    said = refused(newer("workflow: [{step: call, tool: {kind: playbook, path: child, input: {trace: 1}}}]"))

    assert "'child.yaml' has no input 'trace'" in said and "add 'trace: null' to its 'workload'" in said


# -- requests, events and failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "sent"),
    [
        ("data: {a: 1}", {"params": {"a": 1}}),
        ("method: GET, params: {b: 2}, data: {a: 1}", {"params": {"b": 2, "a": 1}}),
        ("method: POST, data: {a: 1}", {"payload": {"a": 1}}),
        ("method: POST, data: {query: {q: 1}, body: {a: 1}}", {"params": {"q": 1}, "payload": {"a": 1}}),
        ("method: POST, payload: 3, data: {a: 1}", {"payload": 3}),
    ],
)
def test_the_data_of_a_request_of_the_oldest_dialect_is_sent(keys: str, sent: dict[str, Any]):
    task = f"{{type: http, url: 'https://example.org', {keys}}}"
    loop = f"{{step: b, type: iterator, collection: [1], element: x, task: {task}}}"
    step = f"{{step: start, {task[1:-1]}, next: [{{step: b}}]}}"

    found = steps(f"{OLDEST}workflow: [{step}, {loop}]")

    tools = [found["start"]["noetl"]["tool"], found["b"]["do"][0]["noetl"]["tool"]]
    assert [{key: tool[key] for key in ("params", "payload") if key in tool} for tool in tools] == [sent, sent]


@pytest.mark.parametrize(
    ("when", "following"),
    [
        ("{{ event.name == 'step.done' }}", ["b"]),
        ("{{ event.name == 'step.failed' }}", []),
        ("{{ event.name != 'call.done' }}", []),
        ("{{ event.name in ('call.done', 'step.done') }}", ["b"]),
    ],
)
def test_the_documented_names_of_events_mean_those_that_there_are(when: str, following: list[str]):
    arcs = {"arcs": [{"step": "b", "when": when}]}

    assert run(name="a", tool={"kind": "noop"}, next=arcs)["next"] == following
    assert run(name="a", loop={"results": []}, next=arcs)["next"] == (["b"] if "!=" in when else following)


def test_the_failure_of_a_step_that_took_too_long_is_of_the_kind_timeout():
    arcs = {"arcs": [{"step": "b", "when": "{{ error.kind == 'timeout' and event.name == 'step.failed' }}"}]}

    assert run(name="a", failure={"code": "TIMEOUT", "message": "after 1s"}, next=arcs)["next"] == ["b"]


def test_a_condition_reads_the_status_of_the_answer():
    arcs = {"arcs": [{"step": "b", "when": "{{ status_code == 200 }}"}]}

    assert run(name="a", result={"status": 200, "data": {}, "headers": {}}, next=arcs)["next"] == ["b"]

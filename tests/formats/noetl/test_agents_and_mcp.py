"""Tools that other programs carry: agents of NoETL's own framework, servers of MCP, commands that print credentials."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.web import as_json, response, serving

from mulligan import StepError
from mulligan.formats.noetl.runtime import run

from .playbooks import newer, ran, refused, translated, warned, written

CHILD = newer("""
    workload: {n: 1}
    workflow:
      - {step: double, tool: {kind: python, input: {n: "{{ workload.n }}"}, code: "result = {'twice': n * 2}"}}
""")
AGENT = """
workflow:
  - step: call
    tool: {kind: agent, framework: noetl, entrypoint: child, payload: {n: 4}, entrypoint_mode: playbook}
    next: {arcs: [{step: say}]}
  - {step: say, tool: {kind: python, input: {x: "{{ call.data.twice }}"}, code: "result = x"}}
"""


# -- agents ----------------------------------------------------------------------------------------------------------


def test_an_agent_of_the_own_framework_is_a_called_playbook():
    written(CHILD, "child.yaml")

    call = next(step for step in translated(newer(AGENT))["steps"] if step["step"] == "call")

    assert call["workflow"] == {"file": "child.yaml", "inputs": {"n": 4}}


def test_the_rest_of_an_agent_is_refused_or_warned_about():
    written(CHILD, "child.yaml")

    other = refused(newer(AGENT.replace("framework: noetl", "framework: langchain")))
    warning = warned(newer(AGENT.replace("payload:", "on_failure: {troubleshoot: true}, payload:")))

    assert "is not one of NoETL's own framework" in other and "write the step with 'agent:'" in other
    assert "'on_failure' of an agent is not honoured" in warning


# -- MCP -------------------------------------------------------------------------------------------------------------


def asked(url: str, **keys: Any) -> Any:
    tool = {"kind": "mcp", "endpoint": url, "tool": "search", "arguments": {"q": "{{ workload.q }}"}, **keys}
    return run(tool=tool, workload={"q": "tea"}, name="ask")["result"]


def test_a_tool_of_a_server_is_called_and_its_answer_is_the_result():
    answer = {"content": [{"type": "text", "text": "found"}], "structuredContent": {"n": 1}}
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "result": answer})
    stream = response(200, f"event: message\ndata: {message}\n\n".encode(), "Content-Type: text/event-stream")

    with serving(as_json(message), stream) as web:
        found = [asked(web.url), asked(web.url)]
        sent = json.loads(web.body())

    assert found == [answer, answer]
    assert (sent["method"], sent["params"]) == ("tools/call", {"name": "search", "arguments": {"q": "tea"}})


def test_another_method_has_its_arguments_as_parameters():
    with serving(as_json('{"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}')) as web:
        assert asked(web.url, method="tools/list", arguments={}) == {"tools": []}
        assert json.loads(web.body())["params"] == {}


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ('{"error": {"code": -32601, "message": "no such tool"}}', "MCP_ERROR", "'tools/call': no such tool"),
        ('{"result": {"isError": true, "content": [{"type": "text", "text": "no tea"}]}}', "MCP_ERROR", "no tea"),
        ('"hello"', "OUTPUT_INVALID", "not a message of JSON-RPC"),
        ("[]", "OUTPUT_INVALID", "not a message of JSON-RPC"),
    ],
)
def test_what_a_server_refuses_is_a_failure(body: str, code: str, message: str):
    with serving(as_json(body)) as web, pytest.raises(StepError) as failed:
        asked(web.url)

    assert failed.value.code == code
    assert message in failed.value.message


@pytest.mark.parametrize("keys", [{"endpoint": "kubernetes"}, {"tool": ""}])
def test_a_server_without_an_address_or_a_tool_without_a_name_is_an_invalid_input(keys: dict[str, str]):
    with pytest.raises(StepError) as failed:
        asked("http://127.0.0.1:9", **keys)

    assert failed.value.code == "INPUT_INVALID"


# -- commands that print credentials ---------------------------------------------------------------------------------


def test_a_keychain_entry_may_have_a_command_that_prints_the_credential():
    text = newer("""
        keychain:
          - {name: api, kind: bearer, command: "printf '{\\"token\\": \\"%s\\"}' \\"${WORD:-s3cret-word}\\""}
        workflow:
          - {step: a, tool: {kind: python, input: {t: "{{ keychain.api.token }}"}, code: "result = len(t)"}}
    """)

    assert "command" in translated(text)["secrets"]["api"]
    assert ran(text)["outputs"] == {"result": 11}

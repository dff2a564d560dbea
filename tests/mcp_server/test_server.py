"""The server of the protocol: what it offers, and how it refuses."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import mcp_types as types
import pytest
from mcp import MCPError
from tests.mcp_server.conftest import PARKED, ran
from tests.mcp_server.conversation import Agent, agent_at

from mulligan.mcp_server.tool_table import BY_NAME


def test_what_waits_is_listed_under_both_names(agent: Agent) -> None:
    ran(PARKED)

    found = agent.call("list_pending")

    (entry,) = found["pending"]
    assert (entry["run_id"], entry["step"], entry["failure"]["exit_code"], found["total"]) == (1, "fetch", 3, 1)
    assert agent.call("list_pending_failed_jobs") == found
    assert agent.call("list_runs", status=["open"])["runs"][0]["run_id"] == 1
    assert agent.call("get_run", run_id=1)["step_counts"] == {"pending_failed": 1, "waiting": 1}


def test_an_empty_folder_stays_empty(agent: Agent, folder: Path) -> None:
    assert agent.call("list_pending") == {"pending": [], "next": None, "total": 0}
    assert agent.call("list_runs") == {"runs": [], "next": None}
    assert agent.refused("get_run", run_id=1)["code"] == "run.unknown"

    assert [*folder.iterdir()] == []


@pytest.mark.parametrize(
    ("arguments", "argument", "message"),
    [
        ({}, "run_id", "'get_run' needs the argument 'run_id'"),
        ({"run_id": "one"}, "run_id", "argument 'run_id' of 'get_run': expected a whole number, got a text"),
        ({"run_id": 0}, "run_id", "argument 'run_id' of 'get_run': expected 'int' >= 1"),
        ({"run_id": 1, "run": 1}, "run", "'get_run' has no argument 'run'"),
    ],
)
def test_wrong_arguments_are_named(agent: Agent, arguments: dict[str, object], argument: str, message: str) -> None:
    found = agent.refused("get_run", **arguments)

    assert found["code"] == "input.invalid"
    assert (found["data"], found["message"]) == ({"argument": argument}, message)


def test_an_unknown_tool_is_an_error_of_the_protocol(agent: Agent) -> None:
    with pytest.raises(MCPError) as refused:
        agent.call("get_runs")

    assert refused.value.code == types.INVALID_PARAMS
    assert refused.value.data == {"code": "tool.unknown", "hint": "did you mean 'get_run'?"}


def test_a_caller_is_offered_what_its_scopes_allow(folder: Path) -> None:
    with agent_at(folder / ".mulligan", scopes=("read",)) as reader:
        offered = reader.tools()

    assert {name for name, tool in BY_NAME.items() if tool.scope == "read"} == set(offered)
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in offered.values())


def test_every_schema_is_a_closed_object_that_a_model_can_read(agent: Agent) -> None:
    for name, tool in agent.tools().items():
        schema = tool.input_schema
        jsonschema.Draft202012Validator.check_schema(schema)
        assert (schema["type"], schema["additionalProperties"]) == ("object", False), name
        undescribed = [key for key, one in schema["properties"].items() if "description" not in one]
        assert undescribed == [], name

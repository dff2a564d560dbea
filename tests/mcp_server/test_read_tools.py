"""The tools that read: each with a run that has something to say, and with names that nothing has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.mcp_server.conftest import ran
from tests.mcp_server.conversation import Agent, agent_at
from tests.support.commands import mulligan

FLOW = """
name: nightly
inputs:
  host: {type: string, default: a}
steps:
  - step: fetch
    shell: |
      for n in 1 2 3 4 5; do echo line $n of ${inputs.host}; done
      echo no route to host ${inputs.host} >&2
      exit 3
    retry: {rules: [{exit_codes: [9], max_retries: 2}]}
    triage: true
  - step: check
    map: {over: [{code: 1}, {code: 2}], as: one}
    do:
      - shell: exit ${one.code}
  - step: load
    needs: [fetch]
    shell: 'true'
"""


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """Two runs of one workflow, the first of which a person has decided about."""
    folder = tmp_path_factory.mktemp("reader")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        ran(FLOW)
        assert mulligan("classify", "1", "fetch", "fail", "--reason", "the host is gone", "--by", "ann").code in (0, 1)
        mulligan("run", "flow.yaml", "--wait", "0s", "-i", "host=b")
        mulligan("publish", "flow.yaml")
        with agent_at(folder / ".mulligan", scopes=("read",)) as agent:
            yield agent


def test_a_failure_has_the_ladder_the_log_and_what_was_decided_before(reader: Agent) -> None:
    found = reader.call("get_failure", run_id=2, step="fetch")

    assert (found["status"], found["failure"]["exit_code"]) == ("pending_failed", 3)
    (rule,) = found["ladder"]["rules"]
    assert (rule["use"], rule["looks_for"]) == ("passed", "exit code 9")
    assert found["log"] == {"stream": "stderr", "text": "no route to host b", "is_cut": False}
    (decision,) = found["decisions"]
    assert (decision["run_id"], decision["verdict"], decision["reason"]) == (1, "fail", "the host is gone")
    assert found["pending"]["commands"][0].startswith("mulligan classify 2 fetch")


def test_a_failure_that_is_over_is_explained_too(reader: Agent) -> None:
    step = reader.call("get_failure", run_id=1, step="fetch")
    item = reader.call("get_failure", run_id=1, step="check[1]")
    named = reader.call("get_failure", run_id=1, step="check[code=2]")

    assert (step["status"], step["pending"], step["answer"]["by"]) == ("failed", None, "ann")
    assert step["log"]["text"] == "no route to host a"
    assert (item["status"], item["attempts"][0]["exit_code"]) == ("failed", 2)
    assert (named["step"], named["attempts"]) == ("check[1]", item["attempts"])
    assert reader.refused("get_failure", run_id=2, step="load")["code"] == "refused"
    assert reader.refused("get_failure", run_id=1, step="check[code=3]")["code"] == "item.unknown"


def test_a_log_is_read_from_its_end_by_range_and_by_text(reader: Agent) -> None:
    end = reader.call("read_log", run_id=1, step="fetch")
    part = reader.call("read_log", run_id=1, step="fetch", stream="stdout", first=2, lines=2)
    found = reader.call("read_log", run_id=1, step="fetch", stream="stdout", search="LINE", lines=1)
    some = reader.call("read_log", run_id=1, step="fetch", stream="stdout", search="line", first=4)

    assert (end["stream"], end["lines"]) == ("stderr", [{"line": 1, "text": "no route to host a"}])
    assert [one["line"] for one in part["lines"]] == [2, 3]
    assert (part["next"], part["total_lines"], part["is_cut"]) == (4, 5, False)
    assert found["lines"] == []
    assert [one["text"] for one in some["lines"]] == ["line 4 of a", "line 5 of a"]
    assert reader.refused("read_log", run_id=1, step="check")["data"]["argument"] == "step"
    assert reader.call("read_log", run_id=1, step="check[1]")["lines"] == []
    assert reader.call("read_log", run_id=1, step="check[code=2]")["place"] == "check[1].0"


def test_a_run_is_explained_shown_and_compared(reader: Agent) -> None:
    story = reader.call("explain", run_id=1)
    step = reader.call("explain", run_id=1, step="fetch", limit=1)
    run = reader.call("get_run", run_id=2, status=["pending_failed"])
    differs = reader.call("compare_runs", a=1, b=2)

    assert any("the host is gone" in line["text"] for line in story["lines"])
    assert len(step["lines"]) == 1 and step["next"]
    assert [one["name"] for one in run["steps"]["steps"]] == ["fetch"]
    assert reader.call("get_run", run_id=2, step="fetch")["tries"][0]["attempt"] == 1
    assert [one["name"] for one in differs["inputs"] if one["a"] != one["b"]] == ["host"]
    assert reader.call("get_report", run_id=1)["uri"] == "mulligan://runs/1/report"
    assert {one["step"] for one in reader.call("get_usage", run_id=1)["usage"]} == {"fetch", "check"}


def test_workflows_are_listed_read_and_checked(reader: Agent) -> None:
    (listed,) = reader.call("list_workflows")["workflows"]
    published = reader.call("get_workflow", name="nightly")
    used = reader.call("get_workflow", run_id=2)
    wrong = reader.call("validate_workflow", text="name: x\nsteps:\n  - step: a\n    shel: 'true'\n")

    assert (listed["name"], listed["version"]) == ("nightly", 1)
    assert published["text"] == used["text"] == FLOW
    assert (used["name"], used["is_file_same"], used["definition"]) == ("nightly", True, None)
    assert (wrong["ok"], wrong["problems"][0]["line"]) == (False, 4)
    assert "shell" in wrong["problems"][0]["hint"]
    assert reader.call("validate_workflow", text=FLOW)["ok"]
    assert reader.call("validate_workflow", file=used["file"])["steps"] == 3


def test_coverage_names_what_nothing_deals_with_and_shows_a_case(reader: Agent) -> None:
    found = reader.call("coverage", name="nightly")
    text = "name: x\nsteps:\n  - step: a\n    shell: 'true'\n    retry: 1\n"
    case = reader.call("coverage", text=text, step="a", failure="EXIT_NONZERO", times="once")

    assert found["sentence"].count("failures are dealt with")
    assert {"failure", "steps", "verdict", "once"} <= found["holes"][0].keys()
    assert (case["case"]["verdict"], case["case"]["rung"]) == ("recovered", "retry")
    assert reader.refused("coverage", name="nightly", text=text)["code"] == "input.invalid"
    assert reader.refused("coverage", text=text, step="a")["hint"] == "give 'failure' too"


def test_a_workflow_whose_file_is_gone_is_shown_as_the_engine_reads_it(folder: Path, agent: Agent) -> None:
    ran("name: tiny\nsteps:\n  - step: one\n    shell: 'true'\n")
    Path("flow.yaml").unlink()

    found = agent.call("get_workflow", run_id=1)

    assert (found["text"], found["is_file_same"], found["step_count"]) == (None, False, 1)
    assert found["definition"]["steps"][0]["name"] == "one"


def test_our_own_pages_are_searched_and_read(reader: Agent) -> None:
    found = reader.call("docs", query="retry rule exit code backoff")
    page = reader.call("docs", page=found["found"][0]["page"])
    long = reader.call("docs", page="language")
    rest = reader.call("docs", page="reference/language.md", start=long["next"])

    assert len(found["found"]) > 3 and all(one["excerpt"] for one in found["found"])
    assert found["found"][0]["title"] in page["text"]
    assert len(long["text"]) == long["next"] and rest["text"] != long["text"]
    assert "concepts/ladder.md" in reader.call("docs")["pages"]
    assert reader.refused("docs", page="nowhere")["code"] == "page.unknown"


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("get_failure", {"run_id": 9, "step": "fetch"}, "run.unknown"),
        ("get_failure", {"run_id": 1, "step": "fetsch"}, "step.unknown"),
        ("get_failure", {"run_id": 1, "step": "check[7]"}, "item.unknown"),
        ("read_log", {"run_id": 9, "step": "fetch"}, "run.unknown"),
        ("read_log", {"run_id": 1, "step": "fetsch"}, "step.unknown"),
        ("read_log", {"run_id": 1, "step": "fetch", "attempt": 7}, "attempt.unknown"),
        ("read_log", {"run_id": 1, "step": "load"}, "attempt.unknown"),
        ("explain", {"run_id": 9}, "run.unknown"),
        ("explain", {"run_id": 1, "step": "fetsch"}, "step.unknown"),
        ("list_runs", {"since": "soon"}, "input.invalid"),
        ("list_runs", {"cursor": "%"}, "input.invalid"),
        ("get_run", {"run_id": 1, "step": "fetsch"}, "step.unknown"),
        ("get_report", {"run_id": 9}, "run.unknown"),
        ("get_usage", {"run_id": 9}, "run.unknown"),
        ("get_moment", {"run_id": 9, "at": 1}, "run.unknown"),
        ("get_moment", {"run_id": 1, "at": 9999}, "input.invalid"),
        ("get_moment", {"run_id": 1}, "input.invalid"),
        ("compare_runs", {"a": 1, "b": 9}, "run.unknown"),
        ("get_workflow", {"name": "nightly", "version": 9}, "workflow.unknown"),
        ("get_workflow", {"name": "nightly", "run_id": 1}, "input.invalid"),
        ("get_workflow", {"run_id": 1, "version": 1}, "input.invalid"),
        ("get_workflow", {}, "input.invalid"),
        ("validate_workflow", {}, "input.invalid"),
        ("list_pending", {"limit": 0}, "input.invalid"),
        ("docs", {"page": "language", "section": "nowhere"}, "page.unknown"),
        ("list_runs", {"text": "a\0b"}, "input.invalid"),
    ],
)
def test_what_is_not_there_is_a_typed_error(reader: Agent, tool: str, arguments: dict[str, object], code: str) -> None:
    assert reader.refused(tool, **arguments)["code"] == code

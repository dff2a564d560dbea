"""A program or a flow that is called by a program is a child run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.programs import nested_programs as programs

import mulligan


def test_a_program_calls_programs_and_flows_as_child_runs(tmp_path: Path) -> None:
    run = mulligan.run(programs.outer, home=tmp_path, show=False)

    assert run.outputs == {"result": [3, 4, {"result": 5}, 6, 7, 8, "CHILD_FAILED"]}, run.explain()
    assert run.is_degraded and len(run.children) == 7
    assert list(run.steps)[-2:] == ["twice#last", "inner#2"]


def test_a_program_may_call_itself(tmp_path: Path) -> None:
    run = mulligan.run(programs.factorial, home=tmp_path, number=3, show=False)

    assert run.outputs == {"result": 6}, run.explain()


def test_a_program_that_calls_itself_for_ever_comes_to_a_limit(tmp_path: Path) -> None:
    run = mulligan.run(programs.endless, home=tmp_path, show=False)

    assert run.status == "failed"
    assert "child runs are nested 16 deep, which is the limit" in str(run.explain())


def test_a_flow_calls_a_program_as_a_child_run(tmp_path: Path) -> None:
    run = mulligan.run(programs.around, home=tmp_path, number=1, show=False)

    assert run.outputs == {"result": 4}, run.explain()


def test_a_program_that_repairs_a_step_of_a_flow_is_a_child_run_whose_log_is_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    run = mulligan.run(programs.routed, home=tmp_path / "home", number=100, show=False)

    assert run.status == "completed" and run.steps["repair"].output == {"result": 2}, run.explain()
    assert Path("repair.log").read_text() == "repairing\n"


CHILD = """
steps: [{step: p, python: {call: 'tests.programs.nested_programs:inner', program: true}, args: {number: 1}}]
outputs: {found: '${steps.p.output}'}
"""
PLACES = """
steps:
  - step: a
    shell: 'false'
    on_failure: {workflow: child.yaml}
    undo: {workflow: child.yaml}
  - {step: v, shell: 'true', validate: {workflow: child.yaml}}
  - {step: b, map: {over: [1, 2]}, do: [{workflow: child.yaml}]}
  - {step: c, needs: [a, b, v], shell: 'false'}
end: {workflow: child.yaml}
"""


def test_a_file_that_is_a_program_is_called_wherever_a_workflow_may_stand(tmp_path: Path) -> None:
    (tmp_path / "child.yaml").write_text(CHILD)
    (tmp_path / "places.yaml").write_text(PLACES)

    run = mulligan.run(tmp_path / "places.yaml", home=tmp_path, show=False)

    assert [one["found"] for one in run.steps["b"].output["results"]] == [3, 3], run.explain()
    assert len(run.children) == 6 and {one.status for one in run.children} == {"completed"}

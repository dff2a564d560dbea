"""A program or a flow that is called by a program is a child run."""

from __future__ import annotations

from pathlib import Path

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

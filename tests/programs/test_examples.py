"""The programs in examples/ do what they say."""

from __future__ import annotations

import sys
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import mulligan

FOLDER = Path(__file__).parent.parent.parent / "examples" / "programs"


def module(name: str) -> ModuleType:
    spec = util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


def test_the_night_runs_to_its_approval_and_to_its_end(tmp_path: Path) -> None:
    run = mulligan.run(str(FOLDER / "night.py"), home=tmp_path / "home", day="monday", show=False)
    asked = str(run.explain())

    run.approve("approve", "as expected")

    assert "publish 1 of 2 rows?" in asked
    assert (run.status, run.is_degraded) == ("completed", True), run.explain()
    assert run.outputs["result"] == {"loaded": 1}
    assert "handled the failures of 'clean#2', 'load'" in str(run.explain())


def test_a_day_without_rows_is_nothing(rehearse_program: Any) -> None:
    found = rehearse_program(module("night").night, "sunday", real=True)

    assert (found.result, found.names()) == ({"loaded": 0}, ["fetch"])


@pytest.mark.nightly
def test_the_agents_go_on_until_the_reviewer_is_content(tmp_path: Path) -> None:
    run = mulligan.run(str(FOLDER / "agents.py"), home=tmp_path / "home", product="a lamp", show=False)

    assert run.outputs["result"]["text"].endswith("about a lamp. With price and date."), run.explain()


def test_each_program_is_in_the_index() -> None:
    index = (FOLDER.parent / "README.md").read_text(encoding="utf-8")

    assert all(f"programs/{path.name}" in index for path in FOLDER.glob("*.py"))

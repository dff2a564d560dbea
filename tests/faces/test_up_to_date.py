"""`mulligan run --changed` and `--force`, and what `retry` and `fork` say of files, as a terminal has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.commands import mulligan, workflow

pytestmark = pytest.mark.usefixtures("folder")

BUILD = """\
name: build
steps:
  - {step: mesh, shell: "seq 3 > mesh.txt", writes: mesh.txt}
  - {step: solve, shell: "wc -l < mesh.txt > result.txt", reads: mesh.txt, writes: result.txt}
  - {step: check, needs: solve, shell: "test -e ready", cache: false}
"""


@pytest.fixture
def build(folder: Path) -> Path:
    (folder / "ready").touch()
    return workflow(BUILD)


def test_what_is_up_to_date_is_said_step_by_step_and_counted(build: Path):
    mulligan("run", build)

    said = mulligan("run", "--changed", build)

    assert said.plain[2] == (
        "run 2: build\n"
        "THEN ✓ mesh  up to date since run 1\n"
        "THEN ✓ solve  up to date since run 1\n"
        "THEN ✓ check  completed\n"
        "\n"
        "✓ run 2 completed in Ns (3 steps, 2 up to date)\n"
    )
    assert "up to date since run 1" in mulligan("show").out
    assert "mesh   up to date since run 1" in mulligan("explain").out


def test_json_has_the_run_for_each_step(build: Path):
    mulligan("run", build)

    run = mulligan("run", "--changed", "--force", "mesh", "--json", build).json
    shown = mulligan("show", "--json").json

    expected = {"mesh": None, "solve": 1, "check": None}
    assert {name: step["up_to_date_since"] for name, step in run["steps"].items()} == expected
    assert {name: step["up_to_date_since"] for name, step in shown["steps"].items()} == expected


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_text("x")], ids=["gone", "cut"])
def test_a_result_whose_artifact_is_gone_is_made_again(folder: Path, damage: Callable[[Path], object]):
    file = workflow("""
        name: large
        steps:
          - {step: make, shell: "head -c 3000000 /dev/zero | tr '\\\\0' x", cache: true}
          - {step: count, shell: wc -c, stdin: "${steps.make.output}", needs: make}
        outputs: {size: "${steps.count.output}"}
        """)
    mulligan("run", file)
    (artifact,) = (one for one in folder.glob(".mulligan/artifacts/1/**/*") if one.is_file())
    assert "up to date since run 1" in mulligan("run", file).err
    damage(artifact)

    again = mulligan("run", file)

    assert (again.code, again.json) == (0, {"size": "3000000"})


def test_the_report_says_it_too(build: Path):
    mulligan("run", build)
    mulligan("run", "--changed", build)

    page = mulligan("report", "-o", "-").out

    assert "up to date since run 1" in page


def test_a_step_to_force_that_is_none_is_refused_before_anything_starts(build: Path):
    said = mulligan("run", "--changed", "--force", "msh", build)

    assert (said.code, said.err) == (
        2,
        "error[step.unknown]: 'msh' is not a step of 'build'\n  did you mean 'mesh'?\n",
    )
    assert not Path(".mulligan").exists()


def test_retry_says_which_step_runs_again_for_which_file_before_it_goes_on(build: Path):
    Path("ready").unlink()
    mulligan("run", build)
    Path("ready").touch()
    Path("mesh.txt").write_text("damaged")
    Path("result.txt").unlink()

    planned = mulligan("retry", "--dry-run")
    said = mulligan("retry", "--follow")

    assert planned.plain[1] == ("STEP  WHY\nmesh  mesh.txt has changed\nsolve  result.txt is gone\ncheck  it failed\n")
    assert said.err.startswith(
        "'mesh' runs again: its file mesh.txt has changed\n"
        "'solve' runs again: its file result.txt is gone\n"
        "run 1 begins round 2: 3 steps again\n"
    )
    assert "mesh   runs again: mesh.txt has changed" in mulligan("explain").out


def test_fork_says_it_and_its_plan_has_it_as_data(build: Path):
    mulligan("run", build)
    Path("result.txt").unlink()

    planned = mulligan("fork", 1, "--from", "check", "--dry-run", "--json").json
    said = mulligan("fork", 1, "--from", "check")

    assert planned["stale"] == [{"step": "solve", "path": "result.txt", "problem": "gone"}]
    assert (planned["steps"], planned["kept"]) == (["solve", "check"], ["mesh"])
    assert "'solve' runs again: its file result.txt is gone\n" in said.err
    assert said.code == 0

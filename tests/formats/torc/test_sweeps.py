"""What `convert` makes of a sweep: a matrix where that is provably the same, otherwise one step per combination."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from tests.support.runner import Live

from mulligan.core.model.workflow import Workflow
from mulligan.formats import convert, load


def steps(folder: Path, text: str) -> list[dict[str, Any]]:
    """The steps of the converted file."""
    (folder / "torc.yaml").write_text(dedent(text))
    converted = convert(folder / "torc.yaml").text
    (folder / "ours.yaml").write_text(converted)
    found: list[dict[str, Any]] = yaml.safe_load(converted)["steps"]
    return found


def both(folder: Path) -> tuple[Workflow, Workflow]:
    return load(folder / "torc.yaml"), load(folder / "ours.yaml")


SWEEP = """
name: sweep
parameters: {lr: "[0.1,0.01,0.5]", kind: "[a,b]"}
jobs:
  - {name: prep, command: echo prep}
  - name: "work_{i:03d}"
    command: SEED={i} python train.py --seed={i} "run {i}" > out_{i:03d}.txt
    parameters: {i: "1:12"}
    depends_on: [prep]
    output_files: ["out_{i:03d}"]
  - name: "post_{lr}_{kind}"
    command: echo {lr} {kind}
    use_parameters: [lr, kind]
    depends_on_regexes: ["^work_"]
  - {name: "check_{i:03d}", command: "cat {i}", parameters: {i: "1:12"}, depends_on: ["work_{i:03d}"]}
files:
  - {name: "out_{i:03d}", path: "out_{i:03d}.txt", parameters: {i: "1:12"}}
"""


def test_a_sweep_becomes_a_matrix(tmp_path: Path) -> None:
    found = {step.pop("step"): step for step in steps(tmp_path, SWEEP)}

    texts = [f"{number:03d}" for number in range(1, 13)]
    assert found == {
        "prep": {"shell": "echo prep"},
        "work_{i:03d}": {
            "matrix": {"zip": {"i": "1..12", "i_1": texts}},
            "shell": 'SEED=${matrix.i} python train.py --seed=${matrix.i} "run ${matrix.i}" > out_${matrix.i_1}.txt',
            "needs": ["prep"],
            "writes": ["out_{i:03d}"],
        },
        "post_{lr}_{kind}": {
            "matrix": {"lr": [0.1, 0.01, 0.5], "kind": ["a", "b"]},
            "shell": "echo ${matrix.lr} ${matrix.kind}",
            "needs": [{"match": "work_.*"}],
            "env": {"TORC_JOB_NAME": "post_${matrix.lr}_${matrix.kind}"},
        },
        "check_{i:03d}": {"matrix": {"i": "1..12"}, "shell": "cat ${matrix.i}", "needs": ["work_{i:03d}"]},
    }
    one, other = both(tmp_path)
    assert [step.name for step in one.steps] == [step.name for step in other.steps]
    assert [step.needs for step in one.steps] == [step.needs for step in other.steps]


def test_both_files_run_the_same_commands(live_file: Live) -> None:
    text = """
        name: printed
        jobs:
          - name: "show_{i}_{word}"
            command: NAME={word} printenv NAME TORC_JOB_NAME; printf '<%s>\\n' {i} a{i:02d}/{word} "{i} and {word}"
            parameters: {i: "1:3", word: "[x-1,y.2,z@3]"}
            parameter_mode: zip
    """
    found = steps(live_file.folder, text)
    assert len(found) == 1

    expanded, folded = (live_file.run(live_file.folder / name).steps for name in ("torc.yaml", "ours.yaml"))

    assert {name: step["output"] for name, step in expanded.items()} == {
        name: step["output"] for name, step in folded.items()
    }
    assert folded["show_1_x-1"]["output"].splitlines() == ["x-1", "show_1_x-1", "<1>", "<a01/x-1>", "<1 and x-1>"]


EXPANDED = {
    "single quotes": ("echo '{i}'", "{i: 1:3}"),
    "single quotes with blanks": ("awk '{{ print {i} }}'", "{i: 1:3}"),
    "a command": ("{i} x", "{i: '[ls,cat,tac]'}"),
    "a command after another": ("true && {i} x", "{i: '[ls,cat,tac]'}"),
    "braces of the shell": ("echo {{1..{i}}}", "{i: 1:3}"),
    "arithmetic": ("echo $(( {i} + 1 ))", "{i: 1:3}"),
    "an expression of the shell": ("echo ${{HOME}} {i}", "{i: 1:3}"),
    "a pattern of bash": ("[[ x =~ {i} ]]", "{i: '[a.b,c,d]'}"),
    "a file descriptor": ("echo {i}>file", "{i: 1:3}"),
    "values with blanks": ("echo {i}", "{i: '[a b,c,d]'}"),
    "values with characters of the shell": ("echo {i}", "{i: '[a*,$x,d]'}"),
    "a format in a product": ("echo {i:02d} {k}", "{i: 1:3, k: 1:2}"),
    "two steps": ("echo {i}", "{i: 1:2}"),
}


@pytest.mark.parametrize("what", EXPANDED)
def test_what_may_differ_stays_expanded(tmp_path: Path, what: str) -> None:
    command, parameters = EXPANDED[what]
    command = command.replace("{{", "{").replace("}}", "}")
    name = "job_{i}_{k}" if "k:" in parameters else "job_{i}"

    found = steps(
        tmp_path,
        f"name: w\njobs:\n  - name: {name}\n    command: |\n      {command}\n    parameters: {parameters}\n",
    )

    assert len(found) > 1
    assert not any("matrix" in step for step in found)
    one, other = both(tmp_path)
    assert [step.action for step in one.steps] == [step.action for step in other.steps]


def test_steps_that_stand_in_another_order_stay_expanded(tmp_path: Path) -> None:
    found = steps(
        tmp_path,
        """
        name: w
        jobs_sort_method: gpus_memory_runtime
        resource_requirements: [{name: r1, num_cpus: 1, memory: 1g}, {name: r2, num_cpus: 1, memory: 2g}]
        jobs:
          - {name: 'a{i}', command: 'echo {i}', parameters: {i: 1:3}, resource_requirements: r1}
          - {name: 'b{i}', command: 'echo {i}', parameters: {i: '[1,2,2.5]'}, resource_requirements: 'r{i}'}
        """.replace("'[1,2,2.5]'", "1:2"),
    )

    assert [step["step"] for step in found if "matrix" not in step] == ["b2", "b1"]

"""`mulligan run --dry-run`: what would run, and what is missing; nothing is started and nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import Said, mulligan, workflow

pytestmark = pytest.mark.usefixtures("folder")

PIPELINE = """\
name: pipeline
inputs: {n: {type: integer, default: 2}, full: {type: boolean, default: false}}
timeout: 2h
steps:
  - step: fetch
    shell: echo fetched
    timeout: 5m
    retry: {max_retries: 3}
    next: [{to: repair, on: failure, then: rerun}]
  - {step: repair, shell: echo repaired}
  - {step: each, needs: [fetch], map: {over: "${[1, 2, inputs.n]}", filter: item > 1}, do: [{shell: "echo ${item}"}]}
  - {step: listed, needs: [fetch], map: {over: {shell: ls}}, do: [{shell: "echo ${item}"}]}
  - {step: full, needs: [each], shell: echo full, when: inputs.full}
  - {step: tell, needs: [each], shell: echo told, when: "steps.fetch.output == 'x'"}
"""
SWEEP = """\
name: sweep
steps:
  - step: "sim-{a}-{b}"
    matrix: {a: 1..20, b: 1..15}
    shell: echo ${matrix.a} ${matrix.b}
    resources: {cpus: 1, memory: 64MiB}
  - {step: sum, needs: [{match: "sim-.*"}], shell: echo}
"""
LACKING = """\
name: lacking
secrets: {token: {env: NOT_SET_ANYWHERE}, other: {file: nowhere}}
files: {mesh: mesh.vtk}
steps:
  - {step: a, shell: "echo ${secrets.token}${secrets.other}", reads: [mesh]}
  - {step: b, shell: echo, resources: {memory: 900TiB, labels: [moon]}}
"""


def foretold(text: str, *words: object) -> Said:
    said = mulligan("run", workflow(text), "--dry-run", *words)
    assert not Path(".mulligan").exists()
    return said


def steps(said: Said) -> dict[str, Any]:
    return {step["step"]: step for wave in said.json["waves"] for step in wave}


def test_steps_are_shown_in_the_order_in_which_they_can_run():
    said = foretold(PIPELINE)

    assert said.code == 0
    assert said.err.splitlines() == [
        "a run of 'pipeline' would have 6 steps in 3 waves, within 2h00m; nothing was started",
        "inputs: n=2, full=false",
    ]
    assert [" ".join(line.split()) for line in said.out.splitlines()] == [
        "WAVE STEP RUNS ASKS FOR TIMEOUT NOTE",
        "1 fetch shell 5m00s up to 3 retries",
        "2 repair shell only if 'fetch' fails",
        "2 each map at most 3 items",
        "2 listed map its items are known when it runs",
        "3 full shell skipped: condition not met: inputs.full",
        "3 tell shell if steps.fetch.output == 'x'",
    ]


def test_json_has_the_same_as_data():
    said = foretold(PIPELINE, "--json", "-i", "full=true")

    found = steps(said)
    assert (said.json["steps"], said.json["problems"], said.json["inputs"]) == (6, [], {"n": 2, "full": True})
    assert (found["full"]["holds"], found["tell"]["holds"], found["repair"]["if_failed"]) == (True, None, ["fetch"])
    assert (found["each"]["items"], found["each"]["is_items_most"], found["listed"]["items"]) == (3, True, None)
    assert (found["fetch"]["timeout"], found["fetch"]["retries"]) == (300.0, 3)


def test_a_matrix_is_one_line_however_large_it_is():
    said = foretold(SWEEP)

    lines = [line.split() for line in said.out.splitlines()]
    assert lines[1:] == [["1", "sim", "\u00d7", "300", "shell", "1", "cpu,", "64MiB"], ["2", "sum", "shell"]]
    assert steps(foretold(SWEEP, "--json"))["sim"]["count"] == 300


def test_all_that_is_missing_is_said_at_once_and_is_the_exit_code():
    said = foretold(LACKING, "--json")

    assert said.code == 2
    assert [(problem["kind"], problem["step"]) for problem in said.json["problems"]] == [
        ("file", ""),
        ("secret", "a"),
        ("secret", "a"),
        ("capacity", "b"),
    ]
    assert "label 'moon'" in said.json["problems"][-1]["text"]
    assert len([line for line in foretold(LACKING).err.splitlines() if line.startswith("problem: ")]) == 4


def test_a_wrong_input_is_refused_as_it_would_be():
    said = foretold(PIPELINE, "-i", "n=many")

    assert (said.code, said.out, said.err.startswith("error[input.invalid]")) == (2, "", True)


def test_a_run_that_is_there_is_left_alone():
    mulligan("run", workflow("name: a\nsteps: [{step: a, shell: 'true'}]"))
    before = mulligan("list", "--json").out

    mulligan("run", workflow(PIPELINE), "--dry-run", "--detach", "--key", "k")

    assert mulligan("list", "--json").out == before


def test_whoever_asks_what_has_changed_is_told_that_every_step_is_listed():
    said = foretold("name: two\nsteps:\n  - {step: a, shell: echo}\n", "--changed")

    assert "note: every step is listed, since only a run finds out which steps are up to date\n" in said.err
    assert said.out.splitlines()[1].split() == ["1", "a", "shell"]


def test_the_packages_that_a_step_requires_are_shown_with_those_of_its_items():
    said = foretold(
        "name: a\ndefaults: {requirements: [pandas>=2]}\nsteps:\n  - {step: a, python: 'def main(): pass'}\n"
        "  - {step: b, map: {over: '${[1]}'}, do: [{python: {call: 'x:y', requirements: [attrs, tiny]}}]}\n"
    )

    notes = {line.split()[1]: line for line in said.out.splitlines()}
    assert notes["a"].endswith("requires pandas>=2")
    assert notes["b"].endswith("requires attrs, tiny")

"""`mulligan retry --file`: a corrected file, the same run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import Said, mulligan, ran, steady, workflow

pytestmark = pytest.mark.usefixtures("folder")

BROKEN = """\
name: pipeline
steps:
  - {step: fetch, shell: echo fetched >> trace}
  - {step: load, needs: [fetch], shell: exit 3}
  - {step: tell, needs: [load], shell: echo told}
"""
FIXED = """\
name: pipeline
inputs: {who: {type: string, default: nobody}}
steps:
  - {step: fetch, shell: echo fetched >> trace, timeout: 5m}
  - {step: load, needs: [fetch], shell: echo loaded}
  - {step: tell, needs: [load], shell: "echo told ${inputs.who}"}
  - {step: count, needs: [load], shell: echo counted}
outputs: {said: "${steps.tell.output}"}
"""
SPREAD = """\
name: pipeline
steps:
  - {step: each, map: {over: "[1, 2]"}, do: [{shell: "test ${item} != 2"}]}
  - {step: tell, needs: [each], shell: echo told}
"""
CHANGES = """\
what 'flow.yaml' changes:
  added  count
  changed  fetch  timeout  (keeps its result)
  changed  load  shell
  changed  tell  shell
  changed  the workflow itself: inputs, outputs
  input  who=nobody
"""


def corrected(text: str, *words: object) -> Said:
    return mulligan("retry", "--file", workflow(text), *words)


def test_the_run_goes_on_with_the_corrected_file_and_says_what_changed_first():
    ran(BROKEN)

    said = corrected(FIXED, "--follow")

    assert (said.code, said.json) == (0, {"said": "told nobody"})
    assert steady(said.err).startswith(CHANGES + "run 1 begins round 2: 3 steps again, 1 kept\n")
    assert Path("trace").read_text() == "fetched\n"
    assert mulligan("replay", 1, "--verify").code == 0


def test_whoever_looks_afterwards_sees_which_definition_held_when():
    ran(BROKEN)
    first = mulligan("show", "--json").json
    corrected(FIXED, "--follow")

    shown = mulligan("show", "--json").json
    told = mulligan("explain").out
    report = mulligan("report", "--json").json

    assert first["revision"] is None
    assert shown["version"] == first["version"] != shown["revision"] == report["version"]
    assert list(shown["steps"]) == ["fetch", "load", "tell", "count"]
    assert f"workflow corrected to version {shown['revision']}" in told
    assert "changed: timeout" in told
    assert mulligan("usage", 1).code == mulligan("stats").code == 0
    forked = mulligan("fork", 1, "--from", "tell", "--dry-run", "--json").json
    assert (forked["steps"], forked["kept"]) == (["tell"], ["fetch", "load", "count"])


def test_a_dry_run_says_all_of_it_and_changes_nothing():
    ran(BROKEN)
    before = mulligan("events").out

    said = corrected(FIXED, "--dry-run")

    assert said.code == 0
    assert steady(said.err).startswith(CHANGES)
    assert steady(said.out) == (
        "STEP  WHY\nload  it failed, and it changed: shell\n"
        "tell  it was skipped, and it changed: shell\ncount  it is new\n"
    )
    assert corrected(FIXED, "--dry-run", "--json").json["correction"]["changed"]["fetch"] == ["timeout"]
    assert mulligan("events").out == before


def test_a_file_that_changed_nothing_is_said_to_be_so_and_the_round_is_as_any_other():
    ran(BROKEN)

    said = corrected(BROKEN + "# a comment\n")

    assert said.err.splitlines()[:2] == [
        "note: 'flow.yaml' has not changed since run 1 read it",
        "run 1 begins round 2: 2 steps again, 1 kept",
    ]
    assert "run.revised" not in mulligan("events").out


def test_the_note_on_a_changed_file_is_about_the_corrected_one():
    ran(BROKEN)
    corrected(BROKEN.replace("exit 3", "exit 4"), "--follow")

    silent = mulligan("retry", "--dry-run")
    workflow(FIXED)
    noted = mulligan("retry", "--dry-run")

    assert ("note:" in silent.err, noted.err.startswith("note: 'flow.yaml' has changed")) == (False, True)


def test_without_a_run_it_is_the_newest_of_that_workflow_that_failed():
    ran(BROKEN)
    ran("name: other\nsteps: [{step: a, shell: exit 1}]")
    ran("name: pipeline\nsteps: [{step: a, shell: 'true'}]")

    assert corrected(FIXED, "--dry-run", "--json").json["run_id"] == 1


def test_an_input_that_the_file_needs_is_given_beside_it_and_one_that_the_run_has_stays():
    ran(BROKEN)
    needing = FIXED.replace("{type: string, default: nobody}", "string")

    missing = corrected(needing)
    given = corrected(needing, "-i", "who=me", "--follow")
    other = mulligan("retry", 1, "--file", workflow(needing.replace("echo counted", "exit 1")), "-i", "who=you")

    assert (missing.code, missing.err) == (
        2,
        "error[input.invalid]: input 'who' is missing\n  give it with -i who=VALUE\n",
    )
    assert (given.code, given.json) == (0, {"said": "told me"})
    assert (other.code, other.err.splitlines()[0]) == (2, "error[input.invalid]: run 1 already has the input 'who': me")


@pytest.mark.parametrize(
    ("words", "text", "refusal"),
    [
        ((), "name: other\nsteps: [{step: a, shell: 'true'}]", "error[refused]: run 1 is a run of 'pipeline', but"),
        (("--from", "lod"), FIXED, "error[step.unknown]: 'lod' is not a step of run 1"),
        ((), "steps: [{step: a, shel: x}]", "error[language.unknown_key]"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(words: tuple[str, ...], text: str, refusal: str):
    ran(BROKEN)
    before = mulligan("events").out

    said = mulligan("retry", 1, "--file", workflow(text), *words, "--dry-run")

    assert (said.code, said.err.startswith(refusal)) == (2, True)
    assert mulligan("events").out == before


def test_another_name_is_taken_where_that_is_meant():
    ran(BROKEN)

    said = mulligan("retry", 1, "--file", workflow(FIXED.replace("pipeline", "nightly")), "--force", "--follow")

    assert said.code == 0
    assert mulligan("list", "--json").json[0]["workflow"] == "pipeline"
    assert mulligan("replay", 1, "--verify").code == 0


def test_of_a_sweep_only_what_failed_runs_by_the_corrected_file_where_the_rest_is_to_be_kept():
    sweep = """\
name: sweep
steps:
  - step: "sim_{n}"
    matrix: {n: 1..6}
    shell: echo ${matrix.n} >> trace; test ${matrix.n} -lt 5
"""
    ran(sweep)
    fixed = sweep.replace("-lt 5", "-lt 9")

    foretold = corrected(fixed, "--dry-run", "--json").json["steps"]
    said = corrected(fixed, "--keep-completed", "--follow")

    assert (len(foretold), said.code) == (6, 0)
    assert sorted(Path("trace").read_text().split()) == sorted("1 2 3 4 5 6 5 6".split())
    assert "changed  sim \u00d7 6  shell  (4 keep their results)" in steady(said.err)


@pytest.mark.parametrize("words", [("-i", "a=1"), ("--format", "torc")])
def test_what_is_about_a_file_needs_one(words: tuple[str, ...]):
    ran(BROKEN)

    said = mulligan("retry", 1, *words)

    fork = (
        "; to run with another value of an input: mulligan fork RUN --from STEP -i KEY=VALUE" if "-i" in words else ""
    )
    assert (said.code, said.err.splitlines()[1]) == (2, f"  name the file: --file FILE{fork}")


def test_a_run_that_completed_is_forked_instead():
    ran("name: pipeline\nsteps: [{step: a, shell: 'true'}]")

    said = corrected(FIXED)

    assert (said.code, "mulligan fork 1 --from STEP" in said.err) == (2, True)


def test_the_run_is_found_by_the_inputs_that_the_corrected_file_gave_it():
    ran(BROKEN)
    corrected(FIXED, "--follow")

    assert mulligan("list", "--input", "who=nobody", "--json").json[0]["run_id"] == 1


def test_what_a_step_that_is_gone_failed_at_is_told_as_such():
    ran(SPREAD)

    said = corrected("name: pipeline\nsteps:\n  - {step: tell, shell: echo told}\n", "--follow")

    assert said.code == 0
    assert "each  ITEMS_FAILED: 1 of 2 items failed → no longer in the workflow" in steady(said.err)
    assert "each[1]  EXIT_NONZERO 1 → no longer in the workflow" in steady(said.err)
    visits = mulligan("report", "--json").json["visits"]
    assert {one["answer"] for one in visits} == {"no longer in the workflow"}


@pytest.mark.parametrize("words", [("items", 1, "each"), ("items", 1, "each", "--item", 1), ("show", 1, "each")])
def test_a_step_that_is_gone_is_looked_at_in_the_story_and_in_the_logs(words: tuple[object, ...]):
    ran(SPREAD)
    corrected("name: pipeline\nsteps:\n  - {step: tell, shell: echo told}\n", "--follow")

    said = mulligan(*words)

    assert (said.code, said.err) == (
        2,
        "error[step.unknown]: 'each' is not a step of run 1 any more: the corrected file removed it\n"
        "  what it did: mulligan explain 1 each; what it wrote: mulligan logs 1 each\n",
    )


def test_a_step_that_is_gone_leaves_its_story_and_its_logs():
    ran(BROKEN.replace("exit 3", "echo loading; exit 3"))

    said = corrected("name: pipeline\nsteps: [{step: fetch, shell: echo fetched >> trace}]", "--follow")

    assert said.code == 0
    assert "loading" in mulligan("logs", 1, "load").out
    assert "load" in mulligan("explain", 1).out
    assert mulligan("report", 1, "--json").code == 0
    assert mulligan("replay", 1, "--verify").code == 0


PROGRAM = """\
from mulligan import program, step


@step
def load(part: str) -> str:
    if part == "bad":
        raise ValueError(part)
    return part


@program
def parts():
    load("a")
    load("b")
    load("bad")
"""


def test_a_dry_run_says_where_a_corrected_program_differs():
    Path("parts.py").write_text(PROGRAM, encoding="utf-8")
    assert mulligan("run", "parts.py").code == 1
    Path("parts.py").write_text(PROGRAM.replace('"b"', '"c"'), encoding="utf-8")

    said = mulligan("retry", 1, "--file", "parts.py", "--dry-run")

    difference = "'load#2' (called at parts.py:14) now gets other arguments ('part'), at parts.py:14"
    assert f"what 'parts.py' changes:\n  changed  parts  program\n  differs  {difference}\n" in steady(said.err)
    planned = mulligan("retry", 1, "--file", "parts.py", "--dry-run", "--json").json
    assert planned["correction"]["differences"] == [difference]

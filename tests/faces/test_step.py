"""`mulligan step`: one step, one attempt, nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from .commands import mulligan, workflow

pytestmark = pytest.mark.usefixtures("folder")

FLOW = """\
name: release
inputs: {target: {type: string, default: staging}}
steps:
  - {step: build, shell: 'echo [1, 2]', capture: json}
  - step: deploy
    needs: [build]
    shell: |
      echo deploying ${steps.build.output} to ${inputs.target}
      echo attempt $MULLIGAN_ATTEMPT >&2
      test -e key
    retry: 3
    on_failure: touch handled
    triage: true
    next: [{to: repair, on: failure}]
  - {step: repair, shell: touch repaired}
  - step: check
    needs: [build]
    map: {over: "${steps.build.output}", as: one}
    do: [{shell: "echo ${one}", retry: 2, on_failure: "touch handled"}]
  - {step: gate, approve: 'go?'}
end: {shell: touch ended}
"""


def untouched() -> bool:
    return not any(Path(name).exists() for name in ("handled", "repaired", "ended", ".mulligan"))


def test_one_step_runs_once_with_what_it_reads_given_by_hand():
    Path("key").touch()

    said = mulligan("step", workflow(FLOW), "deploy", "--result", "build=[7]", "-i", "target=prod")

    assert said == (0, "deploying [7] to prod\n", "attempt 1\nstep 'deploy' completed\n")
    assert untouched()


def test_a_step_that_fails_is_not_retried_handled_parked_or_routed():
    said = mulligan("step", workflow(FLOW), "deploy")

    assert said == (1, "deploying  to staging\n", "attempt 1\nstep 'deploy' failed, EXIT_NONZERO 1: attempt 1\n")
    assert untouched()


def test_every_item_of_a_map_step_runs_once():
    said = mulligan("step", workflow(FLOW), "check", "--result", 'build=["a", "b"]')

    assert (said.code, sorted(said.out.split()), said.err) == (0, ["a", "b"], "step 'check' completed\n")


def test_as_json_it_is_a_run_of_that_step_and_of_what_it_reads():
    run = mulligan("step", workflow(FLOW), "deploy", "--json").json

    assert (run["status"], list(run["steps"])) == ("failed", ["build", "deploy"])
    assert (run["steps"]["build"]["attempts"], run["steps"]["deploy"]["attempts"]) == (0, 1)


def test_in_a_home_that_is_named_it_is_kept():
    said = mulligan("step", workflow(FLOW), "build", "--home", "kept")

    assert said == (0, "[1, 2]\n", "step 'build' completed\nkept as run 1 in 'kept'\n")
    assert mulligan("logs", 1, "build", "--home", "kept").out == "[1, 2]\n"


def test_a_step_that_asks_a_person_waits():
    said = mulligan("step", workflow(FLOW), "gate")

    assert said == (4, "", "step 'gate' running\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("biuld",),
            "error[step.unknown]: 'biuld' is not a step of workflow 'release'\n  did you mean 'build'?\n",
        ),
        (
            ("deploy", "--result", "repair=1"),
            "error[step.unknown]: step 'deploy' reads no result of 'repair'\n  it reads build\n",
        ),
        (
            ("deploy", "--result", "build=oops"),
            "error[usage]: 'build=oops' is no STEP=JSON\n  write it like build='[1, 2]'\n",
        ),
        (
            ("deploy", "-i", "size=3"),
            "error[input.invalid]: workflow 'release' has no input 'size'\n  it has 'target'\n",
        ),
    ],
    ids=["step", "result", "json", "input"],
)
def test_a_step_that_makes_no_sense_is_refused_and_nothing_runs(words: tuple[str, ...], said: str):
    refused = mulligan("step", workflow(FLOW), *words)

    assert (refused.code, refused.out) == (2, "")
    assert refused.err == said
    assert untouched()

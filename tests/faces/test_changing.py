"""`mulligan cancel`, `pause`, `retry` and `fork`, where no other process drives the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from .commands import mulligan, ran, workflow

pytestmark = pytest.mark.usefixtures("folder")

HELLO = "name: hello\nsteps:\n  - {step: greet, shell: echo hello}\n"
# Waits for a person: something has been done, something is open.
WAITING = """\
name: waiting
inputs: {target: {type: string, default: staging}}
steps:
  - {step: build, shell: "echo built ${inputs.target}", undo: {shell: echo undone >> trace}}
  - step: deploy
    needs: [build]
    shell: exit 7
    on_failure: {shell: echo cleaned >> trace, strategy: cleanup}
    triage: true
  - {step: announce, needs: [deploy], shell: echo announced}
end: {shell: echo over >> trace}
"""
BROKEN = """\
name: broken
inputs: {target: {type: string, default: staging}}
steps:
  - {step: build, shell: "echo built ${inputs.target}"}
  - {step: deploy, needs: [build], shell: test -e key}
  - {step: announce, needs: [deploy], shell: "echo announced ${steps.build.output}"}
outputs: {said: "${steps.announce.output}"}
"""


# cancel


def test_a_run_that_nobody_drives_is_driven_to_its_end_undo_and_end_included():
    ran(WAITING)

    said = mulligan("cancel", 1, "--reason", "wrong target")

    assert said.code == 0
    assert said.err.startswith("run 1 is stopping and nobody drives it: its cleanup and its end run here\n")
    assert mulligan("show", 1, "--json").json["status"] == "cancelled"
    assert Path("trace").read_text().splitlines() == ["cleaned", "undone", "over"]


def test_now_runs_the_end_alone():
    ran(WAITING)

    assert mulligan("cancel", 1, "--now").code == 0

    assert Path("trace").read_text().splitlines() == ["cleaned", "over"]


def test_a_run_without_anything_left_to_run_is_cancelled_at_once():
    ran("name: asking\nsteps:\n  - {step: gate, approve: 'deploy?'}\n")

    assert mulligan("cancel", 1) == (0, "", "run 1 is cancelled\n")


def test_a_cancelled_run_as_json_is_one_object():
    ran("name: asking\nsteps:\n  - {step: gate, approve: 'deploy?'}\n")

    assert mulligan("cancel", 1, "--json").json["status"] == "cancelled"


def test_who_cancelled_and_why_is_in_the_log():
    ran("name: asking\nsteps:\n  - {step: gate, approve: 'deploy?'}\n")

    mulligan("cancel", 1, "--reason", "wrong target")

    assert "reason=wrong target" in mulligan("events", 1).out


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        (
            "cancel",
            "error[run.finished]: run 1 completed on THEN, so there is nothing to cancel\n"
            "  to run it again from a step: mulligan fork 1 --from STEP\n",
        ),
        ("pause", "error[run.finished]: run 1 completed, so there is nothing to pause\n"),
        (
            "retry",
            "error[run.nothing_to_retry]: run 1 completed, so there is nothing to retry\n"
            "  to run it again from a step: mulligan fork 1 --from STEP\n",
        ),
    ],
)
def test_a_run_that_completed_is_left_alone(verb: str, said: str):
    ran(HELLO)

    assert mulligan(verb, 1).plain == (2, "", said)


# pause


def test_a_run_is_paused_once_and_says_how_to_go_on():
    ran(WAITING)

    first, again = mulligan("pause", 1), mulligan("pause", 1)

    assert first == (0, "", "run 1 is paused; to let it go on: mulligan resume 1\n")
    assert again == (0, "", "run 1 is paused already; to let it go on: mulligan resume 1\n")
    assert mulligan("pause", 1, "--json").json["status"] == "paused"


# retry


def test_another_round_runs_what_was_not_done():
    ran(BROKEN)
    Path("key").touch()

    said = mulligan("retry", 1, "--follow", "--json")

    assert (said.code, said.json["status"], said.json["round"]) == (0, "completed", 2)
    assert [step["attempts"] for step in said.json["steps"].values()] == [1, 2, 1]
    assert said.err.startswith("run 1 has another round: 2 steps again\n")


def test_another_round_that_fails_again_is_exit_code_1():
    ran(BROKEN)

    assert mulligan("retry", 1, "--follow").code == 1


def test_off_a_terminal_a_retry_is_recorded_and_left_to_resume():
    ran(BROKEN)

    assert mulligan("retry", 1) == (
        0,
        "",
        "run 1 has another round: 2 steps again\nnobody drives it: mulligan resume 1\n",
    )
    assert mulligan("resume", 1).code == 1


def test_a_dry_run_says_what_would_run_again_and_changes_nothing():
    ran(BROKEN)

    assert mulligan("retry", 1, "--dry-run") == (0, "deploy\nannounce\n", "run 1: would run again\n")
    assert mulligan("retry", 1, "--from", "build", "--dry-run", "--json").json == {
        "run_id": 1,
        "steps": ["build", "deploy", "announce"],
    }
    assert mulligan("show", 1, "--json").json["round"] == 1


@pytest.mark.parametrize("words", [(), ("--dry-run",)], ids=["retry", "dry run"])
def test_a_run_that_has_not_ended_cannot_be_retried(words: tuple[str, ...]):
    ran(WAITING)

    assert mulligan("retry", 1, *words) == (
        2,
        "",
        "error[run.not_finished]: run 1 is running: it can be retried when it has ended\n"
        "  to stop it: mulligan cancel 1\n",
    )


def test_a_retry_from_a_step_that_is_not_there_is_refused():
    ran(BROKEN)

    assert mulligan("retry", 1, "--from", "depoly") == (
        2,
        "",
        "error[step.unknown]: 'depoly' is not a step of run 1\n",
    )


# fork


def test_a_fork_keeps_what_was_done_before_the_step():
    ran(BROKEN)
    Path("key").touch()

    said = mulligan("fork", 1, "--from", "deploy", "--json")

    assert (said.code, said.json["run_id"], said.json["status"]) == (0, 2, "completed")
    assert said.json["outputs"] == {"said": "announced built staging"}
    assert [step["attempts"] for step in said.json["steps"].values()] == [0, 1, 1]


def test_a_fork_may_have_other_inputs_and_another_workflow():
    ran(BROKEN)
    fixed = workflow(BROKEN.replace("test -e key", "'true'"), "fixed.yaml")

    said = mulligan("fork", 1, "--from", "build", "-i", "target=prod", "--file", fixed, "--json")

    assert (said.code, said.json["outputs"]) == (0, {"said": "announced built prod"})


def test_a_fork_can_be_left_for_later():
    ran(BROKEN)

    assert mulligan("fork", 1, "--from", "deploy", "--no-follow") == (
        0,
        "",
        "run 2 is a fork of run 1 from 'deploy'\nnobody drives it: mulligan resume 2\n",
    )
    assert mulligan("resume", 2).code == 1


def test_a_dry_fork_says_what_would_run_and_makes_no_run():
    ran(BROKEN)

    assert mulligan("fork", 1, "--from", "deploy", "--dry-run") == (
        0,
        "deploy\nannounce\n",
        "run 1: a fork would run\n",
    )
    assert len(mulligan("list", "--json").json) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from", "nope"), "error[step.unknown]: 'nope' is not a step of the workflow to run\n"),
        (
            ("--from", "deploy", "-i", "targte=x"),
            "error[input.invalid]: workflow 'broken' has no input 'targte'\n  did you mean 'target'?\n",
        ),
        (("--from", "deploy", "-i", "target"), "error[usage]: 'target' is no input\n  write it like -i name=value\n"),
        (
            ("--from", "deploy", "--file", "no.yaml"),
            "error[language.unreadable]: no.yaml: there is no such file\n",
        ),
        ((), "error[usage]: missing option '--from'\n  how it is used: mulligan fork --help\n"),
    ],
    ids=["step", "input", "no input", "file", "nothing"],
)
def test_a_fork_that_makes_no_sense_is_refused_and_makes_no_run(words: tuple[str, ...], said: str):
    ran(BROKEN)

    assert mulligan("fork", 1, *words) == (2, "", said)
    assert len(mulligan("list", "--json").json) == 1

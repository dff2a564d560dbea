"""`mulligan run` says no to what cannot come to be: by name, and before anything has started."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import mulligan, workflow


def test_a_file_that_is_read_and_never_written_must_be_there(folder: Path):
    text = "files: {mesh: mesh.vtk}\nsteps: [{step: solve, shell: ./solve, reads: [mesh]}]"

    said = mulligan("run", workflow(text))

    told = "error[input.invalid]: file 'mesh.vtk' does not exist, and no step writes it\n"
    assert tuple(said) == (2, "", f"{told}  looked in {folder}\n")


MISSING = {
    "variable": (
        "secrets: {key: {env: NOWHERE}}\nsteps: [{step: a, shell: 'sign ${secrets.key}'}]",
        "environment variable 'NOWHERE' is not set where the worker runs",
    ),
    "file": (
        "secrets: {key: {file: keys/none}}\nsteps: [{step: a, shell: sign, env: {KEY: '${secrets.key}'}}]",
        "there is no file 'keys/none'",
    ),
    # at any depth: in a handler
    "handler": (
        "secrets: {key: {env: NOWHERE}}\nsteps: [{step: a, shell: make, on_failure: 'sign ${secrets.key}'}]",
        "environment variable 'NOWHERE' is not set where the worker runs",
    ),
    # in the command of an item
    "item": (
        "secrets: {key: {env: NOWHERE}}\nsteps: [{step: a, map: {over: [1]}, do: ['sign ${secrets.key}']}]",
        "environment variable 'NOWHERE' is not set where the worker runs",
    ),
    "short": (
        "secrets: {key: {env: SHORT}}\nsteps: [{step: a, shell: 'sign ${secrets.key}'}]",
        "it has fewer than 4 characters, too few to be redacted",
    ),
}


@pytest.mark.parametrize(("text", "reason"), MISSING.values(), ids=MISSING.keys())
def test_a_secret_that_a_step_reads_must_be_there(
    text: str, reason: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SHORT", "abc")

    said = mulligan("run", workflow(text))

    told = f"error[input.invalid]: secret 'key', which step 'a' reads, is not available: {reason}\n"
    assert tuple(said) == (2, "", told)
    assert mulligan("list", "--json").json == []


MAY_COME = {
    "read by nobody": "secrets: {key: {env: NOWHERE}}\nsteps: [{step: a, shell: 'true'}]",
    "printed by a command": "secrets: {key: {command: echo hunter2}}\nsteps: [{step: a, shell: ': ${secrets.key}'}]",
    "written by a step": (
        "files: {key: key.txt}\nsecrets: {key: {file: key.txt}}\n"
        "steps: [{step: a, shell: echo hunter2 > key.txt, writes: [key]}, "
        "{step: b, needs: [a], shell: ': ${secrets.key}'}]"
    ),
}


@pytest.mark.parametrize("text", MAY_COME.values(), ids=MAY_COME.keys())
def test_a_secret_that_may_be_there_in_time_is_waited_for(text: str, folder: Path):
    assert mulligan("run", workflow(text)).code == 0


def test_one_step_alone_is_tried_with_its_secret(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TOKEN", "hunter2-never-told")
    text = "secrets: {t: {env: TOKEN}}\nsteps: [{step: a, shell: 'echo ${#TOKEN} ${secrets.t}'}]"

    said = mulligan("step", workflow(text), "a")

    assert said.code == 0
    assert "18 ***" in said.out + said.err
    assert "hunter2" not in said.out + said.err

"""A program in memory: what a test sees of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.programs import running_programs

import mulligan
from mulligan import StepFailed, approve, program, sleep
from mulligan.errors import Refused
from mulligan.programs.rehearsing import ReplayDiffers, after, rehearse

from .steps_of_programs import add, double


@program
def sums(number: int):
    sleep("10s")
    return add(double(number), 1)


def test_the_story_has_each_call_and_the_end():
    assert rehearse(sums, 2).story() == [
        "sleep(seconds=10.0): None",
        "double(number=2): 4",
        "add(one=4, other=1): 5",
        "the program returned 5",
    ]
    assert rehearse(sums, 2, fakes={"double": StepFailed("X", "no")}).story()[1:] == [
        "double(number=2): X",
        "the program raised X: no",
    ]


@pytest.mark.parametrize(
    ("fake", "result"),
    [
        (7, 7),
        (lambda one, other: one * other, 4),
        (iter([3]), 3),
        (after("1h", 9), 9),
        (after("1h", lambda one, other: one), 4),
        (iter([after("1h", 8)]), 8),
    ],
    ids=["value", "function", "iterator", "after", "after_function", "iterator_of_after"],
)
def test_a_fake_is_what_a_call_ends_with(fake: Any, result: int):
    assert rehearse(sums, 2, fakes={"add": fake}).result == result


def test_a_failure_is_raised_by_check():
    with pytest.raises(StepFailed, match="X"):
        rehearse(sums, 2, fakes={"double": StepFailed("X")}).check()
    assert rehearse(sums, 2).check().status == "completed"


def test_a_fake_that_has_no_further_end_is_said():
    failure = rehearse(sums, 2, fakes={"double": iter([])}).failure

    assert failure is not None
    assert "a fake has no further end" in failure.message


def test_an_approval_without_an_answer_is_said():
    from mulligan import approve

    @program
    def asks():
        approve("go on?")

    failure = rehearse(asks).failure

    assert failure is not None
    assert "fakes={'approve': True}" in failure.message


def test_the_fixture_runs_a_program(rehearse_program: Any):
    assert rehearse_program(sums, number=3).result == 7


def test_a_changed_program_is_replayed_over_a_run_of_a_store(tmp_path: Path, replay_program: Any):
    run = mulligan.run(running_programs.asking, home=tmp_path / "home", folder=str(tmp_path), show=False)

    @program
    def changed(folder: str) -> str:
        running_programs.note(folder, "before")
        approve("really?")
        return folder

    replay_program(running_programs.asking, run)
    with pytest.raises(ReplayDiffers, match="and now .approve. is called"):
        replay_program(changed, run)


def test_a_run_of_a_flow_has_no_history_of_a_program(tmp_path: Path, replay_program: Any):
    file = tmp_path / "flow.yaml"
    file.write_text("steps: [{step: a, shell: 'true'}]")
    run = mulligan.run(str(file), home=tmp_path / "home", show=False)

    with pytest.raises(Refused, match="not a run of a program"):
        replay_program(sums, run)

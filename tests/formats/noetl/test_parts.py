"""The records of the parts of a step: what is taken from them, and what is never in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mulligan import StepError
from mulligan.formats.noetl.runtime.parts import Parts

A, B, C = ({"kind": "shell", "cmds": [name]} for name in "abc")


def failing() -> Any:
    raise StepError("TIMEOUT", "slow", retryable=True, details={"kind": "timeout"})


def refusing() -> Any:
    raise AssertionError("it ran again")


def test_the_next_attempt_takes_results_and_errors_from_the_records_and_then_runs(tmp_path: Path):
    first = Parts(tmp_path / "step.1")
    first.run(A, lambda: {"n": 1})
    with pytest.raises(StepError):
        first.run(B, failing)

    second = Parts(tmp_path / "step.2")
    assert second.run(A, refusing) == {"n": 1}
    with pytest.raises(StepError) as recorded:
        second.run(B, refusing)
    assert (recorded.value.code, recorded.value.message, recorded.value.details) == (
        "TIMEOUT",
        "slow",
        {"kind": "timeout"},
    )
    assert not second.is_replaying
    assert second.run(B, lambda: 2) == 2

    third = Parts(tmp_path / "step.3")
    assert third.run(A, refusing) == {"n": 1}


def test_records_of_a_step_that_is_another_one_now_are_not_used(tmp_path: Path):
    first = Parts(tmp_path / "step.1")
    for tool in (A, B, C):
        first.run(tool, lambda: "old")

    second = Parts(tmp_path / "step.2")

    assert [second.run(tool, lambda: "new") for tool in (A, C, B)] == ["old", "new", "new"]
    third = Parts(tmp_path / "step.3")
    assert [third.run(tool, refusing) for tool in (A, C, B)] == ["old", "new", "new"]


def test_a_record_that_was_not_written_whole_does_not_count(tmp_path: Path):
    Parts(tmp_path / "step.1").run(A, lambda: 1)
    with (tmp_path / "step.1").open("a") as file:
        file.write('{"part": "x", "resu')

    second = Parts(tmp_path / "step.2")

    assert second.run(A, refusing) == 1
    assert second.run(B, lambda: 2) == 2


@pytest.mark.parametrize(
    "result", [{"token": "s3cret"}, {"text": "a s3cret in a text"}, (1, 2), {1: 2}, {1, 2}, float("nan")]
)
def test_secrets_and_values_that_json_changes_are_not_recorded_nor_what_follows(tmp_path: Path, result: Any):
    first = Parts(tmp_path / "step.1", secrets=["s3cret", "no"])
    first.run(A, lambda: "no secret")
    first.run(B, lambda: result)
    first.run(C, lambda: "after")

    assert "s3cret" not in (tmp_path / "step.1").read_text()
    second = Parts(tmp_path / "step.2")
    assert [second.run(tool, lambda: "again") for tool in (A, B, C)] == ["no secret", "again", "again"]


def test_after_a_failure_there_are_no_records(tmp_path: Path):
    Parts(tmp_path / "step.1").run(A, lambda: 1)
    second = Parts(tmp_path / "step.2")

    second.discard()

    assert list(tmp_path.iterdir()) == []
    second.run(A, lambda: 1)
    assert list(tmp_path.iterdir()) == []


def test_only_the_owner_may_read_them_and_a_step_runs_where_they_cannot_be_written(tmp_path: Path):
    Parts(tmp_path / "parts/step.1").run(A, lambda: 1)
    (tmp_path / "file").write_text("")

    assert (tmp_path / "parts/step.1").stat().st_mode & 0o077 == 0
    assert Parts(tmp_path / "file/step.1").run(A, lambda: 1) == 1

"""Programs on the engine, with real processes: what they return, what is recorded, and how they go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.programs import running_programs as programs

import mulligan


def lines(folder: Path) -> list[str]:
    return sorted(Path(folder, "lines").read_text(encoding="utf-8").split())


def test_a_program_decides_while_it_runs_and_every_call_is_a_step(tmp_path: Path) -> None:
    run = mulligan.run(programs.everything, home=tmp_path / "home", folder=str(tmp_path), show=False)

    assert run.status == "completed", run.explain()
    assert run.outputs["result"] == {"found": ["MISSING", "a", "b", "c"], "number": 3}
    assert list(run.steps) == [
        *("everything", "needs", "count", "count#2", "count#3", "sleep", "note", "note#2", "note#3")
    ]
    assert run.is_degraded and len(run.steps["needs"].attempts) == 2
    assert (run.steps["everything"].attempts[0].peak_memory or 0) > 2**20
    assert lines(tmp_path) == ["a", "b", "c"]


@pytest.mark.nightly
def test_an_asynchronous_program_runs_its_tasks_beside_each_other(tmp_path: Path) -> None:
    run = mulligan.run(programs.beside, home=tmp_path / "home", folder=str(tmp_path), show=False)

    assert run.outputs["result"] == ["a", "b"], run.explain()


@pytest.mark.parametrize("is_approved", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_program_goes_on_in_another_process_when_a_person_has_answered(tmp_path: Path, is_approved: bool) -> None:
    run = mulligan.run(programs.asking, home=tmp_path / "home", folder=str(tmp_path), show=False)
    waiting = [wait.kind for wait in run.waiting_for]
    (asked,) = run.pending

    (run.approve if is_approved else run.refuse)("approve", "because")

    assert "approval" in waiting
    shown = {one.name: (one.kind, one.columns, one.rows) for one in asked.evidence}
    assert shown["first"] == ("table", ["rows", "text"], [["1", "a"]])
    assert run.status == "completed", run.explain()
    assert run.outputs["result"] == ("201-loaded" if is_approved else "100 rejected")
    assert lines(tmp_path) == (["201-loaded", "before"] if is_approved else ["before"])


def test_a_retry_makes_the_calls_again_that_failed_or_were_undone(tmp_path: Path) -> None:
    run = mulligan.run(programs.broken_between, home=tmp_path / "home", folder=str(tmp_path), show=False)
    failed = run.status
    (tmp_path / "file").touch()

    run.retry()

    assert (failed, run.status) == ("failed", "completed"), run.explain()
    # Twice made and once undone.
    assert lines(tmp_path) == ["a", "a", "a", "b", "not"]


def test_a_program_whose_process_somebody_kills_goes_on(tmp_path: Path) -> None:
    run = mulligan.run(programs.killed, home=tmp_path / "home", folder=str(tmp_path), show=False)

    assert run.outputs["result"] == "after", run.explain()
    assert lines(tmp_path) == ["after", "before"]


def test_an_inline_step_has_the_idempotency_key_that_its_retries_on_a_worker_have(tmp_path: Path) -> None:
    run = mulligan.run(programs.charging, home=tmp_path / "home", folder=str(tmp_path), show=False)

    charges = [line.split() for line in (tmp_path / "charges").read_text(encoding="utf-8").splitlines()]

    assert [(step, cents, attempt) for step, cents, attempt, _ in charges] == [
        *(("charge", "0", "1"), ("charge", "0", "2"), ("charge#2", "1", "1")),
        *(("charge#3", "0", "1"), ("charge#3", "0", "2"), ("charge#again", "0", "1"), ("charge#again", "0", "2")),
    ]
    assert {key.partition(":")[2] for *_, key in charges} == {f"{step}:1" for step, *_ in charges}
    assert len({key for *_, key in charges}) == 4
    assert run.status == "failed"
    (tmp_path / "charges").unlink()
    (tmp_path / "file").touch()

    run.retry(from_step="charge")

    again = [line.split() for line in (tmp_path / "charges").read_text(encoding="utf-8").splitlines()]
    assert run.status == "completed", run.explain()
    assert [(step, attempt) for step, _, attempt, _ in again] == [
        *(("charge", "3"), ("charge", "4"), ("charge#2", "2"), ("charge#3", "3"), ("charge#3", "4")),
        *(("charge#again", "3"), ("charge#again", "4")),
    ]
    assert {key.partition(":")[2] for *_, key in again} == {f"{step}:2" for step, *_ in again}


def test_a_program_sees_the_class_that_a_step_has_raised(tmp_path: Path) -> None:
    run = mulligan.run(programs.catching, home=tmp_path / "home", folder=str(tmp_path), show=False)

    assert run.status == "completed", run.explain()
    own = f"{programs.__name__}.Closed"
    assert run.outputs["result"] == [
        *("CONNECTION", own, True, False),
        *("CONNECTION", own, True, False),
        *("mulligan.StepError", False),
    ]
    assert lines(tmp_path) == ["connect", "connect", "here", "here"]


def test_a_program_is_retried_by_the_class_that_it_raises_itself(tmp_path: Path) -> None:
    run = mulligan.run(programs.refused, home=tmp_path / "home", folder=str(tmp_path), show=False)

    assert run.outputs["result"] == "done", run.explain()
    first, _ = run.steps["refused"].attempts
    assert first.failure is not None and first.failure.code == "PERMISSION"

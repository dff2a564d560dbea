"""A home that is moved, removed or replaced while a process drives runs in it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mulligan.core.model import events as e
from mulligan.service.home import DATABASE
from proof.stage import Stage, answered, wait_until

from .forked_stage import ForkedStage

# The first time it waits to be ended.
LONG = """
name: long
steps:
  - {step: before, shell: 'sh $ACT before'}
  - step: long
    needs: [before]
    retry: 0
    shell: 'test -e again && exec sh $ACT long; sh $ACT long 1000'
"""


def begun(stage: Stage) -> subprocess.Popen[str]:
    process = stage.start("run", stage.workflow(LONG))
    wait_until(lambda: stage.has_begun("long"), lambda: f"it did not begin: {process.poll()}")
    (stage.folder / "again").touch()
    return process


def moved(stage: Stage) -> Path:
    """Where the home is now."""
    return stage.home.folder.rename(stage.folder / "elsewhere")


def test_a_process_whose_home_is_moved_stops_what_it_runs_and_says_where_the_run_goes_on(file_stage: Stage) -> None:
    old = file_stage.home.folder
    process = begun(file_stage)

    new = moved(file_stage)
    code, _, said = answered(process)

    assert code == 1
    assert said.splitlines()[-2:] == [
        f"error[home.moved]: the home '{old}' was moved to '{new}' while this process used it; "
        "all running tasks were stopped",
        f"  to continue there: mulligan resume --home {new}",
    ]
    file_stage.expect_nothing_left()
    assert not old.exists()
    assert list((new / "workers").iterdir()) == []


def test_a_run_whose_home_was_moved_goes_on_at_its_new_place_and_no_two_attempts_overlap(file_stage: Stage) -> None:
    process = begun(file_stage)

    # At once, while the first process may not have noticed it.
    new = moved(file_stage)
    resumed = file_stage.start("resume", "1", "--json", "--home", new)
    code, shown, said = answered(resumed)
    if code == 2:
        # It came so early that the first one still had the run.
        assert "error[run.driven]" in said
        wait_until(lambda: process.poll() is not None, "it did not end")
        code, shown, said = answered(file_stage.start("resume", "1", "--json", "--home", new))

    assert (code, shown["status"]) == (0, "completed"), said
    assert answered(process)[0] == 1
    file_stage.expect_no_overlap()
    assert [line.name for line in file_stage.lines() if line.verb == "start"] == ["before", "long", "long"]
    at_new = ForkedStage(file_stage.folder, home=new)
    with at_new.service() as service:
        at_new.expect_promises(service, 1)
        lost = [entry.fact for entry in service.reader.events(1) if isinstance(entry.fact, e.AttemptLost)]
    assert [(fact.place, fact.attempt) for fact in lost] == [("long", 1)]


@pytest.mark.parametrize("what", ["the home", "the database"])
def test_a_process_whose_home_is_removed_or_replaced_stops_what_it_runs(file_stage: Stage, what: str) -> None:
    process = begun(file_stage)

    if what == "the home":
        shutil.rmtree(file_stage.home.folder)
    else:
        shutil.copy(file_stage.home.folder / DATABASE, file_stage.folder / "copy.db")
        (file_stage.folder / "copy.db").rename(file_stage.home.folder / DATABASE)
    code, _, said = answered(process)

    assert (code, "error[home.moved]" in said) == (1, True), said
    file_stage.expect_nothing_left()


def test_on_postgres_too_a_process_whose_home_is_moved_stops_what_it_runs(server_stage: Stage) -> None:
    process = begun(server_stage)

    moved(server_stage)
    code, _, said = answered(process)

    assert (code, "error[home.moved]" in said) == (1, True), said
    server_stage.expect_nothing_left()


def test_a_run_whose_dead_worker_has_lost_its_lock_file_is_taken_up_after_a_lease(file_stage: Stage) -> None:
    file_stage.environment["MULLIGAN_LEASE"] = "1s"
    process = begun(file_stage)
    process.kill()
    process.communicate()
    file_stage.expect_nothing_left()
    for path in file_stage.home.locks.glob("*.lock"):
        path.unlink()

    paused = answered(file_stage.start("pause", "1", "--json"))
    code, shown, said = answered(file_stage.start("resume", "1", "--json"))

    assert paused[0] == 0, paused[2]
    assert (code, shown["status"]) == (0, "completed"), said
    file_stage.expect_no_overlap()

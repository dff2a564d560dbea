"""`mulligan gc`: what it removes, what it leaves, and what it says of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import mulligan, process, ran, workflow
from tests.support.runner import wait_until

from mulligan.service.home import Home
from mulligan.service.service import Service
from mulligan.worker import lock
from mulligan.worker.environments.environment_cache import lock_folder

LARGE = """
name: large
order: sequential
steps:
  - {step: text, shell: seq 1 20000}
  - {step: count, shell: wc -l, stdin: "${steps.text.output}"}
"""
SMALL = "name: small\nsteps: [{step: a, shell: echo said}]"
HOURS_AGO = time.time() - 2 * 3600


@pytest.fixture(params=["sqlite", "postgres"])
def home(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Nothing is there yet, on each kind of store."""
    url = request.getfixturevalue("store_schema_url") if request.param == "postgres" else ""
    if url:
        monkeypatch.setenv("MULLIGAN_STORE", url)
    return Home(folder / ".mulligan", url)


def names(home: Home) -> list[str]:
    service = Service(home)
    try:
        return sorted(record.name for record in service.reader.store.artifacts.records())
    finally:
        service.close()


def keep(home: Home, name: str) -> None:
    """An artifact that nobody refers to."""
    service = Service(home)
    service.reader.store.artifacts.keep(name, b"orphan", "text")
    service.close()


def removed_earlier(home: Home, run_id: int) -> None:
    """The number of a run that was removed: it was given out."""
    service = Service(home)
    service.reader.store.skip_run_ids(run_id)
    service.close()


def swept(*words: object) -> dict[str, Any]:
    """What `gc` says as JSON, without what it has nothing of."""
    said = mulligan("gc", "--json", *words)
    assert said.code == 0, said.err
    return {name: value for name, value in said.json.items() if value}


def age(path: Path) -> None:
    os.utime(path, (HOURS_AGO, HOURS_AGO))


# -- what nobody refers to ---------------------------------------------------------------------------------------------


def test_where_nothing_was_run_there_is_nothing_and_nothing_is_made(folder: Path):
    assert tuple(mulligan("gc")) == (0, "", "there is nothing to remove\n")
    assert list(folder.iterdir()) == []


def test_what_a_run_refers_to_stays(home: Home):
    ran(LARGE)

    assert tuple(mulligan("gc")) == (0, "", "there is nothing to remove\n")
    assert names(home) == ["1/text/1/1/output.txt"]
    assert mulligan("replay", 1, "--verify").code == 0


def test_an_orphan_of_a_run_that_has_ended_goes(home: Home):
    ran(LARGE)
    keep(home, "1/text/1/7/output.txt")

    code, out, err = mulligan("gc")

    assert (code, err) == (0, "removed: 1 artifact, 6B of files\n")
    assert out == "REMOVED                         SIZE\nartifact 1/text/1/7/output.txt  6B\n"
    assert names(home) == ["1/text/1/1/output.txt"]


def test_one_of_a_run_that_was_removed_goes(home: Home):
    ran(LARGE)
    removed_earlier(home, 99)
    keep(home, "99/text/1/1/output.txt")

    assert swept() == {"artifacts": [{"name": "99/text/1/1/output.txt", "size": 6}], "size": 6}


def test_what_a_live_run_has_just_been_given_stays(home: Home):
    """Its end may be about to be written."""
    ran("name: waits\nsteps: [{step: ask, approve: {message: go on?}}]")
    keep(home, "1/text/1/1/output.txt")

    assert swept() == {}
    assert names(home) == ["1/text/1/1/output.txt"]


def test_of_a_live_run_an_old_orphan_goes(folder: Path):
    ran("name: waits\nsteps: [{step: ask, approve: {message: go on?}}]")
    keep(Home(folder / ".mulligan"), "1/text/1/1/output.txt")
    age(folder / ".mulligan/artifacts/1/text/1/1/output.txt")

    assert [one["name"] for one in swept()["artifacts"]] == ["1/text/1/1/output.txt"]
    assert list((folder / ".mulligan/artifacts").iterdir()) == []


def test_what_a_task_at_work_may_still_tell_of_stays_however_old_it_is(folder: Path):
    """Its worker may have been stopped for hours, between keeping it and telling."""
    home = Home(folder / ".mulligan")
    os.mkfifo(folder / "pipe")
    running = process("run", workflow("name: waits\nsteps: [{step: text, shell: cat pipe}]"))
    try:
        wait_until(lambda: home.is_there and mulligan("show", 1).out.count("text  running"))
        keep(home, "1/text/1/1/output.txt")
        age(folder / ".mulligan/artifacts/1/text/1/1/output.txt")

        assert swept() == {}
        (folder / "pipe").write_text("done\n")
        running.communicate()
    finally:
        running.kill()
    assert [one["name"] for one in swept()["artifacts"]] == ["1/text/1/1/output.txt"]


def test_a_half_written_one_goes_when_it_is_old(folder: Path):
    ran(LARGE)
    old, new = (folder / f".mulligan/artifacts/1/text/1/1/.half-{name}" for name in ("old", "new"))
    for half in (old, new):
        half.write_bytes(b"ha")
    age(old)

    assert swept() == {"half_written": [{"name": "1/text/1/1/.half-old", "size": 2}], "size": 2}
    assert new.exists()


def test_what_is_not_ours_is_left_alone(folder: Path):
    ran(LARGE)
    note = folder / ".mulligan/artifacts/README"
    note.write_text("mine")

    assert swept() == {}
    assert note.exists()


def test_a_dry_run_says_what_would_go_and_removes_nothing(home: Home):
    ran(LARGE)
    removed_earlier(home, 99)
    keep(home, "99/text/1/1/output.txt")

    code, out, err = mulligan("gc", "--dry-run", "--keep", 0)

    assert (code, err.split(",")[:2]) == (0, ["would be removed: 1 run", " 2 artifacts"])
    assert [line.split("  ")[0] for line in out.splitlines()] == [
        "WOULD BE REMOVED",
        "run 1",
        "artifact 1/text/1/1/output.txt",
        "artifact 99/text/1/1/output.txt",
        "logs of run 1",
    ]
    assert names(home) == ["1/text/1/1/output.txt", "99/text/1/1/output.txt"]
    assert mulligan("show", 1).code == 0
    before = mulligan("gc", "--dry-run", "--keep", 0, "--json").json
    assert mulligan("gc", "--keep", 0, "--json").json == {**before, "dry_run": False}


def test_of_very_many_the_first_are_named_and_the_rest_counted(folder: Path):
    ran(SMALL)
    removed_earlier(Home(folder / ".mulligan"), 99)
    for number in range(23):
        keep(Home(folder / ".mulligan"), f"99/text/1/{number}/output.txt")

    lines = mulligan("gc").out.splitlines()

    assert len(lines) == 22
    assert lines[-1].split("  ")[0] == "and 3 more artifacts"


# -- runs --------------------------------------------------------------------------------------------------------------


def test_runs_beyond_the_newest_go_with_all_that_is_theirs(home: Home):
    for _ in range(3):
        ran(LARGE)

    found = swept("--keep", 1)

    assert found["runs"] == [1, 2]
    assert [one["name"] for one in found["artifacts"]] == ["1/text/1/1/output.txt", "2/text/1/1/output.txt"]
    assert [one["run_id"] for one in found["logs"]] == [1, 2]
    assert names(home) == ["3/text/1/1/output.txt"]
    assert [path.name for path in (home.folder / "runs").iterdir()] == ["3"]
    assert [run["run_id"] for run in mulligan("list", "--json").json] == [3]
    assert mulligan("show", 1).code == 2
    assert mulligan("replay", 3, "--verify").code == 0


def test_runs_that_ended_long_ago_go(home: Home):
    ran(SMALL)

    assert swept("--older-than", "1h") == {}
    assert swept("--older-than", "0s")["runs"] == [1]


def test_the_newest_stay_whatever_their_age(home: Home):
    ran(SMALL)
    ran(SMALL)

    assert swept("--older-than", "0s", "--keep", 1)["runs"] == [1]


def test_a_run_that_has_not_ended_stays(home: Home):
    ran("name: waits\nsteps: [{step: ask, approve: {message: go on?}}]")

    assert swept("--keep", 0, "--older-than", "0s") == {}
    assert mulligan("approve", 1, "ask", "--reason", "yes").code == 0


def test_a_run_goes_with_those_that_it_called(home: Home):
    workflow(LARGE, "large.yaml")
    ran("name: calls\nsteps: [{step: call, workflow: {file: large.yaml}}]")
    ran(SMALL)

    found = swept("--keep", 1)

    assert found["runs"] == [1, 2]
    assert [one["name"] for one in found["artifacts"]] == ["2/text/1/1/output.txt"]


def test_what_a_fork_refers_to_stays_when_the_run_that_gave_it_goes(home: Home):
    ran(LARGE)
    assert mulligan("fork", 1, "--from", "count", "--follow").code == 0

    assert swept("--keep", 1)["runs"] == [1]

    assert names(home) == ["1/text/1/1/output.txt"]
    assert mulligan("fork", 2, "--from", "count", "--follow").code == 0


def test_a_number_is_never_given_twice(home: Home):
    ran(SMALL)
    swept("--keep", 0)
    ran(SMALL)

    assert [run["run_id"] for run in mulligan("list", "--json").json] == [2]


# -- files -------------------------------------------------------------------------------------------------------------


def test_logs_of_runs_that_are_gone_go(folder: Path):
    ran(SMALL)
    removed_earlier(Home(folder / ".mulligan"), 99)
    logs = folder / ".mulligan/runs/99/logs"
    logs.mkdir(parents=True)
    (logs / "a#1.out").write_bytes(b"said\n")

    assert swept() == {"logs": [{"run_id": 99, "size": 5}], "size": 5}
    assert [path.name for path in (folder / ".mulligan/runs").iterdir()] == ["1"]


def test_what_cannot_be_removed_is_said(folder: Path):
    ran(SMALL)
    removed_earlier(Home(folder / ".mulligan"), 99)
    odd = folder / ".mulligan/runs/99"
    odd.write_text("no folder")

    said = f"error[store.refused]: '{odd}' cannot be removed: not a directory\n  remove it by hand, then run gc again\n"
    assert tuple(mulligan("gc")) == (1, "", said)


def test_files_of_a_worker_that_nobody_knows_go_when_its_lock_is_free(folder: Path):
    ran(SMALL)
    workers = folder / ".mulligan/workers"
    held = lock.acquire(workers, "alive-1")
    for name in ("dead-1", "young-1"):
        lock.acquire(workers, name).release(is_recorded=False)
        (workers / name).mkdir()
        (workers / name / "1.out").write_bytes(b"12")
    for path in (workers / "dead-1", workers / "dead-1.lock", workers / "alive-1.lock"):
        age(path)

    assert swept() == {"workers": [{"name": "dead-1", "size": 2}], "size": 2}

    assert sorted(path.name for path in workers.iterdir()) == ["alive-1.lock", "young-1", "young-1.lock"]
    held.release()


def test_logs_in_a_folder_that_another_store_uses_too_are_left_alone_and_that_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, store_schema_url: str
):
    ran(SMALL)
    monkeypatch.setenv("MULLIGAN_STORE", store_schema_url)

    code, out, err = mulligan("gc")

    database = folder / ".mulligan/mulligan.db"
    assert (code, out) == (0, "")
    assert err == f"there is nothing to remove\nlogs were not examined: '{database}' has runs there, too\n"
    assert (folder / ".mulligan/runs/1").exists()


# -- words -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--keep", "-1"), "error[usage]: --keep must be at least 0, not -1\n"),
        (("--older-than", "30"), "error[usage]: '30' has no unit\n  write 30d for days, 30h for hours\n"),
        (("--older-than", "0.5"), "error[usage]: '0.5' has no unit\n  write 0.5d for days, 0.5h for hours\n"),
        (
            ("--older-than", "soon"),
            "error[input.invalid]: 'soon' is not a duration\n  write it like 30s, 5m or 1h30m\n",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(folder: Path, words: tuple[str, ...], said: str):
    assert tuple(mulligan("gc", *words)) == (2, "", said)


# -- environments of python steps --------------------------------------------------------------------------------------


@pytest.fixture
def environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that was used two hours ago."""
    monkeypatch.setenv("MULLIGAN_CACHE", str(folder / "cache"))
    path = folder / "cache/python/environments/0123"
    path.mkdir(parents=True)
    (path / "ready.json").write_text("{}")
    age(path / "ready.json")
    return path


def test_an_environment_that_was_used_lately_stays(environment: Path):
    assert tuple(mulligan("gc")) == (0, "", "there is nothing to remove\n")
    assert environment.exists()


def test_an_environment_that_was_not_used_for_so_long_goes_though_nothing_was_ever_run_here(environment: Path):
    assert swept("--environments", "1h", "--dry-run")["environments"] == [{"name": "0123", "size": 2}]
    assert environment.exists()

    said = mulligan("gc", "--environments", "1h")

    assert (said.code, said.err) == (0, "removed: 1 environment, 2B of files\n")
    assert "environment 0123" in said.out
    assert not environment.exists()


def test_an_environment_in_use_stays_whatever_its_age(environment: Path):
    fd = lock_folder(str(environment), is_shared=True)

    assert swept("--environments", "0s") == {}

    os.close(fd)
    assert environment.exists()


def test_a_time_without_a_unit_is_refused_for_environments_too(environment: Path):
    said = mulligan("gc", "--environments", "30")

    assert said.code == 2
    assert "'30' has no unit" in said.err


def test_the_worktrees_of_removed_runs_are_removed_and_said(folder: Path):
    text = "{name: w, workspace: {git: worktree}, steps: [{step: a, shell: echo x > made.txt}]}"
    for words in ("init -q -b main", "config user.name T", "config user.email t@example.org"):
        subprocess.run(["git", *words.split()], cwd=folder, check=True)
    (folder / ".gitignore").write_text(".mulligan\n")
    subprocess.run(["git", "add", "-A"], cwd=folder, check=True)
    subprocess.run(["git", "commit", "-q", "-m", "base"], cwd=folder, check=True)
    ran(text)
    worktree = folder / ".mulligan/worktrees/run-1"

    kept = mulligan("show", 1).out.splitlines()[1]
    planned = mulligan("gc", "--keep", 0, "--dry-run")
    was_there = worktree.exists()
    shutil.rmtree(worktree)
    gone = mulligan("show", 1).out.splitlines()[1]
    subprocess.run(["git", "worktree", "prune"], cwd=folder, check=True)
    subprocess.run(["git", "worktree", "add", "-q", worktree, "mulligan/1"], cwd=folder, check=True)
    mulligan("gc", "--keep", 0)

    assert kept == f"workspace: {worktree} on branch 'mulligan/1'; to merge it: git merge mulligan/1"
    assert gone == f"workspace: {worktree} is gone; its branch 'mulligan/1' is there; to merge it: git merge mulligan/1"
    assert was_there and "worktree run-1" in planned.out and "1 worktree" in planned.err
    assert not worktree.exists()

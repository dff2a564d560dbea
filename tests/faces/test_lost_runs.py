"""A home whose database lacks runs that `runs/` has: no number is given out again, and no file is removed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import mulligan, ran, workflow

from mulligan.service.home import Home, find_home
from mulligan.service.host.gc import RunRetention
from mulligan.service.service import Service

pytestmark = pytest.mark.usefixtures("folder")

HELLO = "name: hello\nsteps: [{step: greet, shell: echo hello}]\n"
LARGE = "name: large\nsteps: [{step: text, shell: seq 1 20000}]\n"
CALLING = (
    "name: calling\nsteps:\n  - {step: gate, approve: 'go?'}\n  - {step: call, needs: [gate], workflow: flow2.yaml}\n"
)


def restored(text: str = HELLO) -> None:
    """A home with files of the runs 1 to 4, whose database is a copy from when it had run 1 alone."""
    ran(text)
    shutil.copy(".mulligan/mulligan.db", "older.db")
    for _ in range(3):
        ran(LARGE)
    shutil.copy("older.db", ".mulligan/mulligan.db")


def lost() -> list[dict[str, Any]]:
    return [one for one in mulligan("doctor", "--json").json["checks"] if one["name"] == "runs"]


def files(number: int) -> list[str]:
    folders = (Path(".mulligan/runs", str(number)), Path(".mulligan/artifacts", str(number)))
    return [path.name for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]


def test_doctor_says_which_runs_the_database_lacks():
    restored()

    (check,) = lost()

    assert check["health"] == "problem"
    assert check["found"].endswith("has files of 3 runs that the database does not have: 2, 3, 4")
    assert mulligan("doctor").code == 1


def test_a_home_with_all_its_runs_has_no_such_line():
    ran(HELLO)
    ran(HELLO)
    mulligan("gc", "--keep", 0)

    assert lost() == []


@pytest.mark.parametrize("words", [(), ("--detach",)], ids=["driven here", "in the background"])
def test_a_new_run_gets_a_number_that_no_files_have(words: tuple[str, ...]):
    restored()
    kept = files(2)

    assert mulligan("run", "flow.yaml", "--json", *words).json["run_id"] == 5
    assert files(2) == kept
    assert [run["run_id"] for run in mulligan("list", "--json").json] == [5, 1]


def test_a_run_that_another_one_calls_gets_such_a_number_too():
    workflow(HELLO, "flow2.yaml")
    restored(CALLING)

    assert mulligan("approve", 1, "gate", "--reason", "fine").code == 0
    with Service(find_home()) as service:
        assert [child.run_id for child in service.reader.store.children(1)] == [5]


def test_a_fork_gets_such_a_number_too():
    restored()

    assert mulligan("fork", 1, "--from", "greet", "--no-follow", "--json").json["run_id"] == 5


def test_a_database_that_was_removed_begins_behind_the_files():
    restored()
    for path in Path(".mulligan").glob("mulligan.db*"):
        path.unlink()

    assert lost()[0]["found"].endswith("has files of 4 runs that the database does not have: 1, 2, 3, 4")
    assert ran(HELLO, "--json").json["run_id"] == 5


@pytest.mark.parametrize("is_before", [True, False], ids=["before the next run", "after it"])
def test_gc_leaves_the_files_of_lost_runs_alone_and_says_so(is_before: bool):
    restored()
    kept = [files(number) for number in (2, 3, 4)]
    if not is_before:
        ran(HELLO)

    said = mulligan("gc", "--keep", 0)

    assert said.code == 0
    assert "files of 3 runs that the database does not have were not removed; to see why: mulligan doctor\n" in said.err
    assert [files(number) for number in (2, 3, 4)] == kept
    assert "output.txt" in kept[0]
    assert mulligan("gc", "--json").json["lost"] == [2, 3, 4]


def test_what_gc_removes_later_is_not_lost():
    restored()
    ran(HELLO)

    mulligan("gc", "--keep", 0)

    assert files(1) == files(5) == []
    (check,) = lost()
    assert check["found"].endswith(": 2, 3, 4")


def test_when_the_newer_database_is_back_nothing_is_lost():
    ran(HELLO)
    shutil.copy(".mulligan/mulligan.db", "older.db")
    ran(HELLO)
    shutil.copy(".mulligan/mulligan.db", "newer.db")
    shutil.copy("older.db", ".mulligan/mulligan.db")
    assert lost() != []

    shutil.copy("newer.db", ".mulligan/mulligan.db")

    assert lost() == []


def test_with_postgresql_the_folders_of_this_host_count(store_schema_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MULLIGAN_STORE", store_schema_url)
    Path(".mulligan/runs/7/logs").mkdir(parents=True)
    Path(".mulligan/runs/7/logs/a#1.out").write_text("said\n")

    (check,) = lost()
    assert check["found"].endswith("has files of 1 run that the database does not have: 7")
    assert ran(HELLO, "--json").json["run_id"] == 8
    assert mulligan("gc", "--json").json["lost"] == [7]
    assert files(7) == ["a#1.out"]


def test_on_another_host_what_was_skipped_is_lost_too(store_schema_url: str, tmp_path: Path):
    """This host has an earlier number than the one that skipped them."""
    one, other = (Home(tmp_path / name, store_schema_url) for name in ("one", "other"))
    (one.folder / "runs/9").mkdir(parents=True)
    (other.folder / "runs/7").mkdir(parents=True)
    with Service(one) as service:
        service.reader.keep_lost_numbers()

    with Service(other) as service:
        found = service.machine.collect_garbage(RunRetention())

    assert found.lost == [7]
    assert (other.folder / "runs/7").is_dir()


def test_a_folder_with_runs_of_two_stores_is_not_judged(store_schema_url: str, monkeypatch: pytest.MonkeyPatch):
    ran(HELLO)
    ran(HELLO)
    monkeypatch.setenv("MULLIGAN_STORE", store_schema_url)

    assert lost() == []
    assert ran(HELLO, "--json").json["run_id"] == 1
    assert find_home().store_url

"""Worktrees: opened, worked in, merged, removed; and found again by whoever comes after a crash."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.support.git_repository import Repository, repository

from mulligan import StepError
from mulligan.formats.prodigy.runtime.worktrees import (
    close_run,
    merge_item,
    merge_run,
    open_item,
    open_run,
    report_worktree,
)

__all__ = ["repository"]
FAILED = [{"handled": False, "recovered": False, "allowed": False}]


# -- where there is nothing to branch from ---------------------------------------------------------------------------


def in_place(folder: Path) -> dict[str, Any]:
    here = str(folder)
    return {"folder": here, "worktree": "", "branch": "", "checkout": here, "target": "", "session": "run-1"}


def test_outside_of_a_repository_all_work_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    run = open_run(1)
    item = open_item(run, 0)

    assert run == item == in_place(tmp_path)
    assert merge_item(run, item, {"a": 1}) == {"a": 1}
    assert merge_run(run) == {"merged_into": "", "commits": 0, "kept": []}
    assert close_run(run) == {"merged_into": "", "kept": []}


def test_without_git_all_work_in_place(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert open_run(1) == in_place(repository.folder)


def test_in_a_repository_without_a_commit_all_work_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Repository(tmp_path / "new", monkeypatch)

    assert open_run(1) == in_place(found.folder)


def test_in_a_folder_that_git_ignores_all_work_in_place(repository: Repository) -> None:
    repository.stand(".mulligan/scratch")

    assert open_run(1) == in_place(repository.folder / ".mulligan/scratch")


# -- the worktree of a run -------------------------------------------------------------------------------------------


def test_a_run_works_on_a_branch_of_its_own(repository: Repository) -> None:
    run = open_run(1)

    assert (run["branch"], run["target"], run["session"]) == ("mulligan/run-1", "main", "run-1")
    assert run["folder"] == str(repository.folder / ".mulligan/worktrees/run-1")
    assert Path(run["folder"], "base.txt").read_text() == "base\n"
    assert repository.git("branch", "--show-current") == "main"


def test_a_run_that_is_started_in_a_folder_works_in_that_folder(repository: Repository) -> None:
    repository.write("sub dir/x.txt", "x")
    repository.commit()
    repository.stand("sub dir")

    run = open_run(1)

    assert run["folder"] == str(repository.folder / ".mulligan/worktrees/run-1/sub dir")
    assert run["checkout"] == str(repository.folder)


def test_opening_it_again_finds_it_as_it_is(repository: Repository) -> None:
    run = open_run(1)
    Path(run["folder"], "work.txt").write_text("half done")

    again = open_run(1)

    assert again == run
    assert Path(run["folder"], "work.txt").read_text() == "half done"


def test_one_that_was_being_made_when_its_worker_died_is_made_anew(repository: Repository) -> None:
    path = repository.folder / ".mulligan/worktrees/run-1"
    repository.git("worktree", "add", "-q", "-b", "mulligan/run-1", str(path), "HEAD")
    (path / "base.txt").unlink()

    run = open_run(1)

    assert Path(run["folder"], "base.txt").read_text() == "base\n"
    assert run["branch"] == "mulligan/run-1"


def test_a_folder_that_is_left_of_one_is_made_anew(repository: Repository) -> None:
    repository.write(".mulligan/worktrees/run-1/rest.txt", "rest")

    run = open_run(1)

    assert not Path(run["folder"], "rest.txt").exists()


def test_a_branch_that_has_the_name_and_work_on_it_is_left_alone(repository: Repository) -> None:
    repository.git("checkout", "-q", "-b", "mulligan/run-1")
    repository.write("theirs.txt", "theirs")
    repository.commit()
    repository.git("checkout", "-q", "main")

    run = open_run(1)

    assert run["branch"] == "mulligan/run-1-2"
    assert repository.git("show", "mulligan/run-1:theirs.txt") == "theirs"


# -- merging a run ---------------------------------------------------------------------------------------------------


def test_what_was_committed_and_what_was_not_arrives_and_the_worktree_goes(repository: Repository) -> None:
    repository.write("mine.txt", "not committed")
    run = open_run(1)
    repository.write("one file.txt", "1", run["folder"])
    repository.commit("one", run["folder"])
    repository.write("zwei ü.txt", "2", run["folder"])

    merged = merge_run(run)

    assert merged == {"merged_into": "main", "commits": 2, "kept": []}
    assert (repository.read("one file.txt"), repository.read("zwei ü.txt")) == ("1", "2")
    assert repository.git("log", "-1", "--format=%s") == "Uncommitted changes of run-1"
    assert (repository.branches, repository.worktrees) == (["main"], [])
    assert repository.read("mine.txt") == "not committed"


def test_merging_it_again_changes_nothing(repository: Repository) -> None:
    run = open_run(1)
    repository.write("one.txt", "1", run["folder"])
    merge_run(run)
    head = repository.git("rev-parse", "HEAD")

    again = merge_run(run)

    assert again == {"merged_into": "main", "commits": 0, "kept": []}
    assert repository.git("rev-parse", "HEAD") == head


@pytest.mark.nightly
def test_one_whose_worktree_was_being_removed_when_its_worker_died_is_done_with(repository: Repository) -> None:
    run = open_run(1)
    Path(run["worktree"], ".git").unlink()

    merge_run(open_run(1))

    assert (repository.branches, repository.worktrees) == (["main"], [])


def test_what_others_committed_meanwhile_is_taken_up(repository: Repository) -> None:
    run = open_run(1)
    repository.write("ours.txt", "ours", run["folder"])
    repository.write("theirs.txt", "theirs")
    repository.commit("theirs")

    merge_run(run)

    assert (repository.read("ours.txt"), repository.read("theirs.txt")) == ("ours", "theirs")


def test_a_conflict_is_a_failure_that_says_where_and_what_to_do(repository: Repository) -> None:
    run = open_run(1)
    repository.write("base.txt", "ours\n", run["folder"])
    repository.write("base.txt", "theirs\n")
    repository.commit("theirs")

    with pytest.raises(StepError) as caught:
        merge_run(run)

    assert (caught.value.code, caught.value.retryable) == ("MERGE_CONFLICT", False)
    assert caught.value.message == (
        "'base.txt' changed both on 'mulligan/run-1' and on 'main': "
        f"merge 'main' in {run['worktree']} and commit, then: mulligan retry 1"
    )
    assert repository.read("base.txt") == "theirs\n"
    assert repository.git("status", "--porcelain") == ""
    assert repository.git("status", "--porcelain", within=run["folder"]) == ""
    assert repository.git("show", "mulligan/run-1:base.txt") == "ours"


def test_a_conflict_that_was_solved_goes_through(repository: Repository) -> None:
    run = open_run(1)
    repository.write("base.txt", "ours\n", run["folder"])
    repository.write("base.txt", "theirs\n")
    repository.commit("theirs")
    with pytest.raises(StepError):
        merge_run(run)

    repository.git("merge", "-q", "--no-edit", "-X", "ours", "main", within=run["folder"])
    merge_run(run)

    assert repository.read("base.txt") == "ours\n"


def test_files_of_the_user_that_are_not_committed_are_never_touched(repository: Repository) -> None:
    run = open_run(1)
    repository.write("base.txt", "ours\n", run["folder"])
    repository.write("base.txt", "mine\n")

    with pytest.raises(StepError) as caught:
        merge_run(run)

    assert caught.value.code == "MERGE_BLOCKED"
    assert caught.value.message == (
        "'mulligan/run-1' cannot be merged into 'main': 'base.txt' would be overwritten; "
        "commit or move the changes there, then: mulligan retry 1"
    )
    assert repository.read("base.txt") == "mine\n"
    repository.git("checkout", "-q", "base.txt")
    merge_run(run)
    assert repository.read("base.txt") == "ours\n"


def test_a_branch_that_is_no_longer_checked_out_goes_forward_all_the_same(repository: Repository) -> None:
    run = open_run(1)
    repository.write("ours.txt", "ours", run["folder"])
    repository.git("checkout", "-q", "-b", "elsewhere")

    merge_run(run)

    assert repository.git("show", "main:ours.txt") == "ours"
    assert repository.read("ours.txt") is None
    assert repository.branches == ["elsewhere", "main"]


@pytest.mark.nightly
def test_where_no_branch_is_checked_out_the_checkout_goes_forward(repository: Repository) -> None:
    repository.git("checkout", "-q", "--detach")
    run = open_run(1)
    repository.write("ours.txt", "ours", run["folder"])

    merge_run(run)

    assert (run["target"], repository.read("ours.txt")) == ("", "ours")


def test_who_has_no_name_in_git_is_not_asked_for_one(repository: Repository) -> None:
    repository.git("config", "--unset", "user.email")
    run = open_run(1)
    repository.write("ours.txt", "ours", run["folder"])

    merge_run(run)

    assert repository.git("log", "-1", "--format=%an") == "Mulligan"


@pytest.mark.nightly
def test_a_lock_that_a_dead_worker_left_holds_nobody_up(repository: Repository) -> None:
    run = open_run(1)
    repository.write("ours.txt", "ours", run["folder"])
    lock = repository.folder / ".git/worktrees/run-1/index.lock"
    lock.touch()

    merge_run(run)

    assert repository.read("ours.txt") == "ours"


# -- submodules ------------------------------------------------------------------------------------------------------


@pytest.fixture
def with_submodule(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    library = Repository(tmp_path / "library", monkeypatch)
    library.write("lib.txt", "lib")
    library.commit()
    repository.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library.folder), "a lib")
    repository.commit("library")
    repository.stand("")
    # Nobody is asked for it again.
    library.folder.rename(tmp_path / "gone")
    return repository


@pytest.mark.nightly
def test_a_worktree_has_the_submodules_that_the_checkout_has(with_submodule: Repository) -> None:
    run = open_run(1)

    assert Path(run["folder"], "a lib/lib.txt").read_text() == "lib"
    merge_run(run)
    assert with_submodule.worktrees == []


@pytest.mark.nightly
def test_what_was_committed_in_a_submodule_does_not_go_with_its_worktree(with_submodule: Repository) -> None:
    run = open_run(1)
    inside = Path(run["folder"], "a lib")
    with_submodule.write("lib.txt", "new", inside)
    with_submodule.git("config", "user.name", "Tester", within=inside)
    with_submodule.git("config", "user.email", "tester@example.org", within=inside)
    with_submodule.commit("in the library", inside)

    merge_run(run)

    with_submodule.git("submodule", "--quiet", "update", "--no-fetch")
    assert with_submodule.read("a lib/lib.txt") == "new"
    assert with_submodule.worktrees == []


def test_a_worktree_with_uncommitted_work_in_a_submodule_stays(with_submodule: Repository) -> None:
    run = open_run(1)
    with_submodule.write("lib.txt", "half done", Path(run["folder"], "a lib"))

    merged = merge_run(run)

    assert merged["kept"] == [run["worktree"]]
    assert Path(run["folder"], "a lib/lib.txt").read_text() == "half done"


# -- items -----------------------------------------------------------------------------------------------------------


def test_an_item_starts_from_what_the_run_has_and_is_merged_into_it(repository: Repository) -> None:
    run = open_run(1)
    repository.write("setup.txt", "from the setup", run["folder"])
    first, second = open_item(run, 0), open_item(run, 1)
    assert Path(first["folder"], "setup.txt").read_text() == "from the setup"
    repository.write("a.txt", "a", first["folder"])
    repository.write("b.txt", "b", second["folder"])

    assert merge_item(run, first, "first") == "first"
    assert merge_item(run, second) is None

    assert (Path(run["folder"], "a.txt").read_text(), Path(run["folder"], "b.txt").read_text()) == ("a", "b")
    assert repository.branches == ["main", "mulligan/run-1"]
    assert repository.read("a.txt") is None
    merge_run(run)
    assert (repository.read("a.txt"), repository.read("b.txt")) == ("a", "b")


def test_an_item_in_conflict_with_one_before_it_fails_and_its_work_stays(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MULLIGAN_STEP", "map")
    run = open_run(1)
    first, second = open_item(run, 0), open_item(run, 1)
    repository.write("base.txt", "first\n", first["folder"])
    repository.write("base.txt", "second\n", second["folder"])
    merge_item(run, first)

    with pytest.raises(StepError) as caught:
        merge_item(run, second)

    assert caught.value.message == (
        "'base.txt' changed both on 'mulligan/run-1-item-map-1' and on 'mulligan/run-1': "
        f"merge 'mulligan/run-1' (or 'main' after the run is merged) in {second['worktree']} and commit, "
        "then: mulligan items 1 map --retry"
    )
    assert Path(run["folder"], "base.txt").read_text() == "first\n"
    assert merge_run(run)["kept"] == [second["worktree"]]
    assert open_item(run, 1) == second


@pytest.mark.nightly
def test_merging_an_item_again_changes_nothing(repository: Repository) -> None:
    run = open_run(1)
    item = open_item(run, 0)
    repository.write("a.txt", "a", item["folder"])
    merge_item(run, item, 5)

    assert merge_item(run, item, 5) == 5
    assert repository.branches == ["main", "mulligan/run-1"]


@pytest.mark.nightly
def test_an_item_of_a_later_round_finds_a_run_that_was_merged_already(repository: Repository) -> None:
    run = open_run(1)
    merge_run(run)

    item = open_item(run, 0)
    repository.write("late.txt", "late", item["folder"])
    merge_item(run, item)
    merge_run(run)

    assert repository.read("late.txt") == "late"
    assert (repository.branches, repository.worktrees) == (["main"], [])


def test_items_of_another_run_are_not_taken_for_those_of_this_one(repository: Repository) -> None:
    repository.write(".mulligan/worktrees/run-11-item-0/x", "")
    run = open_run(1)

    assert merge_run(run)["kept"] == []


# -- merge steps of the user's own -----------------------------------------------------------------------------------


def test_what_the_users_own_steps_merged_is_removed(repository: Repository) -> None:
    run = open_run(1)
    repository.write("a.txt", "a", run["folder"])
    repository.commit("a", run["folder"])
    repository.git("merge", "-q", "mulligan/run-1")

    assert close_run(run) == {"merged_into": "main", "kept": []}
    assert close_run(run)["kept"] == []
    assert (repository.branches, repository.worktrees) == (["main"], [])


@pytest.mark.parametrize("is_committed", [True, False])
def test_what_they_did_not_merge_stays(repository: Repository, is_committed: bool) -> None:
    run = open_run(1)
    repository.write("a.txt", "a", run["folder"])
    if is_committed:
        repository.commit("a", run["folder"])

    assert close_run(run) == {"merged_into": "", "kept": [run["worktree"]]}
    assert repository.worktrees == ["run-1"]


# -- at the end ------------------------------------------------------------------------------------------------------


def test_a_run_that_failed_says_where_its_work_is(repository: Repository) -> None:
    run = open_run(1)

    assert report_worktree(run, FAILED) == {
        "status": "failed",
        "reason": f"its work is in {run['worktree']} on branch 'mulligan/run-1'; a retry continues there",
    }


def test_any_other_run_says_nothing(repository: Repository, tmp_path: Path) -> None:
    run = open_run(1)

    assert report_worktree(run, []) is None
    assert report_worktree(run, [{**FAILED[0], "handled": True}]) is None
    assert report_worktree(run, FAILED, "cancelled") is None
    assert report_worktree(None, FAILED) is None
    assert report_worktree(in_place(tmp_path), FAILED) is None
    merge_run(run)
    assert report_worktree(run, FAILED) is None


# -- killed in the middle --------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_worktree_that_was_half_removed_is_not_taken_for_the_users_checkout(repository: Repository) -> None:
    run = open_run(1)
    item = open_item(run, 0)
    repository.write("ours.txt", "ours", item["folder"])
    merge_item(run, item)
    repository.write("theirs.txt", "not committed")
    for work in (run, item):
        Path(work["worktree"]).mkdir(exist_ok=True)
        Path(work["worktree"], ".git").unlink(missing_ok=True)
        repository.write("left.txt", "left", work["worktree"])

    merge_item(run, item)
    merge_run(run)

    assert repository.git("status", "--porcelain") == "?? theirs.txt"
    assert (repository.read("ours.txt"), repository.read("left.txt")) == ("ours", None)
    assert repository.worktrees == [] and repository.branches == ["main"]


def killing(repository: Repository, branch: str) -> Path:
    """Have Git be killed while it deletes `branch`, with the locks that it holds then."""
    hook = repository.write(
        ".git/hooks/reference-transaction",
        f"#!/bin/sh\n[ $1 = prepared ] && grep -q '0000000 refs/heads/{branch}$' && kill -9 $PPID\nexit 0\n",
    )
    hook.chmod(0o755)
    return hook


def locks(repository: Repository) -> list[str]:
    found = (repository.folder / ".git").rglob("*.lock")
    return sorted(path.name for path in found if path.name != "mulligan.lock")


def test_git_that_is_killed_leaves_no_lock_in_the_users_repository(repository: Repository) -> None:
    run = open_run(1)
    repository.git("pack-refs", "--all")
    hook = killing(repository, "mulligan/run-1")

    merge_run(run)

    assert locks(repository) == []
    hook.unlink()
    merge_run(run)
    assert repository.branches == ["main"]


def test_the_locks_that_a_killed_worker_left_are_removed_by_the_next(repository: Repository) -> None:
    run = open_run(1)
    note = repository.folder / ".git/mulligan.lock"
    left = [repository.folder / ".git" / name for name in ("index.lock", "packed-refs.lock", "refs/heads/main.lock")]
    note.write_text(json.dumps([str(path) for path in left]))
    for path in left:
        path.touch()

    merge_run(run)

    assert locks(repository) == []
    assert note.read_text() == ""


def test_a_lock_that_somebody_else_took_later_stays(repository: Repository) -> None:
    run = open_run(1)
    note, theirs = repository.folder / ".git/mulligan.lock", repository.folder / ".git/config.lock"
    note.write_text(json.dumps([str(theirs)]))
    theirs.touch()
    os.utime(note, (1_000_000_000, 1_000_000_000))

    merge_run(run)

    assert locks(repository) == ["config.lock"]


def test_whoever_comes_after_a_killed_worker_waits_for_its_git(repository: Repository, tmp_path: Path) -> None:
    begun, may_end = tmp_path / "begun", tmp_path / "may-end"
    os.mkfifo(begun)
    os.mkfifo(may_end)
    hook = repository.write(
        ".git/hooks/post-checkout",
        f'#!/bin/sh\nrm "$0"\necho >{begun}; read -r _ <{may_end}\n',
    )
    hook.chmod(0o755)
    if not (killed := os.fork()):
        open_run(1)
        os._exit(0)
    begun.read_text()
    os.kill(killed, signal.SIGKILL)
    os.waitpid(killed, 0)
    opened: list[str] = []
    after = threading.Thread(target=lambda: opened.append(open_run(1)["branch"]))

    after.start()
    after.join(0.2)
    opened_beside = list(opened)
    may_end.write_text("\n")
    after.join()

    assert opened_beside == []
    assert opened == ["mulligan/run-1"]
    assert repository.branches == ["main", "mulligan/run-1"]


def test_a_branch_that_a_killed_git_made_without_its_worktree_is_made_anew(repository: Repository) -> None:
    hook = repository.write(
        ".git/hooks/reference-transaction",
        "#!/bin/sh\n[ $1 = committed ] && grep -q 'refs/heads/mulligan/run-1$' && kill -9 $PPID\nexit 0\n",
    )
    hook.chmod(0o755)
    with pytest.raises(StepError, match="git worktree"):
        open_run(1)
    assert repository.branches == ["main", "mulligan/run-1"]
    hook.unlink()

    assert open_run(1)["branch"] == "mulligan/run-1"


def test_what_is_on_the_branch_of_a_worktree_that_the_user_removed_is_not_lost(repository: Repository) -> None:
    run = open_run(1)
    item = open_item(run, 0)
    repository.write("ours.txt", "ours", item["folder"])
    repository.commit("ours", item["folder"])
    repository.git("worktree", "remove", "--force", item["worktree"])

    merge_item(run, item)
    repository.git("worktree", "remove", "--force", run["worktree"])
    closed = close_run(run)
    is_kept = "mulligan/run-1" in repository.branches
    merge_run(run)

    assert (closed["merged_into"], is_kept) == ("", True)
    assert repository.read("ours.txt") == "ours"

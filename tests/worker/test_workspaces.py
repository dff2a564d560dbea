"""The action behind `workspace`: what it opens, merges and keeps, and what a kill at any moment leaves behind."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mulligan import StepError
from mulligan.worker.workspaces import run

from ..formats.prodigy.repository import Repository, repository

__all__ = ["repository"]


def opened(branch: str = "mulligan/1", number: int = 1) -> dict[str, Any]:
    found: dict[str, Any] = run("open", run=number, branch=branch)
    return found


def closed(work: dict[str, Any], merge: str) -> dict[str, Any]:
    found: dict[str, Any] = run("close", run=1, work=work, merge=merge)
    return found


def messages(repository: Repository) -> list[str]:
    return repository.git("log", "--format=%s", "main").splitlines()


# -- opening ---------------------------------------------------------------------------------------------------------


def test_a_run_works_on_the_branch_that_the_file_names_and_the_checkout_is_left_alone(repository: Repository):
    repository.write(".gitignore", "changed\n")

    work = opened("agents/notes")

    assert (work["branch"], work["target"], work["uncommitted"]) == ("agents/notes", "main", 1)
    assert repository.git("branch", "--show-current") == "main"
    assert opened("agents/notes") == work


def test_a_branch_that_exists_is_left_alone(repository: Repository):
    repository.git("branch", "agents/notes")
    repository.git("checkout", "-q", "agents/notes")
    repository.write("theirs", "x")
    repository.commit("theirs")
    repository.git("checkout", "-q", "main")

    assert opened("agents/notes")["branch"] == "agents/notes-2"


@pytest.mark.parametrize("branch", ["two words", "-x", "a..b", ""])
def test_a_name_that_git_does_not_accept_is_refused_in_words(repository: Repository, branch: str):

    with pytest.raises(StepError) as refused:
        opened(branch)

    assert refused.value.code == "INPUT_INVALID" and f"'{branch}' cannot be the name" in refused.value.message


def test_where_there_is_no_checkout_the_run_is_refused_in_words(tmp_path: Path, repository: Repository):
    reasons = []
    (tmp_path / "plain").mkdir()
    repository.git("init", "-q", str(tmp_path / "new"))
    repository.git("init", "-q", "--bare", str(tmp_path / "bare.git"))
    for name in ("new", "plain", "bare.git"):
        os.chdir(tmp_path / name)
        with pytest.raises(StepError) as refused:
            opened()
        reasons.append((refused.value.code, refused.value.message.partition(",")[0]))

    assert reasons == [
        ("WORKSPACE_UNAVAILABLE", f"the Git repository of '{tmp_path / 'new'}' has no commit yet"),
        ("WORKSPACE_UNAVAILABLE", f"'{tmp_path / 'plain'}' is not in a Git repository"),
        ("WORKSPACE_UNAVAILABLE", f"'{tmp_path / 'bare.git'}' is a bare repository"),
    ]


# -- closing ---------------------------------------------------------------------------------------------------------


def worked(repository: Repository) -> dict[str, Any]:
    """A run that has committed one change, and left another uncommitted."""
    work = opened()
    repository.write("one", "1", work["folder"])
    repository.commit("one", work["folder"])
    repository.write("two", "2", work["folder"])
    return work


def test_without_a_merge_what_is_left_is_committed_and_everything_is_kept(repository: Repository):
    done = closed(work := worked(repository), "none")

    assert (done["commits"], done["merged_into"], done["kept"]) == (2, "", [work["worktree"]])
    assert messages(repository) == ["base"] and repository.read("two") is None
    assert repository.git("show", f"{work['branch']}:two") == "2"


@pytest.mark.parametrize(
    ("merge", "log"),
    [
        ("merge", ["Uncommitted changes of run-1", "one", "base"]),
        ("fast-forward", ["Uncommitted changes of run-1", "one", "base"]),
        ("squash", ["Work of mulligan/1", "base"]),
    ],
)
def test_a_merged_run_is_in_the_checkout_and_its_worktree_and_branch_are_gone(
    repository: Repository, merge: str, log: list[str]
):
    done = closed(worked(repository), merge)

    assert (messages(repository), done["merged_into"]) == (log, "main")
    assert (repository.read("one"), repository.read("two")) == ("1", "2")
    assert (repository.branches, repository.worktrees) == (["main"], [])


def test_new_commits_of_others_stop_a_fast_forward_and_are_squashed_around(repository: Repository):
    work = worked(repository)
    repository.write("three", "3")
    repository.commit("three")

    with pytest.raises(StepError) as refused:
        closed(work, "fast-forward")
    assert (refused.value.code, refused.value.details["worktree"]) == ("MERGE_BLOCKED", work["worktree"])

    closed(work, "squash")
    assert messages(repository) == ["Work of mulligan/1", "three", "base"]
    assert repository.git("status", "--porcelain") == ""


@pytest.mark.parametrize("merge", ["merge", "squash"])
def test_a_conflict_loses_nothing_and_goes_through_when_it_is_resolved_in_the_worktree(
    repository: Repository, merge: str
):
    work = worked(repository)
    repository.write("one", "theirs")
    repository.commit("theirs")

    with pytest.raises(StepError) as refused:
        closed(work, merge)
    assert (refused.value.code, refused.value.retryable) == ("MERGE_CONFLICT", False)
    assert (repository.read("one"), repository.git("show", f"{work['branch']}:one")) == ("theirs", "1")

    repository.git("merge", "-q", "-X", "ours", "-m", "resolved", "main", within=work["worktree"])
    closed(work, merge)
    assert (repository.read("one"), repository.read("two"), repository.worktrees) == ("1", "2", [])


def test_a_worktree_that_the_user_removed_and_restored_is_continued(repository: Repository):
    work = worked(repository)
    repository.commit("two", work["folder"])
    repository.git("worktree", "remove", work["worktree"])
    repository.git("worktree", "add", "-q", work["worktree"], work["branch"])
    repository.write("more", "x", work["worktree"])

    closed(work, "merge")

    assert (repository.read("two"), repository.read("more")) == ("2", "x")


# -- killed at each moment -------------------------------------------------------------------------------------------


def killing_git(folder: Path) -> Path:
    """A `git` that carries out its command, and then kills its caller if it was the n-th that changes something."""
    folder.mkdir()
    real = next(path for path in os.get_exec_path() if os.access(f"{path}/git", os.X_OK))
    script = folder / "git"
    script.write_text(
        f'#!/bin/sh\n"{real}/git" "$@"; code=$?\n'
        'case "$*" in *rev-*|*symbolic*|*status*|*diff*|*merge-base*|*for-each*|*var*|*config*) exit "$code"; esac\n'
        f'echo >> "{folder}/calls"\n'
        f'[ "$(wc -l < "{folder}/calls")" -ne "$(cat "{folder}/at")" ] || kill -9 "$PPID"\nexit "$code"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IEXEC)
    return folder


def is_killed(work: Callable[[], Any], at: int, git: Path) -> bool:
    """Whether the work was killed by its n-th call of Git; False if it came to its end before."""
    (git / "calls").write_text("")
    (git / "at").write_text(str(at))
    child = os.fork()
    if child == 0:
        os.environ["PATH"] = f"{git}:{os.environ['PATH']}"
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def test_an_opening_that_is_killed_at_any_moment_is_continued(repository: Repository, tmp_path: Path):
    git = killing_git(tmp_path / "bin")
    at = 1

    while is_killed(partial(opened, f"mulligan/{at}", at), at, git):
        work = opened(f"mulligan/{at}", at)
        assert work["branch"].startswith(f"mulligan/{at}")
        assert repository.git("status", "--porcelain", within=work["worktree"]) == ""
        at += 1
    assert at > 2


def test_a_merge_that_is_killed_at_any_moment_is_continued_and_nothing_is_lost(repository: Repository, tmp_path: Path):
    git = killing_git(tmp_path / "bin")
    work = opened("mulligan/0", 100)
    at, is_open = 1, True

    while is_open:
        repository.write(f"file-{at}", "x", work["worktree"])
        repository.write("theirs", str(at))
        repository.commit(f"theirs {at}")
        is_open = is_killed(partial(closed, work, "squash"), at, git)
        closed(work, "squash")
        assert repository.read(f"file-{at}") == "x", f"killed after call {at} of Git"
        assert repository.git("status", "--porcelain") == "" and repository.worktrees == []
        work, at = opened(f"mulligan/{at}", 100 + at), at + 1
    assert at > 6


def test_items_that_are_killed_at_any_moment_while_they_are_merged_are_merged_once(
    repository: Repository, tmp_path: Path
):
    git = killing_git(tmp_path / "bin")
    work = opened()
    at, is_open = 1, True

    while is_open:
        item = run("open_item", run=work, index=at)
        repository.write(f"file-{at}", "x", item["worktree"])
        is_open = is_killed(partial(run, "merge_item", run=work, item=item, result=at), at, git)
        assert run("merge_item", run=work, item=item, result=at) == at
        assert (Path(work["worktree"]) / f"file-{at}").exists(), f"killed after call {at} of Git"
        at += 1
    assert at > 5 and repository.worktrees == ["run-1"]
    assert repository.git("rev-list", "--count", work["branch"]) == str(at)

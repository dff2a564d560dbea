"""The action behind `workspace`: what it opens, merges and keeps, and what a kill at any moment leaves behind."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.git_repository import Repository, repository
from tests.support.nightly import examples

from mulligan import StepError
from mulligan.worker.environment import worker_environment
from mulligan.worker.git import worktrees
from mulligan.worker.git.workspaces import run

__all__ = ["repository"]

# After which calls of Git a long action is killed: every fifth by day, every one at night.
STRIDE = examples(5, 1)


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


@pytest.mark.parametrize("branch", ["two words", "-x", "a..b", "", "@{-1}", "a\0b"])
def test_a_name_that_git_does_not_accept_is_refused_in_words(repository: Repository, branch: str):
    repository.git("checkout", "-q", "-b", "before")
    repository.git("checkout", "-q", "main")

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


# -- nothing is lost, whatever the steps and the settings of the user do ---------------------------------------------


def test_a_branch_of_the_user_is_left_alone_also_if_it_has_no_commits_of_its_own(repository: Repository):
    repository.git("branch", "develop")
    before = repository.git("rev-parse", "develop")
    repository.write("more", "x")
    repository.commit()

    assert opened("develop")["branch"] == "develop-2"
    assert repository.git("rev-parse", "develop") == before


def test_new_files_are_merged_also_if_the_user_hides_them_in_git_status(repository: Repository):
    repository.git("config", "status.showUntrackedFiles", "no")

    closed(worked(repository), "merge")

    assert repository.read("two") == "2"


@pytest.mark.parametrize("leave", [("checkout", "-q", "--detach"), ("checkout", "-q", "-b", "feature")])
@pytest.mark.parametrize("merge", ["merge", "none"])
def test_steps_that_leave_the_branch_of_the_run_block_its_end(
    repository: Repository, leave: tuple[str, ...], merge: str
):
    work = opened()
    repository.git(*leave, within=work["worktree"])
    repository.write("one", "1", work["worktree"])
    repository.commit("one", work["worktree"])

    with pytest.raises(StepError) as refused:
        closed(work, merge)

    assert refused.value.code == "MERGE_BLOCKED" and Path(work["worktree"], "one").exists()


@pytest.mark.parametrize("merge", ["fast-forward", "none"])
def test_markers_of_a_conflict_that_steps_left_are_never_committed(repository: Repository, merge: str):
    work = worked(repository)
    repository.commit("two", work["worktree"])
    repository.write("one", "theirs")
    repository.commit("theirs")
    with pytest.raises(subprocess.CalledProcessError):
        repository.git("merge", "main", within=work["worktree"])

    with pytest.raises(StepError) as refused:
        closed(work, merge)

    assert refused.value.code == "MERGE_CONFLICT" and repository.read("one") == "theirs"
    assert repository.git("show", f"{work['branch']}:one") == "1"


@pytest.mark.parametrize("merge", ["merge", "squash"])
def test_a_tag_with_the_name_of_the_branch_is_not_what_is_merged(repository: Repository, merge: str):
    repository.git("tag", "mulligan/1")
    repository.git("tag", "main")
    work = worked(repository)

    done = closed(work, merge)

    assert (work["target"], done["merged_into"], repository.read("two")) == ("main", "main", "2")


def test_a_repository_within_the_worktree_is_not_committed_and_keeps_the_worktree(repository: Repository):
    work = worked(repository)
    repository.git("init", "-q", str(Path(work["worktree"], "clone")))
    repository.write("clone/inner", "x", work["worktree"])

    done = closed(work, "merge")

    assert (repository.read("two"), done["kept"]) == ("2", [work["worktree"]])
    assert Path(work["worktree"], "clone", "inner").exists() and "clone" not in repository.git("ls-files")


def test_a_merge_that_many_files_block_names_a_few_of_them(repository: Repository):
    work = worked(repository)
    for number in range(8):
        Path(work["worktree"], f"f{number}").write_text("of the run")
        repository.write(f"f{number}", "of the user")

    with pytest.raises(StepError) as refused:
        closed(work, "merge")

    assert "'f0', 'f1', 'f2', 'f3', 'f4' and more would be overwritten" in refused.value.message


@pytest.mark.parametrize(
    ("key", "value"), [("merge.autoStash", "true"), ("branch.main.mergeOptions", "--squash"), ("merge.ff", "only")]
)
def test_settings_for_merges_change_nothing_of_what_a_merge_does(repository: Repository, key: str, value: str):
    repository.git("config", key, value)
    work = worked(repository)
    repository.write("three", "3")
    repository.commit("three")
    repository.write("two", "of the user")

    with pytest.raises(StepError) as refused:
        closed(work, "merge")
    assert (refused.value.code, repository.read("two")) == ("MERGE_BLOCKED", "of the user")

    (repository.folder / "two").unlink()
    closed(work, "merge")
    assert "Uncommitted changes of run-1" in messages(repository) and repository.read("two") == "2"


def test_files_of_a_worktree_that_git_has_forgotten_are_not_deleted(repository: Repository):
    work = worked(repository)
    shutil.rmtree(repository.folder / ".git/worktrees")

    with pytest.raises(StepError) as refused:
        closed(work, "merge")

    assert refused.value.code == "WORKSPACE_UNAVAILABLE" and Path(work["worktree"], "two").read_text() == "2"


def test_a_worktree_in_a_folder_of_another_host_is_not_forgotten(repository: Repository):
    work = worked(repository)
    there = Path(work["worktree"]).rename(repository.folder.parent / "on another host")
    run("open", run=2, branch="mulligan/2")

    there.rename(work["worktree"])

    assert closed(work, "merge")["merged_into"] == "main"


def test_files_that_are_missing_since_a_removal_was_killed_are_not_deleted_in_the_branch(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
):
    work = worked(repository)

    def killed(worktree: Path, _checkout: object) -> None:
        (worktree / "base.txt").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(worktrees, "_clear", killed)
        with pytest.raises(KeyboardInterrupt):
            closed(work, "merge")
    closed(work, "merge")

    assert (repository.read("base.txt"), repository.read("two")) == ("base\n", "2")
    assert repository.worktrees == [] and repository.branches == ["main"]


def test_a_hook_that_refuses_a_merge_is_quoted_and_the_merge_is_undone(repository: Repository):
    work = worked(repository)
    repository.write("three", "3")
    repository.commit("three")
    hook = repository.write(".git/hooks/pre-merge-commit", "#!/bin/sh\necho not on Fridays >&2; exit 1\n")
    hook.chmod(0o755)

    with pytest.raises(StepError) as refused:
        closed(work, "merge")
    assert refused.value.code == "MERGE_BLOCKED" and "not on Fridays" in refused.value.message

    hook.unlink()
    closed(work, "merge")
    assert messages(repository)[0] == "Merge branch 'main' into mulligan/1"


def test_a_target_that_is_gone_is_said(repository: Repository):
    work = worked(repository)
    repository.git("branch", "-m", "main", "trunk")

    with pytest.raises(StepError) as refused:
        closed(work, "merge")

    assert refused.value.code == "MERGE_BLOCKED" and "'main'" in refused.value.message


def test_a_checkout_that_was_moved_is_said(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    work = worked(repository)
    monkeypatch.chdir(tmp_path)
    repository.folder.rename(tmp_path / "moved")

    with pytest.raises(StepError) as refused:
        closed(work, "merge")

    assert refused.value.code == "WORKSPACE_UNAVAILABLE" and work["checkout"] in refused.value.message


def test_a_repository_that_the_environment_of_the_worker_names_is_not_that_of_the_steps():
    environment = worker_environment("w", {"GIT_DIR": "/theirs", "GIT_INDEX_FILE": "/theirs/index", "GIT_SSH": "ssh"})

    assert environment == {"GIT_SSH": "ssh", "MULLIGAN_WORKER": "w"}


def test_a_worktree_of_another_run_with_the_same_number_is_not_taken_over(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MULLIGAN_IDEMPOTENCY_KEY", "older:workspace:1")
    work = worked(repository)
    assert opened() == work

    monkeypatch.setenv("MULLIGAN_IDEMPOTENCY_KEY", "newer:workspace:1")
    with pytest.raises(StepError) as refused:
        opened()

    assert (refused.value.code, refused.value.details["worktree"]) == ("WORKSPACE_UNAVAILABLE", work["worktree"])


def test_files_outside_of_a_sparse_checkout_are_merged(repository: Repository):
    repository.write("a/x", "1")
    repository.write("b/x", "1")
    repository.commit("two")
    repository.git("sparse-checkout", "set", "a")
    work = opened()
    repository.write("b/new", "x", work["worktree"])

    closed(work, "squash")

    assert repository.git("show", "main:b/new") == "x"
    assert repository.git("for-each-ref", "refs/mulligan/") == ""


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
        work, at = opened(f"mulligan/{at}", 100 + at), at + STRIDE
    assert at > 6


@pytest.mark.nightly
def test_items_that_are_killed_at_any_moment_while_they_are_merged_are_merged_once(
    repository: Repository, tmp_path: Path
):
    git = killing_git(tmp_path / "bin")
    work = opened()
    at, count, is_open = 1, 0, True

    while is_open:
        item = run("open_item", run=work, index=at)
        repository.write(f"file-{at}", "x", item["worktree"])
        is_open = is_killed(partial(run, "merge_item", run=work, item=item, result=at), at, git)
        assert run("merge_item", run=work, item=item, result=at) == at
        assert (Path(work["worktree"]) / f"file-{at}").exists(), f"killed after call {at} of Git"
        at, count = at + STRIDE, count + 1
    assert at > 5 and repository.worktrees == ["run-1"]
    assert repository.git("rev-list", "--count", work["branch"]) == str(1 + count)


# -- copies ------------------------------------------------------------------------------------------------------------


def copied(work: dict[str, Any], number: int = 2, **origin: Any) -> dict[str, Any]:
    """The worktree of a fork, which copies that of another run."""
    given = {"work": work, "commit": "", "items": [], **origin}
    found: dict[str, Any] = run("open", run=number, branch=f"mulligan/{number}", origin=given)
    return found


def used(repository: Repository) -> dict[str, Any]:
    """A worktree with everything that steps leave: commits, changed, deleted, new and ignored files, a repository."""
    repository.write("gone", "x")
    repository.write(".gitignore", ".mulligan\nbuild\n")
    repository.commit("more")
    work = worked(repository)
    folder = Path(work["worktree"])
    repository.write("one", "changed", folder)
    (folder / "gone").unlink()
    repository.write("build/out", "built", folder)
    (folder / "link").symlink_to("one")
    repository.git("init", "-q", str(folder / "clone"))
    repository.write("clone/inner", "x", folder)
    return work


def files(folder: str | Path) -> dict[str, str]:
    found = (path for path in Path(folder).rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(folder)): path.read_text() for path in found}


def test_a_copy_has_the_commits_and_all_files_of_the_other_worktree_and_its_own_branch(repository: Repository):
    work = used(repository)
    status = repository.git("status", "--porcelain", within=work["worktree"])

    copy = copied(work)

    assert (copy["branch"], copy["target"], copy["session"]) == ("mulligan/2", "main", "run-2")
    assert files(copy["worktree"]) == files(work["worktree"]) and Path(copy["worktree"], "link").is_symlink()
    assert repository.git("rev-parse", "mulligan/2") == repository.git("rev-parse", "mulligan/1")
    assert repository.git("status", "--porcelain", within=copy["worktree"]) == status
    assert repository.git("status", "--porcelain", within=work["worktree"]) == status
    assert copied(work) == copy


def test_two_copies_and_the_original_are_changed_and_merged_without_the_others(repository: Repository):
    work = worked(repository)
    copies = [copied(work, 2), copied(work, 3)]
    for number, one in enumerate(copies, 2):
        repository.write(f"by-{number}", "x", one["worktree"])
    repository.write("half done", "x", copies[1]["worktree"])

    run("close", run=2, work=copies[0], merge="merge")

    assert (repository.read("by-2"), repository.read("two"), repository.read("half done")) == ("x", "2", None)
    assert repository.worktrees == ["run-1", "run-3"] and "mulligan/3" in repository.branches
    run("close", run=3, work=copies[1], merge="merge")
    closed(work, "merge")
    assert repository.read("by-3") == "x" and repository.branches == ["main"]


def test_a_copy_has_the_files_of_the_moment_at_which_they_were_pinned_also_if_the_other_one_is_merged(
    repository: Repository,
):
    work = worked(repository)
    commit = worktrees.pin_worktree(work, "")
    repository.write("later", "x", work["worktree"])
    closed(work, "merge")

    copy = copied(work, commit=commit)

    assert (Path(copy["worktree"], "two").read_text(), Path(copy["worktree"], "later").exists()) == ("2", False)
    assert repository.git("for-each-ref", "refs/mulligan/") == ""


def test_a_worktree_that_is_gone_or_in_a_conflict_is_not_copied(repository: Repository):
    work = worked(repository)
    repository.commit("two", work["worktree"])
    repository.write("one", "theirs")
    repository.commit("theirs")
    with pytest.raises(subprocess.CalledProcessError):
        repository.git("merge", "main", within=work["worktree"])

    with pytest.raises(StepError) as conflict:
        copied(work)
    repository.git("merge", "--abort", within=work["worktree"])
    closed(work, "none")
    repository.git("worktree", "remove", "--force", work["worktree"])
    with pytest.raises(StepError) as gone:
        copied(work)

    assert (conflict.value.code, gone.value.code) == ("MERGE_CONFLICT", "WORKSPACE_UNAVAILABLE")
    assert repository.worktrees == []


def test_the_worktrees_of_items_are_copied_with_that_of_their_run(repository: Repository):
    work = worked(repository)
    items = [run("open_item", run=work, index=index) for index in range(2)]
    repository.write("of the item", "x", items[0]["worktree"])
    run("merge_item", run=work, item=items[1])

    copies = copied(work, items=items)
    copy = copies["items"][items[0]["worktree"]]

    assert (copy["session"], copy["target"]) == ("run-2-item-0", "mulligan/2")
    run("merge_item", run=copies, item=copy)
    assert Path(copies["worktree"], "of the item").exists() and not Path(work["worktree"], "of the item").exists()
    assert copies["items"][items[1]["worktree"]]["session"] == "run-2-item-1"


@pytest.mark.nightly
def test_a_copy_that_is_killed_at_any_moment_is_made_again(repository: Repository, tmp_path: Path):
    work = used(repository)
    git = killing_git(tmp_path / "bin")
    at = 1

    while is_killed(partial(copied, work, 10 + at), at, git):
        copy = copied(work, 10 + at)
        assert copy["branch"] == f"mulligan/{10 + at}" and files(copy["worktree"]) == files(work["worktree"])
        at += STRIDE
    assert at > 5
    assert len(repository.branches) == len(repository.worktrees) + 1


def test_a_worktree_of_a_removed_run_goes_with_its_branch_also_if_its_repository_is_gone(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    first, second = worked(repository), copied(opened("other", 3), 4)
    worktrees.discard_worktree(Path(first["worktree"]))
    branches = repository.branches
    monkeypatch.chdir(tmp_path)
    moved = tmp_path / "worktree"
    shutil.move(second["worktree"], moved)
    shutil.rmtree(repository.folder)
    worktrees.discard_worktree(moved)

    assert branches == ["main", "mulligan/4", "other"] and not moved.exists()


@pytest.mark.parametrize("verb", ["close", "open_item", "merge_item"])
def test_a_fork_that_an_older_version_made_changes_and_merges_nothing_of_its_origin(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, verb: str
):
    monkeypatch.setenv("MULLIGAN_IDEMPOTENCY_KEY", "origin:workspace:1")
    work = worked(repository)
    given = {"close": {"run": 2, "work": work, "merge": "merge"}, "open_item": {"run": work, "index": 0}}

    monkeypatch.setenv("MULLIGAN_IDEMPOTENCY_KEY", "fork:workspace_merge:1")
    with pytest.raises(StepError) as refused:
        run(verb, **given.get(verb, {"run": work, "item": work}))

    assert refused.value.code == "WORKSPACE_UNAVAILABLE" and "mulligan fork 1" in refused.value.message
    assert repository.read("two") is None and repository.worktrees == ["run-1"]

"""Git worktrees: a run, or an item of a map, works in its own, on its own branch, which is merged when it is done.

Every function can be called again after a crash: it continues from what exists. No change is ever lost: uncommitted
changes are committed before a merge, a worktree is removed only after its branch is merged, and uncommitted files of
the user are left alone.

The user's checkout is never in the middle of a merge: the target is first merged into the branch, in its worktree, so
conflicts occur there, and the checkout is only fast-forwarded.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from mulligan import StepError
from mulligan.worker.folders import make_private
from mulligan.worker.git.git import Git, RepositoryLock, is_installed, is_nested_repository, lock_repository

# -- submodules ------------------------------------------------------------------------------------------------------


class _Submodule(NamedTuple):
    """A submodule: its name, its folder in the worktree, and its repository in the user's checkout."""

    name: str
    path: str
    home: Path


def init_submodules(worktree: Path, checkout: Git) -> None:
    """Check out the submodules from the repositories of the user's checkout, without a remote."""
    found = list(_submodules(worktree, checkout))
    if found:
        homes = [word for one in found for word in ("-c", f"submodule.{one.name}.url={one.home}")]
        paths = [one.path for one in found]
        Git(worktree)(
            "-c", "protocol.file.allow=always", *homes, "submodule", "--quiet", "update", "--init", "--", *paths
        )


def save_submodules(worktree: Path, checkout: Git, session: str) -> bool:
    """Fetch commits of submodules into those of the user's checkout. False if there are uncommitted changes."""
    found = [one for one in _submodules(worktree, checkout) if (worktree / one.path / ".git").exists()]
    for one in found:
        Git(one.home)("fetch", "--quiet", str(worktree / one.path), f"+HEAD:refs/mulligan/{session}")
    return not any(Git(worktree / one.path)("status", "--porcelain") for one in found)


def _submodules(worktree: Path, checkout: Git) -> Iterator[_Submodule]:
    if not (worktree / ".gitmodules").is_file():
        return
    common = Path(checkout.folder, checkout("rev-parse", "--git-common-dir"))
    listed = Git(worktree).query("config", "--null", "--file", ".gitmodules", "--get-regexp", r"\.path$") or ""
    for entry in filter(None, listed.split("\0")):
        key, _, path = entry.partition("\n")
        name = key.removeprefix("submodule.").removesuffix(".path")
        if (common / "modules" / name).is_dir():
            yield _Submodule(name, path, common / "modules" / name)


# -- runs and items --------------------------------------------------------------------------------------------------


# A file in the Git folder of a worktree: we created the worktree completely. Removed with it.
_MARKER = "mulligan.json"
# The same file while we remove the worktree: files that are missing then were not deleted by the run.
_REMOVING = "mulligan.removing"
_FAST_FORWARD_TRIES_MAX = 3
# An error names at most this many files.
_NAMES_MAX = 5
Work = dict[str, Any]


def unavailable_reason(folder: str) -> str:
    """Why no worktree can be made of the repository that this folder is in; "" if one can be made."""
    if not is_installed():
        return "git is not installed, or not on the PATH of the worker"
    git = Git(folder)
    if git.query("rev-parse", "--is-bare-repository") == "true":
        return f"'{folder}' is a bare repository, which has no checkout to merge into"
    if git.query("rev-parse", "--is-inside-work-tree") != "true":
        return f"'{folder}' is not in a Git repository"
    if not git.succeeds("rev-parse", "--verify", "HEAD"):
        return f"the Git repository of '{folder}' has no commit yet"
    return f"'{folder}' is ignored by Git" if git.succeeds("check-ignore", ".") else ""


def open_run_worktree(session: str, branch: str) -> Work:
    """Open the worktree of a run in the repository of the current folder, and return where it works.

    The keys: `folder` (in which its steps run), `worktree`, `branch`, the user's `checkout` and `target` branch, and
    `session`. If the branch exists, the worktree gets another one: it may hold work of another run.
    """
    here = os.getcwd()
    checkout = Git(Git(here)("rev-parse", "--show-toplevel"))
    work = {
        "folder": here,
        "worktree": str(_worktrees() / session),
        "branch": "",
        "checkout": checkout.folder,
        "target": checkout.branch,
        "session": session,
        "prefix": Git(here)("rev-parse", "--show-prefix").rstrip("/"),
        "owner": _owner(),
    }
    with lock_repository(checkout) as lock:
        base = checkout("rev-parse", "HEAD")
        return _open(lock, {**work, "base": base}, branch, base)


def copy_run_worktree(session: str, branch: str, origin: Work) -> Work:
    """Open the worktree of a fork: a copy of that of another run, with its uncommitted files, on a branch of its own.

    `origin` has the `work` of the other run, a `commit` of its files if there is one, and the `items` whose worktrees
    are copied as well. They are returned by the worktree that each was copied from.
    """
    other, checkout = origin["work"], Git(origin["work"]["checkout"])
    with lock_repository(checkout) as lock:
        work = _copy(lock, _place_of_copy(other, session), branch, other, origin["commit"])
        stem = f"{other['session']}-item-"
        items = {}
        for item in origin["items"]:
            name = f"{session}-item-{str(item['session']).removeprefix(stem)}"
            place = {**_place_of_copy(item, name), "target": work["branch"]}
            items[item["worktree"]] = _copy_item(lock, place, f"mulligan/{name}", item, work)
        checkout.query("update-ref", "-d", _fork_ref(_owner()))
    return {**work, "items": items}


def pin_worktree(work: Work, owner: str, commit: str = "") -> str:
    """Keep the files of a worktree as they are now, in a commit on no branch, until the fork `owner` has copied them.

    `commit`: keep this one instead. Raise if it has none that can be copied.
    """
    checkout = Git(work["checkout"])
    with lock_repository(checkout):
        commit = commit or _commit_files(work)
        checkout("update-ref", _fork_ref(owner), commit)
    return commit


def has_branch(checkout: str, branch: str) -> bool:
    """Whether the repository of a checkout has a branch."""
    return is_installed() and _has_ref(checkout, branch)


def read_owner(worktree: Path) -> str | None:
    """The run that a worktree belongs to; None if that cannot be read (any more)."""
    found = _read_marker(worktree)
    return None if found is None else found.get("owner", "")


def discard_worktree(worktree: Path) -> None:
    """Remove a worktree and its branch, whether it is merged or not: its run is removed."""
    found = _read_marker(worktree)
    if found is None or not Path(found["checkout"]).is_dir():
        # Another one with its name, or its repository is gone: no branch is known to be its own.
        shutil.rmtree(worktree)
        return
    checkout = Git(found["checkout"])
    with lock_repository(checkout) as lock:
        _discard(found, checkout, lock)


def open_item_worktree(run: Work, index: int) -> Work:
    """Open the worktree of an item, based on the branch of the run."""
    session = _item_session(run, index)
    _require_own(run)
    with lock_repository(Git(run["checkout"])) as lock:
        of_run = _restore(run)
        _commit_leftovers(of_run, run)
        work = {**run, "worktree": str(_worktrees() / session), "target": run["branch"], "session": session}
        return _open(lock, work, f"mulligan/{session}", of_run("rev-parse", "HEAD"))


def _item_session(run: Work, index: int) -> str:
    """The name of an item in its run: two maps of a run may each have an item of that number at the same time."""
    step = re.sub(r"\W+", "-", os.environ.get("MULLIGAN_STEP", ""), flags=re.ASCII)
    session = f"{run['session']}-item-{index}"
    # Before there were names of steps in it, an item may have been opened that goes on now.
    is_older = _read_marker(_worktrees() / session) is not None
    return session if is_older or not step else f"{run['session']}-item-{step}-{index}"


def merge_item_worktree(run: Work, item: Work, again: str) -> dict[str, list[str]]:
    """Merge an item into its run, one at a time. Return its commits and the files that they changed.

    `again` is the command that repeats the merge after a conflict was resolved.
    """
    changes: dict[str, list[str]] = {"commits": [], "files_modified": []}
    _require_own(run)
    with lock_repository(Git(run["checkout"])) as lock:
        of_run = _restore(run)
        if _has_branch(item):
            _restore(item)
            _commit_leftovers(of_run, run)
            _merge_from(item, run["branch"], again, later=run["target"])
            own = f"{_ref(run['branch'])}..{_ref(item['branch'])}"
            changes["commits"] = of_run("rev-list", "--reverse", "--no-merges", own).split()
            changes["files_modified"] = of_run.paths("diff", "--name-only", own)
            _advance(of_run, _ref(item["branch"]))
        _remove(item, lock)
    return changes


def close_run_worktree(run: Work, merge: str) -> Work:
    """Commit what is left in the worktree of a run, and merge it; with `none` the worktree and its branch are kept."""
    _require_own(run)
    if merge != "none":
        return {"branch": run["branch"], **merge_run_worktree(run, merge)}
    with lock_repository(Git(run["checkout"])):
        git = _restore(run)
        _commit_leftovers(git, run)
        target = _ref(run["target"]) if run["target"] and _has_target(run) else run["base"]
        commits = int(git("rev-list", "--count", f"{target}..{_ref(run['branch'])}"))
    return {"branch": run["branch"], "merged_into": "", "commits": commits, "kept": _remaining_worktrees(run)}


def merge_run_worktree(run: Work, merge: str = "merge") -> Work:
    """Merge the run into the branch that was checked out when it started, and remove its worktree.

    `merge`: with `fast-forward` that branch must have no new commits; with `squash` it gets a single commit.
    """
    checkout = Git(run["checkout"])
    _require_own(run)
    with lock_repository(checkout) as lock:
        _require_target(run)
        before = _count_commits(checkout, _target_ref(run))
        if _has_branch(run):
            _restore(run)
            _fast_forward(checkout, run, lock, merge)
        _remove(run, lock)
    after = _count_commits(checkout, _target_ref(run))
    return {"merged_into": run["target"], "commits": after - before, "kept": _remaining_worktrees(run)}


def remove_merged_worktree(run: Work) -> Work:
    """Remove the worktree of a run if its branch is merged by now, and keep it otherwise."""
    checkout = Git(run["checkout"])
    _require_own(run)
    with lock_repository(checkout) as lock:
        is_there = _read_marker(Path(run["worktree"])) is not None
        is_dirty = is_there and bool(Git(run["worktree"]).changes())
        is_merged = not is_dirty and _contains(checkout, _target_ref(run), _ref(run["branch"]))
        if is_merged or not _has_branch(run):
            _remove(run, lock)
    return {"merged_into": (run["target"] or "HEAD") if is_merged else "", "kept": _remaining_worktrees(run)}


# -- copying -------------------------------------------------------------------------------------------------------


def _fork_ref(owner: str) -> str:
    return f"refs/mulligan/fork-{owner}"


def _place_of_copy(other: Work, session: str) -> Work:
    return {**other, "worktree": str(_worktrees() / session), "session": session, "owner": _owner()}


def _copy(lock: RepositoryLock, work: Work, branch: str, other: Work, commit: str = "") -> Work:
    """Open a worktree with the files of another one, committed or not; as they were when `commit` was made of them."""
    worktree, checkout = Path(work["worktree"]), Git(work["checkout"])
    if (found := _read_marker(worktree)) is not None:
        _require_same_owner(found, work)
        return found
    if not commit or not checkout.succeeds("cat-file", "-e", commit):
        commit = _commit_files(other)
    return _open(lock, work, branch, checkout("rev-parse", f"{commit}^"), files=commit, beside=Path(other["worktree"]))


def _copy_item(lock: RepositoryLock, work: Work, branch: str, item: Work, run: Work) -> Work:
    """Copy the worktree of an item. One that is gone was merged since: then it begins with what the run has."""
    if _read_marker(Path(item["worktree"])) is not None:
        return _copy(lock, work, branch, item)
    return _open(lock, work, branch, Git(run["worktree"])("rev-parse", "HEAD"))


def _commit_files(work: Work) -> str:
    """A commit of the files of a worktree, on no branch and without touching its index: its parent is its HEAD."""
    worktree, checkout = Path(work["worktree"]), Git(work["checkout"])
    if _read_marker(worktree) is None and not _is_complete(worktree, work["branch"]):
        message = f"{worktree}, to be copied, is not there (any more): it was merged, removed or moved"
        raise StepError("WORKSPACE_UNAVAILABLE", message, retryable=False, details=_location(work))
    git = Git(worktree)
    if git.paths("diff", "--name-only", "--diff-filter=U"):
        message = f"{worktree}, to be copied, is in the middle of a merge with conflicts: resolve them there and commit"
        raise StepError("MERGE_CONFLICT", message, retryable=False, details=_location(work))
    save_submodules(worktree, checkout, work["session"])
    with TemporaryDirectory(dir=git.git_folder) as folder:
        index = Path(folder, "index")
        shutil.copy2(git.path_of("index"), index)
        scratch = Git(worktree, index=index)
        scratch.add_all()
        return git.commit_tree(scratch("write-tree"), "HEAD", f"Files of {work['session']}")


def _copy_unversioned(source: Path, target: Path) -> None:
    """Copy what is in no commit: ignored files, and repositories within the worktree."""
    git = Git(source)
    ignored = git.paths("ls-files", "--others", "--ignored", "--exclude-standard", "--directory")
    nested = [change[3:] for change in git.changes() if is_nested_repository(change)]
    for name in (name.rstrip("/") for name in (*ignored, *nested)):
        _copy_path(source / name, target / name)


def _copy_path(source: Path, target: Path) -> None:
    """Copy a file, link or folder; sockets and what disappears meanwhile are left out."""
    if source.is_dir() and not source.is_symlink():
        target.mkdir(parents=True, exist_ok=True)
        for entry in sorted(source.iterdir()):
            _copy_path(entry, target / entry.name)
    elif (source.is_symlink() or source.is_file()) and not os.path.lexists(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            shutil.copy2(source, target, follow_symlinks=False)


# -- making ----------------------------------------------------------------------------------------------------------


def _worktrees() -> Path:
    """The folder of worktrees in the home of the runs. $MULLIGAN_OUTPUT_DIR is HOME/runs/N/output."""
    return Path(os.environ["MULLIGAN_OUTPUT_DIR"]).parents[2] / "worktrees"


def _open(
    lock: RepositoryLock, work: Work, branch: str, start: str, *, files: str = "", beside: Path | None = None
) -> Work:
    """Open a worktree if it is complete, otherwise create it again: no step has run in an incomplete one.

    `files`: a commit whose files it has, without its being committed. `beside`: a worktree whose other files it has.
    """
    worktree, checkout = Path(work["worktree"]), Git(work["checkout"])
    found = _read_marker(worktree)
    if found is not None:
        _require_same_owner(found, work)
        return found
    left_behind = _checked_out_branch(worktree, checkout)
    _clear(worktree, checkout)
    if left_behind:
        # Git refuses without --force if there is work on it.
        is_new = checkout.query("rev-parse", _ref(left_behind)) == start
        checkout.query("branch", "--delete", *(("--force",) if is_new else ()), left_behind)
    branch = _free_branch_name(checkout, branch)
    make_private(str(worktree.parent))
    lock.add_worktree(checkout, worktree, branch, start)
    if files:
        Git(worktree)("read-tree", "-m", "-u", start, files)
        Git(worktree)("reset", "--quiet", "--mixed")
    init_submodules(worktree, checkout)
    if beside is not None and beside.is_dir():
        _copy_unversioned(beside, worktree)
    folder = worktree / work["prefix"]
    folder.mkdir(parents=True, exist_ok=True)
    work = {**work, "branch": branch, "folder": str(folder)}
    _write_marker(worktree, work)
    return work


def _owner() -> str:
    """What tells this run from one with the same number: the database of the runs may have been deleted since."""
    return os.environ.get("MULLIGAN_IDEMPOTENCY_KEY", "").partition(":")[0]


def _require_own(work: Work) -> None:
    """Raise if the worktree belongs to another run: a fork that an older version made works in that of its origin."""
    if work.get("owner") and _owner() and work["owner"] != _owner():
        number = _run_number(work)
        message = (
            f"{work['worktree']} is the worktree of run {number}, which only that run may change or merge; "
            f"this fork of it has none of its own, so fork it again: mulligan fork {number} --from STEP"
        )
        raise StepError("WORKSPACE_UNAVAILABLE", message, retryable=False, details=_location(work))


def _require_same_owner(found: Work, work: Work) -> None:
    """Raise if the worktree belongs to another run with the same number: its work must not get into this one."""
    if found.get("owner", work.get("owner")) != work.get("owner"):
        message = (
            f"{found['worktree']} is the worktree of an older run with the same number, which this home no longer "
            f"has; look at it on branch '{found['branch']}', then: git worktree remove {found['worktree']}"
        )
        raise StepError("WORKSPACE_UNAVAILABLE", message, retryable=False, details=_location(found))


def _read_marker(worktree: Path) -> Work | None:
    if not worktree.is_dir() or Git(worktree).query("rev-parse", "--show-toplevel") != str(worktree.resolve()):
        return None
    mark = Git(worktree).git_folder / _MARKER
    found: Work | None = json.loads(mark.read_text()) if mark.exists() else None
    return found


def _write_marker(worktree: Path, work: Work) -> None:
    mark = Git(worktree).git_folder / _MARKER
    new = mark.with_suffix(".new")
    new.write_text(json.dumps(work))
    new.replace(mark)


def _admin_folder(worktree: Path, checkout: Git) -> Path | None:
    """Where Git keeps what it knows of a worktree, also if that is gone or incomplete; None if it does not know it."""
    common = Path(checkout.folder, checkout("rev-parse", "--git-common-dir"))
    links = ((link.parent, link.read_text().removesuffix("\n")) for link in common.glob("worktrees/*/gitdir"))
    wanted = worktree.resolve() / ".git"
    return next((folder for folder, path in links if (folder / path).resolve() == wanted), None)


def _checked_out_branch(worktree: Path, checkout: Git) -> str:
    """The branch of a worktree that may be incomplete; "" if it has none."""
    folder = _admin_folder(worktree, checkout)
    head = (folder / "HEAD").read_text().strip() if folder and (folder / "HEAD").exists() else ""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else ""


def _require_known(worktree: Path, checkout: Git) -> None:
    """Raise if there are files in the folder and Git does not know it: they may be work, and would be deleted."""
    if worktree.is_dir() and any(worktree.iterdir()) and _admin_folder(worktree, checkout) is None:
        message = (
            f"'{worktree}' has files, but Git does not list it as a worktree (any more): move the folder away, "
            f"try again, and copy what you need from it"
        )
        raise StepError("WORKSPACE_UNAVAILABLE", message, retryable=False)


def _clear(worktree: Path, checkout: Git) -> None:
    """Remove what is left of a worktree if its process died while it created or removed it."""
    if worktree.exists():
        checkout.query("worktree", "remove", "--force", "--force", str(worktree))
        shutil.rmtree(worktree, ignore_errors=True)
    # Not `git worktree prune`: on hosts that share the repository, that would forget the worktrees of the others too.
    if (known := _admin_folder(worktree, checkout)) is not None:
        shutil.rmtree(known)


def _free_branch_name(checkout: Git, branch: str) -> str:
    """A name that no branch has. An existing branch may hold work of a run in another home."""
    names = set(checkout("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/").splitlines())
    name, count = branch, 1
    while name in names:
        count += 1
        name = f"{branch}-{count}"
    return name


def _restore(work: Work) -> Git:
    """Git in an existing worktree, which is created again if it is incomplete.

    A worker may have died while it removed it, the user may have removed it, or the run was merged and continues in
    another round.
    """
    worktree, checkout = Path(work["worktree"]), Git(work["checkout"])
    if _read_marker(worktree) is not None:
        _unlock(worktree)
    elif _is_complete(worktree, work["branch"]):
        # The user restored it.
        _write_marker(worktree, work)
    else:
        _require_known(worktree, checkout)
        _clear(worktree, checkout)
        what = (work["branch"],) if _has_branch(work) else (work["target"] or "HEAD", "-b", work["branch"])
        checkout("worktree", "add", "--quiet", str(worktree), *what)
        Path(work["folder"]).mkdir(parents=True, exist_ok=True)
        _write_marker(worktree, work)
    return Git(worktree)


def _is_complete(worktree: Path, branch: str) -> bool:
    """Whether it is a worktree on this branch. Git locks one until it has checked out all files."""
    if not worktree.is_dir() or Git(worktree).query("rev-parse", "--show-toplevel") != str(worktree.resolve()):
        return False
    git = Git(worktree)
    is_partial = any((git.git_folder / name).exists() for name in ("locked", _REMOVING))
    return git.branch == branch and not is_partial


def _has_branch(work: Work) -> bool:
    """Whether there is something to merge: the branch is deleted last, after the merge."""
    return _has_ref(work["checkout"], work["branch"])


def _has_target(work: Work) -> bool:
    return not work["target"] or _has_ref(work["checkout"], work["target"])


def _has_ref(checkout: str, branch: str) -> bool:
    return Git(checkout).succeeds("rev-parse", "--verify", "--quiet", _ref(branch))


def _ref(branch: str) -> str:
    """The full name of a branch: the short one could be a tag as well, which Git would prefer."""
    return f"refs/heads/{branch}"


def _target_ref(work: Work) -> str:
    return _ref(work["target"]) if work["target"] else "HEAD"


def _contains(git: Git, ref: str, other: str) -> bool:
    return git.succeeds("merge-base", "--is-ancestor", other, ref)


# -- merging ---------------------------------------------------------------------------------------------------------


def _unlock(worktree: Path) -> None:
    """Remove stale Git locks from our worktree: their owner was a worker, and we hold the lock that it needs."""
    git = Git(worktree)
    for lock in _locks_of_a_checkout(git):
        lock.unlink(missing_ok=True)
    git.path_of(f"refs/heads/{git.branch}.lock").unlink(missing_ok=True)


def _commit_leftovers(git: Git, work: Work, then: str = "") -> None:
    """Commit what the steps left uncommitted. Raise if they left the middle of a merge, or another branch."""
    then = then or f"mulligan retry {_run_number(work)}"
    if git.paths("diff", "--name-only", "--diff-filter=U"):
        message = (
            f"{work['worktree']} is in the middle of a merge with conflicts: resolve them there and commit, "
            f"then: {then}"
        )
        raise StepError("MERGE_CONFLICT", message, retryable=False, details=_location(work))
    if git.branch != work["branch"]:
        found = f"branch '{git.branch}'" if git.branch else "a detached HEAD"
        message = (
            f"the steps left {work['worktree']} on {found}, and not on '{work['branch']}': "
            f"check out '{work['branch']}' there and merge what belongs to it, then: {then}"
        )
        raise StepError("MERGE_BLOCKED", message, retryable=False, details=_location(work))
    git.commit_all(f"Uncommitted changes of {work['session']}")


def _merge_from(work: Work, base: str, then: str, later: str = "") -> None:
    """Merge `base` into the branch. A conflict is a failure and leaves the branch as it was.

    `later` is the branch to name if `base` is merged into it and gone by then.
    """
    git = Git(work["worktree"])
    unsolved = git.paths("diff", "--name-only", "--diff-filter=U")
    if not unsolved:
        _commit_leftovers(git, work, then)
    ref, kind = (_ref(base), "branch") if _has_ref(work["checkout"], base) else (base, "commit")
    try:
        conflicts = unsolved or git.merge(ref, f"Merge {kind} '{base}' into {work['branch']}")
    except StepError as refused:
        why = " ".join(refused.message.split())
        message = f"'{base}' cannot be merged into '{work['branch']}' in {work['worktree']}: {why}; then: {then}"
        raise StepError("MERGE_BLOCKED", message, retryable=False, details=_location(work)) from None
    if conflicts:
        raise StepError(
            "MERGE_CONFLICT",
            _conflict_message(work, base, conflicts, then, later),
            retryable=False,
            details=_location(work),
        )


def _conflict_message(work: Work, base: str, conflicts: list[str], then: str, later: str) -> str:
    files = ", ".join(f"'{path}'" for path in conflicts[:5]) + (" and others" if len(conflicts) > 5 else "")
    instead = f" (or '{later}' after the run is merged)" if later else ""
    return (
        f"{files} changed both on '{work['branch']}' and on '{base}': "
        f"merge '{base}'{instead} in {work['worktree']} and commit, then: {then}"
    )


def _location(work: Work) -> Work:
    return {"worktree": work["worktree"], "branch": work["branch"]}


def _run_number(run: Work) -> str:
    return str(run["session"]).removeprefix("run-")


def _fast_forward(checkout: Git, run: Work, lock: RepositoryLock, merge: str) -> None:
    """Fast-forward the target branch to the work of the run, whatever the user has checked out by now."""
    if not run["target"] and any(checkout.path_of(name).exists() for name in ("rebase-merge", "rebase-apply")):
        raise _blocked_error(run, StepError("GIT_REFUSED", f"{checkout.folder} is in the middle of a rebase"))
    for tried in range(_FAST_FORWARD_TRIES_MAX):
        target = run["target"] or checkout("rev-parse", "HEAD")
        if merge == "fast-forward":
            _require_no_new_commits(run, target)
        else:
            _merge_from(run, target, f"mulligan retry {_run_number(run)}")
        work = _squash(run) if merge == "squash" else _ref(run["branch"])
        try:
            with lock.locking(*_locks_of_a_checkout(checkout), _lock_of_a_branch(run["target"], lock)):
                if checkout.branch == run["target"]:
                    _advance(checkout, work)
                else:
                    checkout(
                        "fetch", "--quiet", "--no-tags", "--no-recurse-submodules", ".", f"{work}:{_target_of(run)}"
                    )
            return
        except StepError as refused:
            # The target may have new commits by now: then merge them first.
            is_last = tried == _FAST_FORWARD_TRIES_MAX - 1
            if is_last or "overwritten" in refused.message or "fast-forward" not in refused.message:
                raise _blocked_error(run, refused) from None


def _advance(git: Git, work: str) -> None:
    """Fast-forward what is checked out to `work`, and nothing else, whatever the user has configured for merges."""
    options = ("--quiet", "--ff-only", "--commit", "--no-squash", "--no-edit")
    git("-c", "merge.autoStash=false", "merge", *options, work)
    if not _contains(git, "HEAD", work):
        raise StepError("GIT_REFUSED", f"git merge: it has not moved the branch to {work}")


def _require_target(run: Work) -> None:
    if not _has_target(run):
        message = (
            f"the branch '{run['target']}', to merge into, does not exist any more: create it again, "
            f"then: mulligan retry {_run_number(run)}; the work is in {run['worktree']}"
        )
        raise StepError("MERGE_BLOCKED", message, retryable=False, details=_location(run))


def _require_no_new_commits(run: Work, target: str) -> None:
    """Raise if the branch of the run does not contain the target, so that only a real merge could join them."""
    git = Git(run["worktree"])
    _commit_leftovers(git, run)
    if not _contains(git, _ref(run["branch"]), _ref(target) if run["target"] else target):
        message = (
            f"'{target}' has commits that '{run['branch']}' lacks: rebase or merge in {run['worktree']}, "
            f"then: mulligan retry {_run_number(run)}"
        )
        raise StepError("MERGE_BLOCKED", message, retryable=False, details=_location(run))


def _squash(run: Work) -> str:
    """One commit on top of the target with all the work of the run; returns a ref to it.

    After a crash the target may have that commit already: then there is nothing left to add.
    """
    git, checkout = Git(run["worktree"]), Git(run["checkout"])
    target = checkout("rev-parse", _target_ref(run))
    if git.succeeds("diff", "--quiet", target, _ref(run["branch"])):
        commit = target
    else:
        commit = git.commit_tree(f"{_ref(run['branch'])}^{{tree}}", target, f"Work of {run['branch']}")
    git("update-ref", _squash_ref(run), commit)
    return _squash_ref(run)


def _squash_ref(work: Work) -> str:
    return f"refs/mulligan/squashed-{work['session']}"


def _target_of(run: Work) -> str:
    if not run["target"]:
        message = f"HEAD was detached when the run started, and now a branch is checked out: merge '{run['branch']}'"
        raise StepError("MERGE_BLOCKED", message, retryable=False, details=_location(run))
    return _ref(run["target"])


def _blocked_error(run: Work, refused: StepError) -> StepError:
    """The error if files of the user block the merge: it names them, and they are left alone."""
    files = [f"'{line.strip()}'" for line in refused.message.splitlines() if line.startswith("\t")]
    # Not how many: Git names them all, and of a long message only a part is kept.
    more = " and more" if len(files) > _NAMES_MAX else ""
    why = f"{', '.join(files[:_NAMES_MAX])}{more} would be overwritten" if files else " ".join(refused.message.split())
    message = (
        f"'{run['branch']}' cannot be merged into '{run['target'] or 'HEAD'}': {why}; "
        f"commit or move the changes there, then: mulligan retry {_run_number(run)}"
    )
    return StepError("MERGE_BLOCKED", message, retryable=False, details=_location(run))


# -- removing --------------------------------------------------------------------------------------------------------


def _remove(work: Work, lock: RepositoryLock) -> None:
    """Remove a worktree and its merged branch. Keep it if it has work that is in no branch."""
    checkout, worktree = Git(work["checkout"]), Path(work["worktree"])
    is_whole = _read_marker(worktree) is not None
    if is_whole and _has_unsaved_work(worktree, checkout):
        return
    if worktree.is_dir() and not save_submodules(worktree, checkout, work["session"]):
        return
    if is_whole:
        folder = Git(worktree).git_folder
        (folder / _MARKER).replace(folder / _REMOVING)
    _discard(work, checkout, lock)


def _discard(work: Work, checkout: Git, lock: RepositoryLock) -> None:
    if _admin_folder(Path(work["worktree"]), checkout) is not None:
        _clear(Path(work["worktree"]), checkout)
    shared = (lock.common / name for name in ("packed-refs.lock", "packed-refs.new", "config.lock"))
    with lock.locking(*shared, _lock_of_a_branch(work["branch"], lock)):
        checkout.query("branch", "--delete", "--force", work["branch"])
        checkout.query("update-ref", "-d", _squash_ref(work))


def _has_unsaved_work(worktree: Path, checkout: Git) -> bool:
    """Whether there are uncommitted files, commits on no branch, or repositories that only this folder has."""
    git = Git(worktree)
    if git.changes() or git("rev-list", "-1", "HEAD", "--not", "--branches", "--tags", "--remotes"):
        return True
    saved = {one.path for one in _submodules(worktree, checkout)}
    entries = (entry.partition("\t") for entry in git.paths("ls-files", "--stage"))
    nested = (path for kind, _, path in entries if kind.startswith("160000 ") and path not in saved)
    return any((worktree / path / ".git").exists() for path in nested)


def _locks_of_a_checkout(checkout: Git) -> tuple[Path, ...]:
    folder = checkout.git_folder
    return tuple(folder / name for name in ("index.lock", "HEAD.lock", "ORIG_HEAD.lock"))


def _lock_of_a_branch(branch: str, lock: RepositoryLock) -> Path:
    return lock.common / "refs" / "heads" / f"{branch}.lock"


def _remaining_worktrees(run: Work) -> list[str]:
    """The remaining worktrees of the run: of failed items, or of a branch that is not merged."""
    stem = Path(run["worktree"])
    items = f"{stem.name}-item-"
    found = stem.parent.glob(f"{stem.name}*")
    return sorted(str(path) for path in found if path.name == stem.name or path.name.startswith(items))


def _count_commits(checkout: Git, branch: str) -> int:
    return int(checkout("rev-list", "--count", branch))

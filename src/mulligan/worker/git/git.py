"""Git in a worker: running it, and locking a repository against other workers."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TextIO

from mulligan import StepError
from mulligan.worker.git.git_variables import HOOK_VARIABLES
from mulligan.worker.supervisor.processes import find_process

# With any of these the paths that we pass would mean something else.
_PATHSPEC_VARIABLES = {"GIT_LITERAL_PATHSPECS", "GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS"}
_DROPPED = HOOK_VARIABLES | _PATHSPEC_VARIABLES
_SETTINGS = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "GIT_MERGE_AUTOEDIT": "no"}
_DEFAULT_IDENTITY = ("-c", "user.name=Mulligan", "-c", "user.email=mulligan@localhost")
_MESSAGE_CHARS_MAX = 2000
_held_lock: ContextVar[RepositoryLock | None] = ContextVar("held_lock", default=None)
# Git takes its locks right after it starts: a lock that appeared later belongs to another process.
_LOCK_AGE_SECONDS_MAX = 5
# Writes "PID TICKS" to the file $0, lets go of the lock, which is its input, and becomes Git. Needs /proc for the note.
_NOTE_ITSELF = """
note() { echo "$$ ${20}"; }
if read -r line 2>/dev/null </proc/$$/stat; then note ${line##*) } >"$0"; fi
exec git "$@" </dev/null
"""
_LOOK_SECONDS = 0.02


class Git:
    """Git in one folder."""

    def __init__(self, folder: str | Path, *, index: Path | None = None) -> None:
        self.folder = str(folder)
        # A file in place of the index of the worktree.
        self._index = {} if index is None else {"GIT_INDEX_FILE": str(index)}

    def __call__(self, *arguments: str) -> str:
        """Run Git and return its output without the last newline. Raise StepError with its message if it fails."""
        done = self._run(arguments)
        if done.returncode:
            message = (done.stderr.strip() or done.stdout.strip())[-_MESSAGE_CHARS_MAX:]
            command = _command_of(arguments)
            raise StepError("GIT_REFUSED", f"git {command}: {message}", details={"folder": self.folder})
        return done.stdout.removesuffix("\n")

    def query(self, *arguments: str) -> str | None:
        """Run Git and return its output; None if it fails, which is an answer as well."""
        done = self._run(arguments)
        return None if done.returncode else done.stdout.removesuffix("\n")

    def succeeds(self, *arguments: str) -> bool:
        return self.query(*arguments) is not None

    def _run(self, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name not in _DROPPED}
        environment |= _SETTINGS | self._index
        lock = _held_lock.get()
        command, stdin = (("git",), subprocess.DEVNULL) if lock is None else lock.noting_git()
        try:
            return subprocess.run(
                [*command, *arguments],
                cwd=self.folder,
                env=environment,
                stdin=stdin,
                capture_output=True,
                encoding="utf-8",
                errors="surrogateescape",
            )
        except (FileNotFoundError, NotADirectoryError):
            is_gone = not os.path.isdir(self.folder)
            reason = f"'{self.folder}' does not exist any more" if is_gone else "git is not on the PATH of the worker"
            raise StepError("WORKSPACE_UNAVAILABLE", reason, retryable=False) from None

    @property
    def branch(self) -> str:
        """The branch that is checked out; "" for a detached HEAD."""
        # Not with --short: that is 'heads/NAME' if a tag has the same name.
        return (self.query("symbolic-ref", "--quiet", "HEAD") or "").removeprefix("refs/heads/")

    @property
    def git_folder(self) -> Path:
        """The Git folder of this worktree."""
        return Path(self.folder, self("rev-parse", "--git-dir"))

    def path_of(self, name: str) -> Path:
        """The path of `name` in the Git folder, of this worktree or of the repository."""
        return Path(self.folder, self("rev-parse", "--git-path", name))

    def paths(self, *arguments: str) -> list[str]:
        """The paths that a Git command lists, with any characters in their names."""
        return [path for path in self(*arguments, "-z").split("\0") if path]

    def changes(self) -> list[str]:
        """The uncommitted changes, as `status --porcelain` has them, whatever the user wants `git status` to show.

        Changes within a submodule are left out: they belong to a commit of the submodule.
        """
        return self.paths("status", "--porcelain", "--no-renames", "--untracked-files=all", "--ignore-submodules=dirty")

    def commit_all(self, message: str) -> bool:
        """Commit all uncommitted changes; False if there were none.

        Hooks and signatures are skipped: the commit keeps work from being lost, so it must not fail. A repository
        within the worktree is left out, since only a reference to a commit of it could be committed.
        """
        if not self.add_all():
            return False
        author = () if self._has_identity() else _DEFAULT_IDENTITY
        unhooked = ("-c", "commit.gpgsign=false", "-c", "core.hooksPath=/dev/null")
        self(*author, *unhooked, "commit", "--quiet", "--no-verify", "-m", message)
        return True

    def add_all(self) -> bool:
        """Add all changes to the index, without repositories within the worktree; False if there were none."""
        changes = self.changes()
        nested = [change[3:].rstrip("/") for change in changes if is_nested_repository(change)]
        if len(changes) == len(nested):
            return False
        is_sparse = self.query("config", "--bool", "core.sparseCheckout") == "true"
        without = [f":(top,exclude,literal){path}" for path in nested]
        self("add", "--all", *(("--sparse",) if is_sparse else ()), "--", ":(top)", *without)
        return True

    def commit_tree(self, tree: str, parent: str, message: str) -> str:
        """Create a commit of a tree, on no branch, and return its hash."""
        author = () if self._has_identity() else _DEFAULT_IDENTITY
        return self(*author, "commit-tree", tree, "-p", parent, "-m", message)

    def merge(self, base: str, message: str) -> list[str]:
        """Merge `base` into HEAD. Return the files in conflict; if there are any, the merge is undone.

        It is undone and raises as well if Git refuses it, or a hook of the user.
        """
        author = () if self._has_identity() else _DEFAULT_IDENTITY
        options = ("--quiet", "--ff", "--commit", "--no-squash", "--no-edit", "-m", message)
        try:
            self(*author, "-c", "commit.gpgsign=false", "-c", "merge.autoStash=false", "merge", *options, base)
        except StepError:
            conflicts = self.paths("diff", "--name-only", "--diff-filter=U")
            self.query("merge", "--abort")
            if not conflicts:
                raise
            return conflicts
        return []

    def _has_identity(self) -> bool:
        return self.succeeds("var", "GIT_COMMITTER_IDENT") and self.succeeds("config", "user.email")


def is_nested_repository(change: str) -> bool:
    """Whether an uncommitted change is a repository of its own: Git lists what is in any other new folder."""
    return change.startswith("?? ") and change.endswith("/")


def _command_of(arguments: tuple[str, ...]) -> str:
    """The command of Git, without the settings before it."""
    rest = list(arguments)
    while len(rest) > 2 and rest[0] == "-c":
        del rest[:2]
    return rest[0]


def is_installed() -> bool:
    """Whether Git is installed."""
    return any(os.access(os.path.join(folder, "git"), os.X_OK) for folder in os.get_exec_path())


class RepositoryLock:
    """A held lock on a repository. Its file notes the locks that Git would leave behind if it were killed.

    A second file notes the Git command that runs: it goes on if we are killed, and whoever has the lock next waits for
    its end. It does not hold the lock itself: what a hook starts in the background would keep it. A third one notes
    the branch that is made with a worktree.
    """

    def __init__(self, note: TextIO, common: Path) -> None:
        self._note = note
        self._running = common / "mulligan.git"
        self._made = common / "mulligan.branch"
        self.common = common
        self._wait_for_git()
        self._unlock()

    def noting_git(self) -> tuple[tuple[str, ...], int]:
        """A command that notes itself and then becomes Git, and its input: the lock.

        Until it is noted it has the lock as well, so nobody gets that before the note is there.
        """
        return ("sh", "-c", _NOTE_ITSELF, str(self._running)), self._note.fileno()

    def _wait_for_git(self) -> None:
        """Wait for the command of a holder that was killed. One of another host cannot be seen."""
        try:
            pid, ticks = map(int, self._running.read_text().split())
        except (FileNotFoundError, ValueError):
            return
        while (process := find_process(pid)) is not None and process.start_ticks == ticks:
            time.sleep(_LOOK_SECONDS)

    def add_worktree(self, checkout: Git, worktree: Path, branch: str, start: str) -> None:
        """Add a worktree with a new branch. Git makes the branch first: killed then, it would leave it behind."""
        self._made.write_text(json.dumps([branch, start]))
        checkout("worktree", "add", "--quiet", "-b", branch, str(worktree), start)
        self._made.unlink()

    def delete_branch_without_worktree(self, checkout: Git) -> None:
        """Delete the branch that a killed Git left; it refuses if the worktree is there."""
        try:
            branch, start = json.loads(self._made.read_text())
        except (FileNotFoundError, ValueError):
            return
        if checkout.query("rev-parse", "--verify", f"refs/heads/{branch}") == start:
            checkout.query("branch", "--delete", "--force", branch)
        self._made.unlink()

    @contextmanager
    def locking(self, *locks: Path) -> Iterator[None]:
        """Run Git commands that take `locks` in the user's repository, and leave none of them behind."""
        self._note.write(json.dumps([str(lock) for lock in locks if not lock.exists()]))
        self._note.flush()
        try:
            yield
        finally:
            self._unlock()

    def _unlock(self) -> None:
        """Remove locks that our Git left behind: they did not exist before, and appeared just after the note.

        A lock of another process that appeared later stays.
        """
        self._note.seek(0)
        noted, at = self._note.read(), os.fstat(self._note.fileno()).st_mtime
        for lock in map(Path, json.loads(noted or "[]")):
            if lock.exists() and 0 <= lock.stat().st_mtime - at <= _LOCK_AGE_SECONDS_MAX:
                lock.unlink(missing_ok=True)
        self._note.truncate(0)


@contextmanager
def lock_repository(checkout: Git) -> Iterator[RepositoryLock]:
    """Lock a repository: no other worker creates, merges or removes its worktrees. Released if the process dies."""
    common = Path(checkout.folder, checkout("rev-parse", "--git-common-dir"))
    with open(common / "mulligan.lock", "a+", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = RepositoryLock(lock, common)
        before = _held_lock.set(held)
        try:
            held.delete_branch_without_worktree(checkout)
            yield held
        finally:
            _held_lock.reset(before)

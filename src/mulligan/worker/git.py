"""Git in a worker: running it, and locking a repository against other workers."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from mulligan import StepError

# Git sets these for commands of a hook. Here they would point to the wrong repository.
_HOOK_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")
_SETTINGS = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "GIT_MERGE_AUTOEDIT": "no"}
_DEFAULT_IDENTITY = ("-c", "user.name=Mulligan", "-c", "user.email=mulligan@localhost")
_MESSAGE_CHARS_MAX = 2000
# Git takes its locks right after it starts: a lock that appeared later belongs to another process.
_LOCK_AGE_SECONDS_MAX = 5


class Git:
    """Git in one folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = str(folder)

    def __call__(self, *arguments: str) -> str:
        """Run Git and return its output without the last newline. Raise StepError with its message if it fails."""
        done = self._run(arguments)
        if done.returncode:
            message = (done.stderr.strip() or done.stdout.strip())[-_MESSAGE_CHARS_MAX:]
            raise StepError("GIT_REFUSED", f"git {arguments[0]}: {message}", details={"folder": self.folder})
        return done.stdout.removesuffix("\n")

    def query(self, *arguments: str) -> str | None:
        """Run Git and return its output; None if it fails, which is an answer as well."""
        done = self._run(arguments)
        return None if done.returncode else done.stdout.removesuffix("\n")

    def succeeds(self, *arguments: str) -> bool:
        return self.query(*arguments) is not None

    def _run(self, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name not in _HOOK_VARIABLES} | _SETTINGS
        return subprocess.run(
            ["git", *arguments],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
        )

    @property
    def branch(self) -> str:
        """The branch that is checked out; "" for a detached HEAD."""
        return self.query("symbolic-ref", "--quiet", "--short", "HEAD") or ""

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

    def commit_all(self, message: str) -> bool:
        """Commit all uncommitted changes; False if there were none.

        Hooks and signatures are skipped: the commit keeps work from being lost, so it must not fail.
        """
        # Changes within a submodule belong to a commit of the submodule.
        if not self("status", "--porcelain", "--ignore-submodules=dirty"):
            return False
        self("add", "--all")
        author = () if self._has_identity() else _DEFAULT_IDENTITY
        self(*author, "-c", "commit.gpgsign=false", "commit", "--quiet", "--no-verify", "-m", message)
        return True

    def commit_tree(self, tree: str, parent: str, message: str) -> str:
        """Create a commit of a tree, on no branch, and return its hash."""
        author = () if self._has_identity() else _DEFAULT_IDENTITY
        return self(*author, "commit-tree", tree, "-p", parent, "-m", message)

    def merge(self, branch: str) -> list[str]:
        """Merge `branch` into HEAD. Return the files in conflict; if there are any, the merge is undone."""
        author = () if self._has_identity() else _DEFAULT_IDENTITY
        merged = self.succeeds(*author, "-c", "commit.gpgsign=false", "merge", "--quiet", "--no-edit", branch)
        if merged:
            return []
        conflicts = self.paths("diff", "--name-only", "--diff-filter=U")
        if not conflicts:
            self(*author, "merge", "--quiet", "--no-edit", branch)  # raises with the reason
        self.query("merge", "--abort")
        return conflicts

    def _has_identity(self) -> bool:
        return self.succeeds("var", "GIT_COMMITTER_IDENT") and self.succeeds("config", "user.email")


def is_installed() -> bool:
    """Whether Git is installed."""
    return any(os.access(os.path.join(folder, "git"), os.X_OK) for folder in os.get_exec_path())


class RepositoryLock:
    """A held lock on a repository. Its file notes the locks that Git would leave behind if it were killed."""

    def __init__(self, note: TextIO, common: Path) -> None:
        self._note = note
        self.common = common
        self._unlock()

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
        yield RepositoryLock(lock, common)

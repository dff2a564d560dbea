"""Git, as a worker uses it: one command at a time, in a folder, with its words as a failure where it refuses."""

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

# What a hook of Git's sets for its own commands: here it would lead into another repository.
_NOT_OURS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")
_SETTINGS = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "GIT_MERGE_AUTOEDIT": "no"}
_NOBODY = ("-c", "user.name=Mulligan", "-c", "user.email=mulligan@localhost")
_WORDS_MAX = 2000
# Git takes its locks as it starts: one that is younger than this is of another one.
_TAKEN_WITHIN_SECONDS = 5


class Git:
    """Git in one folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = str(folder)

    def __call__(self, *arguments: str) -> str:
        """What it prints, without its last newline; StepError with its own words where it refuses."""
        done = self._run(arguments)
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip())[-_WORDS_MAX:]
            raise StepError("GIT_REFUSED", f"git {arguments[0]}: {said}", details={"folder": self.folder})
        return done.stdout.removesuffix("\n")

    def asks(self, *arguments: str) -> str | None:
        """What it prints; None where it refuses, and that is an answer."""
        done = self._run(arguments)
        return None if done.returncode else done.stdout.removesuffix("\n")

    def holds(self, *arguments: str) -> bool:
        return self.asks(*arguments) is not None

    def _run(self, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name not in _NOT_OURS} | _SETTINGS
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
        """The branch that is checked out; "" where a commit is."""
        return self.asks("symbolic-ref", "--quiet", "--short", "HEAD") or ""

    @property
    def own_folder(self) -> Path:
        """Where Git keeps what it knows of this worktree."""
        return Path(self.folder, self("rev-parse", "--git-dir"))

    def path_of(self, name: str) -> Path:
        """Where Git keeps `name`, for this worktree or for all of the repository's."""
        return Path(self.folder, self("rev-parse", "--git-path", name))

    def paths(self, *arguments: str) -> list[str]:
        """What it lists, whatever characters are in the names."""
        return [path for path in self(*arguments, "-z").split("\0") if path]

    def commit_all(self, message: str) -> bool:
        """Commit whatever was changed and not committed; False where there was nothing.

        Hooks and signatures are left out: this is for not losing work, and may not fail for its style.
        """
        # What is changed within a submodule is that one's to commit.
        if not self("status", "--porcelain", "--ignore-submodules=dirty"):
            return False
        self("add", "--all")
        author = () if self._knows_who() else _NOBODY
        self(*author, "-c", "commit.gpgsign=false", "commit", "--quiet", "--no-verify", "-m", message)
        return True

    def merge(self, branch: str) -> list[str]:
        """Merge `branch` into what is checked out. The files in conflict, where there are any: then it is as before."""
        author = () if self._knows_who() else _NOBODY
        merged = self.holds(*author, "-c", "commit.gpgsign=false", "merge", "--quiet", "--no-edit", branch)
        if merged:
            return []
        conflicts = self.paths("diff", "--name-only", "--diff-filter=U")
        if not conflicts:
            self(*author, "merge", "--quiet", "--no-edit", branch)  # says why
        self.asks("merge", "--abort")
        return conflicts

    def _knows_who(self) -> bool:
        return self.holds("var", "GIT_COMMITTER_IDENT") and self.holds("config", "user.email")


def is_installed() -> bool:
    """Whether there is a Git at all."""
    return any(os.access(os.path.join(folder, "git"), os.X_OK) for folder in os.get_exec_path())


class Alone:
    """Who holds the lock of ours on a repository. What Git would leave locked if it were killed is noted in there."""

    def __init__(self, note: TextIO, common: Path) -> None:
        self._note = note
        self.common = common
        self._unlock()

    @contextmanager
    def locking(self, *locks: Path) -> Iterator[None]:
        """Something happens to the user's repository for which Git takes `locks`: none of ours outlives it."""
        self._note.write(json.dumps([str(lock) for lock in locks if not lock.exists()]))
        self._note.flush()
        try:
            yield
        finally:
            self._unlock()

    def _unlock(self) -> None:
        """Remove what a Git of ours left: it was not there before, and was made just after it was noted.

        A lock of somebody else's Git that came later stays.
        """
        self._note.seek(0)
        noted, at = self._note.read(), os.fstat(self._note.fileno()).st_mtime
        for lock in map(Path, json.loads(noted or "[]")):
            if lock.exists() and 0 <= lock.stat().st_mtime - at <= _TAKEN_WITHIN_SECONDS:
                lock.unlink(missing_ok=True)
        self._note.truncate(0)


@contextmanager
def alone_in(checkout: Git) -> Iterator[Alone]:
    """Nobody else of ours makes, merges or removes worktrees of this repository meanwhile. Ends with its process."""
    common = Path(checkout.folder, checkout("rev-parse", "--git-common-dir"))
    with open(common / "mulligan.lock", "a+", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Alone(lock, common)

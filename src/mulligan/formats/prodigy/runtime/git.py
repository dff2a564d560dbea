"""Git in a worker: running it, locking a repository against other workers, and looking up what has changed."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TextIO

from mulligan import StepError

# What a hook of Git's sets for its own commands: here it would lead into another repository.
_HOOK_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")
_SETTINGS = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "GIT_MERGE_AUTOEDIT": "no"}
_DEFAULT_IDENTITY = ("-c", "user.name=Mulligan", "-c", "user.email=mulligan@localhost")
_MESSAGE_CHARS_MAX = 2000
# Git takes its locks as it starts: one that is younger than this is of another one.
_LOCK_AGE_SECONDS_MAX = 5


class Git:
    """Git in one folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = str(folder)

    def __call__(self, *arguments: str) -> str:
        """What it prints, without its last newline; StepError with its own words where it refuses."""
        done = self._run(arguments)
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip())[-_MESSAGE_CHARS_MAX:]
            raise StepError("GIT_REFUSED", f"git {arguments[0]}: {said}", details={"folder": self.folder})
        return done.stdout.removesuffix("\n")

    def query(self, *arguments: str) -> str | None:
        """What it prints; None where it refuses, and that is an answer."""
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
        """The branch that is checked out; "" where a commit is."""
        return self.query("symbolic-ref", "--quiet", "--short", "HEAD") or ""

    @property
    def git_folder(self) -> Path:
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
        author = () if self._has_identity() else _DEFAULT_IDENTITY
        self(*author, "-c", "commit.gpgsign=false", "commit", "--quiet", "--no-verify", "-m", message)
        return True

    def merge(self, branch: str) -> list[str]:
        """Merge `branch` into what is checked out. The files in conflict, where there are any: then it is as before."""
        author = () if self._has_identity() else _DEFAULT_IDENTITY
        merged = self.succeeds(*author, "-c", "commit.gpgsign=false", "merge", "--quiet", "--no-edit", branch)
        if merged:
            return []
        conflicts = self.paths("diff", "--name-only", "--diff-filter=U")
        if not conflicts:
            self(*author, "merge", "--quiet", "--no-edit", branch)  # says why
        self.query("merge", "--abort")
        return conflicts

    def _has_identity(self) -> bool:
        return self.succeeds("var", "GIT_COMMITTER_IDENT") and self.succeeds("config", "user.email")


def is_installed() -> bool:
    """Whether there is a Git at all."""
    return any(os.access(os.path.join(folder, "git"), os.X_OK) for folder in os.get_exec_path())


class RepositoryLock:
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
            if lock.exists() and 0 <= lock.stat().st_mtime - at <= _LOCK_AGE_SECONDS_MAX:
                lock.unlink(missing_ok=True)
        self._note.truncate(0)


@contextmanager
def lock_repository(checkout: Git) -> Iterator[RepositoryLock]:
    """Nobody else of ours makes, merges or removes worktrees of this repository meanwhile. Ends with its process."""
    common = Path(checkout.folder, checkout("rev-parse", "--git-common-dir"))
    with open(common / "mulligan.lock", "a+", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield RepositoryLock(lock, common)


# -- changes ---------------------------------------------------------------------------------------------------------


_NO_CHANGES = {
    **dict.fromkeys(("files_added", "files_modified", "files_deleted", "files_changed", "commits"), ""),
    **dict.fromkeys(("commit_count", "insertions", "deletions"), 0),
}


def changes_since(remembered: str = "", branch: str = "") -> dict[str, Any]:
    """What is different from when HEAD was remembered, or from where a branch was left. Names stand between blanks."""
    base = _remembered_commit(remembered) if remembered else _git_output("merge-base", "HEAD", branch) if branch else ""
    if not base:
        return dict(_NO_CHANGES)
    files = dict(_changed_files(base))
    commits = _git_output("log", "--reverse", "--format=%H", f"{base}..HEAD").split()
    counts = [line.split("\t")[:2] for line in _git_output("diff", "--numstat", base).splitlines()]
    named = {
        name: sorted(path for path, kind in files.items() if kind == letter) for name, letter in _CHANGE_LETTERS.items()
    }
    return {
        **{name: " ".join(paths) for name, paths in named.items()},
        "files_changed": " ".join(sorted(files)),
        "commits": " ".join(commits),
        "commit_count": len(commits),
        "insertions": sum(int(added) for added, _ in counts if added.isdigit()),
        "deletions": sum(int(removed) for _, removed in counts if removed.isdigit()),
    }


def find_outputs(remembered: str, patterns: dict[str, str]) -> dict[str, str]:
    """For each pattern the file that fits: of those that have changed the newest, else the newest of all."""
    base = _remembered_commit(remembered)
    changed = [path for path, kind in _changed_files(base) if kind != "D"] if base else []
    return {name: _newest_match(pattern, changed) for name, pattern in patterns.items()}


def _newest_match(pattern: str, changed: list[str]) -> str:
    top = Path(_git_output("rev-parse", "--show-toplevel") or ".")
    fitting = [top / path for path in changed if fnmatch(path, pattern) or fnmatch(Path(path).name, pattern)]
    files = [path for path in fitting or Path.cwd().rglob(pattern) if path.is_file()]
    if not files:
        raise StepError("OUTPUT_NOT_FOUND", f"no file fits '{pattern}', which is among the 'outputs' of the step")
    newest = max(files, key=lambda path: (path.stat().st_mtime_ns, str(path)))
    return os.path.relpath(newest)


_CHANGE_LETTERS = {"files_added": "A", "files_modified": "M", "files_deleted": "D"}


def _remembered_commit(name: str) -> str:
    folder = _git_output("rev-parse", "--absolute-git-dir")
    path = Path(folder) / name
    return path.read_text().strip() if folder and path.is_file() else ""


def _changed_files(base: str) -> Iterator[tuple[str, str]]:
    """Each file that differs, with a letter for how: what is not committed and not ignored counts as well."""
    listed = _git_output("diff", "--name-status", "--no-renames", "-z", base).split("\0")
    yield from ((path, kind[:1]) for kind, path in zip(listed[::2], listed[1::2], strict=False))
    yield from (
        (path, "A") for path in _git_output("ls-files", "--others", "--exclude-standard", "-z").split("\0") if path
    )


def _git_output(*words: str) -> str:
    """What Git says, as text that can be an output; nothing where there is no repository, or no Git."""
    said = Git(os.getcwd()).query(*words) if is_installed() else None
    return (said or "").strip().encode(errors="surrogateescape").decode(errors="replace")

"""Git in a worker: running it, locking a repository against other workers, and looking up what has changed."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch, fnmatchcase
from pathlib import Path
from typing import Any, TextIO

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


# -- changes ---------------------------------------------------------------------------------------------------------


_NO_CHANGES = {
    **dict.fromkeys(("files_added", "files_modified", "files_deleted", "files_changed", "commits"), ""),
    **dict.fromkeys(("commit_count", "insertions", "deletions"), 0),
}


def changes_since(remembered: str = "", branch: str = "", modified: Sequence[str] = ()) -> dict[str, Any]:
    """The changes since HEAD was remembered, or since the run left `branch`. Lists are separated by spaces.

    Outside a repository there are none. `modified` are fields with a modifier, `files_added:*.md:json`; each becomes a
    key as well.
    """
    base = _remembered_commit(remembered) if remembered else _git_output("merge-base", "HEAD", branch) if branch else ""
    if not base:
        return {**_NO_CHANGES, **{word: _modify([], word) for word in modified}}
    files = dict(_changed_files(base))
    commits = _git_output("log", "--reverse", "--format=%H", f"{base}..HEAD").split()
    counts = [line.split("\t")[:2] for line in _git_output("diff", "--numstat", base).splitlines()]
    named = {
        name: sorted(path for path, kind in files.items() if kind == letter) for name, letter in _CHANGE_LETTERS.items()
    }
    lists = {**named, "files_changed": sorted(files), "commits": commits}
    return {
        **{name: " ".join(words) for name, words in lists.items()},
        **{word: _modify(lists[word.partition(":")[0]], word) for word in modified},
        "commit_count": len(commits),
        "insertions": sum(int(added) for added, _ in counts if added.isdigit()),
        "deletions": sum(int(removed) for _, removed in counts if removed.isdigit()),
    }


_SEPARATORS = {"lines": "\n", "newline": "\n", "csv": ",", "comma": ","}


def _modify(words: list[str], modified: str) -> str:
    """A list as text: the words that match the patterns of the modifier, in its format."""
    _, *modifiers = modified.split(":")
    formats = [each for each in modifiers if each in ("json", "space", *_SEPARATORS)]
    for pattern in (each for each in modifiers if each not in formats):
        # As in Prodigy, `*` also matches slashes, and `src/**/*.rs` also `src/main.rs`.
        also = pattern.replace("**/", "")
        words = [word for word in words if fnmatchcase(word, pattern) or fnmatchcase(word, also)]
    if "json" in formats:
        return json.dumps(words, ensure_ascii=False)
    return _SEPARATORS.get(formats[0] if formats else "space", " ").join(words)


def find_outputs(remembered: str, patterns: dict[str, str]) -> dict[str, str]:
    """The newest changed file that matches each pattern, or the newest file of all if no changed file does."""
    base = _remembered_commit(remembered)
    changed = [path for path, kind in _changed_files(base) if kind != "D"] if base else []
    return {name: _newest_match(pattern, changed) for name, pattern in patterns.items()}


def _newest_match(pattern: str, changed: list[str]) -> str:
    top = Path(_git_output("rev-parse", "--show-toplevel") or ".")
    fitting = [top / path for path in changed if fnmatch(path, pattern) or fnmatch(Path(path).name, pattern)]
    files = [path for path in fitting or Path.cwd().rglob(pattern) if path.is_file()]
    if not files:
        raise StepError("OUTPUT_NOT_FOUND", f"no file matches '{pattern}', one of the step's 'outputs'")
    newest = max(files, key=lambda path: (path.stat().st_mtime_ns, str(path)))
    return os.path.relpath(newest)


_CHANGE_LETTERS = {"files_added": "A", "files_modified": "M", "files_deleted": "D"}


def _remembered_commit(name: str) -> str:
    folder = _git_output("rev-parse", "--absolute-git-dir")
    path = Path(folder) / name
    return path.read_text().strip() if folder and path.is_file() else ""


def _changed_files(base: str) -> Iterator[tuple[str, str]]:
    """Each changed file with the letter of its change. Uncommitted and untracked files count as well."""
    listed = _git_output("diff", "--name-status", "--no-renames", "-z", base).split("\0")
    yield from ((path, kind[:1]) for kind, path in zip(listed[::2], listed[1::2], strict=False))
    yield from (
        (path, "A") for path in _git_output("ls-files", "--others", "--exclude-standard", "-z").split("\0") if path
    )


def _git_output(*words: str) -> str:
    """The output of Git as valid text; "" without Git or outside a repository."""
    output = Git(os.getcwd()).query(*words) if is_installed() else None
    return (output or "").strip().encode(errors="surrogateescape").decode(errors="replace")

"""What has changed in Git since a step or a run began, for Prodigy's variables."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch, fnmatchcase
from pathlib import Path
from typing import Any

from mulligan import StepError
from mulligan.worker.git.git import Git, is_installed

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


def remember_head(name: str) -> None:
    """Write the commit that HEAD is at into a file of the Git folder, for a check after the command."""
    folder = _git_output("rev-parse", "--absolute-git-dir")
    if folder:
        Path(folder, name).write_text(_git_output("rev-parse", "-q", "--verify", "HEAD") + "\n")


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

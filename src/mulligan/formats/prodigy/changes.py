"""What has changed in a repository, in a worker. Outside of one nothing has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mulligan import StepError
from mulligan.formats.prodigy.git import Git, is_installed

_NOTHING = {
    **dict.fromkeys(("files_added", "files_modified", "files_deleted", "files_changed", "commits"), ""),
    **dict.fromkeys(("commit_count", "insertions", "deletions"), 0),
}


def since(remembered: str = "", branch: str = "") -> dict[str, Any]:
    """What is different from when HEAD was remembered, or from where a branch was left. Names stand between blanks."""
    base = _remembered(remembered) if remembered else _git("merge-base", "HEAD", branch) if branch else ""
    if not base:
        return dict(_NOTHING)
    files = dict(_files(base))
    commits = _git("log", "--reverse", "--format=%H", f"{base}..HEAD").split()
    counts = [line.split("\t")[:2] for line in _git("diff", "--numstat", base).splitlines()]
    named = {name: sorted(path for path, kind in files.items() if kind == letter) for name, letter in _KINDS.items()}
    return {
        **{name: " ".join(paths) for name, paths in named.items()},
        "files_changed": " ".join(sorted(files)),
        "commits": " ".join(commits),
        "commit_count": len(commits),
        "insertions": sum(int(added) for added, _ in counts if added.isdigit()),
        "deletions": sum(int(removed) for _, removed in counts if removed.isdigit()),
    }


def found(remembered: str, patterns: dict[str, str]) -> dict[str, str]:
    """For each pattern the file that fits: of those that have changed the newest, else the newest of all."""
    base = _remembered(remembered)
    changed = [path for path, kind in _files(base) if kind != "D"] if base else []
    return {name: _fitting(pattern, changed) for name, pattern in patterns.items()}


def _fitting(pattern: str, changed: list[str]) -> str:
    top = Path(_git("rev-parse", "--show-toplevel") or ".")
    fitting = [top / path for path in changed if fnmatch(path, pattern) or fnmatch(Path(path).name, pattern)]
    files = [path for path in fitting or Path.cwd().rglob(pattern) if path.is_file()]
    if not files:
        raise StepError("OUTPUT_NOT_FOUND", f"no file fits '{pattern}', which is among the 'outputs' of the step")
    newest = max(files, key=lambda path: (path.stat().st_mtime_ns, str(path)))
    return os.path.relpath(newest)


_KINDS = {"files_added": "A", "files_modified": "M", "files_deleted": "D"}


def _remembered(name: str) -> str:
    folder = _git("rev-parse", "--absolute-git-dir")
    path = Path(folder) / name
    return path.read_text().strip() if folder and path.is_file() else ""


def _files(base: str) -> Iterator[tuple[str, str]]:
    """Each file that differs, with a letter for how: what is not committed and not ignored counts as well."""
    listed = _git("diff", "--name-status", "--no-renames", "-z", base).split("\0")
    yield from ((path, kind[:1]) for kind, path in zip(listed[::2], listed[1::2], strict=False))
    yield from ((path, "A") for path in _git("ls-files", "--others", "--exclude-standard", "-z").split("\0") if path)


def _git(*words: str) -> str:
    """What Git says, as text that can be an output; nothing where there is no repository, or no Git."""
    said = Git(os.getcwd()).asks(*words) if is_installed() else None
    return (said or "").strip().encode(errors="surrogateescape").decode(errors="replace")

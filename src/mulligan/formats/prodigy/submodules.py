"""Submodules of worktrees: each worktree has its own, and what was committed in one must not go with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mulligan.formats.prodigy.git import Git


class _Submodule(NamedTuple):
    """Its name, its folder below the worktree, and the repository that the user's checkout has of it."""

    name: str
    path: str
    home: Path


def bring_in(worktree: Path, checkout: Git) -> None:
    """Make the submodules that the checkout has, out of what the checkout has: nobody else is asked."""
    found = list(_submodules(worktree, checkout))
    if found:
        homes = [word for one in found for word in ("-c", f"submodule.{one.name}.url={one.home}")]
        paths = [one.path for one in found]
        Git(worktree)(
            "-c", "protocol.file.allow=always", *homes, "submodule", "--quiet", "update", "--init", "--", *paths
        )


def take_home(worktree: Path, checkout: Git, session: str) -> bool:
    """Bring what was committed in submodules to the checkout's own. False where something is not committed."""
    found = [one for one in _submodules(worktree, checkout) if (worktree / one.path / ".git").exists()]
    for one in found:
        Git(one.home)("fetch", "--quiet", str(worktree / one.path), f"+HEAD:refs/mulligan/{session}")
    return not any(Git(worktree / one.path)("status", "--porcelain") for one in found)


def _submodules(worktree: Path, checkout: Git) -> Iterator[_Submodule]:
    if not (worktree / ".gitmodules").is_file():
        return
    common = Path(checkout.folder, checkout("rev-parse", "--git-common-dir"))
    listed = Git(worktree).asks("config", "--null", "--file", ".gitmodules", "--get-regexp", r"\.path$") or ""
    for entry in filter(None, listed.split("\0")):
        key, _, path = entry.partition("\n")
        name = key.removeprefix("submodule.").removesuffix(".path")
        if (common / "modules" / name).is_dir():
            yield _Submodule(name, path, common / "modules" / name)

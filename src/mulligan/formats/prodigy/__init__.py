"""Prodigy's files into ours: regular workflows in all their forms, and MapReduce."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mulligan.formats.prodigy.reading import RECORDS, translate

__all__ = ["RECORDS", "translate"]


def __getattr__(name: str) -> Any:
    """The reader, for who reads: a worker that writes a file or opens a worktree for a step loads none of it."""
    if name in __all__:
        return getattr(__import__("mulligan.formats.prodigy.reading", fromlist=[name]), name)
    raise AttributeError(f"module 'mulligan.formats.prodigy' has no attribute '{name}'")

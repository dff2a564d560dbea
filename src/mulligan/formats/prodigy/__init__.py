"""Prodigy's files: regular workflows in all their forms, and MapReduce. What their steps run is in `runtime`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mulligan.formats.prodigy.workflow import RECORDS, translate

__all__ = ["RECORDS", "translate"]


def __getattr__(name: str) -> Any:
    """Load the reader on demand: a worker that runs a step does not need it."""
    if name in __all__:
        return getattr(__import__("mulligan.formats.prodigy.workflow", fromlist=[name]), name)
    raise AttributeError(f"module 'mulligan.formats.prodigy' has no attribute '{name}'")

"""Deliberate defects in what keeps the Git worktrees of runs apart."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from mulligan.core.deciding import admit, flow
from mulligan.core.deciding.rounds import fork
from mulligan.core.model.event_types import Kept

from .sabotage import DEFECTS, defect

_BEFORE = set(DEFECTS)


@defect(fork, "kept_results")
def _(real: Any) -> Any:
    """a fork works in the worktree of the run that it was forked from"""

    def kept_results(old: Any, graph: Any, from_step: str, again: Any = (), **asked: Any) -> Any:
        opening = old.places.get("workspace")
        is_kept = from_step != "workspace" and opening is not None and opening.status == "completed"
        shared = (Kept("workspace", "completed", opening.output),) if is_kept else ()
        return (*shared, *real(old, graph, from_step, again, **asked))

    return kept_results


@defect(admit, "_run_forked")
def _(real: Any) -> Any:
    """a fork at an event goes on in the worktree of the other run"""
    return lambda now, report: real(now, replace(report, worktree=None))


@defect(flow, "awaits_worktree")
def _(real: Any) -> Any:
    """the steps of a fork do not wait until its worktree is open"""
    return lambda state: False


# Those of this module: all of them show only where runs have worktrees.
SENTENCES = tuple(sentence for sentence in DEFECTS if sentence not in _BEFORE)

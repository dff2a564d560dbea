"""The action behind `workspace`: opens, merges and removes the Git worktrees of a run and of the items of its maps."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from mulligan import StepError
from mulligan.worker.git.git import Git
from mulligan.worker.git.worktrees import (
    Work,
    close_run_worktree,
    copy_run_worktree,
    merge_item_worktree,
    open_item_worktree,
    open_run_worktree,
    unavailable_reason,
)


def run(verb: str, **keys: Any) -> Any:
    """Carry out one verb. What Git refuses is a StepError with one of our codes."""
    try:
        return _VERBS[verb](**keys)
    except StepError as error:
        # Print it to the log too.
        print(error.message, file=sys.stderr)
        raise


def open_run(run: int, branch: str, origin: Work | None = None) -> Work:
    """Open the worktree of a run, or find the one that was opened before. With `origin` it is a copy of another."""
    here = os.getcwd() if origin is None else origin["work"]["checkout"]
    if reason := unavailable_reason(here):
        message = f"{reason}, so the run can have no worktree; start it in a Git checkout, or remove 'workspace'"
        raise StepError("WORKSPACE_UNAVAILABLE", message, retryable=False)
    # '@{-1}' is the branch that was checked out before: a name must stand for itself.
    if "\0" in branch or Git(here).query("check-ref-format", "--branch", branch) != branch:
        message = f"'{branch}' cannot be the name of a branch: change 'branch' of 'workspace'"
        raise StepError("INPUT_INVALID", message, retryable=False)
    if origin is not None:
        return copy_run_worktree(f"run-{run}", branch, origin)
    work = open_run_worktree(f"run-{run}", branch)
    if uncommitted := len(Git(work["checkout"]).paths("status", "--porcelain", "--untracked-files=no")):
        print(f"{uncommitted} uncommitted changes of {work['checkout']} are not in the worktree", file=sys.stderr)
    return {**work, "uncommitted": uncommitted}


def merge_item(run: Work, item: Work, result: Any = None) -> Any:
    """Merge an item into its run, and return the result of the item."""
    number = str(run["session"]).removeprefix("run-")
    merge_item_worktree(run, item, f"mulligan items {number} {os.environ.get('MULLIGAN_STEP', 'STEP')} --retry")
    return result


_VERBS: dict[str, Callable[..., Any]] = {
    "open": open_run,
    "open_item": open_item_worktree,
    "merge_item": merge_item,
    "close": lambda run, work, merge: close_run_worktree(work, merge),
}

"""Worktrees of Prodigy's runs and items: those of `mulligan.worker.git.worktrees`.

Without Git, outside a repository, in one without a commit, or in an ignored folder, everything works in place.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mulligan.formats.prodigy.runtime.items import item_result
from mulligan.worker.git.worktrees import (
    Work,
    merge_item_worktree,
    merge_run_worktree,
    open_item_worktree,
    open_run_worktree,
    remove_merged_worktree,
    unavailable_reason,
)


def open_run(run: int) -> Work:
    """Open the worktree of a run, and return where it works; see `open_run_worktree` for the keys."""
    here = os.getcwd()
    session = f"run-{run}"
    if unavailable_reason(here):
        return {"folder": here, "worktree": "", "branch": "", "checkout": here, "target": "", "session": session}
    return open_run_worktree(session, f"mulligan/{session}")


def open_item(run: Work, index: int) -> Work:
    """Open the worktree of an item, based on the branch of the run."""
    return open_item_worktree(run, index) if run["branch"] else run


def merge_item(run: Work, item: Work, result: Any = None, item_id: str = "") -> Any:
    """Merge an item into its run, one at a time, and return `result`.

    With `item_id`, `result` is the list of all outputs of the item, and an entry of `map.results` is returned.
    """
    changes: dict[str, list[str]] = {"commits": [], "files_modified": []}
    if item["branch"]:
        number = str(run["session"]).removeprefix("run-")
        again = f"mulligan items {number} {os.environ.get('MULLIGAN_STEP', 'map')} --retry"
        changes = merge_item_worktree(run, item, again)
    return item_result(item_id, result[1:], changes) if item_id else result


def merge_run(run: Work) -> Work:
    """Merge the run into the branch that was checked out when it started, and remove its worktree."""
    return merge_run_worktree(run) if run["branch"] else {"merged_into": "", "commits": 0, "kept": []}


def close_run(run: Work) -> Work:
    """After the user's own merge steps: remove the worktree if its branch is merged, and keep it otherwise."""
    return remove_merged_worktree(run) if run["branch"] else {"merged_into": "", "kept": []}


def report_worktree(run: Work | None, failures: list[Work], stopping: str | None = None) -> Work | None:
    """Report where the work of a failed run is; None for any other run."""
    is_failed = any(not (one["handled"] or one["recovered"] or one["allowed"]) for one in failures)
    if not is_failed or stopping == "cancelled" or not run or not run["branch"] or not Path(run["worktree"]).exists():
        return None
    reason = f"its work is in {run['worktree']} on branch '{run['branch']}'; a retry continues there"
    return {"status": "failed", "reason": reason}

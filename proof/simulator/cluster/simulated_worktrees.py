"""Git worktrees in a simulated cluster: folders in memory that steps write to, that forks copy and that are merged.

Invariants: a step of a run with a worktree works in that of its own run, which is there; two runs never name the same
one; and what is merged was written by the run that merges it, or before it was forked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from mulligan.core.effects.tasks import Task
from mulligan.core.model.event_types import WorktreeOrigin
from mulligan.core.model.workflow import END
from mulligan.core.state.state import State

_FOLDER = "/worktrees/"
# A run, and the number of what it wrote.
_Writing = tuple[int, int]


class _Worktree(msgspec.Struct):
    run_id: int
    written: set[_Writing]
    # What it was a copy of.
    copied: frozenset[_Writing] = frozenset()


class SimulatedWorktrees:
    """The worktrees of all runs. Violations are raised by the cluster."""

    def __init__(self, read_state: Callable[[int], State]) -> None:
        self.violations: list[str] = []
        self._read_state = read_state
        self._worktrees: dict[str, _Worktree] = {}
        self._commits: dict[str, frozenset[_Writing]] = {}
        self._merged: set[int] = set()
        self._count = 0

    def pin(self, origin: WorktreeOrigin) -> WorktreeOrigin | None:
        """What `pin_origin` of the service does; None where it refuses, since the worktree is gone."""
        if origin.commit:
            return origin
        found = self._worktrees.get(origin.work["worktree"])
        if found is None:
            return None
        commit = f"commit {len(self._commits)}"
        self._commits[commit] = frozenset(found.written)
        return msgspec.structs.replace(origin, commit=commit)

    def exists(self, folder: str) -> bool:
        return folder in self._worktrees

    def is_merged(self, run_id: int) -> bool:
        return run_id in self._merged

    def on_start(self, task: Task) -> None:
        """Check where a task works, and let it write there."""
        workspace = self._read_state(task.run_id).workflow.workspace
        if not task.home.startswith(_FOLDER):
            is_outside = workspace is not None and task.step not in (workspace.opens, workspace.closes, END)
            if is_outside and task.run_id not in self._merged:
                self._complain(task, "works outside of the worktree of its run")
            return
        found = self._worktrees.get(task.home)
        if found is None:
            # It may have been merged by an attempt whose report was lost before the run was cancelled.
            if self._merged.isdisjoint(self._callers(task.run_id)):
                self._complain(task, f"works in {task.home}, which is gone")
        elif found.run_id not in self._callers(task.run_id):
            self._complain(task, f"works in the worktree of run {found.run_id}")
        else:
            self._count += 1
            found.written.add((found.run_id, self._count))

    def carry_out(self, task: Task) -> dict[str, Any]:
        """What the step that opens or ends a worktree does, and returns. It may have been done before."""
        return self._open(task) if task.params["verb"] == "open" else self._close(task)

    def check_names(self, states: Collection[State]) -> None:
        named: dict[str, int] = {}
        for run in (state.run for state in states):
            if run.workspace and named.setdefault(run.workspace, run.run_id) != run.run_id:
                raise AssertionError(
                    f"promise 14: run {named[run.workspace]} and run {run.run_id} both work in {run.workspace}"
                )

    def _open(self, task: Task) -> dict[str, Any]:
        path, origin = f"{_FOLDER}run-{task.run_id}", task.params.get("origin")
        if path not in self._worktrees:
            copied = self._commits[origin["commit"]] if origin else frozenset()
            self._worktrees[path] = _Worktree(task.run_id, set(copied), copied)
        return {"folder": path, "worktree": path, "branch": f"mulligan/{task.run_id}", "target": "main"}

    def _close(self, task: Task) -> dict[str, Any]:
        path = task.params["work"]["worktree"]
        found = self._worktrees.get(path)
        if found is not None and found.run_id != task.run_id:
            self._complain(task, f"merges the worktree of run {found.run_id}")
        elif found is not None:
            others = {run_id for run_id, _ in found.written - found.copied if run_id != task.run_id}
            if others:
                self._complain(task, f"merges what run {min(others)} has written")
        if task.params["merge"] != "none":
            self._worktrees.pop(path, None)
            self._merged.add(task.run_id)
        return {"branch": task.params["work"]["branch"], "merged_into": "main", "commits": 1, "kept": []}

    def _callers(self, run_id: int) -> list[int]:
        """A run, and those that called it: they work in one worktree."""
        found = [run_id]
        while (above := self._read_state(found[-1]).run.parent_run_id) is not None:
            found.append(above)
        return found

    def _complain(self, task: Task, what: str) -> None:
        self.violations.append(f"promise 14: '{task.place}' of run {task.run_id} {what}")

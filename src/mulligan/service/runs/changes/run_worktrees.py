"""The Git worktrees of runs as this host has them: whether they are there, what a fork copies, what `gc` removes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from mulligan import StepError
from mulligan.core.evolve.evolve_places import is_engine_action
from mulligan.core.model.event_types import WorktreeOrigin
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.state.workspace import workspace_view
from mulligan.errors import Refused
from mulligan.service.home import this_host
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.worker.folders import make_private, write_private_file

# Below the folder of worktrees: the runs that are being removed, so that a removal that was killed is continued.
_REMOVED = ".removed"
# The keys of what a step returns that opens a worktree.
_WORK = frozenset({"worktree", "branch", "checkout", "session", "folder"})


def seen_workspace(state: State) -> dict[str, Any] | None:
    """`workspace` of a run, and whether its worktree and its branch are there; None if they are on another host."""
    view = workspace_view(state)
    if view is None:
        return None
    if not _is_here(state):
        return {**view, "worktree_exists": None, "branch_exists": None}
    exists = os.path.isdir(view["folder"] or "")
    return {**view, "worktree_exists": exists, "branch_exists": exists or _has_branch(view)}


def refuse_missing_worktree(state: State) -> None:
    """Refuse to run steps of a run again if the worktree in which they would work is gone."""
    folder, run_id, view = state.run.workspace, state.run.run_id, seen_workspace(state)
    if view is None or view["worktree_exists"] is not False:
        return
    if view["merged"]:
        raise Refused(
            f"run {run_id} was merged and its worktree is gone, so its steps cannot run again",
            hint="start another run: it works on what was merged",
        )
    raise Refused(f"the worktree of run {run_id} is gone: '{folder}' does not exist", hint=_how_to_restore(view))


def _how_to_restore(view: dict[str, Any]) -> str:
    """A command that restores the worktree; if there is none, what else to do."""
    worktree = str(view["worktree"])
    if os.path.isdir(worktree):
        return f"make the folder again: mkdir -p {shlex.quote(str(view['folder']))}"
    if not view["branch_exists"]:
        return f"its branch '{view['branch']}' is gone, too: start another run"
    words = ["git", "-C", str(view["checkout"]), "worktree", "add", "--force", worktree, str(view["branch"])]
    return f"restore it: {shlex.join(words)}"


def _has_branch(view: dict[str, Any]) -> bool:

    checkout, branch = view["checkout"], view["branch"]
    if not (checkout and branch and os.path.isdir(checkout)):
        return False
    from mulligan.worker.git import worktrees

    return worktrees.has_branch(checkout, branch)


def _is_here(state: State) -> bool:
    workspace = state.workflow.workspace
    return workspace is not None and state.places[workspace.opens].host in ("", this_host())


def refuse_shared_worktree(run_id: int, results: Iterable[tuple[str, Any]]) -> None:
    """Refuse a fork that would keep the worktree of its origin as the result of a step that the file wrote for it."""
    for step, output in results:
        if isinstance(output, dict) and output.keys() >= _WORK and output["branch"]:
            raise Refused(
                f"step '{step}' opened the worktree of run {run_id}, in which a fork would work as well",
                hint=f"open another one, and run all steps in it: mulligan fork {run_id} --from {step}",
            )


def pin_origin(origin: WorktreeOrigin | None, uid: str) -> WorktreeOrigin | None:
    """Keep the files that a fork will copy as they are now; on another host they are taken when it copies them."""
    if origin is None or origin.host not in ("", this_host()):
        return origin
    try:
        from mulligan.worker.git import worktrees

        return msgspec.structs.replace(origin, commit=worktrees.pin_worktree(origin.work, uid, origin.commit))
    except StepError as error:
        raise Refused(error.message) from error
    except OSError:
        # Of another user: the worker, which made the worktree, can read it.
        return origin


def running_commands(reader: RunReader, run_id: int) -> list[str]:
    """The commands of the run, and of the runs that it called, that are running."""
    places = reader.state(run_id).places.values()
    running = (place for place in places if place.status == "running" and not place.child)
    own = [place.key for place in running if not is_engine_action(place.spec)]
    children = (child for child in reader.store.children(run_id) if child.status not in RUN_ENDED)
    return [*own, *(key for child in children for key in running_commands(reader, child.run_id))]


def refuse_moving_worktree(reader: RunReader, run_id: int) -> None:
    """Refuse to fork a run while commands may change the files that its fork would copy; also of a child run.

    A child run works in the worktree of the run that called it, which only a fork of that one copies.
    """
    record = reader.record(run_id)
    is_driven = record.status not in RUN_ENDED and reader.driver_of(record) is not None
    if is_driven and (record.status != "paused" or running_commands(reader, run_id)):
        wait = f"wait until its commands have ended: mulligan show {run_id}"
        raise Refused(
            f"run {run_id} is {record.status} and works in its worktree, which a fork copies",
            hint=wait if record.status == "paused" else f"pause it first: mulligan pause {run_id}; then {wait}",
        )


def refuse_callers_worktree(reader: RunReader, run_id: int, old: State) -> None:
    """Refuse to fork a child run that works in the worktree of its caller: two runs would work in one."""
    record = reader.record(run_id)
    if record.parent_run_id is None:
        return
    caller = reader.state(record.parent_run_id)
    if caller.run.workspace and Path(old.run.cwd).is_relative_to(caller.run.workspace):
        raise Refused(
            f"run {run_id} works in the worktree of run {record.parent_run_id}, which called it",
            hint=f"fork that one: mulligan fork {record.parent_run_id} --from STEP",
        )
    refuse_callers_worktree(reader, record.parent_run_id, old)


# -- removed runs ------------------------------------------------------------------------------------------------------


def worktrees_of(folder: Path, run_ids: Iterable[int]) -> Iterator[Path]:
    """The worktrees of these runs, and of their items, below the folder of worktrees."""
    wanted = {f"run-{run_id}" for run_id in run_ids}
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.name.partition("-item-")[0] in wanted:
            yield path


def run_id_of_worktree(worktree: Path) -> int:
    return int(worktree.name.partition("-item-")[0].removeprefix("run-"))


def belongs_to(worktree: Path, uid: str) -> bool:
    """Whether it is the worktree of this run, and not of an older one with the same number."""
    from mulligan.worker.git import worktrees

    return worktrees.read_owner(worktree) in (None, "", uid)


def note_removal(folder: Path, uid_by_run: dict[int, str]) -> None:
    """Note that these runs are about to be removed, with their worktrees."""
    for run_id, uid in uid_by_run.items():
        make_private(str(folder / _REMOVED))
        write_private_file(str(folder / _REMOVED / str(run_id)), uid)


def discard_removed(folder: Path, known: Iterable[int]) -> None:
    """Remove the worktrees of noted runs that the store does not know any more."""
    runs = set(known)
    for note in sorted((folder / _REMOVED).iterdir()) if (folder / _REMOVED).is_dir() else []:
        run_id, uid = int(note.name), note.read_text()
        for path in () if run_id in runs else worktrees_of(folder, [run_id]):
            if belongs_to(path, uid):
                from mulligan.worker.git import worktrees

                worktrees.discard_worktree(path)
        note.unlink()

"""The folder in which a place works: where the run was started, or a Git worktree."""

from __future__ import annotations

from typing import Any

from mulligan.core.state.state import Place, State

# The folder of a run that a server has started: each worker has one of its own for such runs.
WORKER_FOLDER = "."
# Before the digest of a bundle: the folder in which a worker has unpacked the files that were published.
BUNDLE_FOLDER = "bundle:"


def folder_of_run(state: State) -> str:
    """The folder in which a run was started. What was published with files is started in the folder that has them."""
    source, cwd = state.workflow.source, state.run.cwd
    return f"{BUNDLE_FOLDER}{source}" if source and cwd == WORKER_FOLDER else cwd


def folder_of(state: State, place: Place) -> str:
    """The folder that the relative paths of a place start from."""
    run, workspace = state.run, state.workflow.workspace
    if workspace is None or not run.workspace:
        return run.cwd
    step = state.step_of(place)
    if place.role == "step" and step.key in (workspace.opens, workspace.closes):
        return run.cwd
    if is_merged(state):
        # The worktree is gone: this is `end`, or an undo.
        return run.cwd
    return _item_folder(state, place, step) or run.workspace


def lacks_worktree(state: State) -> bool:
    """Whether the worktree of the run is not open (yet): its steps have no folder to work in.

    A fork that goes on from an event has opened it in the other run, and opens its own.
    """
    workspace = state.workflow.workspace
    if workspace is None:
        return False
    place = state.places.get(workspace.opens)
    return place is not None and place.status != "completed"


def awaits_worktree(state: State) -> bool:
    """Whether everything but the step that opens the worktree has to wait for it."""
    return state.workflow.workspace is not None and state.run.stop is None and lacks_worktree(state)


def opens_worktree(state: State, step: str) -> bool:
    workspace = state.workflow.workspace
    return workspace is not None and step == workspace.opens


def opened_items(state: State) -> list[dict[str, Any]]:
    """The worktrees of items that have not ended, as the first commands of these items returned them."""
    found = (place.outputs[0] for place in state.places.values() if place.role == "item" and place.outputs)
    return [one for one in found if opened_folder(one) and "worktree" in one]


def is_merged(state: State) -> bool:
    """Whether the worktree of the run was merged, and removed."""
    workspace = state.workflow.workspace
    is_open = workspace is None or workspace.merge == "none"
    return workspace is not None and not is_open and state.places[workspace.closes].status == "completed"


def _item_folder(state: State, place: Place, step: Place) -> str:
    """The folder of the worktree of an item; "" if the place belongs to none that is open."""
    if not getattr(step.spec, "has_worktrees", False):
        return ""
    item = next((above for above in state.ancestors(place) if above.role == "item"), None)
    return "" if item is None or not item.outputs else opened_folder(item.outputs[0])


def opened_folder(output: Any) -> str:
    """The folder in the output of what opens a worktree."""
    folder = output.get("folder") if isinstance(output, dict) else None
    return folder if isinstance(folder, str) else ""


def workspace_view(state: State) -> dict[str, Any] | None:
    """`run.workspace` in expressions: where the run works and on which branch; null before it is open."""
    workspace = state.workflow.workspace
    output = state.places[workspace.opens].output if workspace is not None and state.places else None
    if workspace is None or not isinstance(output, dict) or lacks_worktree(state):
        return None
    return {
        **{key: output.get(key) for key in ("folder", "worktree", "branch", "target", "checkout")},
        "merge": workspace.merge,
        "merged": is_merged(state),
    }

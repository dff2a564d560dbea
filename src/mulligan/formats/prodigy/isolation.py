"""Worktrees, in the file: the steps and commands that open them, and those that merge them back."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from mulligan.formats.prodigy.places import Place
from mulligan.formats.translation import Translation, made
from mulligan.language.nodes import Node

_CALLS = "mulligan.formats.prodigy.worktrees"
# Git has nothing to try again: what it refuses it refuses again.
_NO_RETRY = {"retry": 0}
_ABOUT = "in a Git repository the run works in a worktree of its own, on a branch of its own; elsewhere in place"
_ABOUT_ITEM = "so does each item, from where the run is"
_ABOUT_CLOSE = "the worktree goes if the steps before this one merged its branch, and stays if they did not"
_ABOUT_END = "a run that failed keeps its worktree, and says where it is"
_ABOUT_MERGE = "what was not committed is committed, then the branch is merged; a conflict is a failure"


class Opened(NamedTuple):
    """What opens a worktree, the place of those behind it, who work in there, and the expression of what it gives."""

    command: dict[str, Any]
    place: Place
    work: str


def opened(place: Place, at: Node, translation: Translation) -> Opened:
    """The step that opens the run's worktree."""
    spot = place.row.take("worktree")
    variables = {
        "merge.worktree": f"{spot.output}.session",
        "merge.source_branch": f"{spot.output}.branch",
        "merge.target_branch": f"{spot.output}.target",
        "merge.session_id": f"{spot.output}.session",
    }
    inside = msgspec.structs.replace(place.knowing(variables), cwd=f"${{any_path({spot.output}.folder)}}")
    call = _call("open_run", {"run": "${run.id}"}, at, translation, _ABOUT)
    return Opened({"step": spot.name, **call}, inside, spot.output)


def merged(run: Opened, at: Node, translation: Translation) -> dict[str, Any]:
    """The step that merges the run back."""
    call = _call("merge_run", {"run": f"${{{run.work}}}"}, at, translation, _ABOUT_MERGE)
    return {"step": run.place.row.take("merge").name, **call}


def closed(run: Opened, at: Node, translation: Translation) -> dict[str, Any]:
    """The step behind the user's own merge steps."""
    call = _call("close_run", {"run": f"${{{run.work}}}"}, at, translation, _ABOUT_CLOSE)
    return {"step": run.place.row.take("close").name, **call}


def told(run: Opened, at: Node, translation: Translation) -> dict[str, Any]:
    """The `end` of the workflow: it says where the work of a failed run is."""
    args = {"run": f"${{{run.work}}}", "failures": "${run.failures}", "stopping": "${run.stopping}"}
    return _call("say_where", args, at, translation, _ABOUT_END)


def item_opened(run: Opened, place: Place, at: Node, translation: Translation) -> Opened:
    """The first command of an item."""
    work = place.row.take("worktree").output
    args = {"run": f"${{{run.work}}}", "index": "${index}"}
    command = _call("open_item", args, at, translation, _ABOUT_ITEM)
    return Opened({**command, **_NO_RETRY}, msgspec.structs.replace(place, cwd=f"${{any_path({work}.folder)}}"), work)


def item_merged(run: Opened, item: Opened, at: Node, translation: Translation) -> dict[str, Any]:
    """The last command of an item: what the one before it gave is what the item gives."""
    args = {"run": f"${{{run.work}}}", "item": f"${{{item.work}}}", "result": "${output}"}
    return {**_call("merge_item", args, at, translation, ""), **_NO_RETRY}


def _call(function: str, args: dict[str, str], at: Node, translation: Translation, about: str) -> dict[str, Any]:
    python = made({"call": f"{_CALLS}:{function}"}, at)
    if about:
        translation.remark(python, about)
    return {"python": python, "args": args}

"""What has changed in Git, for steps that ask: `${step.files_changed}`, `${workflow.commits}` and the like.

`step` is the step before the one that asks: what HEAD was before it is remembered. `workflow` is the run: what its
branch has that the branch it came from has not. A command before the step looks it up.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from mulligan.formats.prodigy.commits import head_file
from mulligan.formats.prodigy.places import Place
from mulligan.formats.prodigy.variables import GIT_FIELDS, mentions
from mulligan.formats.translation import literal
from mulligan.language.nodes import Mapping, Node
from mulligan.language.shapes import Fields

_CALL = "mulligan.formats.prodigy.changes:since"
_CALL_FOUND = "mulligan.formats.prodigy.changes:found"
_FIELDS = "|".join(GIT_FIELDS)
_OF_STEP = re.compile(rf"\$\{{step\.(?:{_FIELDS})\}}")
_OF_RUN = re.compile(rf"\$\{{workflow\.(?:{_FIELDS})\}}")
# Where the place keeps the file that remembers what HEAD was before the last step; no variable of Prodigy's.
_REMEMBERED = "step before"
_ACTIONS = ("shell", "claude", "write_file", "test", "command")
_TARGET = "merge.target_branch"


def watching(place: Place, following: Node | None) -> Place:
    """The place of a step, where the one that follows may ask what it has changed."""
    own = following
    if isinstance(following, Mapping):
        own = next((node for node in map(following.get, _ACTIONS) if node is not None), None)
    return msgspec.structs.replace(place, is_watched=own is not None and mentions(own, _OF_STEP))


def watched(place: Place, at: Node) -> Place:
    """The place after a step: it knows where is remembered what was before it."""
    forgotten = {name: value for name, value in place.variables.items() if name != _REMEMBERED}
    remembered = {_REMEMBERED: head_file(at)} if place.is_watched else {}
    return msgspec.structs.replace(place, variables={**forgotten, **remembered}, is_watched=False)


def looking(asked: Node, title: str, place: Place) -> tuple[list[dict[str, Any]], Place]:
    """The commands that look up what has changed, and the place in which that is known."""
    looks: list[dict[str, Any]] = []
    for root, pattern, args in (
        ("step", _OF_STEP, {"remembered": place.variables.get(_REMEMBERED)}),
        ("workflow", _OF_RUN, {"branch": _as_text(place.variables.get(_TARGET))}),
    ):
        if mentions(asked, pattern) and all(args.values()):
            spot = place.row.take(f"{title}_changes")
            looks.append({"step": spot.name or None, "python": {"call": _CALL}, "args": args})
            place = place.knowing({f"{root}.{field}": f"{spot.output}.{field}" for field in GIT_FIELDS})
    return looks, place


def found_files(form: Fields, title: str, at: Node, place: Place) -> tuple[list[dict[str, Any]], Place]:
    """The command that finds the files which a step names as its `outputs`, and the place that knows them."""
    outputs: dict[str, Fields] = form.get("outputs", {})
    patterns = {name: output["file_pattern"] for name, output in outputs.items() if "file_pattern" in output}
    spot = place.row.take(f"{title}_outputs") if patterns else None
    if spot is None or not spot.output:
        return [], place
    args = {"remembered": head_file(at), "patterns": {name: literal(pattern) for name, pattern in patterns.items()}}
    found = {"step": spot.name or None, "python": {"call": _CALL_FOUND}, "args": args}
    return [found], place.knowing({f"{title}.{name}": f"{spot.output}.{name}" for name in patterns})


def _as_text(expression: str | None) -> str | None:
    return None if expression is None else f"${{{expression}}}"

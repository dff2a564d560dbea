"""Prodigy's `foreach` as a map of ours: over a list, or over the lines that a command prints."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from mulligan.formats.prodigy.actions import shell
from mulligan.formats.prodigy.forms import sound
from mulligan.formats.prodigy.keys import FOREACH
from mulligan.formats.prodigy.places import ITEM_NAMES, Commands, Place, Spot, Steps
from mulligan.formats.translation import Translation, literal_value, made
from mulligan.language.nodes import Mapping, Node, Scalar, Sequence, describe, plain
from mulligan.language.shapes import Fields

PARALLEL_DEFAULT = 10


class Loop(NamedTuple):
    """The list as a step before the map, where a command prints it; the map itself; what runs in it, and where."""

    before: list[dict[str, Any]]
    keys: dict[str, Any]
    do: Node
    place: Place


def loop(form: Fields, spot: Spot, place: Place, translation: Translation) -> Loop:
    """What becomes of a `foreach`. Its keys stand beside it, or in it."""
    _refuse_elsewhere(form, place, translation)
    own = form
    listed = form.at("foreach")
    if isinstance(listed, Mapping):
        own = sound(FOREACH, listed, "'foreach'", translation)
        listed = _listed(own, translation)
    if "do" not in own:
        raise translation.source.refuse("missing_key", "'foreach' has no 'do'", own.node, hint="add 'do: […]'")
    before, over, total, extra = _over(listed, spot, place, translation)
    keys = {
        "over": over,
        "max_parallel": _parallel(own),
        "max_items": own.get("max_items"),
        "on_item_failure": "collect" if own.get("continue_on_error") else "stop",
        **extra,
    }
    variables = {"item": "item", "index": "index", "total": _bounded(total, own.get("max_items"))}
    inner = msgspec.structs.replace(place.knowing(variables), row=Commands(), names=ITEM_NAMES, is_regular=False)
    return Loop(before, keys, own.at("do"), inner)


def _parallel(own: Fields) -> int:
    said = own.get("parallel", False)
    return (PARALLEL_DEFAULT if said else 1) if isinstance(said, bool) else int(said)


def _refuse_elsewhere(form: Fields, place: Place, translation: Translation) -> None:
    if not place.is_in_steps:
        message = "a 'foreach' cannot stand here: there are no loops within items and handlers"
        hint = "loop in the shell, or make it a step of its own"
        raise translation.source.refuse("prodigy", message, form.key("foreach"), hint=hint)


def _listed(own: Fields, translation: Translation) -> Node:
    found = [key for key in ("foreach", "input", "items") if key in own]
    if len(found) != 1:
        message = "'foreach' does not say what is listed"
        if found:
            message = f"'foreach' lists one thing, and has '{found[0]}' and '{found[1]}'"
        raise translation.source.refuse("prodigy", message, own.node, hint="add 'items: […]'")
    return own.at(found[0])


def _over(
    listed: Node, spot: Spot, place: Place, translation: Translation
) -> tuple[list[dict[str, Any]], Any, str, dict[str, Any]]:
    """A step that lists, if there is one; what the map goes over; how many that are; what else the map says."""
    if isinstance(listed, Sequence):
        # As they are: nothing is filled in.
        items = literal_value(plain(listed))
        return [], made(items, listed), str(len(items)), {}
    if not isinstance(listed, Scalar) or not isinstance(listed.value, str):
        message = f"'foreach' is {describe(listed)}, a command or a list is expected"
        raise translation.source.refuse("type", message, listed)
    assert isinstance(place.row, Steps)
    lister = place.row.take(f"{spot.name}_list")
    step = {"step": lister.name, **shell(listed, place, translation), "capture": "lines", "cwd": place.cwd}
    over = made(f"${{{lister.output}}}", listed)
    return [step], over, f"size({lister.output}.filter(line, line.trim() != ''))", {"filter": "item.trim() != ''"}


def _bounded(total: str, most: int | None) -> str:
    if most is None or total.isdigit():
        return total if most is None else str(min(int(total), most))
    return f"({total} < {most} ? {total} : {most})"

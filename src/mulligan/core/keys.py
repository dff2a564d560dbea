"""How places are named, and what a name says: `build`, `check[3]`, `check[3].0`, `build.on_failure@2.0`."""

from __future__ import annotations


def step_name(key: str) -> str:
    """The step that a place belongs to."""
    return key.partition(".")[0].partition("[")[0]


def item_key(step: str, index: int) -> str:
    """An item of a map step."""
    return f"{step}[{index}]"


def undo_key(step: str, visit: int) -> str:
    """The undo of a visit."""
    return f"{step}.undo@{visit}"


def is_part(key: str, whole: str) -> bool:
    """Whether a place is `whole`, or something below it: an item, a command, what one of those tries."""
    return key == whole or key.startswith((f"{whole}[", f"{whole}."))

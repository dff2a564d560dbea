"""Loops: what they run over, under which name, and how many items at a time."""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.formats.noetl.texts import workload_name
from mulligan.language.nodes import Node, Scalar, Source, describe
from mulligan.language.shapes import Fields


class Loop(msgspec.Struct, frozen=True, eq=False):
    """A loop as the playbook means it."""

    over: Node
    iterator: str
    # None: as many as there is room for.
    max_parallel: int | None = 1
    max_items: int | None = None


def read_loop(form: Fields, workload: dict[str, Any], source: Source) -> Loop | None:
    """A loop of either dialect. What it lacks is noted."""
    over = form.node.get("in") or form.node.get("collection")
    iterator = form.get("iterator") or form.get("element")
    for found, key in ((over, "in"), (iterator, "iterator")):
        if found is None and not form.has_unknown_keys:  # else it most likely is there by another name, which was noted
            source.note(source.refuse("missing_key", f"'loop' has no '{key}'", form.node, hint=f"add '{key}: …'"))
    if over is None or iterator is None:
        return None
    how = form.get("spec", form)
    return Loop(over, iterator, _max_parallel(how, workload, source), form.get("limit"))


def _max_parallel(how: Fields, workload: dict[str, Any], source: Source) -> int | None:
    key = next((key for key in ("max_in_flight", "concurrency") if key in how), None)
    if key is None:
        return 1 if how.get("mode", "sequential") == "sequential" else None
    node = how.at(key)
    number = _number(node, workload)
    if number is None or number < 1:
        message = f"'{key}' is {describe(node)}, a whole number of at least 1 is expected"
        hint = "it must be known when the file is read: a number, or a key of 'workload' that has one"
        raise source.refuse("type", message, node, hint=hint)
    return number if how.get("mode") != "sequential" else 1


def _number(node: Node, workload: dict[str, Any]) -> int | None:
    if not isinstance(node, Scalar):
        return None
    value = node.value
    if isinstance(value, str) and (key := workload_name(value)):
        value = workload.get(key)
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    return value if type(value) is int else None

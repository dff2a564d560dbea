"""Rewrite steps and workbook entries of the oldest dialect in the one after it."""

from __future__ import annotations

from mulligan.formats.noetl.keys import ITERATOR
from mulligan.formats.noetl.texts import is_word
from mulligan.formats.translation import made, only, renewed, scalar, without
from mulligan.language.text.nodes import Mapping, Node, Scalar, Source, describe

# Former kinds of tools, and what does the same now.
_ROUTER = {"kind": "noop"}
_SAVE = {"kind": "python", "code": "result = input_data"}
_RENAMED = {"router": _ROUTER, "start": _ROUTER, "end": _ROUTER, "save": _SAVE}


def kind_of(node: Mapping) -> Scalar | None:
    """The kind of a tool whose `tool` or `type` is a text."""
    return next((found for key in ("tool", "type") if isinstance(found := node.get(key), Scalar) and found.text), None)


def in_newer_dialect(node: Mapping, source: Source) -> Mapping:
    """Rewrite an iterator as a loop, a former kind as a present one, and the `data` of a request as what is sent."""
    kind = kind_of(node)
    if kind is None:
        return node
    if kind.text == "iterator":
        return in_newer_dialect(_iterator_as_loop(node, kind, source), source)
    if kind.text in _RENAMED:
        tool = (scalar("tool", kind), made(_RENAMED[kind.text], kind))
        return renewed({**without(node, "tool", "type").entries, "tool": tool}, node)
    if kind.text.strip().lower() == "http" and node.get("data") is not None:
        return _with_sent_data(node)
    return node


def _with_sent_data(node: Mapping) -> Mapping:
    """The step with its `data` also as the query of its request, or the body: it is the input, and what is sent."""
    data, method = node.get("data"), node.get("method")
    assert data is not None
    sent: dict[str, Node | None] = {}
    if isinstance(data, Mapping) and data.entries and data.entries.keys() <= {"query", "body"}:
        sent = {"params": data.get("query"), "payload": data.get("body")}
    elif method is None or (isinstance(method, Scalar) and method.text.strip().upper() in ("GET", "HEAD")):
        sent = {"params": data}
    elif "body" not in node.entries:
        sent = {"payload": data}
    found = without(node)
    for key, value in sent.items():
        own = node.get(key)
        if isinstance(own, Mapping) and isinstance(value, Mapping):
            value = renewed({**own.entries, **value.entries}, value)
        elif own is not None:
            continue
        if value is not None:
            found.entries[key] = (scalar(key, value), value)
    return found


def _iterator_as_loop(node: Mapping, kind: Scalar, source: Source) -> Mapping:
    """The task of the iterator becomes the tool of the step; the rest of it becomes the loop."""
    task = node.get("task")
    if not isinstance(task, Mapping):
        message = "the iterator has no 'task'" if task is None else f"'task' is {describe(task)}, a mapping is expected"
        raise source.refuse("missing_key", message, node if task is None else task)
    loop = renewed(only(without(node, "task"), ITERATOR.keys).entries, kind)
    found = without(node, *ITERATOR.keys, "tool", "type")
    # Nothing reads the name of a task, unless it is that of an entry of the workbook.
    found.entries |= without(task, "name", "task", "desc").entries
    if is_word(kind_of(task), "workbook") and "name" in task.entries:
        found.entries["name"] = task.entries["name"]
    found.entries["loop"] = (scalar("loop", kind), loop)
    return found

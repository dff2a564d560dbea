"""What the steps of a matrix may use, each by its own values: `memory: "${matrix.mem}"`.

Resources and timeouts are known before a run starts, and so are the values of a matrix. They are put in when the file
is read, and what comes of it is read as if it had been written there.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.core.model.workflow import ENGINE_ACTIONS, Step
from mulligan.errors import ExpressionFailed
from mulligan.language import expressions
from mulligan.language.keys import RESOURCES
from mulligan.language.matrix_binding import Values
from mulligan.language.nodes import Mapping, Node, Scalar, Sequence
from mulligan.language.scope import Scope, template
from mulligan.language.settings import read_resources
from mulligan.language.shapes import LIMIT

# The keys of a step that may have values of its matrix in them.
KEYS = ("resources", "timeout")


def varying_keys(node: Mapping) -> list[str]:
    """Which of them have: none where the step is no matrix."""
    if "matrix" not in node.entries:
        return []
    return [key for key in KEYS if (below := node.get(key)) is not None and _has_hole(below)]


def without(node: Mapping, keys: list[str]) -> Mapping:
    """The step as written, but for these keys."""
    if not keys:
        return node
    found = Mapping(node.line, node.column)
    found.entries = {key: entry for key, entry in node.entries.items() if key not in keys}
    return found


def limits_of_each(node: Mapping, step: Step, combinations: list[Values], scope: Scope) -> list[dict[str, Any]]:
    """For each combination what it may use, by the fields of a step; nothing where that is the same for all."""
    keys = varying_keys(node)
    if not keys or not combinations:
        return []
    for key in keys:
        _refuse_where_others_read_it(key, node, step, scope)
    found = []
    problems = len(scope.source.problems)
    for values in combinations:
        found.append({key: _read(key, _filled(node.entries[key][1], values, scope), scope) for key in keys})
        # What is wrong with one is most likely wrong with all.
        if len(scope.source.problems) > problems:
            return []
    return found


def with_limits(step: Step, limits: dict[str, Any]) -> Step:
    return msgspec.structs.replace(step, **limits)


def _refuse_where_others_read_it(key: str, node: Mapping, step: Step, scope: Scope) -> None:
    """A map hands its own to the commands of its items, and the engine reads a timeout from its own actions."""
    if step.map is not None:
        message = f"'{key}' of a step with 'map' cannot have values of the matrix in it"
    elif key == "timeout" and step.action is not None and step.action.kind in ENGINE_ACTIONS:
        message = f"'timeout' of '{step.action.kind}' cannot have values of the matrix in it"
    else:
        return
    hint = "write it without them, or make a step of its own for each"
    raise scope.source.refuse("matrix", message, node.key(key), hint=hint)


def _has_hole(node: Node) -> bool:
    if isinstance(node, Scalar):
        return "${" in node.text
    return any(map(_has_hole, node.items if isinstance(node, Sequence) else (below for _, below in node.items())))


def _filled(node: Node, values: Values, scope: Scope) -> Node:
    """The node with what its expressions come to, at their places in the file."""
    if isinstance(node, Sequence):
        items = Sequence(node.line, node.column)
        items.items = [_filled(item, values, scope) for item in node.items]
        return items
    if isinstance(node, Mapping):
        found = Mapping(node.line, node.column)
        found.entries = {name: (key, _filled(below, values, scope)) for name, (key, below) in node.entries.items()}
        return found
    if not _has_hole(node):
        return node
    value = _value(node, values, scope)
    text = expressions.as_text(value)
    return Scalar(value, text, node.style, node.line, node.column, node.end_column)


def _value(node: Scalar, values: Values, scope: Scope) -> Any:
    written = template(node, scope)
    strange = next((read for read in written.reads if read != "matrix"), None)
    if strange:
        message = f"'{strange}' is not known before the run starts, and what a step may use is"
        raise scope.source.refuse("expression", message, node, hint="values of the matrix may stand here")
    try:
        return expressions.render(written, {"matrix": values})
    except ExpressionFailed as failed:
        raise scope.source.refuse("expression", failed.message, node) from None


def _read(key: str, node: Node, scope: Scope) -> Any:
    if key == "timeout":
        return LIMIT.read(node, "'timeout'", scope.source)
    return read_resources(RESOURCES.read(node, "'resources'", scope.source))

"""Resources and timeouts that depend on matrix values: `memory: "${matrix.mem}"`.

Both must be known before a run starts, and so are the values of a matrix. The expressions are evaluated when the file
is read, and the result is read as if it had been written there.
"""

from __future__ import annotations

from typing import Any

from mulligan.core.model.actions import traits_of
from mulligan.core.model.workflow import Step
from mulligan.errors import ExpressionFailed
from mulligan.language import expressions
from mulligan.language.keys.value_schemas import LIMIT
from mulligan.language.keys.workflow_keys import RESOURCES
from mulligan.language.matrices.matrix_binding import Values
from mulligan.language.readers.settings import read_resources
from mulligan.language.scope import Scope, read_template
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence

# The keys of a step that may contain values of its matrix.
KEYS = ("resources", "timeout")


def keys_with_matrix_values(node: Mapping) -> list[str]:
    """The keys of the step that contain matrix values."""
    if "matrix" not in node.entries:
        return []
    return [key for key in KEYS if (below := node.get(key)) is not None and _has_placeholder(below)]


def without_keys(node: Mapping, keys: list[str]) -> Mapping:
    """The step as written, without these keys."""
    if not keys:
        return node
    found = Mapping(node.line, node.column)
    found.entries = {key: entry for key, entry in node.entries.items() if key not in keys}
    return found


def limits_per_step(node: Mapping, step: Step, combinations: list[Values], scope: Scope) -> list[dict[str, Any]]:
    """The resources and timeout of each combination, as fields of a step; empty if they are the same for all."""
    keys = keys_with_matrix_values(node)
    if not keys or not combinations:
        return []
    for key in keys:
        _refuse_unsupported(key, node, step, scope)
    found = []
    problems = len(scope.source.problems)
    for values in combinations:
        found.append({key: _read_limit(key, _fill_in(node.entries[key][1], values, scope), scope) for key in keys})
        # Report the problem once: the other combinations most likely have the same one.
        if len(scope.source.problems) > problems:
            return []
    return found


def _refuse_unsupported(key: str, node: Mapping, step: Step, scope: Scope) -> None:
    """Refuse keys that are read elsewhere: a map passes them on, and an engine action reads its own timeout."""
    if step.map is not None:
        message = f"'{key}' of a step with 'map' cannot have values of the matrix in it"
    elif key == "timeout" and step.action is not None and traits_of(step.action).runs_in == "engine":
        message = f"'timeout' of '{step.action.kind}' cannot have values of the matrix in it"
    else:
        return
    hint = "write it without them, or write a separate step for each"
    raise scope.source.refuse("matrix", message, node.key(key), hint=hint)


def _has_placeholder(node: Node) -> bool:
    if isinstance(node, Scalar):
        return "${" in node.text
    return any(
        map(_has_placeholder, node.items if isinstance(node, Sequence) else (below for _, below in node.items()))
    )


def _fill_in(node: Node, values: Values, scope: Scope) -> Node:
    """The node with the values of its expressions, at the same positions in the file."""
    if isinstance(node, Sequence):
        items = Sequence(node.line, node.column)
        items.items = [_fill_in(item, values, scope) for item in node.items]
        return items
    if isinstance(node, Mapping):
        found = Mapping(node.line, node.column)
        found.entries = {name: (key, _fill_in(below, values, scope)) for name, (key, below) in node.entries.items()}
        return found
    if not _has_placeholder(node):
        return node
    value = _evaluate(node, values, scope)
    text = expressions.as_text(value)
    return Scalar(value, text, node.style, node.line, node.column, node.end_column)


def _evaluate(node: Scalar, values: Values, scope: Scope) -> Any:
    written = read_template(node, scope)
    strange = next((read for read in written.reads if read != "matrix"), None)
    if strange:
        message = f"'{strange}' is not known before the run starts, but this value has to be"
        raise scope.source.refuse("expression", message, node, hint="only values of the matrix can be used here")
    try:
        return expressions.render(written, {"matrix": values})
    except ExpressionFailed as failed:
        raise scope.source.refuse("expression", failed.message, node) from None


def _read_limit(key: str, node: Node, scope: Scope) -> Any:
    if key == "timeout":
        return LIMIT.read(node, "'timeout'", scope.source)
    return read_resources(RESOURCES.read(node, "'resources'", scope.source))

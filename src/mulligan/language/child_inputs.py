"""The inputs that a `workflow` action gives to its child, checked as far as they are known at load."""

from __future__ import annotations

from mulligan.core.model.workflow import Workflow
from mulligan.language.inputs import fits, shown
from mulligan.language.nodes import Mapping, Node, Scalar, plain
from mulligan.language.scope import Scope
from mulligan.language.words import did_you_mean, listed


def refuse_bad_inputs(child: Workflow, file: str, file_node: Node, given: Mapping | None, scope: Scope) -> None:
    """Unknown, missing and mistyped inputs of the child, each at its own place."""
    entries = given.entries if given else {}
    for name, (key, value) in entries.items():
        declared = child.inputs.get(name)
        if declared is None:
            hint = did_you_mean(name, child.inputs)
            scope.note(scope.source.refuse("unknown_input", f"'{file}' has no input '{name}'", key, hint=hint))
        elif not _has_holes(value) and not fits(plain(value), declared.type):
            message = f"input '{name}' of '{file}' is not of its type, {declared.type}"
            scope.note(scope.source.refuse("input", message, value))
        elif not _has_holes(value) and declared.enum and plain(value) not in declared.enum:
            hint = f"it has {listed(map(shown, declared.enum), 'and')}"
            message = f"input '{name}' of '{file}' is not in its 'enum'"
            scope.note(scope.source.refuse("input", message, value, hint=hint))
    for name, declared in child.inputs.items():
        if not declared.has_default and name not in entries:
            message = f"'{file}' requires the input '{name}'"
            scope.note(scope.source.refuse("input", message, file_node, hint="add it under 'inputs:'"))


def _has_holes(node: Node) -> bool:
    return isinstance(node, Scalar) and node.is_text and "${" in node.text

"""Typed inputs: their declarations, and those that a step gives to a child workflow."""

from __future__ import annotations

from typing import Any

from mulligan.core.model.workflow import Input, Workflow
from mulligan.language.input_values import TYPES, fits, format_input
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.scope import Scope
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, Source, plain, refuse_not_json
from mulligan.language.text.suggestions import did_you_mean, quote_list


def read_input(name: str, form: Any, source: Source) -> Input:
    """A declared input: a type, a mapping, or nothing (a required string)."""
    if not isinstance(form, Fields):
        return Input(type=form or "string")
    type_name = form.get("type", "string")
    values = _read_typed(form, "enum", type_name, name, source) if "enum" in form else []
    default = _read_typed(form, "default", type_name, name, source) if "default" in form else None
    if "default" in form and values and default not in values:
        message = f"the default of input '{name}' is not in its 'enum'"
        raise source.refuse("input", message, form.at("default"), hint=f"it has {quote_list(map(str, values), 'and')}")
    return Input(
        type=type_name,
        default=default,
        has_default="default" in form,
        enum=tuple(values),
        description=form.get("description", ""),
    )


def _read_typed(form: Fields, key: str, type_name: str, name: str, source: Source) -> Any:
    node = form.at(key)
    refuse_not_json(node, source)
    if key == "enum" and (not isinstance(node, Sequence) or not node.items):
        raise source.refuse("type", f"'enum' of input '{name}' is not a list of values", node)
    what = "a value in 'enum'" if key == "enum" else "the default"
    for one in node.items if key == "enum" and isinstance(node, Sequence) else [node]:
        if not fits(value := plain(one), type_name):
            message = f"{what} of input '{name}' is {_describe_type(value)}, and its type is {type_name}"
            raise source.refuse("input", message, one)
    return plain(node)


def _describe_type(value: Any) -> str:
    if value is None:
        return "empty"
    kind = next(name for name in TYPES if fits(value, name))
    return f"an {kind}" if kind[0] in "aio" else f"a {kind}"


def check_child_inputs(child: Workflow, file: str, file_node: Node, given: Mapping | None, scope: Scope) -> None:
    """Note unknown, missing and mistyped inputs of a `workflow` action, as far as their values are known."""
    entries = given.entries if given else {}
    for name, (key, value) in entries.items():
        declared = child.inputs.get(name)
        if declared is None:
            hint = did_you_mean(name, child.inputs)
            scope.note(scope.source.refuse("unknown_input", f"'{file}' has no input '{name}'", key, hint=hint))
        elif not _has_placeholder(value) and not fits(plain(value), declared.type):
            message = f"input '{name}' of '{file}' is not of its type, {declared.type}"
            scope.note(scope.source.refuse("input", message, value))
        elif not _has_placeholder(value) and declared.enum and plain(value) not in declared.enum:
            hint = f"it has {quote_list(map(format_input, declared.enum), 'and')}"
            message = f"input '{name}' of '{file}' is not in its 'enum'"
            scope.note(scope.source.refuse("input", message, value, hint=hint))
    for name, declared in child.inputs.items():
        if not declared.has_default and name not in entries:
            message = f"'{file}' requires the input '{name}'"
            scope.note(scope.source.refuse("input", message, file_node, hint="add it under 'inputs:'"))


def _has_placeholder(node: Node) -> bool:
    return isinstance(node, Scalar) and node.is_text and "${" in node.text

"""Typed inputs: declarations, the inputs of a run, and those of a child workflow."""

from __future__ import annotations

import json
from typing import Any

from mulligan.core.model.artifacts import KEY as ARTIFACT
from mulligan.core.model.artifacts import holds_reference
from mulligan.core.model.workflow import Input, Workflow
from mulligan.core.state.scope import Evaluator, fetch_artifact
from mulligan.errors import InputInvalid
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.scope import Scope
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, Source, plain, refuse_not_json, shorten
from mulligan.language.text.scalars import resolve
from mulligan.language.text.suggestions import did_you_mean, quote_list

# Any value, including null.
ANY = "any"
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def fits(value: Any, type_name: str) -> bool:
    """Whether a JSON value has the type. A boolean is not a number."""
    if type_name == ANY:
        return True
    return isinstance(value, _TYPES[type_name]) and (type_name == "boolean" or not isinstance(value, bool))


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
    kind = next(name for name in _TYPES if fits(value, name))
    return f"an {kind}" if kind[0] in "aio" else f"a {kind}"


def check_inputs(workflow: Workflow, given: dict[str, Any]) -> dict[str, Any]:
    """The inputs of a run, complete and with the right types. Text is converted to other types."""
    for name in given:
        if name not in workflow.inputs:
            hint = did_you_mean(name, workflow.inputs) or (
                f"it has {quote_list(workflow.inputs, 'and')}" if workflow.inputs else "it has no inputs"
            )
            raise InputInvalid(f"workflow '{workflow.name}' has no input '{name}'", hint=hint, input=name)
    return {name: _input_value(name, declared, given) for name, declared in workflow.inputs.items()}


def check_recorded_inputs(workflow: Workflow, given: dict[str, Any], evaluator: Evaluator) -> dict[str, Any]:
    """The same for inputs from facts. An artifact is fetch_artifact to check its type, but stays a reference."""
    whole = {name: fetch_artifact(evaluator, value) for name, value in given.items()}
    found = check_inputs(workflow, whole)
    return {name: given[name] if name in given and value is whole[name] else value for name, value in found.items()}


def refuse_references(given: dict[str, Any]) -> None:
    """Refuse references to artifacts in inputs from outside: only facts of a run may contain them."""
    for name, value in given.items():
        if holds_reference(value):
            message = f"input '{name}' has the key '{ARTIFACT}' in it, which is reserved for artifacts"
            raise InputInvalid(message, input=name)


def _input_value(name: str, declared: Input, given: dict[str, Any]) -> Any:
    if name not in given:
        if not declared.has_default:
            raise InputInvalid(f"input '{name}' is missing", hint=f"give it with -i {name}=VALUE", input=name)
        return declared.default
    value = convert(name, declared, given[name])
    if declared.enum and value not in declared.enum:
        shown, choices = format_input(value), [format_input(choice) for choice in declared.enum]
        hint = did_you_mean(shown, choices)
        message = f"input '{name}' is '{shorten(shown)}', {quote_list(choices)} is expected"
        raise InputInvalid(message, hint=hint, input=name)
    return value


def convert(name: str, declared: Input, value: Any) -> Any:
    """The value converted to its type: `-i n=3` gives the text `3`."""
    given = value
    if isinstance(value, str) and declared.type != "string":
        value = _parse_json(value)
    if not fits(value, declared.type):
        shown = shorten(format_input(given))
        shown = f"'{shown}'" if isinstance(given, str) else shown
        message = f"input '{name}' is {shown}, {_EXAMPLES[declared.type]} is expected"
        raise InputInvalid(message, input=name)
    if not _is_storable(value):
        hint = "numbers have at most 64 bits, texts are Unicode"
        raise InputInvalid(f"input '{name}' cannot be stored as JSON", hint=hint, input=name)
    return value


def _is_storable(value: Any) -> bool:
    """Whether a store returns the value unchanged."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
        return bool(json.loads(text, parse_int=resolve) == value)
    except (ValueError, TypeError, RecursionError):
        return False


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return text


def _refuse_constant(word: str) -> Any:
    raise ValueError(word)


def format_input(value: Any) -> str:
    """A value as it is written on the command line."""
    return value if isinstance(value, str) else json.dumps(value)


_EXAMPLES = {
    "string": "a text",
    "integer": "a whole number such as 3",
    "number": "a number such as 1.5",
    "boolean": "true or false",
    "array": "a list such as [1, 2]",
    "object": 'a mapping such as {"a": 1}',
    ANY: "a value",
}


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

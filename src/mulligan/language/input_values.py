"""Values of typed inputs: those that a run is given, checked and converted as its workflow declares them."""

from __future__ import annotations

import json
from typing import Any

from mulligan.core.model.artifacts import KEY as ARTIFACT
from mulligan.core.model.artifacts import holds_reference
from mulligan.core.model.workflow import Input, Workflow
from mulligan.core.state.scope import Evaluator, fetch_artifact
from mulligan.errors import InputInvalid
from mulligan.language.text.nodes import shorten
from mulligan.language.text.scalars import resolve
from mulligan.language.text.suggestions import did_you_mean, quote_list

# Any value, including null.
ANY = "any"
TYPES: dict[str, tuple[type, ...]] = {
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
    return isinstance(value, TYPES[type_name]) and (type_name == "boolean" or not isinstance(value, bool))


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

"""The inputs of a flow: what the annotations and defaults of its parameters say."""

from __future__ import annotations

import collections.abc
import enum
import types
import typing
from typing import Any

from mulligan.errors import LanguageError
from mulligan.flows.context import refuse
from mulligan.flows.functions import definition_site
from mulligan.flows.literals import plain
from mulligan.flows.parameters import Parameters

# What an input of this type is in a file. A type that is not here is `any`.
_TYPES: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    tuple: "array",
    set: "array",
    frozenset: "array",
    dict: "object",
    collections.abc.Sequence: "array",
    collections.abc.Iterable: "array",
    collections.abc.Collection: "array",
    collections.abc.Mapping: "object",
    collections.abc.MutableMapping: "object",
}
# Types that travel as texts.
_TEXTS = frozenset({("datetime", "datetime"), ("datetime", "date"), ("datetime", "time"), ("uuid", "UUID")})


def inputs_of(function: Any, parameters: Parameters, given: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The declarations of the inputs: one per parameter. `given` has further keys, by name."""
    if parameters.takes_any:
        hint = "name the inputs: def nightly(url: str, table: str)"
        refuse("function", f"{parameters.label} has a parameter '**'", hint=hint, site=definition_site(function))
    found: dict[str, dict[str, Any]] = {}
    for name in parameters.names:
        annotation = _resolve(parameters.annotations.get(name), function)
        keys = _of_annotation(annotation)
        if name in parameters.defaults:
            default = parameters.defaults[name]
            keys["default"] = _plain_default(name, default, function)
            if annotation is None and default is not None:
                keys["type"] = _TYPES.get(type(default), "any")
        found[name] = {**keys, **given.get(name, {})}
    for name in given:
        if name not in found:
            message = f"{parameters.label} has no parameter '{name}'"
            refuse("unknown_input", message, word=name, site=definition_site(function))
    return found


def _plain_default(name: str, default: Any, function: Any) -> Any:
    try:
        return plain(default)
    except LanguageError:
        kind = type(default).__name__
        message = f"the default of '{name}' is a {kind}, and a flow is built of plain values"
        refuse("value", message, hint="leave it out, or write None", site=definition_site(function))


def _resolve(annotation: Any, function: Any) -> Any:
    """The annotation itself, if it is a text. What cannot be resolved says nothing."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, getattr(function, "__globals__", {}))  # noqa: S307 - the user's own module
    except Exception:  # a name that exists only for type checkers
        return Any


def _of_annotation(annotation: Any) -> dict[str, Any]:
    """The keys of an input with this annotation."""
    if annotation is None:
        return {"type": "any"}
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        described = next((one for one in arguments[1:] if isinstance(one, str)), None)
        return {**_of_annotation(arguments[0]), **({"description": described} if described else {})}
    if origin is typing.Literal:
        return _enumeration([plain(one) for one in arguments])
    if origin in (typing.Union, types.UnionType):
        return _union(arguments)
    kind = origin or annotation
    if not isinstance(kind, type):
        supertype = getattr(kind, "__supertype__", None)
        return _of_annotation(supertype) if supertype else {"type": "any"}
    if issubclass(kind, enum.Enum):
        return _enumeration([plain(member.value) for member in kind])
    return {"type": _type_name(kind)}


def _type_name(kind: type) -> str:
    if kind in _TYPES:
        return _TYPES[kind]
    if (kind.__module__, kind.__name__) in _TEXTS or any(one.__name__ == "PurePath" for one in kind.__mro__):
        return "string"
    if any(hasattr(kind, mark) for mark in ("__dataclass_fields__", "__struct_fields__", "model_fields")):
        return "object"
    return next((name for base, name in _TYPES.items() if kind is not bool and issubclass(kind, base)), "any")


def _enumeration(values: list[Any]) -> dict[str, Any]:
    kinds = {_TYPES.get(type(value), "any") for value in values}
    return {"type": kinds.pop() if len(kinds) == 1 else "any", "enum": values}


def _union(arguments: tuple[Any, ...]) -> dict[str, Any]:
    """`int | float` is a number. With None, or of several types, it is `any`, the only type that may be null."""
    kinds = [_of_annotation(one) for one in arguments if one is not type(None)]
    if len(kinds) < len(arguments):
        choices = kinds[0].get("enum") if len(kinds) == 1 else None
        return {"type": "any", "enum": [*choices, None]} if choices else {"type": "any"}
    names = {kind["type"] for kind in kinds}
    if names <= {"integer", "number"}:
        return {"type": "number" if "number" in names else "integer"}
    return {"type": names.pop()} if len(names) == 1 and not any("enum" in kind for kind in kinds) else {"type": "any"}

"""Composition of Prodigy's workflows. Parameters are inputs of ours; the rest is refused by name."""

from __future__ import annotations

from typing import Any

from mulligan.formats.prodigy.places import Place
from mulligan.formats.translation import Translation, made
from mulligan.language.action_keys import ANY_TEXT, as_node
from mulligan.language.nodes import Mapping, Node, describe
from mulligan.language.shapes import TEXT, Choice, Either, Fields, Json, Key, ListOf, MapOf, Record

_INSTEAD = {
    "imports": "copy what is used into this file, or make it a step with our 'workflow'",
    "extends": "copy the other file's steps into this one",
    "template": "copy the template's steps into this file",
    "workflows": "convert both files, and make the other one a step: 'workflow: {file: …}'",
}
COMPOSITION = {key: Key(as_node(Json()), f"refused: {instead}") for key, instead in _INSTEAD.items()}
_TYPES = ("string", "number", "integer", "boolean", "array", "object", "any")
PARAMETER = Record(
    "parameter",
    {
        "name": Key(TEXT, "the name of the input"),
        "type": Key(Choice(_TYPES), "its type (default string)"),
        "description": Key(ANY_TEXT, "what it is for"),
        "default": Key(as_node(Json()), "its value where none is given"),
        "validation": Key(as_node(Json()), "not honoured"),
    },
)
_PARAMETER = Either("a parameter", text=as_node(TEXT), mapping=PARAMETER)
PARAMETER_LISTS = Record(
    "parameters",
    {
        "required": Key(ListOf(_PARAMETER), "those without a default"),
        "optional": Key(ListOf(_PARAMETER), "those that may be left out"),
    },
)
PARAMETERS = as_node(Either("lists of parameters, or a mapping of them", mapping=PARAMETER_LISTS))
_BY_NAME = MapOf(_PARAMETER)
RECORDS = (PARAMETER, PARAMETER_LISTS)


def refuse_composition(form: Fields, translation: Translation) -> None:
    for key, instead in _INSTEAD.items():
        if key in form:
            message = f"'{key}' puts workflows together, which is not done here"
            translation.source.note(translation.source.refuse("prodigy", message, form.key(key), hint=instead))


def parameters(form: Fields, place: Place, translation: Translation) -> tuple[dict[str, Any], Place]:
    """The inputs of the workflow, and the place in which each parameter is a variable."""
    node = form.node.get("parameters")
    if node is None:
        return {}, place
    if not isinstance(node, Mapping):
        message = f"'parameters' is {describe(node)}, a mapping is expected"
        raise translation.source.refuse("type", message, node)
    read = _listed if set(node.entries) <= {"required", "optional"} else _named
    inputs = dict(read(node, translation))
    return inputs, place.knowing({name: f"inputs.{name}" for name in inputs})


def _listed(node: Mapping, translation: Translation) -> list[tuple[str, dict[str, Any]]]:
    lists: Fields = PARAMETER_LISTS.read(node, "'parameters'", translation.source)
    found = []
    for key in ("required", "optional"):
        for each in lists.get(key, ()):
            name = each.get("name") if isinstance(each, Fields) else each.text
            if name is None:
                raise translation.source.refuse("missing_key", "a parameter has no 'name'", each.node)
            found.append((name, _input(each, translation, is_optional=key == "optional")))
    return found


def _named(node: Mapping, translation: Translation) -> list[tuple[str, dict[str, Any]]]:
    entries = _BY_NAME.read(node, "'parameters'", translation.source)
    return [(name, _input(each, translation, is_optional=False)) for name, each in entries.items()]


def _input(each: Fields | Node, translation: Translation, *, is_optional: bool) -> dict[str, Any]:
    if not isinstance(each, Fields):
        return {"type": "string", "default": "" if is_optional else None}
    if "validation" in each:
        translation.warn("prodigy", "'validation' of a parameter is not honoured", each.key("validation"))
    kind = each.get("type", "string")
    said: dict[str, Any] = {"type": None if kind == "any" else kind, "description": each.node.get("description")}
    if "default" in each:
        said["default"] = each.at("default")
    elif is_optional:
        said["default"] = "" if kind in ("string", "any") else made(None, each.node)
    return said

"""`parameters` of a workflow: inputs, with their types, and the rules that their values must follow.

Prodigy reads `validation` and does not evaluate it. Here a rule that lists values becomes `enum` of the input, which is
checked before the run starts; any other rule is checked by the first step.
"""

from __future__ import annotations

import re
from typing import Any

from mulligan.formats.prodigy.context import Context
from mulligan.formats.prodigy.parameter_rules import find_problem, parse_rules
from mulligan.formats.translation import literal_value, made
from mulligan.formats.value_schemas import LenientRecord
from mulligan.language.keys.action_keys import ANY_TEXT, as_node
from mulligan.language.keys.value_schemas import TEXT, Either, Fields, Json, Key, ListOf, MapOf, Value
from mulligan.language.text.nodes import Mapping, Node, Scalar, Source, describe, plain, shorten
from mulligan.language.text.suggestions import quote_list

_TYPES = ("string", "number", "integer", "boolean", "array", "object", "any")


def _read_type(value: Any) -> str:
    if not isinstance(value, str) or value.lower() not in _TYPES:
        raise ValueError(value)
    return value.lower()


# Prodigy's documents write them with a capital letter, its files without.
TYPE = Value("one of " + quote_list(_TYPES), _read_type, {"type": "string"})
PARAMETER = LenientRecord(
    "parameter",
    {
        "name": Key(TEXT, "the name of the input"),
        "type": Key(TYPE, "its type (default string)"),
        "description": Key(ANY_TEXT, "what it is for"),
        "default": Key(as_node(Json()), "its value if none is given"),
        "validation": Key(as_node(Json()), "a rule for its value: matches('…'), in([…]), value >= 1 && value <= 10"),
    },
)
_PARAMETER = Either("a parameter", text=as_node(TEXT), mapping=PARAMETER)
PARAMETER_LISTS = LenientRecord(
    "parameters",
    {
        "required": Key(ListOf(_PARAMETER), "those without a default"),
        "optional": Key(ListOf(_PARAMETER), "those that may be left out"),
    },
)
PARAMETER_DEFINITIONS = LenientRecord(
    "parameter_definitions", {"definitions": Key(MapOf(_PARAMETER), "parameters by their names", is_required=True)}
)
PARAMETERS_KEY = Key(
    as_node(Either("lists of parameters, or a mapping of them", mapping=PARAMETER_LISTS)), "inputs of the workflow"
)
_BY_NAME = MapOf(_PARAMETER)
CHECK = "mulligan.formats.prodigy.runtime:check_parameters"


def translate_parameters(form: Fields, context: Context) -> tuple[dict[str, Any], Context, list[dict[str, Any]]]:
    """The inputs of the workflow, the context in which each is a variable, and the step that checks them, if any."""
    node = form.node.get("parameters")
    if node is None:
        return {}, context, []
    if not isinstance(node, Mapping):
        message = f"'parameters' is {describe(node)}, a mapping is expected"
        raise context.source.refuse("type", message, node)
    reading = _Reading(context.source)
    reading.read(node)
    known = context.with_variables({name: f"inputs.{name}" for name in reading.inputs})
    if not reading.rules:
        return reading.inputs, known, []
    values = {name: f"${{inputs.{name}}}" for name in reading.rules}
    args = {"values": values, "rules": literal_value(reading.rules)}
    call = made({"call": CHECK}, node)
    return reading.inputs, known, [{"step": context.slots.take("parameters").name, "python": call, "args": args}]


class _Reading:
    """The parameters that have been read so far: inputs, and rules that a step checks."""

    def __init__(self, source: Source) -> None:
        self.inputs: dict[str, dict[str, Any]] = {}
        self.rules: dict[str, list[list[Any]]] = {}
        self._source = source

    def read(self, node: Mapping) -> None:
        if set(node.entries) <= {"required", "optional"}:
            self._read_lists(node)
            return
        if set(node.entries) == {"definitions"}:
            entries = PARAMETER_DEFINITIONS.read(node, "'parameters'", self._source).get("definitions", {})
        else:
            entries = _BY_NAME.read(node, "'parameters'", self._source)
        for name, each in entries.items():
            self._add(name, each, is_optional=False)

    def _read_lists(self, node: Mapping) -> None:
        lists: Fields = PARAMETER_LISTS.read(node, "'parameters'", self._source)
        for key in ("required", "optional"):
            for each in lists.get(key, ()):
                name = each.get("name") if isinstance(each, Fields) else each.text
                if name is None:
                    raise self._source.refuse("missing_key", "a parameter has no 'name'", each.node)
                if name in self.inputs:
                    at = each.at("name") if isinstance(each, Fields) else each
                    message = f"the parameter '{shorten(name)}' appears twice"
                    raise self._source.refuse("prodigy", message, at, hint="remove one of them")
                self._add(name, each, is_optional=key == "optional")

    def _add(self, name: str, each: Fields | Node, *, is_optional: bool) -> None:
        if not isinstance(each, Fields):
            self.inputs[name] = {"type": "string", "default": "" if is_optional else None}
            return
        is_text = "default" not in each or isinstance(plain(each.at("default")), str)
        kind = each.get("type", "string" if is_text else "any")
        entries: dict[str, Any] = {"type": kind, "description": each.node.get("description")}
        if "default" in each:
            entries["default"] = _fitting(each.at("default"), kind)
        elif is_optional:
            entries["default"] = "" if kind in ("string", "any") else made(None, each.node)
        self.inputs[name] = entries
        if "validation" in each:
            self._add_rules(name, each)

    def _add_rules(self, name: str, each: Fields) -> None:
        node = each.at("validation")
        rules = parse_rules(node.text, name) if isinstance(node, Scalar) else None
        if rules is None:
            message = f"the rule of the parameter '{shorten(name)}' is not known and is ignored, as in Prodigy"
            hint = "write matches('…'), in([…]) or a comparison of 'value'"
            self._source.warn("prodigy", message, node, hint=hint)
            return
        default = each.at("default") if "default" in each else None
        if default is not None and (problem := find_problem(plain(default), rules)):
            message = f"the default of '{shorten(name)}' {problem}"
            raise self._source.refuse("prodigy", message, default, hint=f"its rule is {describe(node)}")
        listed = rules[0][1] if len(rules) == 1 and rules[0][0] == "in" else None
        if listed is not None:
            self.inputs[name]["enum"] = made(literal_value(listed), node)
        else:
            self.rules[name] = rules


def _fitting(node: Node, kind: str) -> Node:
    """The default; a quoted number or flag as what its type asks for, as on a command line."""
    if kind not in ("number", "integer", "boolean") or not isinstance(node, Scalar) or not isinstance(node.value, str):
        return node
    if kind == "boolean":
        return made(node.value == "true", node) if node.value in ("true", "false") else node
    try:
        return made(int(node.value) if re.fullmatch(r"-?\d{1,18}", node.value) else float(node.value), node)
    except ValueError:
        return node

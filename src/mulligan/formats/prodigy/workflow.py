"""Regular workflows and their parameters, and the choice between regular and MapReduce."""

from __future__ import annotations

from typing import Any

from mulligan.formats.prodigy.context import Context, StepSlots
from mulligan.formats.prodigy.environment import EMPTY_ENVIRONMENT, translate_environment
from mulligan.formats.prodigy.failures import BACKOFF_RECORDS
from mulligan.formats.prodigy.frame import build_workflow, wrap_steps
from mulligan.formats.prodigy.keys import ENVIRONMENT_KEYS, LISTS, MERGE_KEY, STEP_LIST
from mulligan.formats.prodigy.keys import RECORDS as KEY_RECORDS
from mulligan.formats.prodigy.mapreduce import is_mapreduce, translate_mapreduce
from mulligan.formats.prodigy.steps import translate_steps
from mulligan.formats.shapes import LenientRecord
from mulligan.formats.translation import Translation, made
from mulligan.language.action_keys import ANY_TEXT, as_node
from mulligan.language.nodes import Mapping, Node, Refusal, Sequence, describe
from mulligan.language.shapes import TEXT, Choice, Either, Fields, Json, Key, ListOf, MapOf, Record

# -- parameters ------------------------------------------------------------------------------------------------------


_ALTERNATIVES = {
    "imports": "copy what is used into this file, or convert the file and call the other one with 'workflow'",
    "extends": "copy the other file's steps into this one",
    "template": "copy the template's steps into this file",
    "workflows": "convert both files, and call the other one in a step: 'workflow: {file: …}'",
}
COMPOSITION = {key: Key(as_node(Json()), f"refused: {instead}") for key, instead in _ALTERNATIVES.items()}
_TYPES = ("string", "number", "integer", "boolean", "array", "object", "any")
PARAMETER = LenientRecord(
    "parameter",
    {
        "name": Key(TEXT, "the name of the input"),
        "type": Key(Choice(_TYPES), "its type (default string)"),
        "description": Key(ANY_TEXT, "what it is for"),
        "default": Key(as_node(Json()), "its value if none is given"),
        "validation": Key(as_node(Json()), "ignored"),
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
PARAMETERS = as_node(Either("lists of parameters, or a mapping of them", mapping=PARAMETER_LISTS))
_BY_NAME = MapOf(_PARAMETER)
_PARAMETER_RECORDS = (PARAMETER, PARAMETER_LISTS)


def refuse_composition(form: Fields, translation: Translation) -> None:
    for key, instead in _ALTERNATIVES.items():
        if key in form:
            message = f"'{key}' composes workflows, which is not supported"
            translation.source.note(translation.source.refuse("prodigy", message, form.key(key), hint=instead))


def translate_parameters(form: Fields, context: Context, translation: Translation) -> tuple[dict[str, Any], Context]:
    """The inputs of the workflow, and the context in which each parameter is a variable."""
    node = form.node.get("parameters")
    if node is None:
        return {}, context
    if not isinstance(node, Mapping):
        message = f"'parameters' is {describe(node)}, a mapping is expected"
        raise translation.source.refuse("type", message, node)
    read = _read_lists if set(node.entries) <= {"required", "optional"} else _read_mapping
    inputs = dict(read(node, translation))
    return inputs, context.with_variables({name: f"inputs.{name}" for name in inputs})


def _read_lists(node: Mapping, translation: Translation) -> list[tuple[str, dict[str, Any]]]:
    lists: Fields = PARAMETER_LISTS.read(node, "'parameters'", translation.source)
    found = []
    for key in ("required", "optional"):
        for each in lists.get(key, ()):
            name = each.get("name") if isinstance(each, Fields) else each.text
            if name is None:
                raise translation.source.refuse("missing_key", "a parameter has no 'name'", each.node)
            found.append((name, _parameter_input(each, translation, is_optional=key == "optional")))
    return found


def _read_mapping(node: Mapping, translation: Translation) -> list[tuple[str, dict[str, Any]]]:
    entries = _BY_NAME.read(node, "'parameters'", translation.source)
    return [(name, _parameter_input(each, translation, is_optional=False)) for name, each in entries.items()]


def _parameter_input(each: Fields | Node, translation: Translation, *, is_optional: bool) -> dict[str, Any]:
    if not isinstance(each, Fields):
        return {"type": "string", "default": "" if is_optional else None}
    if "validation" in each:
        translation.warn("prodigy", "'validation' of a parameter is ignored", each.key("validation"))
    kind = each.get("type", "string")
    entries: dict[str, Any] = {"type": None if kind == "any" else kind, "description": each.node.get("description")}
    if "default" in each:
        entries["default"] = each.at("default")
    elif is_optional:
        entries["default"] = "" if kind in ("string", "any") else made(None, each.node)
    return entries


# -- regular workflows -----------------------------------------------------------------------------------------------


REGULAR = LenientRecord(
    "regular",
    {
        "name": Key(ANY_TEXT, "the name of the workflow"),
        "description": Key(ANY_TEXT, "what it is for"),
        "mode": Key(Choice(("standard", "sequential")), "a regular workflow; no effect"),
        "commands": Key(STEP_LIST, "the steps, one after the other"),
        "steps": Key(STEP_LIST, "the same, under another name"),
        "tasks": Key(STEP_LIST, "the same, under another name"),
        "parameters": Key(PARAMETERS, "inputs of the workflow"),
        **ENVIRONMENT_KEYS,
        "merge": MERGE_KEY,
        **COMPOSITION,
    },
    one_of=tuple((key,) for key in LISTS),
    needed=LISTS,
)


def translate_regular(root: Node, translation: Translation) -> Mapping:
    """Translate a regular workflow: a list of steps, or a mapping with such a list."""
    context = Context(StepSlots(), is_regular=True)
    if isinstance(root, Sequence):
        top, found = wrap_steps(
            None,
            at=root,
            context=context,
            environment=EMPTY_ENVIRONMENT,
            body=lambda run: translate_steps(root, run.context, translation),
            translation=translation,
        )
        return build_workflow(top, found, context, root)
    form = REGULAR.read(root, "the workflow", translation.source)
    refuse_composition(form, translation)
    inputs, context = translate_parameters(form, context, translation)
    steps, environment = _step_list(form, translation), translate_environment(form, translation)
    top, found = wrap_steps(
        form,
        at=root,
        context=context,
        environment=environment,
        body=lambda run: translate_steps(steps, run.context, translation),
        translation=translation,
    )
    head = {key: form.node.get(key) for key in ("name", "description")}
    return build_workflow({**head, **top, "inputs": {**top["inputs"], **inputs}}, found, context, form.node)


def _step_list(form: Fields, translation: Translation) -> Sequence:
    root = form.node
    found = [key for key in LISTS if key in root.entries]
    if form.has_unknown_keys and not found:
        raise Refusal(translation.source.problems[-1])  # an unknown key was meant as one of them, which is noted
    if len(found) != 1:
        message = "the workflow has no steps" if not found else f"the workflow has both '{found[0]}' and '{found[1]}'"
        at = root if not found else root.key(found[1])
        raise translation.source.refuse("prodigy", message, at, hint="write all steps in one list, 'commands:'")
    node = root.entries[found[0]][1]
    if not isinstance(node, Sequence):
        raise translation.source.refuse("type", f"'{found[0]}' has no steps, a list of steps is expected", node)
    return node


RECORDS: tuple[Record, ...] = (REGULAR, *KEY_RECORDS, *BACKOFF_RECORDS, *_PARAMETER_RECORDS)


def translate(root: Node, translation: Translation) -> Mapping:
    """Translate the tree of a Prodigy file to the tree of a workflow file."""
    return translate_mapreduce(root, translation) if is_mapreduce(root) else translate_regular(root, translation)

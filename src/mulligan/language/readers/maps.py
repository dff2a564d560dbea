"""Reads `map`: the items and how they are processed."""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.core.model.actions import SHELL
from mulligan.core.model.workflow import ITEMS_FILE, Action, Capture, Command, Expression, Map
from mulligan.language.cel.cel_tokens import RESERVED, TYPE_NAMES
from mulligan.language.keys.value_schemas import Fields, whole
from mulligan.language.keys.workflow_keys import MAP, SORT
from mulligan.language.readers.commands import read_command
from mulligan.language.readers.settings import Settings
from mulligan.language.scope import (
    LOCAL_ROOTS,
    ROOTS,
    Scope,
    bare_expression,
    read_condition,
    read_path_template,
    read_template,
    refuse_name,
    require_no_secrets,
)
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, describe
from mulligan.language.value_templates import value_expression

_COPIED_KEYS = (
    *("offset", "max_items", "on_item_failure", "max_failures", "failure_threshold", "item_timeout"),
    "collect_critical",
)


def read_map(node: Node, scope: Scope, settings: Settings) -> tuple[Map, Scope]:
    """A map, and the scope of its commands, which knows the item and `index`; `previous` where items have an order."""
    fields: Fields = MAP.read(node, "'map'", scope.source)
    name = _item_name(fields, scope)
    inner = msgspec.structs.replace(scope, names=scope.names | {name, "index"})
    mapped = Map(
        name=name,
        **_over_fields(fields, scope, settings),
        **_parallel_fields(fields, scope),
        **_selection_fields(fields, inner),
        **fields.pick(*_COPIED_KEYS),
    )
    # Of items that run at the same time, which one is before would depend on which was faster.
    if mapped.max_parallel == 1:
        inner = msgspec.structs.replace(inner, names=inner.names | {"previous"})
    return mapped, inner


def _item_name(fields: Fields, scope: Scope) -> str:
    name = fields.get("as", "item")
    if "as" not in fields:
        return "item"
    if not name.isidentifier() or not name.isascii():
        raise scope.source.refuse("name", f"'{name}' is not a name of letters, digits and '_'", fields.at("as"))
    if name in ROOTS | LOCAL_ROOTS | RESERVED | TYPE_NAMES:
        raise refuse_name(name, fields.at("as"), "an item", scope.source)
    return str(name)


def _over_fields(fields: Fields, scope: Scope, settings: Settings) -> dict[str, Any]:
    if "over" not in fields:
        return {}
    node = fields.at("over")
    if isinstance(node, Sequence):
        return {"over": require_no_secrets(value_expression(node, scope), node, scope)}
    if isinstance(node, Mapping):
        return {"lister": _lister(node, scope, settings)}
    if not node.is_text:
        message = f"'over' is {describe(node)}, a list, an expression or a command is expected"
        raise scope.source.refuse("type", message, node)
    return {"over": bare_expression(node, scope)}


_AT_LEAST_ONE = whole(1)


def _parallel_fields(fields: Fields, scope: Scope) -> dict[str, Any]:
    """How many items run at the same time: a number, or an expression that gives it."""
    if "max_parallel" not in fields:
        return {}
    node = fields.at("max_parallel")
    if isinstance(node, Scalar) and node.is_text:
        return {"parallel": bare_expression(node, scope)}
    return {"max_parallel": _AT_LEAST_ONE.read(node, "'max_parallel'", scope.source)}


# Open regular files only: reading a pipe without a writer would block.
_PRINT_ITEMS = (
    f'[ ! -e "${ITEMS_FILE}" ] || [ -f "${ITEMS_FILE}" ] || {{ echo "${ITEMS_FILE} is not a file" >&2; exit 1; }}\n'
    f'cat -- "${ITEMS_FILE}"'
)


def _lister(node: Mapping, scope: Scope, settings: Settings) -> Command:
    """A command that prints the items: the lines (or JSON) of a file, or a command of the user."""
    if "file" not in node.entries:
        return read_command(node, "'over'", scope, settings)
    others = [key for key in node.entries if key != "file"]
    if others:
        raise scope.source.refuse("stray_key", f"'{others[0]}' is not a key of a file in 'over'", node.key(others[0]))
    file = node.get("file")
    if not isinstance(file, Scalar) or not file.is_text:
        raise scope.source.refuse("type", "'file' is a text, the path of a file", node.key("file"))
    # The path reaches the shell as a variable, so blanks in it are safe.
    path = read_path_template(file, scope)
    paths = {ITEMS_FILE: ITEMS_FILE} if path.reads else {}
    action = Action(SHELL, {"text": _PRINT_ITEMS}, {ITEMS_FILE: path}, paths)
    capture: Capture = "json" if file.text.endswith(".json") else "lines"
    return Command(action=action, capture=capture, env=settings.env, cwd=settings.cwd)


def _selection_fields(fields: Fields, scope: Scope) -> dict[str, Any]:
    """The fields that select and sort items."""
    values: dict[str, Any] = {}
    if "item_name" in fields:
        node = fields.at("item_name")
        values["item_name"] = require_no_secrets(read_template(node, scope), node, scope)
    if "filter" in fields:
        values["filter"] = read_condition(fields.at("filter"), scope)
    if "sort_by" in fields:
        values.update(_sort_fields(fields.at("sort_by"), scope))
    if "distinct" in fields:
        values.update(_distinct_fields(fields.at("distinct"), fields, scope))
    return values


def _sort_fields(node: Node, scope: Scope) -> dict[str, Any]:
    if not isinstance(node, Mapping):
        return {"sort_by": bare_expression(node, scope)}
    form: Fields = SORT.read(node, "'sort_by'", scope.source)
    by = {"sort_by": bare_expression(form.at("by"), scope)} if "by" in form else {}
    return {**by, "sort_descending": form.get("descending", False)}


def _distinct_fields(node: Node, fields: Fields, scope: Scope) -> dict[str, Any]:
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        name = fields.get("as", "item")
        return {"distinct": Expression(name, (name,))} if node.value else {}
    return {"distinct": bare_expression(node, scope)}

"""What jobs read and write: files, and user data."""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.formats.names import Names
from mulligan.formats.torc.expansion import Expanded, Expansion
from mulligan.formats.torc.job import Thing
from mulligan.formats.torc.records import FILE, USER_DATA
from mulligan.formats.translation import Translation
from mulligan.language.nodes import Scalar, plain, refuse_not_json
from mulligan.language.shapes import Fields


def read_files(workflow: Fields, expansion: Expansion) -> dict[str, Thing]:
    """The files by their names, those of parameters each."""
    found: dict[str, Expanded] = {}
    for form in expansion.forms(workflow, "files", FILE, "file"):
        with expansion.translation.source.noting:
            found.update({each.name: each for each in expansion.expanded(form, "file", ("path",))})
    keys = Names.of_files().fit_all(found)
    return {name: _file(each, keys[name]) for name, each in found.items()}


def _file(each: Expanded, key: str) -> Thing:
    at = each.form.node.get("path") or each.name_node
    return Thing(each.name, key, each.texts.get("path", ""), each.name_node, at)


def read_user_data(workflow: Fields, expansion: Expansion) -> dict[str, Thing]:
    """The user data by their names. Without a name nobody can use it."""
    translation = expansion.translation
    found: dict[str, Thing] = {}
    for form in expansion.forms(workflow, "user_data", USER_DATA, "user data"):
        name = form.get("name")
        if name is None:
            translation.warn("user_data", "user data without a name is left out", form.node)
        elif expansion.is_new("user data", name, form.at("name")):
            found[name] = _user_data(name, form, translation)
    return found


def _user_data(name: str, form: Fields, translation: Translation) -> Thing:
    data = form.get("data")
    name_node = form.at("name")
    assert isinstance(name_node, Scalar)
    value: Any = None
    if data is not None:
        refuse_not_json(data, translation.source)
        value = plain(data)
    found = Thing(name, name, msgspec.json.encode(value).decode(), name_node, form.node)
    found.is_empty = value is None
    return found

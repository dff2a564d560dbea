"""Reads `reads` and `writes`: names from `files`, and paths.

A declared name and its path are the same file, so a reader finds its writer whichever form they use. A path with
placeholders is named by its text.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

import msgspec

from mulligan.core.model.actions import traits_of
from mulligan.core.model.workflow import Step, Template
from mulligan.core.state.scope import reads_secrets
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.matrices.matrix import format_name, format_path
from mulligan.language.matrices.matrix_binding import Values, binder
from mulligan.language.scope import Scope, read_path_template
from mulligan.language.text.nodes import Node, Scalar, Sequence, shorten
from mulligan.language.text.suggestions import did_you_mean

_KEYS = ("reads", "writes")
_WILDCARDS = frozenset("*?[")
# Names in a command of an item that may be the same for several items.
_NOT_OF_ITEM = frozenset({"previous", "attempt", "step"})


class StepFiles(msgspec.Struct, frozen=True):
    """The files of a step by name, and the paths of those with placeholders."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    file_paths: dict[str, Template] = {}


def read_files(fields: Fields, scope: Scope) -> dict[str, Any]:
    """The files in `reads` and `writes`, for a matrix step those of all its combinations."""
    found: dict[str, tuple[str, ...]] = {}
    paths: dict[str, Template] = {}
    for key in _KEYS:
        names: dict[str, None] = {}
        for entry in _entries(fields, key):
            with scope.noting:
                is_each_its_own = bool(scope.matrix) and _varies(entry)
                names[entry.text if is_each_its_own else _name(entry, {}, scope, paths)] = None
        if key in fields:
            found[key] = tuple(names)
    return {**found, **({"file_paths": paths} if paths else {})}


def read_item_files(fields: Fields, command: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    """The files of a command of an item. Each item has its own: the path of one that is written has the item in it."""
    if scope.matrix:
        key = fields.key("writes" if "writes" in fields else "reads")
        hint = "declare the files on the step, or use a map without a matrix"
        scope.note(scope.source.refuse("files", "items of a step with 'matrix' cannot declare files", key, hint=hint))
        return {}
    action = command.get("action")
    is_engines = action is not None and traits_of(action).runs_in == "engine"
    if "writes" in fields and (is_engines or command.get("tools") or command.get("session")):
        message = "no worker runs this command itself, so nobody would look for the files that it 'writes'"
        hint = "declare them on the step that writes them"
        scope.note(scope.source.refuse("files", message, fields.key("writes"), hint=hint))
        return {}
    found = read_files(fields, scope)
    paths: dict[str, Template] = found.get("file_paths", {})
    names, entries = found.get("writes", ()), _entries(fields, "writes")
    for number, name in enumerate(names):
        read = {one.partition(".")[0] for one in paths[name].reads} if name in paths else set()
        if read.isdisjoint(scope.names - _NOT_OF_ITEM):
            item = min(scope.names - _NOT_OF_ITEM - {"index", "output", "outputs"}, default="index")
            message = f"every item would write '{shorten(name)}'"
            hint = f"put the item into the path, such as 'out/${{{item}}}.txt'"
            at = entries[number] if len(entries) == len(names) else fields.at("writes")
            scope.note(scope.source.refuse("files", message, at, hint=hint))
    return found


def files_per_step(fields: Fields, combinations: list[Values], scope: Scope) -> list[StepFiles]:
    """The files of each step of a matrix; empty if they are the same for all."""
    if not combinations:
        return []
    entries = {key: _entries(fields, key) for key in _KEYS}
    if not any(_varies(entry) for named in entries.values() for entry in named):
        return []
    with scope.noting:
        return [_read_step_files(entries, values, scope) for values in combinations]
    return [StepFiles() for _ in combinations]


def with_files(step: Step, files: StepFiles) -> Step:
    """The step with its files, which its validator checks if no worker does."""
    check = step.validator
    if check is not None and check.writes:
        check = msgspec.structs.replace(check, writes=files.writes)
    return msgspec.structs.replace(step, validator=check, **msgspec.structs.asdict(files))


def _read_step_files(entries: dict[str, list[Scalar]], values: Values, scope: Scope) -> StepFiles:
    paths: dict[str, Template] = {}
    named = {
        key: tuple(dict.fromkeys(_name(entry, values, scope, paths) for entry in written))
        for key, written in entries.items()
    }
    return StepFiles(named["reads"], named["writes"], paths)


def _entries(fields: Fields, key: str) -> list[Scalar]:
    if key not in fields:
        return []
    node: Node = fields.at(key)
    return [entry for entry in (node.items if isinstance(node, Sequence) else [node]) if isinstance(entry, Scalar)]


def _varies(entry: Scalar) -> bool:
    """Whether it may differ between steps of a matrix."""
    return "{" in entry.text


def _name(entry: Scalar, values: Values, scope: Scope, paths: dict[str, Template]) -> str:
    """The name of a file. A path with placeholders is added to `paths`."""
    text = entry.text
    if "${" in text:
        path = _path_template(entry, values, scope)
        name = _source_text(path)
        if all(isinstance(part, str) for part in path.parts):
            return _declared_or_path(name, entry, scope)
        paths[name] = path
        return name
    if values and "{" in text:
        is_path = "/" in text or "." in text
        text = (format_path if is_path else format_name)(text, values, entry, scope)
    return _declared_or_path(text, entry, scope)


def _path_template(entry: Scalar, values: Values, scope: Scope) -> Template:
    path = read_path_template(entry, scope)
    if reads_secrets(path):
        raise scope.source.refuse("secret", "a path cannot contain a secret: paths are recorded", entry)
    bind = binder(path) if values else None
    if bind is not None:
        path = bind(values)
    # An empty first part makes the result text, even for a single placeholder.
    return Template(("", *path.parts)) if len(path.parts) == 1 else path


def _source_text(path: Template) -> str:
    return "".join(part if isinstance(part, str) else f"${{{part.source}}}" for part in path.parts)


def _declared_or_path(text: str, entry: Scalar, scope: Scope) -> str:
    """The declared name of a file, or its normalized path."""
    declared = scope.draft.files
    if text in declared:
        scope.draft.used.add(("files", text))
        return text
    if "{" in text or not ("/" in text or "." in text):
        hint = did_you_mean(text, declared) or f"declare it under 'files:', or write a path such as './{shorten(text)}'"
        if "{" in text:
            hint = did_you_mean(text, declared) or "declare it under 'files:'"
        raise scope.source.refuse("unknown_file", f"there is no file '{shorten(text)}'", entry, hint=hint)
    if not _WILDCARDS.isdisjoint(text):
        message = f"'{shorten(text)}' is a pattern, and files are named one by one"
        hint = "name the folder: it stands for everything in it"
        raise scope.source.refuse("unknown_file", message, entry, hint=hint)
    path = posixpath.normpath(text)
    name = next((name for name, known in declared.items() if posixpath.normpath(known) == path), None)
    if name is None:
        return path
    scope.draft.used.add(("files", name))
    return name

"""Playbooks that call others: our `workflow` action. The file is found, and pinned, when the playbook is loaded."""

from __future__ import annotations

import re
from collections.abc import Mapping as Dict
from pathlib import Path
from typing import Any

import msgspec

from mulligan.core.model.workflow import END
from mulligan.formats.expressions import entry, quoted
from mulligan.formats.noetl.catalogue import Ambiguous, Child, find_playbook
from mulligan.formats.noetl.texts import foreign, has_templates, input_name
from mulligan.formats.noetl.tools import Tool, input_of, merged
from mulligan.formats.translation import Translation, literal, renewed, scalar
from mulligan.language.text.nodes import Mapping, Node, Scalar, Source, describe, shorten
from mulligan.language.text.suggestions import did_you_mean


class Call(msgspec.Struct, frozen=True, eq=False):
    """A call of another playbook: its inputs, and the step whose result is used. `at` is where it is named."""

    child: Child
    at: Node
    given: Mapping | None
    return_step: str | None
    # The path, if `at` is a template for it.
    path: str = ""
    # The entrypoint of an agent; "" where it is no agent.
    entrypoint: str = ""

    @property
    def is_rendered(self) -> bool:
        """Whether its inputs or its path contain templates, which must be rendered before the call."""
        return has_templates(self.given) or bool(self.path)

    @property
    def reads(self) -> tuple[Node, ...]:
        """What is rendered."""
        return tuple(node for node in (self.given, self.at if self.path else None) if node is not None)

    @property
    def rendering(self) -> dict[str, Any]:
        """What the action renders: the inputs; and the path, which must still be the one that is pinned."""
        pinned = {"path": foreign(self.at), "is": literal(self.path)} if self.path else None
        return {"render": foreign(self.given) if self.given is not None else {}, "pinned": pinned}

    def action(self, rendered: str) -> dict[str, Any]:
        """The `workflow` action. `rendered` is the expression for the envelope with the rendered inputs, or ""."""
        file = scalar(literal(self.child.file), self.at)
        if self.given is None:
            return {"file": file}
        filled = {
            key: scalar(f"${{{entry(f'{rendered}.result', key.text)}}}", value) if rendered else foreign(value)
            for key, value in self.given.items()
        }
        named = {input_name(key.text): (key, value) for key, value in filled.items()}
        inputs = {name: (scalar(name, key), value) for name, (key, value) in named.items()}
        return {"file": file, "inputs": renewed(inputs, self.given)}

    def result_in(self, output: str) -> str:
        """The expression for its result; `output` is that for the output of the child run."""
        found = output
        if self.child.steps is not None:
            found = entry(f"{output}.steps", self.return_step) if self.return_step else f"{output}.result"
        if not self.entrypoint:
            return found
        # The envelope of an agent. Its failure is not in one: the step fails.
        about = f'"status": "ok", "framework": "noetl", "entrypoint": {quoted(self.entrypoint)}'
        return f'{{{about}, "data": {found}, "error": null}}'


def read_call(tool: Tool, given: Node | None, workload: Dict[str, Any], translation: Translation) -> Call:
    """Read a `playbook` tool. Refused where the file is missing."""
    node, source = tool.fields.node, translation.source
    at = node.get("path") or node
    path = _path(node.get("path"), node, workload, translation)
    child = _find_child(path, at, translation)
    inputs = merged(given, input_of(node))
    if inputs is not None and not isinstance(inputs, Mapping):
        message = f"the input of a playbook is {describe(inputs)}, a mapping is expected"
        raise source.refuse("type", message, inputs)
    wanted, returned = node.get("return_step"), None
    if isinstance(wanted, Scalar) and wanted.value is not None:
        returned = wanted.text
        # Every playbook has an `end`, written or not.
        if child.steps is not None and returned not in (*child.steps, END):
            message = f"'{child.file}' has no step '{shorten(returned)}'"
            raise source.refuse("unknown_step", message, wanted, hint=did_you_mean(returned, child.steps))
    _note_unknown_inputs(child, inputs, source)
    return Call(child, at, inputs, returned, path if has_templates(at) else "", path if tool.is_agent else "")


def _find_child(path: str, at: Node, translation: Translation) -> Child:
    source = translation.source
    source.refuse_other_file(shorten(path), at)
    try:
        child = find_playbook(path, Path(source.file), translation.catalogue)
    except Ambiguous as several:
        message = f"there are several playbooks '{shorten(path)}': {several}"
        raise source.refuse("noetl", message, at, hint="name the folder of the right one: --catalogue DIR") from None
    if child is None:
        named = translation.catalogue
        where = "in the folders above; or name its folder: --catalogue DIR" if named is None else f"below '{named}'"
        hint = f"looked for '{shorten(path)}.yaml', and a file with this 'metadata.path', beside this file and {where}"
        raise source.refuse("noetl", f"there is no playbook '{shorten(path)}'", at, hint=hint)
    return child


# A template that reads a key of the workload, perhaps with a default.
_READS_WORKLOAD = re.compile(
    r"""\{\{-?\s*(?:(?:workload|ctx)\.)?([A-Za-z_]\w*)\s*(?:\|\s*default\(\s*(?:'([^']*)'|"([^"]*)")\s*\)\s*)?-?\}\}"""
)


def _path(node: Node | None, tool: Mapping, workload: Dict[str, Any], translation: Translation) -> str:
    """The path as it is when the run starts: its templates read the workload, with the inputs of the run."""
    source = translation.source
    if node is None:
        raise source.refuse("missing_key", "the tool 'playbook' has no 'path'", tool, hint="add 'path: …'")
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        raise source.refuse("noetl", f"'path' is {describe(node)}, the path of a playbook is expected", node)

    def value_of(found: re.Match[str]) -> str:
        name, otherwise = found[1], found[2] or found[3]
        value = translation.given.get(input_name(name), workload.get(name))
        if not isinstance(value, str) and otherwise is not None:
            return otherwise
        return value if isinstance(value, str) else found[0]

    path = _READS_WORKLOAD.sub(value_of, node.value).strip()
    if "{{" in path or "{%" in path:
        message = f"the playbook '{shorten(node.text)}' is not known when the run starts"
        hint = "read a key of 'workload' that has a default or is given with -i; or write a step for each, and arcs"
        raise source.refuse("noetl", message, node, hint=hint)
    return path


def _note_unknown_inputs(child: Child, inputs: Mapping | None, source: Source) -> None:
    """Note the inputs that are not in the workload of the playbook, where NoETL would add them."""
    for name, (key, _) in (inputs.entries if inputs is not None and child.workload is not None else {}).items():
        if name not in (child.workload or ()):
            hint = did_you_mean(name, child.workload or ()) or f"add '{shorten(name)}: null' to its 'workload'"
            message = f"'{child.file}' has no input '{shorten(name)}'"
            source.note(source.refuse("unknown_input", message, key, hint=hint))

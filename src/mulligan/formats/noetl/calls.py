"""Playbooks that call others: our `workflow` action. NoETL finds them in its catalog, we find them beside the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from mulligan.core.model.workflow import END
from mulligan.errors import LanguageError
from mulligan.formats.expressions import entry
from mulligan.formats.noetl.texts import foreign, has_templates, input_name
from mulligan.formats.noetl.tools import Tool, input_of, merged
from mulligan.formats.noetl.yaml_1_1 import parse
from mulligan.formats.recognition import recognize
from mulligan.formats.translation import scalar
from mulligan.language.loading import file_bytes, read_tree
from mulligan.language.nodes import Mapping, Node, Scalar, Sequence, Source, describe, shorten
from mulligan.language.suggestions import did_you_mean


class Call(msgspec.Struct, frozen=True, eq=False):
    """A call of another playbook: its inputs, and the step whose result is used. `at` is where it is named."""

    child: Child
    at: Node
    given: Mapping | None
    return_step: str | None

    @property
    def is_rendered(self) -> bool:
        """Whether its inputs contain templates, which must be rendered before the call."""
        return has_templates(self.given)

    @property
    def rendered(self) -> Node:
        assert self.given is not None
        return foreign(self.given)

    def action(self, rendered: str) -> dict[str, Any]:
        """The `workflow` action. `rendered` is the expression for the envelope with the rendered inputs, or ""."""
        if self.given is None:
            return {"file": scalar(self.child.file, self.at)}
        inputs = Mapping(self.given.line, self.given.column)
        for key, value in self.given.items():
            name = input_name(key.text)
            filled = scalar(f"${{{entry(f'{rendered}.result', key.text)}}}", value) if rendered else foreign(value)
            inputs.entries[name] = (scalar(name, key), filled)
        return {"file": scalar(self.child.file, self.at), "inputs": inputs}

    def result_in(self, output: str) -> str:
        """The expression for its result; `output` is that for the output of the child run."""
        if self.child.steps is None:
            return output
        return entry(f"{output}.steps", self.return_step) if self.return_step else f"{output}.result"


def read_call(tool: Tool, given: Node | None, source: Source) -> Call:
    """Read a `playbook` tool. Refused where the file is missing."""
    node = tool.fields.node
    at = node.get("path") or node
    child = find_child(node.get("path"), node, source)
    inputs = merged(given, input_of(node))
    if inputs is not None and not isinstance(inputs, Mapping):
        message = f"the input of a playbook is {describe(inputs)}, a mapping is expected"
        raise source.refuse("type", message, inputs)
    wanted = node.get("return_step")
    if isinstance(wanted, Scalar) and wanted.value is not None:
        child.refuse_unknown_step(wanted, source)
        return Call(child, at, inputs, wanted.text)
    return Call(child, at, inputs, None)


_SUFFIXES = ("", ".yaml", ".yml")
# Files in larger folders are not all searched.
_FILES_MAX = 500


class Child(msgspec.Struct, frozen=True):
    """A called file, relative to the caller. `steps` are those of a playbook; None where it is not a playbook."""

    file: str
    steps: tuple[str, ...] | None = None

    def refuse_unknown_step(self, node: Scalar, source: Source) -> None:
        # Every playbook has an `end`, written or not.
        if self.steps is not None and node.text not in (*self.steps, END):
            hint = did_you_mean(node.text, self.steps)
            message = f"'{self.file}' has no step '{shorten(node.text)}'"
            raise source.refuse("unknown_step", message, node, hint=hint)


def find_child(node: Node | None, tool: Mapping, source: Source) -> Child:
    """The file that `path` names: as it is, with .yaml, or by the path or name in the metadata of a file beside it."""
    if node is None:
        raise source.refuse("missing_key", "the tool 'playbook' has no 'path'", tool, hint="add 'path: …'")
    if not isinstance(node, Scalar) or not isinstance(node.value, str) or "{{" in node.text:
        message = f"'path' is {describe(node)}, the name of a file is expected"
        raise source.refuse("noetl", message, node, hint="the playbook must be known when the file is read")
    folder, path = Path(source.file).parent, node.text.strip()
    for suffix in _SUFFIXES:
        if (folder / f"{path}{suffix}").is_file():
            return _child(folder, f"{path}{suffix}")
    for file, root in _playbooks(folder):
        if path in _names(root):
            return Child(file, _steps(root))
    message = f"there is no playbook '{shorten(path)}'"
    hint = f"looked for '{path}.yaml' beside this file, and for a file there with this 'metadata.path' or name"
    raise source.refuse("noetl", message, node, hint=hint)


def _child(folder: Path, file: str) -> Child:
    root = _tree(folder / file)
    return Child(file, _steps(root) if root is not None and recognize(root) == "noetl" else None)


def _playbooks(folder: Path) -> Iterator[tuple[str, Mapping]]:
    files = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES[1:])
    for path in files[:_FILES_MAX]:
        root = _tree(path)
        if root is not None and recognize(root) == "noetl":
            yield path.name, root


def _tree(path: Path) -> Mapping | None:
    """The tree of a file; None where it cannot be read. Loading it reports the problem."""
    try:
        _, root = read_tree(file_bytes(path), path, parse)
    except LanguageError:
        return None
    return root if isinstance(root, Mapping) else None


def _names(root: Mapping) -> set[str]:
    metadata = root.get("metadata")
    nodes = [of.get(key) for of in (root, metadata) if isinstance(of, Mapping) for key in ("path", "name")]
    return {node.text for node in nodes if isinstance(node, Scalar)}


def _steps(root: Mapping) -> tuple[str, ...]:
    steps = root.get("workflow")
    named = [
        step.get("step") for step in (steps.items if isinstance(steps, Sequence) else ()) if isinstance(step, Mapping)
    ]
    return tuple(node.text for node in named if isinstance(node, Scalar))

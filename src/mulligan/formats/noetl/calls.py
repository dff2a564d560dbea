"""A playbook that calls another: our `workflow` action, with inputs that are filled in before it."""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.formats.expressions import entry
from mulligan.formats.noetl.children import Child, find_child
from mulligan.formats.noetl.texts import foreign, has_templates, input_name
from mulligan.formats.noetl.tools import Tool, input_of, merged
from mulligan.formats.translation import scalar
from mulligan.language.nodes import Mapping, Node, Scalar, Source, describe


class Call(msgspec.Struct, frozen=True, eq=False):
    """Another playbook, what it is given, and which of its results is taken. `at` is where it is named."""

    child: Child
    at: Node
    given: Mapping | None
    return_step: str | None

    @property
    def is_rendered(self) -> bool:
        """Whether something must be filled in before it can be called."""
        return has_templates(self.given)

    @property
    def rendered(self) -> Node:
        assert self.given is not None
        return foreign(self.given)

    def action(self, rendered: str) -> dict[str, Any]:
        """The `workflow` action. `rendered` is where the envelope with the inputs is, if they had to be filled in."""
        if self.given is None:
            return {"file": scalar(self.child.file, self.at)}
        inputs = Mapping(self.given.line, self.given.column)
        for key, value in self.given.items():
            name = input_name(key.text)
            filled = scalar(f"${{{entry(f'{rendered}.result', key.text)}}}", value) if rendered else foreign(value)
            inputs.entries[name] = (scalar(name, key), filled)
        return {"file": scalar(self.child.file, self.at), "inputs": inputs}

    def result_in(self, output: str) -> str:
        """The expression for its result, of the output of the child run."""
        if self.child.steps is None:
            return output
        return entry(f"{output}.steps", self.return_step) if self.return_step else f"{output}.result"


def read_call(tool: Tool, given: Node | None, source: Source) -> Call:
    """What a step with the tool `playbook` calls. Refused where the file is not there."""
    node = tool.fields.node
    at = node.get("path") or node
    child = find_child(node.get("path"), node, source)
    inputs = merged(given, input_of(node))
    if inputs is not None and not isinstance(inputs, Mapping):
        message = f"what a playbook is called with is {describe(inputs)}, a mapping is expected"
        raise source.refuse("type", message, inputs)
    wanted = node.get("return_step")
    if isinstance(wanted, Scalar) and wanted.value is not None:
        child.refuse_unknown_step(wanted, source)
        return Call(child, at, inputs, wanted.text)
    return Call(child, at, inputs, None)

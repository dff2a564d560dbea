"""Where the steps of a file are, and what is written in them: for those who speak about lines of the file."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Many

from mulligan.core.model.workflow import END
from mulligan.language.matrices.matrix import base_name
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence


def step_nodes(root: Node | None) -> dict[str, Mapping]:
    """The mapping of each step in the tree of a file, by the name that is written there; of a matrix, by its name.

    Steps of a group have the name of the group before theirs: `group/step`.
    """
    found = dict(_nodes_in(root, ""))
    end = root.get(END) if isinstance(root, Mapping) else None
    if isinstance(end, Mapping):
        found[END] = end
    return found


def _nodes_in(parent: Node | None, path: str) -> Iterator[tuple[str, Mapping]]:
    steps = parent.get("steps") if isinstance(parent, Mapping) else None
    known: set[str] = set()
    for step in steps.items if isinstance(steps, Sequence) else ():
        if isinstance(step, Mapping) and isinstance(name := step.get("step"), Scalar):
            written = base_name(str(name.value)) if "matrix" in step.entries else str(name.value)
            if written not in known:
                known.add(written)
                yield path + written, step
                yield from _nodes_in(step.get("group"), f"{path}{written}/")


def line_of_step(root: Node | None, name: str, step: Mapping) -> int:
    """The line of a step, counted from 1. `end` begins with its key."""
    is_top_level = name == END and isinstance(root, Mapping) and root.get(END) is step
    return (root.key(END).line if is_top_level and isinstance(root, Mapping) else step.line) + 1


def line_of_key(step: Mapping, path: Many[str | int]) -> int:
    """The line of what is written under keys of a step, such as `("next", 1)`, counted from 1.

    The path is followed as far as the file has it: a policy that is named stands elsewhere.
    """
    node: Node = step
    line = step.line
    for name in path:
        if isinstance(name, str) and isinstance(node, Mapping) and name in node.entries:
            line, node = node.key(name).line, node.entries[name][1]
        elif isinstance(name, int) and isinstance(node, Sequence) and name < len(node.items):
            node = node.items[name]
            line = node.line
        elif name != 0:  # a single entry may be written without a list
            break
    return line + 1

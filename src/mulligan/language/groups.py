"""Groups: steps that are tried again together. Each is read as a workflow of its own that stands in the same file.

What the file says for all its steps (inputs, secrets, defaults, policies …) holds inside, too. What other steps gave
is handed in by name, and what the steps of the group gave is the output of the group: a run of a group is a run of
its own, and nothing reads across.
"""

from __future__ import annotations

from mulligan.language.nodes import Mapping, Node, Scalar, Sequence, Source

# What of the top of the file holds inside, too.
_SHARED = (
    "inputs",
    "secrets",
    "breakers",
    "files",
    "retry_policies",
    "handlers",
    "defaults",
    "order",
    "fail_fast",
    "cancel_grace",
    "hide_credentials",
)
# What the group says itself.
_OWN = ("steps", "order")


def group_tree(root: Mapping, group: Mapping, step: str) -> Mapping:
    """The tree of the workflow that the group of a step stands for."""
    tree = Mapping(group.line, group.column)
    named = root.get("name")
    title = f"{named.text}/{step}" if isinstance(named, Scalar) else step
    tree.entries["name"] = (_scalar("name", group), _scalar(title, group))
    tree.entries.update((key, root.entries[key]) for key in _SHARED if key in root.entries)
    tree.entries.update((key, group.entries[key]) for key in _OWN if key in group.entries)
    outputs = Mapping(group.line, group.column)
    for name in step_names(group):
        if output := output_name(name):
            outputs.entries[output] = (_scalar(output, group), _scalar(f'${{steps["{name}"].output}}', group))
    if outputs.entries:
        tree.entries["outputs"] = (_scalar("outputs", group), outputs)
    return tree


def output_name(step: str) -> str:
    """What the output of a step is called in that of its group, as expressions can say it; "" where they cannot."""
    name = step.replace("-", "_")
    return name if name.isidentifier() else ""


def step_names(group: Mapping) -> list[str]:
    """The steps of a group whose names stand in the file: all but those of a matrix."""
    steps = group.get("steps")
    found = [step for step in steps.items if isinstance(step, Mapping)] if isinstance(steps, Sequence) else []
    names = [step.get("step") for step in found if "matrix" not in step.entries]
    return [name.text for name in names if isinstance(name, Scalar) and name.text != "end"]


def with_retry_of_group(node: Mapping, source: Source) -> Mapping:
    """The step with the `retry` that its group says: both mean the same, and one of them is enough."""
    group = node.get("group")
    if not isinstance(group, Mapping) or "retry" not in group.entries:
        return node
    if "retry" in node.entries:
        message = "'retry' appears twice: on the step and on its group"
        source.note(source.refuse("duplicate_key", message, group.key("retry"), hint="remove one of them"))
        return node
    found = Mapping(node.line, node.column)
    found.entries = {**node.entries, "retry": group.entries["retry"]}
    return found


def _scalar(text: str, at: Node) -> Scalar:
    return Scalar(text, text, '"', at.line, at.column, at.column)

"""Groups: steps that are retried together. Each group is read as a separate workflow in the same file.

The top-level sections of the file (inputs, secrets, defaults, policies …) apply inside as well. Results of other steps
are passed in as inputs, and the results of its steps are the output of the group: it is a child run, so expressions
cannot read across its border.
"""

from __future__ import annotations

from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, Source

# Top-level keys that also apply inside a group.
_SHARED = (
    "inputs",
    "secrets",
    "breakers",
    "files",
    "unordered_writers",
    "retry_policies",
    "handlers",
    "defaults",
    "artifacts",
    "order",
    "fail_fast",
    "cancel_grace",
    "hide_credentials",
)
# Keys of the group itself.
_OWN = ("steps", "order")


def group_tree(root: Mapping, group: Mapping, step: str) -> Mapping:
    """The tree of the workflow for the group of a step."""
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
    """The name of a step's output in the output of its group; "" if it would not be an identifier."""
    name = step.replace("-", "_")
    return name if name.isidentifier() else ""


def step_names(group: Mapping) -> list[str]:
    """The names of the steps in a group, without those of a matrix."""
    steps = group.get("steps")
    found = [step for step in steps.items if isinstance(step, Mapping)] if isinstance(steps, Sequence) else []
    names = [step.get("step") for step in found if "matrix" not in step.entries]
    return [name.text for name in names if isinstance(name, Scalar) and name.text != "end"]


def with_retry_of_group(node: Mapping, source: Source) -> Mapping:
    """The step with the `retry` of its group: both mean the same, and only one is allowed."""
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

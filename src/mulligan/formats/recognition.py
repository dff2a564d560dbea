"""Whose file is this? Told by what is in it."""

from __future__ import annotations

from mulligan.language.nodes import Mapping, Node, Scalar, Sequence

FORMATS = ("torc", "prodigy", "noetl", "alphred")

# Keys of a step that Prodigy has and nobody else.
_PRODIGY_STEP = frozenset(
    {
        *("claude", "write_file", "foreach", "commit_required", "capture_output", "capture_format"),
        *("auto_commit", "step_validate", "on_exit_code", "output_file"),
    }
)


def recognised(root: Node) -> str:
    """The system that the file is of; "" where it is ours, or nobody's."""
    if isinstance(root, Sequence):
        return "prodigy" if _are_prodigy_steps(root) else ""
    if not isinstance(root, Mapping):
        return ""
    return next((name for name, is_it in _MARKS if is_it(root)), "")


def _is_torc(root: Mapping) -> bool:
    return isinstance(root.get("jobs"), Sequence)


def _is_noetl(root: Mapping) -> bool:
    version = root.get("apiVersion")
    is_named = isinstance(version, Scalar) and version.text.startswith("noetl.io/")
    return is_named or isinstance(root.get("workflow"), Sequence)


def _is_alphred(root: Mapping) -> bool:
    return "treeKey" in root.entries or "nodes" in root.entries or isinstance(root.get("phases"), Sequence)


def _is_prodigy(root: Mapping) -> bool:
    mode, mapped = root.get("mode"), root.get("map")
    if isinstance(mode, Scalar) and mode.value == "mapreduce":
        return True
    if isinstance(mapped, Mapping) and "agent_template" in mapped.entries:
        return True
    steps = root.get("steps")
    return any(isinstance(root.get(key), Sequence) for key in ("commands", "tasks")) or (
        isinstance(steps, Sequence) and _are_prodigy_steps(steps)
    )


def _are_prodigy_steps(steps: Sequence) -> bool:
    """Steps of which none has a name of ours, and one says something that only Prodigy says."""
    if any(isinstance(step, Mapping) and "step" in step.entries for step in steps.items):
        return False
    return any(
        isinstance(step, Scalar) or (isinstance(step, Mapping) and not _PRODIGY_STEP.isdisjoint(step.entries))
        for step in steps.items
    )


_MARKS = (("torc", _is_torc), ("noetl", _is_noetl), ("alphred", _is_alphred), ("prodigy", _is_prodigy))

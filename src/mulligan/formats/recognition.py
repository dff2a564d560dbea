"""Whose file is this? Told by what is in it, and never by its name."""

from __future__ import annotations

from mulligan.errors import InputInvalid
from mulligan.language.keys import WORKFLOW
from mulligan.language.nodes import Mapping, Node, Scalar, Sequence

# What `--format` calls a system, and what the system calls itself.
FORMATS = {"torc": "Torc", "prodigy": "Prodigy", "noetl": "NoETL", "alphred": "Alphred"}
OURS = "mulligan"
NOETL = "noetl"

# Keys of a file that Torc has and nobody else: a file that lost its jobs is still Torc's.
_TORC = frozenset({"failure_handlers", "slurm_schedulers", "resource_requirements", "use_pending_failed"})
# Keys of a step that Prodigy has and nobody else.
_PRODIGY_STEP = frozenset(
    {
        *("claude", "write_file", "foreach", "commit_required", "capture_output", "capture_format"),
        *("auto_commit", "step_validate", "on_exit_code", "output_file", "goal_seek", "analyze"),
    }
)
_SAME_IN_BOTH = frozenset({"shell", "on_failure", "validate"})
# How a text begins that Prodigy gives to its agent.
_TO_AN_AGENT = ("/", "prodigy-")


def checked(word: str) -> str:
    """What `--format` was given, which is a system, or ours."""
    if word not in FORMATS and word != OURS:
        hint = f"there are {', '.join(FORMATS)}, and {OURS} for our own"
        raise InputInvalid(f"'{word}' is no system whose files can be read", hint=hint)
    return word


def recognised(root: Node) -> str:
    """The system that the file is of; "" where it is ours, or nobody's."""
    if isinstance(root, Sequence):
        # No file of ours is a list, so what both have tells enough.
        return "prodigy" if _are_prodigy_steps(root, _PRODIGY_STEP | _SAME_IN_BOTH) else ""
    if not isinstance(root, Mapping) or _is_ours(root):
        return ""
    return next((name for name, is_it in _MARKS if is_it(root)), "")


def advice(root: Node) -> str:
    """What to say, where a file that was not recognised is refused, about whose it could be; "" if nothing."""
    if isinstance(root, Sequence):
        return "if these are Prodigy's steps: --format prodigy"
    if not isinstance(root, Mapping) or _is_ours(root):
        return ""
    steps = root.get("steps")
    if isinstance(steps, Sequence) and any(_says(step, _SAME_IN_BOTH) for step in steps.items):
        return "in a file of Prodigy's steps have none: --format prodigy"
    if root.entries.keys() & WORKFLOW.keys.keys() <= {"name", "description"}:
        return "this is no file of ours, nor one of Torc, Prodigy, NoETL or Alphred; if it should be: --format SYSTEM"
    return ""


def other_advice(root: Node, named: str) -> str:
    """What to say, where a file is refused as that of the system named, if it looks like another's; "" if not."""
    whose = recognised(root) or (OURS if isinstance(root, Mapping) and _is_ours(root) else "")
    if whose in ("", named):
        return ""
    return f"by what is in it the file is {FORMATS.get(whose, 'Mulligan')}'s: --format {whose}"


def _is_ours(root: Mapping) -> bool:
    """Whether a step has its name as only ours do."""
    steps = root.get("steps")
    return isinstance(steps, Sequence) and any(
        isinstance(step, Mapping) and "step" in step.entries for step in steps.items
    )


def _is_torc(root: Mapping) -> bool:
    return isinstance(root.get("jobs"), Sequence) or not _TORC.isdisjoint(root.entries)


def _is_noetl(root: Mapping) -> bool:
    version = root.get("apiVersion")
    is_named = isinstance(version, Scalar) and version.text.startswith("noetl.io/")
    return is_named or isinstance(root.get("workflow"), Sequence)


def _is_alphred(root: Mapping) -> bool:
    return "treeKey" in root.entries or any(isinstance(root.get(key), Sequence) for key in ("nodes", "phases"))


def _is_prodigy(root: Mapping) -> bool:
    mode, mapped, steps = root.get("mode"), root.get("map"), root.get("steps")
    if isinstance(mode, Scalar) and mode.value == "mapreduce":
        return True
    if isinstance(mapped, Mapping) and "agent_template" in mapped.entries:
        return True
    if any(isinstance(root.get(key), Sequence) for key in ("commands", "tasks")):
        return True
    return isinstance(steps, Sequence) and _are_prodigy_steps(steps, _PRODIGY_STEP)


def _are_prodigy_steps(steps: Sequence, words: frozenset[str]) -> bool:
    """Whether one of them says something that only Prodigy says."""
    return any(
        _says(step, words) or (isinstance(step, Scalar) and step.text.startswith(_TO_AN_AGENT)) for step in steps.items
    )


def _says(step: Node, words: frozenset[str]) -> bool:
    return isinstance(step, Mapping) and not words.isdisjoint(step.entries)


_MARKS = (("torc", _is_torc), ("noetl", _is_noetl), ("alphred", _is_alphred), ("prodigy", _is_prodigy))

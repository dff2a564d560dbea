"""Recognize which system a file belongs to, by what is in it, never by its name."""

from __future__ import annotations

from mulligan.errors import InputInvalid
from mulligan.formats.table import BROKEN_PACKAGE, FORMATS, OURS, added_names, find_format, is_system, title_of
from mulligan.language.keys.workflow_keys import WORKFLOW
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence
from mulligan.plugins import PluginError, describe_error, load_object

# Keys of a file that only Torc has: a file that lost its jobs is still Torc's.
_TORC = frozenset({"failure_handlers", "slurm_schedulers", "resource_requirements", "use_pending_failed"})
# Keys of a step that only Prodigy has.
_PRODIGY_STEP = frozenset(
    {
        *("claude", "write_file", "foreach", "commit_required", "capture_output", "capture_format"),
        *("auto_commit", "step_validate", "on_exit_code", "output_file", "goal_seek", "analyze"),
        *("working_dir", "capture_streams", "commit_config"),
    }
)
# Keys of a step in which Prodigy names its agent, and what its retries are called.
_PRODIGY_INNER = {
    **dict.fromkeys(("on_failure", "on_success", "validate", "test"), frozenset({"claude", "on_incomplete"})),
    "retry": frozenset({"attempts", "retry_budget", "initial_delay"}),
}
_SAME_IN_BOTH = frozenset({"shell", "on_failure", "validate"})
# How a text begins that Prodigy gives to its agent.
_AGENT_PREFIXES = ("/", "prodigy-")


def check_system(word: str) -> str:
    """Return the word given to `--format` if it names a system, or our own files. InputInvalid otherwise."""
    if not is_system(word):
        known = ", ".join([*FORMATS, *added_names()])
        raise InputInvalid(f"'{word}' is not a known format", hint=f"known formats: {known}, and {OURS} for our own")
    try:
        find_format(word)
    except PluginError as problem:
        raise InputInvalid(str(problem), hint=BROKEN_PACKAGE) from None
    return word


def recognize(root: Node) -> str:
    """The system of the table that the file belongs to; "" where it is ours, or unknown."""
    if is_ours(root):
        return ""
    return next((name for name, system in FORMATS.items() if load_object(system.recognize)(root)), "")


def recognize_added(root: Node) -> tuple[str, list[str]]:
    """The same for the systems that packages add; and what is wrong with those that cannot be asked."""
    problems: list[str] = []
    for name in added_names():
        try:
            system = find_format(name)
            if system is not None and load_object(system.recognize)(root):
                return name, []
        except PluginError as problem:
            problems.append(str(problem))
        except Exception as error:  # code of another package may raise anything
            problems.append(f"the format '{name}' failed to recognize a file: {describe_error(error)}")
    return "", problems


def advice(root: Node) -> str:
    """A hint for an unrecognized file that is refused: which system it could belong to; "" if none comes to mind."""
    if isinstance(root, Sequence):
        return "if these are steps of Prodigy: --format prodigy"
    if not isinstance(root, Mapping) or is_ours(root):
        return ""
    steps = root.get("steps")
    if isinstance(steps, Sequence) and any(_has_key(step, _SAME_IN_BOTH) for step in steps.items):
        return "steps of a Prodigy file have no name: if it is one, --format prodigy"
    if root.entries.keys() & WORKFLOW.keys.keys() <= {"name", "description"}:
        titles = [system.title for system in FORMATS.values()]
        return f"the file is not recognized as one of ours, {', '.join(titles)}; if it is: --format SYSTEM"
    return ""


def other_advice(root: Node, named: str) -> str:
    """A hint for a file that is refused as one of the system named, if it looks like another's; "" if not."""
    system = recognize(root) or (OURS if is_ours(root) else "")
    if system in ("", named):
        return ""
    return f"it looks like a file of {'Mulligan' if system == OURS else title_of(system)}: --format {system}"


def is_ours(root: Node) -> bool:
    """Whether a step has its name as only ours do."""
    steps = root.get("steps") if isinstance(root, Mapping) else None
    return isinstance(steps, Sequence) and any(_has_key(step, frozenset({"step"})) for step in steps.items)


def is_torc(root: Node) -> bool:
    """Whether it is a file of Torc."""
    return isinstance(root, Mapping) and (isinstance(root.get("jobs"), Sequence) or _has_key(root, _TORC))


def is_noetl(root: Node) -> bool:
    """Whether it is a playbook of NoETL."""
    if not isinstance(root, Mapping):
        return False
    version = root.get("apiVersion")
    is_named = isinstance(version, Scalar) and version.text.startswith("noetl.io/")
    return is_named or isinstance(root.get("workflow"), Sequence)


def is_alphred(root: Node) -> bool:
    """Whether it is a file of Alphred."""
    if not isinstance(root, Mapping):
        return False
    return "treeKey" in root.entries or any(isinstance(root.get(key), Sequence) for key in ("nodes", "phases"))


def is_prodigy(root: Node) -> bool:
    """Whether it is a file of Prodigy."""
    if isinstance(root, Sequence):
        # No file of ours is a list, so keys that both systems have are enough.
        return _are_prodigy_steps(root, _PRODIGY_STEP | _SAME_IN_BOTH)
    if not isinstance(root, Mapping):
        return False
    mode, mapped, steps = root.get("mode"), root.get("map"), root.get("steps")
    if isinstance(mode, Scalar) and mode.value == "mapreduce":
        return True
    if isinstance(mapped, Mapping) and "agent_template" in mapped.entries:
        return True
    if any(isinstance(root.get(key), Sequence) for key in ("commands", "tasks")):
        return True
    if steps is None and any(key in root.entries for key in ("imports", "extends", "template")):
        return True
    return isinstance(steps, Sequence) and _are_prodigy_steps(steps, _PRODIGY_STEP)


def _are_prodigy_steps(steps: Sequence, keys: frozenset[str]) -> bool:
    """Whether one of them has such a key, or is a text for Prodigy's agent."""
    return any(
        _has_key(step, keys)
        or _has_inner_key(step)
        or (isinstance(step, Scalar) and step.text.startswith(_AGENT_PREFIXES))
        for step in steps.items
    )


def _has_inner_key(step: Node) -> bool:
    """Whether a handler, a check or a retry of the step has a key that only Prodigy has."""
    if not isinstance(step, Mapping):
        return False
    for word, keys in _PRODIGY_INNER.items():
        inner = step.get(word)
        parts = inner.items if isinstance(inner, Sequence) else [inner] if inner is not None else []
        if any(_has_key(part, keys) for part in parts):
            return True
    return False


def _has_key(node: Node, keys: frozenset[str]) -> bool:
    return isinstance(node, Mapping) and not keys.isdisjoint(node.entries)

"""Change one step in the text of a workflow, and leave everything else as it is written: comments, order, quotes.

The change is made in the characters of the value. Afterwards the text is read again and compared with what was asked
for, so that an edit either does exactly that or is refused.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import yaml

from mulligan.errors import InputInvalid, NotFound
from mulligan.language.text.suggestions import did_you_mean
from mulligan.service.authoring.workflow_files import Validation
from mulligan.service.server.catalogue.texts import WorkflowText, validate_text

CHARS_MAX = 500_000
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORD = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
NOT_TEXT = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
BY_HAND = "edit the text itself, and check it"


class StepEdit(msgspec.Struct, frozen=True):
    """What to change in a step: keys with their new values, and keys to take away."""

    step: str
    set: Mapping[str, Any] = {}
    remove: Sequence[str] = ()


class EditedText(msgspec.Struct, frozen=True):
    """The text after an edit, the first line that changed (0 for none), and what a check of it finds."""

    text: str
    line: int
    validation: Validation


def refuse_long_text(text: str) -> None:
    if len(text) > CHARS_MAX:
        raise InputInvalid(f"the text has {len(text):,} characters, and {CHARS_MAX:,} can be edited", hint=BY_HAND)


def edit_step(text: str, edit: StepEdit) -> str:
    """Make the edit. `InputInvalid` where that is not possible in place, `NotFound` for a step that is not there."""
    for key in edit.remove:
        text = _changed(text, edit.step, key, is_removed=True)
    for key, value in edit.set.items():
        text = _changed(text, edit.step, key, value)
    return text


def edited_text(given: WorkflowText, text: str) -> EditedText:
    """What came of a text."""
    old, new = given.text.split("\n"), text.split("\n")
    same = next((number for number, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), None)
    line = 0 if old == new else min(len(old), len(new)) + 1 if same is None else same + 1
    return EditedText(text, line, validate_text(WorkflowText(text, given.file, given.format)))


def _changed(text: str, step: str, key: str, value: Any = None, *, is_removed: bool = False) -> str:
    if key == "step":
        raise InputInvalid("the name of a step is not edited: other steps refer to it", hint=BY_HAND)
    node, found = find_step(text, step)
    wanted = copy.deepcopy(found)
    if is_removed:
        if key not in wanted:
            hint = did_you_mean(key, wanted) or f"it has {', '.join(map(str, wanted))}"
            raise InputInvalid(f"step '{step}' has no key '{key}'", hint=hint)
        del wanted[key]
        result = _without(text, node, key)
    else:
        wanted[key] = value
        result = _with(text, node, key, value)
    try:
        _, now = find_step(result, step)
    except (InputInvalid, NotFound):
        now = None
    if now != wanted or other_keys(result, step) != other_keys(text, step):
        raise InputInvalid(f"'{key}' of step '{step}' cannot be edited in place", hint=BY_HAND)
    return result


def load_nodes(text: str, loader_type: Any = _LOADER) -> tuple[Any, Any]:
    """The nodes of a text, with their positions, and its values."""
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=_LOADER)):
            # A value that stands in several places; comparing such values may also take for ever.
            raise InputInvalid("the text has YAML aliases, so it cannot be edited in place", hint=BY_HAND)
        loader = loader_type(text)
        try:
            node = loader.get_single_node()
            return node, loader.construct_document(node) if node is not None else None
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputInvalid("the text cannot be read as YAML, so it cannot be edited", hint=BY_HAND) from error


def find_step(text: str, step: str) -> tuple[Any, dict[str, Any]]:
    root, values = load_nodes(text)
    steps = values.get("steps") if isinstance(values, dict) else None
    if not isinstance(steps, list):
        raise InputInvalid("the text has no list of steps", hint="only texts of our own format are edited")
    node = next(value for key, value in root.value if key.value == "steps")
    names = [one.get("step") if isinstance(one, dict) else None for one in steps]
    if step not in names:
        known = [str(name) for name in names if name]
        raise NotFound(f"there is no step '{step}' in the text", hint=did_you_mean(step, known), step=step)
    at = names.index(step)
    return node.value[at], steps[at]


def other_keys(text: str, step: str) -> Any:
    """The values of the text without those of one step."""
    _, values = load_nodes(text)
    steps = [one for one in values["steps"] if not (isinstance(one, dict) and one.get("step") == step)]
    return {**values, "steps": steps}


def _with(text: str, node: Any, key: str, value: Any) -> str:
    """The text with this value of the key, in its old place or at the end of the step."""
    column = node.value[0][0].start_mark.column
    pair = next((each for each in node.value if each[0].value == key), None)
    if node.flow_style:
        written = flow_text(value)
        if pair is not None:
            return text[: pair[1].start_mark.index] + written + text[pair[1].end_mark.index :]
        end = end_of(text, node.value[-1][1])
        return f"{text[:end]}, {key_text(key)}: {written}{text[end:]}"
    written = block_text(value, column)
    if pair is not None:
        start = text.index(":", pair[0].end_mark.index) + 1
        return f"{text[:start]} {written}{text[end_of(text, pair[1]) :]}"
    end = end_of(text, node.value[-1][1])
    # Behind a comment in the same line.
    end = text.find("\n", end) if "\n" in text[end:] else len(text)
    return f"{text[:end]}\n{' ' * column}{key_text(key)}: {written}{text[end:]}"


def _without(text: str, node: Any, key: str) -> str:
    """The text without the key, its value, and a comment in the same line."""
    number = next(number for number, each in enumerate(node.value) if each[0].value == key)
    if node.flow_style or number == 0:
        raise InputInvalid(f"'{key}' cannot be taken out in place", hint=BY_HAND)
    name, value = node.value[number]
    start = text.rfind("\n", 0, name.start_mark.index)
    end = end_of(text, value)
    end = text.find("\n", end) if "\n" in text[end:] else len(text)
    return text[:start] + text[end:]


def end_of(text: str, node: Any) -> int:
    """Where a value ends, without the lines and comments behind it."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        begin: int = node.start_mark.index
        end: int = node.end_mark.index
        return begin + len(text[begin:end].rstrip())
    last = node.value[-1]
    return end_of(text, last[1] if isinstance(last, tuple) else last)


def key_text(key: str) -> str:
    is_plain = key.isascii() and key.replace("_", "").isalnum() and not key[:1].isdigit()
    return key if is_plain else json.dumps(key, ensure_ascii=False)


def flow_text(value: Any) -> str:
    """A value in one line: words as they are, everything else as JSON."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key_text(str(key))}: {flow_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow_text, value)) + "]"
    if isinstance(value, str) and _WORD.fullmatch(value) and value.lower() not in NOT_TEXT:
        return value
    return json.dumps(value, ensure_ascii=False)


def block_text(value: Any, column: int) -> str:
    """A value behind a key in a step that is written over several lines: scripts as blocks, all else in one line."""
    is_script = isinstance(value, str) and "\n" in value.strip("\n") and value == value.strip("\n") + "\n"
    if not is_script or any(line[:1].isspace() for line in value.splitlines()[:1]):
        return flow_text(value) if isinstance(value, Mapping | list | tuple) else json.dumps(value, ensure_ascii=False)
    indent = " " * (column + 2)
    return "|\n" + "\n".join(f"{indent}{line}" if line else "" for line in value.splitlines())

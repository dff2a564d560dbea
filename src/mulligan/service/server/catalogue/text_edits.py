"""Edit the text of a workflow: change a step, add one, an edge or a rule, and leave all else as it is written.

A change is made in the characters of a value; what is added stands at the place where it belongs. Afterwards the text
is read again and compared with what was asked for, so that an edit either does exactly that or is refused.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
import yaml

from mulligan.core.model.workflow import END, On, Then
from mulligan.errors import InputInvalid, NotFound
from mulligan.language.text.suggestions import did_you_mean
from mulligan.service.authoring.workflow_files import Validation
from mulligan.service.server.catalogue.change_edits import insert_rule
from mulligan.service.server.catalogue.text_nodes import (
    AS_TEXTS,
    BY_HAND,
    NOT_TEXT,
    block_text,
    end_of,
    flow_text,
    insert_item,
    insert_key,
    key_text,
    line_end,
    load_nodes,
    pair_of,
    refuse_long_text,
)
from mulligan.service.server.catalogue.text_reading import read_apart
from mulligan.service.server.catalogue.texts import WorkflowText, validate_text

_INDENT = 2
_WORDS = re.compile(r"[A-Za-z_./]([\w ./=-]*[\w./=-])?", re.ASCII)


class StepEdit(msgspec.Struct, frozen=True):
    """What to change in a step: keys with their new values, and keys to take away."""

    step: str
    set: Mapping[str, Any] = {}
    remove: Sequence[str] = ()


class AddedStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A step to add: its name, its other keys, and the step behind which it stands; the last one by default."""

    step: str
    set: dict[str, Any] = {}
    after: str = ""


class AddedEdge(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An arrow to add. `needs`: the target waits for the source. `next`: the source leads to the target."""

    source: str
    target: str
    kind: Literal["next", "needs"] = "next"
    # Of `next` alone: when it is taken, and what the source does once a remediation has succeeded.
    on: On = "success"
    then: Then | None = None
    # Only failures with one of these codes; only these exit codes, each a number or a range such as `10-19`.
    codes: tuple[str, ...] = ()
    exit_codes: tuple[int | str, ...] = ()


class AddedRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A retry rule to add to a step, for any failure or for some codes, exit codes or exceptions.

    Rules that are there stay.
    """

    step: str
    max_retries: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    # Such as `10s`.
    delay: str = ""
    codes: tuple[str, ...] = ()
    exit_codes: tuple[int | str, ...] = ()
    exceptions: tuple[str, ...] = ()


Edit = StepEdit | AddedStep | AddedEdge | AddedRule


class EditedText(msgspec.Struct, frozen=True):
    """The text after an edit, the first line that changed (0 for none), and what a check of it finds."""

    text: str
    line: int
    validation: Validation


@read_apart
def edit_text(given: WorkflowText, *edits: Edit) -> EditedText:
    """Make the edits, one after the other: all of them, or none and an error."""
    refuse_long_text(given.text)
    text = given.text
    for edit in edits:
        text = _EDITS[type(edit)](text, edit)
    return edited_text(given, text)


def edited_text(given: WorkflowText, text: str) -> EditedText:
    """What came of a text."""
    old, new = given.text.split("\n"), text.split("\n")
    same = next((number for number, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), None)
    line = 0 if old == new else min(len(old), len(new)) + 1 if same is None else same + 1
    return EditedText(text, line, validate_text(WorkflowText(text, given.file, given.format)))


# -- a step that is there --------------------------------------------------------------------------------------------


def edit_step(text: str, edit: StepEdit) -> str:
    """Make the edit. `InputInvalid` where that is not possible in place, `NotFound` for a step that is not there."""
    for key in edit.remove:
        text = _changed(text, edit.step, key, is_removed=True)
    for key, value in edit.set.items():
        text = _changed(text, edit.step, key, value)
    return text


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
    written = flow_text(value) if node.flow_style else block_text(value, node.value[0][0].start_mark.column)
    pair = pair_of(node, key)
    if pair is None:
        return insert_key(text, node, key, written)
    if node.flow_style:
        return text[: pair[1].start_mark.index] + written + text[pair[1].end_mark.index :]
    start = text.index(":", pair[0].end_mark.index) + 1
    return f"{text[:start]} {written}{text[end_of(text, pair[1]) :]}"


def _without(text: str, node: Any, key: str) -> str:
    """The text without the key, its value, and a comment in the same line."""
    number = next(number for number, each in enumerate(node.value) if each[0].value == key)
    if node.flow_style or number == 0:
        raise InputInvalid(f"'{key}' cannot be taken out in place", hint=BY_HAND)
    name, value = node.value[number]
    start = text.rfind("\n", 0, name.start_mark.index)
    return text[:start] + text[line_end(text, end_of(text, value)) :]


# -- what is added ---------------------------------------------------------------------------------------------------


def add_step(text: str, new: AddedStep) -> str:
    """The text with one more step."""
    values = _values(text)
    names = _step_names(values)
    if new.step in names:
        raise InputInvalid(f"there is a step '{new.step}' already", hint="give it another name")
    if new.after and new.after not in names:
        raise NotFound(f"there is no step '{new.after}'", hint=did_you_mean(new.after, names), step=new.after)
    keys = {"step": new.step, **new.set}
    at = names.index(new.after) + 1 if new.after else len(names)
    wanted = copy.deepcopy(values) if isinstance(values, dict) else {}
    steps = wanted.get("steps") or []
    wanted["steps"] = [*steps[:at], _texts(keys), *steps[at:]]
    return _checked(_with_step(text, keys, at), wanted, f"step '{new.step}' cannot be added in place")


def add_edge(text: str, new: AddedEdge) -> str:
    """The text with one more arrow."""
    values = _values(text)
    names = _step_names(values)
    for name in (new.source, new.target):
        if name not in names and not (name == END and name == new.target and new.kind == "next"):
            raise NotFound(f"there is no step '{name}' in the text", hint=did_you_mean(name, names), step=name)
    if new.kind == "needs" and (new.on != "success" or new.then or new.codes or new.exit_codes):
        raise InputInvalid(
            "'on', 'then', 'codes' and 'exit_codes' are for edges of the kind 'next'", hint="leave them out"
        )
    owner, entry = (new.target, new.source) if new.kind == "needs" else (new.source, _edge(new))
    at = names.index(owner)
    wanted = copy.deepcopy(values)
    found = wanted["steps"][at].get(new.kind)
    before = found if isinstance(found, list) else [found] if found else []
    # A single `next` needs no list; `needs` is always written as one.
    is_single = not before and found != [] and new.kind == "next"
    wanted["steps"][at][new.kind] = _texts(entry) if is_single else [*before, _texts(entry)]
    result = _with_entry(text, _step_nodes(text)[at], new.kind, flow_text(entry))
    return _checked(result, wanted, f"'{new.kind}' of step '{owner}' cannot be extended in place")


def _edge(new: AddedEdge) -> Any:
    about: dict[str, Any] = {"to": new.target}
    if new.on != "success":
        about["on"] = new.on
    if new.codes:
        about["codes"] = list(new.codes)
    if new.exit_codes:
        about["exit_codes"] = list(new.exit_codes)
    if new.then:
        about["then"] = new.then
    return about if len(about) > 1 else new.target


def add_rule(text: str, new: AddedRule) -> str:
    """The text with one more retry rule of a step. Rules that are there stay."""
    conditions = [name for name in ("codes", "exit_codes", "exceptions") if getattr(new, name)]
    if len(conditions) > 1:
        message = f"a rule has one condition, and this one has '{conditions[0]}' and '{conditions[1]}'"
        raise InputInvalid(message, hint="leave one of them out, or add two rules")
    _, before = find_step(text, new.step)
    retry = before.pop("retry", None)
    if isinstance(retry, str):
        hint = f"add the rule to the policy '{retry}', under 'retry_policies'"
        raise InputInvalid(
            f"step '{new.step}' uses the retry policy '{retry}', which other steps may use too", hint=hint
        )
    rule: dict[str, Any] = {name: list(getattr(new, name)) for name in conditions}
    if retry and not rule:
        # Beside others a rule has to say what it is for.
        rule["any"] = True
    rule["max_retries"] = new.max_retries
    if new.delay:
        rule["delay"] = new.delay
    result = insert_rule(text, new.step, rule)
    _, after = find_step(result, new.step)
    found = after.pop("retry", None)
    added = found["rules"][-1] if isinstance(found, dict) and "rules" in found else found
    if after != before or added != rule or other_keys(result, new.step) != other_keys(text, new.step):
        raise InputInvalid(f"'retry' of step '{new.step}' cannot be extended in place", hint=BY_HAND)
    return result


_EDITS: Mapping[type[Edit], Callable[[str, Any], str]]
_EDITS = {StepEdit: edit_step, AddedStep: add_step, AddedEdge: add_edge, AddedRule: add_rule}


# -- reading ---------------------------------------------------------------------------------------------------------


def _values(text: str) -> Any:
    return load_nodes(text, AS_TEXTS)[1]


def _step_names(values: Any) -> list[str]:
    steps = (values.get("steps") or []) if isinstance(values, dict) else [] if not values else None
    if not isinstance(steps, list) or not all(isinstance(one, dict) for one in steps):
        raise InputInvalid("the text has no list of steps", hint="only texts of our own format are edited")
    return [str(one.get("step", "")) for one in steps]


def _steps_pair(text: str) -> tuple[Any, Any] | None:
    """The nodes of the key `steps` and of its value."""
    return pair_of(load_nodes(text, AS_TEXTS)[0], "steps")


def _step_nodes(text: str) -> list[Any]:
    pair = _steps_pair(text)
    return list(pair[1].value) if pair and isinstance(pair[1], yaml.SequenceNode) else []


def _checked(text: str, wanted: Any, message: str) -> str:
    """The text, if it says what is wanted."""
    try:
        is_right = _values(text) == wanted
    except InputInvalid:
        is_right = False
    if not is_right:
        raise InputInvalid(message, hint=BY_HAND)
    return text


def _texts(value: Any) -> Any:
    """A value as it is read back, every scalar as text."""
    if isinstance(value, Mapping):
        return {str(key): _texts(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_texts(one) for one in value]
    return value if isinstance(value, str) else json.dumps(value)


# -- writing ---------------------------------------------------------------------------------------------------------


def _with_step(text: str, keys: Mapping[str, Any], at: int) -> str:
    pair, nodes = _steps_pair(text), _step_nodes(text)
    if pair is None:
        before = text if not text or text.endswith("\n") else text + "\n"
        return f"{before}steps:\n{_step_block(keys, _INDENT)}\n"
    if not nodes:
        # `steps:` without a value, or `steps: []`.
        begin, end = text.index(":", pair[0].end_mark.index) + 1, end_of(text, pair[1])
        return f"{text[:begin]}\n{_step_block(keys, _INDENT)}{text[max(begin, end) :]}"
    previous = nodes[max(at - 1, 0)]
    if pair[1].flow_style:
        end = end_of(text, previous)
        return f"{text[:end]}, {flow_text(keys)}{text[end:]}"
    end = line_end(text, end_of(text, previous))
    gap = "\n" if _are_apart(text, nodes) else ""
    return f"{text[:end]}\n{gap}{_step_block(keys, pair[1].start_mark.column)}{text[end:]}"


def _are_apart(text: str, nodes: Sequence[Any]) -> bool:
    """Whether an empty line stands between the steps."""
    if len(nodes) < 2:
        return False
    between = text[end_of(text, nodes[0]) : nodes[1].start_mark.index]
    return re.search(r"\n[ \t]*\n", between) is not None


def _step_block(keys: Mapping[str, Any], column: int) -> str:
    inner = " " * (column + _INDENT)
    lines = [f"{key_text(key)}: {_value_text(value, column + _INDENT)}" for key, value in keys.items()]
    return f"{' ' * column}- " + f"\n{inner}".join(lines)


def _value_text(value: Any, column: int) -> str:
    if isinstance(value, str):
        is_plain = _WORDS.fullmatch(value) and value.lower() not in NOT_TEXT
        return value if is_plain else block_text(value, column)
    return flow_text(value)


def _with_entry(text: str, step: Any, key: str, entry: str) -> str:
    """The text with one more entry in a list of the step; a single value becomes a list."""
    pair = pair_of(step, key)
    written = f"[{entry}]" if key == "needs" else entry
    if pair is None:
        return insert_key(text, step, key, written)
    value = pair[1]
    begin, end = value.start_mark.index, end_of(text, value)
    if begin == end:
        begin = text.index(":", pair[0].end_mark.index) + 1
        return f"{text[:begin]} {written}{text[begin:]}"
    if isinstance(value, yaml.SequenceNode):
        return insert_item(text, value, entry) if value.value else f"{text[:begin]}[{entry}]{text[end:]}"
    if isinstance(value, yaml.MappingNode) and not value.flow_style:
        return _as_block_list(text, value, entry)
    return f"{text[:begin]}[{text[begin:end]}, {entry}]{text[end:]}"


def _as_block_list(text: str, value: Any, entry: str) -> str:
    """A mapping over several lines as the first item of a list, and one more item behind it."""
    begin, end = value.start_mark.index, line_end(text, end_of(text, value))
    indent = " " * value.start_mark.column
    first, *others = text[begin:end].split("\n")
    moved = "\n".join([f"- {first}", *(f"{' ' * _INDENT}{line}" if line.strip() else line for line in others)])
    return f"{text[:begin]}{moved}\n{indent}- {entry}{text[end:]}"

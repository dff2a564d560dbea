"""Regular workflows of Prodigy's: a list of steps, one after the other; and what every workflow of its begins with."""

from __future__ import annotations

import re
from typing import Any

from mulligan.formats.prodigy.environment import NOTHING, environment
from mulligan.formats.prodigy.environment_keys import ENVIRONMENT_KEYS
from mulligan.formats.prodigy.frame import framed
from mulligan.formats.prodigy.keys import STEP_LIST
from mulligan.formats.prodigy.mapreduce_keys import MERGE_KEY
from mulligan.formats.prodigy.parameters import COMPOSITION, PARAMETERS, parameters, refuse_composition
from mulligan.formats.prodigy.places import Place, Steps
from mulligan.formats.prodigy.steps import commands
from mulligan.formats.prodigy.variables import ARGUMENTS, mentions
from mulligan.formats.translation import Translation, mapping
from mulligan.language.action_keys import ANY_TEXT
from mulligan.language.nodes import Mapping, Node, Refusal, Sequence
from mulligan.language.shapes import Choice, Fields, Key, Record

LISTS = ("commands", "steps", "tasks")
REGULAR = Record(
    "regular",
    {
        "name": Key(ANY_TEXT, "the name of the workflow"),
        "description": Key(ANY_TEXT, "what it is for"),
        "mode": Key(Choice(("standard", "sequential")), "a regular workflow, which it is in any case"),
        "commands": Key(STEP_LIST, "the steps, one after the other"),
        "steps": Key(STEP_LIST, "the same, under another name"),
        "tasks": Key(STEP_LIST, "the same, under another name"),
        "parameters": Key(PARAMETERS, "inputs of the workflow"),
        **ENVIRONMENT_KEYS,
        "merge": MERGE_KEY,
        **COMPOSITION,
    },
    one_of=tuple((key,) for key in LISTS),
)
RECORDS = (REGULAR,)
_ARGUMENTS = re.compile(re.escape(ARGUMENTS))


def regular(root: Node, translation: Translation) -> Mapping:
    """A regular workflow: a bare list, or a mapping with the list in it."""
    place = Place(Steps(), is_regular=True)
    if isinstance(root, Sequence):
        top, found = framed(None, root, place, NOTHING, lambda run: commands(root, run.place, translation), translation)
        return finished(top, found, place, root)
    form = REGULAR.read(root, "the workflow", translation.source)
    refuse_composition(form, translation)
    inputs, place = parameters(form, place, translation)
    steps, surroundings = _steps(form, translation), environment(form, translation)
    top, found = framed(
        form, root, place, surroundings, lambda run: commands(steps, run.place, translation), translation
    )
    head = {key: form.node.get(key) for key in ("name", "description")}
    return finished({**head, **top, "inputs": {**top["inputs"], **inputs}}, found, place, form.node)


def _steps(form: Fields, translation: Translation) -> Sequence:
    root = form.node
    found = [key for key in LISTS if key in root.entries]
    if form.has_unknown_keys and not found:
        raise Refusal(translation.source.problems[-1])  # one of those was meant, which is said already
    if len(found) != 1:
        message = "the workflow has no steps" if not found else f"the workflow has '{found[0]}' and '{found[1]}'"
        at = root if not found else root.key(found[1])
        raise translation.source.refuse("prodigy", message, at, hint="put them into one list, 'commands:'")
    node = root.entries[found[0]][1]
    if not isinstance(node, Sequence) or not node.items:
        raise translation.source.refuse("type", f"'{found[0]}' has no steps in it, a list is expected", node)
    return node


def finished(head: dict[str, Any], steps: list[dict[str, Any]], place: Place, at: Node) -> Mapping:
    """The workflow of ours: `head` at its top, the steps in their order, and what only an edge leads to behind them."""
    assert isinstance(place.row, Steps)
    inputs = head.get("inputs") or {}
    tree = {"name": None, "description": None, **head, "inputs": None}
    end = tree.pop("end")
    in_order = [*past_conditions(steps), *place.row.aside]
    tree |= {"order": "sequential", "steps": [mapping(step, at_of(step, at)) for step in in_order], "end": end}
    whole = mapping(tree, at)
    if mentions(whole, _ARGUMENTS):
        inputs = {**inputs, "args": {"default": "", "description": "what Prodigy calls --args"}}
    return mapping({**tree, "inputs": inputs or None}, at)


def past_conditions(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps, of which those behind a condition need more than the one before them.

    One that is skipped holds nobody up. But so it is where a step before it failed: that one is needed as well.
    """
    certain: list[Any] = []
    doubtful: list[Any] = []
    found = []
    for step in steps:
        found.append({**step, "needs": [*certain, *doubtful]} if doubtful and "needs" not in step else step)
        if "when" in step:
            doubtful.append({"step": step["step"], "on": "success_or_skipped"})
        else:
            certain, doubtful = [step["step"]], []
    return found


def at_of(step: dict[str, Any], otherwise: Node) -> Node:
    """Where a step of ours stands: at the first thing of the file that is in it."""
    for value in step.values():
        if isinstance(value, dict):
            return at_of(value, otherwise)
        if not isinstance(value, str | bool | int | float | list | None):
            return value
    return otherwise

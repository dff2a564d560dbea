"""Guards: the conditions of Alphred's edges as conditions of ours, over what the node has answered."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from mulligan.formats.alphred.contracts import OPEN
from mulligan.formats.alphred.keys import CONDITION, CONDITIONS
from mulligan.formats.expressions import member
from mulligan.language.nodes import Mapping, Node, Sequence, Source, describe
from mulligan.language.shapes import Fields

DECISION = "decision"
REPORT = "report"
DEPTH_MAX = 20

_JOINED = {"and": " && ", "or": " || "}
_ORDERS = ("<", ">", "<=", ">=")


@dataclass(slots=True)
class Guard:
    """A condition of ours, and what it asks of a decision.

    `needs_decision`: without one it cannot hold. `only_word`: the one decision with which it holds.
    """

    text: str
    words: tuple[str, ...] = ()
    is_on_decision: bool = False
    needs_decision: bool = False
    only_word: str = ""


def read_guard(node: Node, source: Source, *, is_json: bool, depth: int = 0) -> Guard:
    """The guard as a condition over `output`. `is_json`: the answer is JSON, and its fields can be asked for."""
    if not isinstance(node, Mapping):
        raise source.refuse(
            "guard", f"a guard is {describe(node)}, a mapping with 'field' or 'logic' is expected", node
        )
    if depth > DEPTH_MAX:
        raise source.refuse("guard", f"a guard has more than {DEPTH_MAX} others inside each other", node)
    if "logic" in node.entries or "conditions" in node.entries:
        return _several(node, source, is_json=is_json, depth=depth)
    said: Fields = CONDITION.read(node, "a guard", source)
    if not all(key in said for key in CONDITION.required):
        return Guard("false")  # what is missing was noted
    if isinstance(said["value"], list | dict):
        message = f"'value' is {describe(said.at('value'))}, a single value is expected"
        raise source.refuse("guard", message, said.at("value"))
    return _on_decision(said, source) if said["field"] == DECISION else _on_answer(said, source, is_json=is_json)


def _several(node: Mapping, source: Source, *, is_json: bool, depth: int) -> Guard:
    said: Fields = CONDITIONS.read(node, "a guard", source)
    entries = said.at("conditions") if "conditions" in said else None
    if "logic" not in said or entries is None:
        return Guard("false")  # what is missing was noted
    if not isinstance(entries, Sequence) or not entries.items:
        found = "an empty list" if isinstance(entries, Sequence) else describe(entries)
        raise source.refuse("guard", f"'conditions' is {found}, a list of guards is expected", entries)
    parts: list[Guard] = []
    for item in entries.items:
        with source.noting:
            parts.append(read_guard(item, source, is_json=is_json, depth=depth + 1))
    text = _JOINED[said["logic"]].join(f"({part.text})" if len(entries.items) > 1 else part.text for part in parts)
    words = tuple(word for part in parts for word in part.words)
    needed = (all if said["logic"] == "or" else any)(part.needs_decision for part in parts)
    return Guard(text, words, any(part.is_on_decision for part in parts), needed)


def _on_decision(said: Fields, source: Source) -> Guard:
    """A decision is a word, or there is none; then no guard holds, not even one that asks for another word."""
    operator, value = said["operator"], said["value"]
    words = (value,) if isinstance(value, str) else ()
    if operator in _ORDERS:
        return _never(said, "a decision is a word, and only numbers have an order", source)
    if operator == "==":
        return Guard(f"output.decision == {_literal(value)}", words, True, True, only_word=words[0] if words else "")
    # Every other word will do: an agent that was told the one alone would never say them.
    others = tuple(word for word in OPEN if word != value)
    return Guard(f"output.decision != null && output.decision != {_literal(value)}", (*others, *words), True, True)


def _never(said: Fields, reason: str, source: Source) -> Guard:
    operator = said.at("operator")
    source.warn("guard", f"this guard never holds: {reason}", operator)
    return Guard("false", is_on_decision=said["field"] == DECISION)


def _on_answer(said: Fields, source: Source, *, is_json: bool) -> Guard:
    """A field of the answer. Where it is not there, or is no number and has to be one, the guard does not hold."""
    operator, value = said["operator"], said["value"]
    if operator in _ORDERS and not _is_number(value):
        return _never(said, f"'{operator}' compares numbers, and {_literal(value)} is none", source)
    there, found = _path(said["field"], is_json=is_json)
    if operator in _ORDERS:
        there += f" && (type({found}) == int || type({found}) == double)"
    return Guard(f"{there} && {found} {operator} {_literal(value)}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _path(field: str, *, is_json: bool) -> tuple[str, str]:
    """The question whether a field is there, and the field: of the JSON that was answered, else of what was given."""
    names = field.split(".")
    base = "output"
    if is_json:
        base = "output.json"
        names = names[1:] if names[0] == REPORT and len(names) > 1 else names
    there = []
    for name in names:
        there.append(f"type({base}) == map && {_literal(name)} in {base}")
        base = member(base, name)
    return " && ".join(there if is_json else [there[0].partition(" && ")[2], *there[1:]]), base


def _literal(value: Any) -> str:
    """A value as CEL writes it."""
    return json.dumps(value, ensure_ascii=False)

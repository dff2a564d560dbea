"""The edges of a node as the `next` of its step: guards as conditions, and what happens when no edge matches.

Alphred fails a run in which a reviewer approves and only `changes_requested` has an edge, although its own template is
such a workflow. Here `approved` ends the path with success. Any other decision without an edge is a failure of the
node, and so is a missing decision if all edges ask for one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from mulligan.core.model.workflow import END
from mulligan.formats.alphred.keys import CONDITION, CONDITIONS
from mulligan.formats.alphred.tree import TreeEdge, TreeNode
from mulligan.formats.expressions import member
from mulligan.formats.translation import mapping, scalar
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, Source, describe

# -- what an agent is asked to answer --------------------------------------------------------------------------------


APPROVED = "approved"
BLOCKED = "blocked"
# Decisions that mean the work is not done yet.
NOT_DONE = ("changes_requested", "retry")

_ROUTING_TEXT = """\
---
What follows depends on your decision. {how}
{words}"""
_ANSWER_LINE = """Say it in the last line of your answer, with nothing after it, as
decision: WORD
where WORD is one of"""
_ANSWER_FIELD = 'Say it in your JSON, as the text of its field "decision", which is one of'
_SPAWNER_TEXT = """\
---
Answer with one JSON object and nothing else, no text before or after it:
{{"schemaVersion": 1, "subtasks": [{{"nodeKey": "a-short-key", "title": "…", "prompt": "…"}}]}}
It has from 0 to {most} subtasks, each with a title and a prompt. Each prompt must be complete: the agent that gets \
it has not read any of this. "nodeKey" (a key that no other has), "provider", "model" and "metadata" are optional."""
JSON_CONTRACT = """\
---
Answer with JSON and nothing else, no text before or after it."""


def _routing_contract(words: Iterable[str], *, is_json: bool, has_default: bool) -> str:
    """List the decisions for the agent and where to write one. `has_default`: it may decide nothing."""
    known = list(dict.fromkeys((*words, APPROVED, BLOCKED)))
    lines = [f"- {word}{_MEANINGS.get(word, '')}" for word in known]
    if has_default:
        lines.append("If none of them fits, say none.")
    return _ROUTING_TEXT.format(how=_ANSWER_FIELD if is_json else _ANSWER_LINE, words="\n".join(lines))


_MEANINGS = {
    APPROVED: ": the work is done and correct",
    BLOCKED: ": you cannot continue, and a person has to look at it",
}


def spawner_contract(most: int) -> str:
    """Explain to a spawner how to list its subtasks."""
    return _SPAWNER_TEXT.format(most=most)


# -- guards ----------------------------------------------------------------------------------------------------------


DECISION = "decision"
REPORT = "report"
GUARD_DEPTH_MAX = 20

_LOGIC_OPERATORS = {"and": " && ", "or": " || "}
_ORDERINGS = ("<", ">", "<=", ">=")


@dataclass(slots=True)
class Guard:
    """A guard as an expression, and how it depends on the decision.

    `needs_decision`: it is false without one. `only_word`: the only decision for which it is true.
    """

    text: str
    words: tuple[str, ...] = ()
    is_on_decision: bool = False
    needs_decision: bool = False
    only_word: str = ""


def read_guard(node: Node, source: Source, *, is_json: bool, depth: int = 0) -> Guard:
    """Translate a guard to an expression over `output`. `is_json`: the answer is JSON, and its fields can be read."""
    if not isinstance(node, Mapping):
        raise source.refuse(
            "guard", f"a guard is {describe(node)}, a mapping with 'field' or 'logic' is expected", node
        )
    if depth > GUARD_DEPTH_MAX:
        raise source.refuse("guard", f"guards are nested more than {GUARD_DEPTH_MAX} levels deep", node)
    if "logic" in node.entries or "conditions" in node.entries:
        return _combined_guard(node, source, is_json=is_json, depth=depth)
    fields: Fields = CONDITION.read(node, "a guard", source)
    if not all(key in fields for key in CONDITION.required):
        return Guard("false")  # what is missing was noted
    if isinstance(fields["value"], list | dict):
        message = f"'value' is {describe(fields.at('value'))}, a single value is expected"
        raise source.refuse("guard", message, fields.at("value"))
    if fields["field"] == DECISION:
        return _decision_guard(fields, source)
    return _answer_guard(fields, source, is_json=is_json)


def _combined_guard(node: Mapping, source: Source, *, is_json: bool, depth: int) -> Guard:
    fields: Fields = CONDITIONS.read(node, "a guard", source)
    entries = fields.at("conditions") if "conditions" in fields else None
    if "logic" not in fields or entries is None:
        return Guard("false")  # what is missing was noted
    if not isinstance(entries, Sequence) or not entries.items:
        found = "an empty list" if isinstance(entries, Sequence) else describe(entries)
        raise source.refuse("guard", f"'conditions' is {found}, a list of guards is expected", entries)
    parts: list[Guard] = []
    for item in entries.items:
        with source.noting:
            parts.append(read_guard(item, source, is_json=is_json, depth=depth + 1))
    text = _LOGIC_OPERATORS[fields["logic"]].join(
        f"({part.text})" if len(entries.items) > 1 else part.text for part in parts
    )
    words = tuple(word for part in parts for word in part.words)
    needed = (all if fields["logic"] == "or" else any)(part.needs_decision for part in parts)
    return Guard(text, words, any(part.is_on_decision for part in parts), needed)


def _decision_guard(fields: Fields, source: Source) -> Guard:
    """A guard on the decision. Without a decision no guard is true, not even one with `!=`."""
    operator, value = fields["operator"], fields["value"]
    words = (value,) if isinstance(value, str) else ()
    if operator in _ORDERINGS:
        return _never_true(fields, "a decision is a word, and only numbers can be ordered", source)
    if operator == "==":
        return Guard(f"output.decision == {_literal(value)}", words, True, True, only_word=words[0] if words else "")
    # Any other word is fine, but an agent would not use one that it was not given.
    others = tuple(word for word in NOT_DONE if word != value)
    return Guard(f"output.decision != null && output.decision != {_literal(value)}", (*others, *words), True, True)


def _never_true(fields: Fields, reason: str, source: Source) -> Guard:
    operator = fields.at("operator")
    source.warn("guard", f"this guard is never true: {reason}", operator)
    return Guard("false", is_on_decision=fields["field"] == DECISION)


def _answer_guard(fields: Fields, source: Source, *, is_json: bool) -> Guard:
    """A guard on a field of the answer. It is false if the field is missing or is not the number it must be."""
    operator, value = fields["operator"], fields["value"]
    if operator in _ORDERINGS and not _is_number(value):
        return _never_true(fields, f"'{operator}' compares numbers, and {_literal(value)} is not a number", source)
    if not is_json:
        message = f"this guard reads '{fields['field']}' of an answer that is text: it is false"
        hint = 'add "reportArtifactContentType": "json" to the node, or let its command write $MULLIGAN_OUTPUT'
        source.warn("guard", message, fields.at("field"), hint=hint)
    there, found = _field_path(fields["field"], is_json=is_json)
    if operator in _ORDERINGS:
        there += f" && (type({found}) == int || type({found}) == double)"
    return Guard(f"{there} && {found} {operator} {_literal(value)}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _field_path(field: str, *, is_json: bool) -> tuple[str, str]:
    """The condition that a field exists, and the field: of the JSON answer, or otherwise of the output."""
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


# -- edges -----------------------------------------------------------------------------------------------------------


# Decisions with which a person rejects.
_REJECTIONS = (*NOT_DONE, BLOCKED)

_IS_APPROVED = f'output.decision == "{APPROVED}"'

# Returns the name of the step that an edge leads to.
StepNameOf = Callable[[TreeEdge], str]


@dataclass(slots=True)
class Routes:
    """The `next` of a step, further keys for it, and what its agent is asked to decide. `next` may be None."""

    next: list[Node] | Node | None
    keys: dict[str, Any] = field(default_factory=dict)
    contract: str = ""


def translate_routes(node: TreeNode, step_of: StepNameOf, source: Source, *, is_json: bool) -> Routes:
    """Translate the edges of a node."""
    if node.kind == "human":
        return _approval_routes(node, step_of, source)
    guarded = _success_edges(node, source, is_json=is_json)
    edges: list[Node] = [
        mapping({"to": step_of(edge), "when": guard.text}, edge.at) if guard else scalar(step_of(edge), edge.at)
        for edge, guard in guarded
    ]
    # Those before the first edge without a guard are evaluated.
    guards = [guard for _, guard in takewhile(lambda pair: pair[1] is not None, guarded) if guard is not None]
    is_open = bool(guards) and len(guards) == len(guarded)
    asks = any(guard.is_on_decision for guard in guards)
    if is_open and asks and not any(guard.only_word == APPROVED for guard in guards):
        edges.append(mapping({"to": END, "when": _IS_APPROVED}, guarded[-1][0].at))
    has_to_decide = is_open and all(guard.needs_decision for guard in guards)
    keys = {
        "validate": "output.decision != null" if has_to_decide else None,
        "take": "first" if len(edges) > 1 else None,
        "no_match": "fail" if is_open else None,
    }
    words = [word for guard in guards for word in guard.words]
    contract = _routing_contract(words, is_json=is_json, has_default=not has_to_decide) if asks else ""
    return Routes(_next(node, edges, step_of), keys, contract)


def _success_edges(node: TreeNode, source: Source, *, is_json: bool) -> list[tuple[TreeEdge, Guard | None]]:
    """The success edges of a node with their guards, in order."""
    found: list[tuple[TreeEdge, Guard | None]] = []
    for edge in node.edges_on("success"):
        if first := next((other for other, guard in found if guard is None), None):
            # It is kept: a node without incoming edges would start at once.
            message = (
                f"the edge from '{node.key}' to '{edge.target}' is never taken: the one to '{first.target}' has no "
            )
            source.warn("edge", message + "guard and comes first", edge.at)
        with source.noting:
            guard = None if edge.guard is None else read_guard(edge.guard, source, is_json=is_json)
            found.append((edge, guard))
    return found


def _next(node: TreeNode, edges: list[Node], step_of: StepNameOf) -> list[Node] | Node | None:
    """Success edges, then failure edges; a single plain name is written without a list."""
    after = [mapping({"to": step_of(edge), "on": "failure"}, edge.at) for edge in node.edges_on("failure")]
    found = [*edges, *after]
    if len(found) == 1 and isinstance(found[0], Scalar):
        return found[0]
    return found or None


# -- approvals -------------------------------------------------------------------------------------------------------


def _approval_routes(node: TreeNode, step_of: StepNameOf, source: Source) -> Routes:
    """The edges after an approval: yes is the decision `approved`, no is a failure with the code APPROVAL_REFUSED."""
    edges = []
    for edge in node.edges_on("success"):
        with source.noting:
            edges.append(_approval_edge(node, edge, step_of(edge), source))
    is_choice = sum(isinstance(edge, Scalar) for edge in edges) > 1
    return Routes(_next(node, edges, step_of), {"take": "first"} if is_choice else {})


def _approval_edge(node: TreeNode, edge: TreeEdge, to: str, source: Source) -> Node:
    word = APPROVED if edge.guard is None else read_guard(edge.guard, source, is_json=False).only_word
    if word == APPROVED:
        return scalar(to, edge.at)
    if word in _REJECTIONS:
        return mapping({"to": to, "on": "failure", "codes": ["APPROVAL_REFUSED"]}, edge.at)
    message = f"node '{node.key}' is an approval (yes or no), but this guard asks for something else"
    hint = "compare 'decision' with 'approved' or 'changes_requested', using '=='"
    raise source.refuse("guard", message, edge.guard or edge.at, hint=hint)

"""The edges of a node as the `next` of its step: an exclusive choice, and what it means that nothing fits.

Alphred fails a run in which a reviewer approves and only `changes_requested` has an edge, and its own template is such
a workflow. What people mean by it: `approved` ends the path well, every other word that nobody waits for is a failure
of the node, and so is a missing one where all edges ask for one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mulligan.core.model.workflow import END
from mulligan.formats.alphred import contracts
from mulligan.formats.alphred.guards import Guard, read_guard
from mulligan.formats.alphred.tree import TreeEdge, TreeNode
from mulligan.formats.translation import mapping, scalar
from mulligan.language.nodes import Node, Scalar, Source

# What a person who is asked says no with.
_REFUSALS = (*contracts.OPEN, contracts.BLOCKED)

_IS_APPROVED = f'output.decision == "{contracts.APPROVED}"'

# The step that an edge leads to.
StepOf = Callable[[TreeEdge], str]


@dataclass(slots=True)
class Routes:
    """What a step says of what follows it, and what its agent is told of that. `next` is None where nothing does."""

    next: list[Node] | Node | None
    keys: dict[str, Any] = field(default_factory=dict)
    contract: str = ""


def routes(node: TreeNode, step_of: StepOf, source: Source, *, is_json: bool) -> Routes:
    """The `next` of a node's step."""
    if node.kind == "human":
        return _of_person(node, step_of, source)
    guarded = _guarded(node, source, is_json=is_json)
    edges = [_edge(edge, step_of(edge), guard) for edge, guard in guarded]
    guards = _asked(guarded)
    is_open = bool(guards) and len(guards) == len(guarded)
    asks = any(guard.is_on_decision for guard in guards)
    if is_open and asks and not any(guard.only_word == contracts.APPROVED for guard in guards):
        edges.append(mapping({"to": END, "when": _IS_APPROVED}, guarded[-1][0].at))
    has_to_decide = is_open and all(guard.needs_decision for guard in guards)
    keys = {
        "validate": "output.decision != null" if has_to_decide else None,
        "take": "first" if len(edges) > 1 else None,
        "no_match": "fail" if is_open else None,
    }
    words = [word for guard in guards for word in guard.words]
    contract = contracts.routing(words, is_json=is_json, has_default=not has_to_decide) if asks else ""
    return Routes(_next(node, edges, step_of), keys, contract)


def _guarded(node: TreeNode, source: Source, *, is_json: bool) -> list[tuple[TreeEdge, Guard | None]]:
    """Its success edges with their guards, in their order."""
    found: list[tuple[TreeEdge, Guard | None]] = []
    for edge in node.leaving("success"):
        _warn_never_taken(node, edge, found, source)
        with source.noting:
            guard = None if edge.guard is None else read_guard(edge.guard, source, is_json=is_json)
            found.append((edge, guard))
    return found


def _asked(guarded: list[tuple[TreeEdge, Guard | None]]) -> list[Guard]:
    """The guards that are ever asked: behind an edge without one, none is."""
    found: list[Guard] = []
    for _, guard in guarded:
        if guard is None:
            break
        found.append(guard)
    return found


def _warn_never_taken(
    node: TreeNode, edge: TreeEdge, before: list[tuple[TreeEdge, Guard | None]], source: Source
) -> None:
    """It stays all the same: a node that no edge leads to would start at once."""
    if first := next((other for other, guard in before if guard is None), None):
        message = f"the edge from '{node.key}' to '{edge.target}' is never taken: the one to '{first.target}' has no "
        source.warn("edge", message + "guard and comes first", edge.at)


def _edge(edge: TreeEdge, to: str, guard: Guard | None) -> Node:
    return mapping({"to": to, "when": guard.text}, edge.at) if guard else scalar(to, edge.at)


def _next(node: TreeNode, edges: list[Node], step_of: StepOf) -> list[Node] | Node | None:
    """Success edges, then those on failure; one that is a name alone stands without a list."""
    found = [*edges, *_on_failure(node, step_of)]
    if len(found) == 1 and isinstance(found[0], Scalar):
        return found[0]
    return found or None


def _on_failure(node: TreeNode, step_of: StepOf) -> list[Node]:
    return [mapping({"to": step_of(edge), "on": "failure"}, edge.at) for edge in node.leaving("failure")]


# -- a person --------------------------------------------------------------------------------------------------------


def _of_person(node: TreeNode, step_of: StepOf, source: Source) -> Routes:
    """A person says yes, which is the decision `approved`, or no, which is a failure with a code of its own."""
    edges = []
    for edge in node.leaving("success"):
        with source.noting:
            edges.append(_after_answer(node, edge, step_of(edge), source))
    is_choice = sum(isinstance(edge, Scalar) for edge in edges) > 1
    return Routes(_next(node, edges, step_of), {"take": "first"} if is_choice else {})


def _after_answer(node: TreeNode, edge: TreeEdge, to: str, source: Source) -> Node:
    word = contracts.APPROVED if edge.guard is None else read_guard(edge.guard, source, is_json=False).only_word
    if word == contracts.APPROVED:
        return scalar(to, edge.at)
    if word in _REFUSALS:
        return mapping({"to": to, "on": "failure", "codes": ["APPROVAL_REFUSED"]}, edge.at)
    message = f"node '{node.key}' is a person's, who says yes or no, and this guard asks for something else"
    hint = "compare 'decision' by '==' with 'approved' or 'changes_requested'"
    raise source.refuse("guard", message, edge.guard or edge.at, hint=hint)

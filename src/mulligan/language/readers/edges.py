"""Reads `needs` and `next`: links by name, which are resolved after all steps are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import END, Edge, NeedOn
from mulligan.language.keys.value_schemas import STEP_NAME, Fields
from mulligan.language.keys.workflow_keys import EDGE, NEED
from mulligan.language.readers.retry_policies import read_backoff
from mulligan.language.scope import Scope, read_condition
from mulligan.language.text.nodes import Node, Scalar, Sequence

Link = TypeVar("Link")

_FAILURE_ONLY = ("codes", "exit_codes", "handles", "then")
# Typical names of steps that send an alert and repair nothing.
_ALERT_NAME = lazy_regex(r"(?:^|[_-])(?:alert|notif|page|mail|email|slack|inform|tell|warn)")


class NeedDraft(msgspec.Struct, frozen=True):
    """A need as written. `kind` is step, matrix or match; `node` is the node of its name."""

    kind: str
    name: str
    on: NeedOn
    node: Node


class EdgeDraft(msgspec.Struct, frozen=True):
    """An edge as written; `node` is the node of its target, `fields` are for error positions."""

    edge: Edge
    node: Node
    fields: Fields | None = None

    def at(self, key: str) -> Node:
        return self.fields.key(key) if self.fields and key in self.fields else self.node


def read_needs(node: Node, scope: Scope) -> list[NeedDraft]:
    return [found for item in _entries(node) if (found := _read_or_note(_read_need, item, scope))]


def read_next(node: Node, scope: Scope) -> list[EdgeDraft]:
    found = [edge for item in _entries(node) if (edge := _read_or_note(_read_edge, item, scope))]
    _refuse_equal_priorities(found, scope)
    return found


def _entries(node: Node) -> list[Node]:
    return node.items if isinstance(node, Sequence) else [node]


def _read_or_note(read: Callable[[Node, Scope], Link | None], item: Node, scope: Scope) -> Link | None:
    with scope.noting:
        return read(item, scope)
    return None


def _read_need(node: Node, scope: Scope) -> NeedDraft | None:
    if isinstance(node, Scalar):
        return NeedDraft("step", _target(node, "'needs'", scope), "success", node)
    form: Fields = NEED.read(node, "an entry of 'needs'", scope.source)
    kinds = [kind for kind in ("step", "matrix", "match") if kind in form.node.entries]
    if len(kinds) != 1:
        hint = "write 'step', 'matrix' or 'match'"
        raise scope.source.refuse("need", "an entry of 'needs' must name exactly one thing", form.node, hint=hint)
    kind = kinds[0]
    if kind not in form:
        return None
    name, at = _reference(form, kind)
    return NeedDraft(kind, name, form.get("on", "success"), at)


def _target(node: Scalar, label: str, scope: Scope) -> str:
    if node.is_text and "{" in node.text:
        return node.text
    STEP_NAME.read(node, f"an entry of {label}", scope.source)
    return node.text  # as written, like the name of the step: 007 is not 7


def _reference(form: Fields, key: str) -> tuple[str, Node]:
    """The name of a step as written, and its node."""
    node = form.at(key)
    return node.text if isinstance(node, Scalar) else form[key], node


def _read_edge(node: Node, scope: Scope) -> EdgeDraft | None:
    if isinstance(node, Scalar):
        return EdgeDraft(Edge(_target(node, "'next'", scope), 0), node)
    form: Fields = EDGE.read(node, "an entry of 'next'", scope.source)
    if "to" not in form:
        return None
    on = form.get("on", "success")
    _refuse_misplaced(form, on, scope)
    after = scope.with_names("output")
    to, at = _reference(form, "to")
    edge = Edge(
        to=to,
        index=0,
        on=on,
        when=read_condition(form.at("when"), after) if "when" in form else None,
        backoff=read_backoff(form),
        **form.pick("priority", *_FAILURE_ONLY),
    )
    _warn_if_alert(edge, at, form, scope)
    return EdgeDraft(edge, at, form)


def _warn_if_alert(edge: Edge, at: Node, form: Fields, scope: Scope) -> None:
    """Warn if a step that only sends an alert would make the failure count as handled."""
    if edge.on == "failure" and not edge.then and "handles" not in form and _ALERT_NAME.search(edge.to.lower()):
        message = f"when '{edge.to}' completes, the failure counts as handled and the run does not fail"
        scope.source.warn("handling_alert", message, at, hint="if it only sends an alert, add 'handles: false'")


def _refuse_misplaced(form: Fields, on: str, scope: Scope) -> None:
    """Refuse keys that have no meaning on this kind of edge."""
    found: list[tuple[str, str, str]] = []
    if on == "failure" and "when" in form:
        message = "'when' is not allowed on failure edges: they are chosen by the failure alone"
        found.append(("when", message, "filter by 'codes' or 'exit_codes', or decide in the step it leads to"))
    for key in form.pick(*_FAILURE_ONLY) if on != "failure" else ():
        found.append((key, f"'{key}' is for failure edges, and this one is 'on: {on}'", "add 'on: failure'"))
    idle = {"to 'end'": form["to"] == END, "with 'handles: false'": form.get("handles") is False}
    for edge in (edge for edge, is_idle in idle.items() if is_idle and "then" in form):
        found.append(("then", f"an edge {edge} handles nothing, so 'then' has no effect", "remove one of them"))
    for key, message, hint in found:
        scope.note(scope.source.refuse("edge", message, form.key(key), hint=hint))


def _refuse_equal_priorities(found: list[EdgeDraft], scope: Scope) -> None:
    seen: dict[int, str] = {}
    for draft in found:
        priority = draft.edge.priority
        if priority is None or draft.edge.on != "failure" or not draft.edge.handles:
            continue
        if priority in seen:
            edges = f"the failure edges to '{seen[priority]}' and '{draft.edge.to}'"
            message = f"{edges} have the same priority, {priority}"
            hint = "give them different priorities: the lowest is tried first"
            scope.note(scope.source.refuse("edge", message, draft.at("priority"), hint=hint))
        seen.setdefault(priority, draft.edge.to)

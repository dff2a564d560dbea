"""Resolves names into links: expands matrix steps, and makes groups of needs on many steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import msgspec

from mulligan.core.model.workflow import END, Edge, Need, NeedOn, Step
from mulligan.language.checks.prefix_index import PrefixIndex, literal_prefix
from mulligan.language.matrices.matrix import format_name
from mulligan.language.matrices.matrix_binding import Values, binder
from mulligan.language.readers.edges import EdgeDraft, NeedDraft
from mulligan.language.readers.steps import StepDraft
from mulligan.language.scope import Draft, Scope
from mulligan.language.text.nodes import Node, Refusal, shorten
from mulligan.language.text.suggestions import did_you_mean


class Resolved(msgspec.Struct):
    """All steps with their links, and the draft of each."""

    steps: dict[str, Step] = {}
    groups: dict[str, tuple[str, ...]] = {}
    drafts: dict[str, StepDraft] = {}
    # The drafts of edges by step and index. An edge to a matrix has many indexes.
    edges: dict[tuple[str, int], EdgeDraft] = {}
    # The steps inside groups with their group, and for a group the steps outside it. Neither can be named here.
    grouped: dict[str, str] = {}
    outside: frozenset[str] = frozenset()


def resolve(drafts: list[StepDraft], draft: Draft, *, is_sequential: bool) -> Resolved:
    """The steps of a file with their links."""
    names = _Names(drafts, draft)
    resolved = Resolved(grouped=draft.grouped, outside=draft.outside)
    for each in drafts:
        is_linked = each.needs or each.edges or each.combinations
        for step in _Linker(each, names, resolved, draft).steps() if is_linked else (each.step,):
            if step.name not in resolved.steps:
                resolved.steps[step.name] = step
                resolved.drafts[step.name] = each
    if is_sequential:
        _add_sequence(drafts, resolved)
    return resolved


def _add_sequence(drafts: list[StepDraft], resolved: Resolved) -> None:
    """Let each step need the one before it, unless it has needs or an edge leads to it.

    A step that only failure edges lead to is not part of the sequence: without a failure it is skipped, and a step
    that needs it would be skipped too.
    """
    edges = [edge for step in resolved.steps.values() for edge in step.edges]
    targets = {edge.to for edge in edges}
    repairs = targets - {edge.to for edge in edges if edge.on != "failure"}
    line = [each for each in drafts if not repairs.issuperset(each.names)]
    for before, each in pairwise(line):
        names = [name for name in each.names if name not in targets and resolved.drafts.get(name) is each]
        if each.needs is not None or not names:
            continue
        need = _need_for_all(before, resolved)
        for name in names:
            resolved.steps[name] = msgspec.structs.replace(resolved.steps[name], needs=(need,))


def _need_for_all(draft: StepDraft, resolved: Resolved) -> Need:
    """The need for a step, or for all steps of a matrix."""
    if not draft.combinations:
        return Need(draft.name)
    name = draft.name or f"{draft.names[0]} to {draft.names[-1]}"
    resolved.groups[name] = tuple(draft.names)
    return Need(name, is_group=True)


class _Matches(NamedTuple):
    """The steps that match a pattern, in file order and as a set for fast lookups."""

    members: tuple[str, ...]
    known: frozenset[str]


class _Names:
    """The names of steps and of whole matrices. Duplicates are refused."""

    def __init__(self, drafts: list[StepDraft], whole: Draft) -> None:
        source = whole.source
        self.whole = whole
        self.steps: dict[str, StepDraft] = {}
        self.matrices: dict[str, tuple[str, ...]] = {}
        self.matches: dict[str, _Matches] = {}
        # Built at the first use.
        self._prefix_index: PrefixIndex | None = None
        self.source = source
        for draft in drafts:
            try:  # `source.noting` would take longer, and this runs for every step
                self._add(draft)
            except Refusal as refusal:
                source.note(refusal)

    def _add(self, draft: StepDraft) -> None:
        whole = [draft.name] if draft.combinations and draft.name else []
        for name in (*whole, *draft.names):
            first = self.steps.get(name)
            if first or name in self.matrices:
                line = f": first in line {self.source.number(first.name_node)}" if first else ""
                raise self.source.refuse("duplicate_step", f"there are two steps '{name}'{line}", draft.name_node)
        if whole:
            self.matrices[draft.name] = tuple(draft.names)
        self.steps.update(dict.fromkeys(draft.names, draft))

    def members(self, name: str) -> tuple[str, ...]:
        """The steps of that name: one, or all of a matrix."""
        return (name,) if name in self.steps else self.matrices.get(name, ())

    def matches_of(self, pattern: str) -> _Matches:
        if pattern not in self.matches:
            if self._prefix_index is None:
                self._prefix_index = PrefixIndex(self.steps)
            fits = re.compile(pattern).fullmatch
            members = tuple(
                name for name in self._prefix_index.names_with_prefix(literal_prefix(pattern)) if fits(name)
            )
            self.matches[pattern] = _Matches(members, frozenset(members))
        return self.matches[pattern]

    def refuse_unknown(self, name: str, node: Node, message: str) -> Refusal:
        hint = did_you_mean(name, [*self.steps, *self.matrices])
        if name in self.whole.grouped:
            hint = f"it is a step of the group '{self.whole.grouped[name]}': name that"
        elif name in self.whole.outside:
            hint = "it is outside the group: let the group itself need it"
        elif name in self.whole.tools:
            hint = f"'{name}' has 'tool': only agents start it"
        return self.source.refuse_unknown(f"{message} '{shorten(name)}', which is not a step", name, node, hint=hint)


class _Linker:
    """Adds the links to the steps of one draft."""

    def __init__(self, each: StepDraft, names: _Names, resolved: Resolved, draft: Draft) -> None:
        self.draft = each
        self.names = names
        self.groups = resolved.groups
        self.written = resolved.edges
        self.label = each.name_node.text
        self.scope = Scope(draft, f"step '{self.label}'")
        self.edge_binders = [binder(edge.edge) for edge in each.edges]

    def steps(self) -> Iterator[Step]:
        for step, values in self.draft.instances():
            needs: dict[Need, None] = {}
            for need in self.draft.needs or ():
                with self.scope.noting:
                    needs[self._need(need, step.name, values)] = None
            edges = tuple(self._edges(step.name, values))
            yield msgspec.structs.replace(step, needs=tuple(needs), edges=edges) if needs or edges else step

    def _group(self, name: str, members: tuple[str, ...], on: NeedOn) -> Need:
        self.groups[name] = members
        return Need(name, on, is_group=True)

    def _need(self, need: NeedDraft, step: str, values: Values) -> Need:
        name = format_name(need.name, values, need.node, self.scope) if values and "{" in need.name else need.name
        if need.kind == "match":
            return self._match(need, step)
        if name in self.names.matrices:
            return self._group(name, self.names.matrices[name], need.on)
        if need.kind == "matrix":
            hint = did_you_mean(name, self.names.matrices)
            message = f"step '{self.label}' needs the matrix '{shorten(name)}', which is not a step with 'matrix'"
            raise self.scope.source.refuse_unknown(message, name, need.node, hint=hint)
        if name == END:
            message = f"step '{self.label}' needs 'end', which runs last"
            raise self.scope.source.refuse("need", message, need.node)
        if name not in self.names.steps:
            raise self.names.refuse_unknown(name, need.node, f"step '{self.label}' needs")
        return Need(name, need.on)

    def _match(self, need: NeedDraft, step: str) -> Need:
        members, known = self.names.matches_of(need.name)
        others = tuple(name for name in members if name != step) if step in known else members
        if not others:
            message = f"step '{self.label}' needs steps that match '{shorten(need.name)}', but no step does"
            raise self.scope.source.refuse_unknown(message, "", need.node)
        name = f"match {need.name}" + (f" without {step}" if step in known else "")
        return self._group(name, others, need.on)

    def _edges(self, step: str, values: Values) -> Iterator[Edge]:
        index = 0
        for draft, bind in zip(self.draft.edges, self.edge_binders, strict=True):
            edge = bind(values) if bind else draft.edge
            for target in self._targets(draft, values):
                is_same = index == edge.index and target == edge.to
                yield edge if is_same else msgspec.structs.replace(edge, to=target, index=index)
                if draft.fields:
                    self.written[step, index] = draft
                index += 1

    def _targets(self, draft: EdgeDraft, values: Values) -> tuple[str, ...]:
        with self.scope.noting:
            name = draft.edge.to
            name = format_name(name, values, draft.node, self.scope) if values and "{" in name else name
            targets = (END,) if name == END else self.names.members(name)
            if not targets:
                raise self.names.refuse_unknown(name, draft.node, f"step '{self.label}' leads to")
            if len(targets) > 1 and draft.edge.on == "failure" and draft.edge.handles:
                message = f"'{name}' is a matrix, and a failure edge leads to one step"
                hint = f"name one of its steps, such as '{targets[0]}', or add 'handles: false' to take them all"
                raise self.scope.source.refuse("edge", message, draft.node, hint=hint)
            return targets
        return ()

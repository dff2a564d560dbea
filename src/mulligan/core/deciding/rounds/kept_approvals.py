"""Whether an approval still counts in a fork or in another round: what was approved must be what happens now.

An approval counts for the steps behind it. If one of them runs, it is asked again if its question has changed, or if
the question or one of these steps reads an input that has another value, or the result of a step that had completed
and runs once more. Results of the steps behind it are no reason: they follow from it. Neither is a corrected step
behind it: whoever sends code vouches for it. In another round of the same run, where no input changes, what a step
beside the approval returns is no reason either: nobody has waited for it before answering.

An approval that was skipped is asked for if whether it is asked may have another answer now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from mulligan.core.deciding.agents.agent_context import reads_upstream
from mulligan.core.model.actions import called_workflow, traits_of
from mulligan.core.model.graph import Graph
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.text.formatting import quote_names
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import Expression, Step, Workflow, all_commands, expressions_in
from mulligan.core.state.state import Place, State
from mulligan.errors import Refused

_encode = msgspec.json.Encoder(order="deterministic").encode
# A use of the inputs: of one that is named, otherwise of all of them.
_INPUT = lazy_regex(r"""\binputs\b(?:\s*\.\s*([A-Za-z_]\w*+)(?!\s*\()|\s*\[\s*(?:"([^"\\]*)"|'([^'\\]*)')\s*\])?""")
_DATA = lazy_regex(r"\bdata\b")
_COMPLETED = ("completed", "stood_in")


def asks_person(step: Step, workflow: Workflow) -> bool:
    """Whether the step, a command below it, or a step of the workflow that it calls is an approval."""
    for command in all_commands([step]):
        if traits_of(command.action).asks_person:
            return True
        child = called_workflow(command.action, workflow)
        if child is not None and any(asks_person(one, child) for one in child.steps):
            return True
    return False


def approvals_among(steps: Iterable[str], graph: Graph) -> list[str]:
    """Those of the steps in which a person is asked."""
    nodes = graph.nodes
    return [name for name in steps if name in nodes and asks_person(nodes[name].step, graph.workflow)]


def approvals_relied_on(graph: Graph, kept: Iterable[str], runs: Collection[str]) -> list[str]:
    """The kept approvals behind which something runs."""
    approvals = approvals_among(kept, graph)
    before = graph.before(runs) if approvals else frozenset()
    return [name for name in approvals if name in before]


def changed_inputs(before: Mapping[str, Any], after: Mapping[str, Any]) -> frozenset[str]:
    """The inputs that have another value, or that only one of the two has. `1` and `true` are two values."""
    others = (name for name in before.keys() & after.keys() if _encode(before[name]) != _encode(after[name]))
    return frozenset((*(before.keys() ^ after.keys()), *others))


# -- a fork from a step ------------------------------------------------------------------------------------------------


def asked_again_in_fork(
    old: State, graph: Graph, inputs: Mapping[str, Any], kept: Collection[str], changed: Collection[str]
) -> dict[str, str]:
    """The kept steps that a fork runs after all, so that a person is asked again, each with the reason.

    `changed`: the steps whose definition gives another result in the workflow of `graph`.
    """
    runs = frozenset(name for name in graph.nodes if name not in kept)
    approvals = approvals_relied_on(graph, kept, runs)
    if not approvals:
        return {}
    others = changed_inputs(old.run.inputs, inputs)
    workspace = graph.workflow.workspace
    opens = "" if workspace is None else workspace.opens
    redone = frozenset(
        # A worktree of its own is a copy of the other one.
        name
        for name in runs
        if name != opens and name in old.places and old.places[name].settled in _COMPLETED
    )
    reads = {name: _Reads(graph.nodes[name].step, graph) for name in (*approvals, *runs)}
    found: dict[str, str] = {}
    for name in approvals:
        if old.places[name].settled == "skipped":
            found |= _asked_after_all(graph, name, others, kept)
        elif name in changed:
            found[name] = "its question has changed"
        elif reason := _outdated(old, graph, name, reads, others, redone):
            found[name] = reason
    return found


def _asked_after_all(graph: Graph, approval: str, others: frozenset[str], kept: Collection[str]) -> dict[str, str]:
    """The steps that decide whether a skipped approval is asked, and read an input with another value."""
    found = {}
    for name in (*sorted(graph.before((approval,))), approval):
        if name in kept and (read := _Reads(graph.nodes[name].step, graph).inputs(others)):
            found[name] = f"whether '{approval}' is asked may depend on {_named(read)}"
    return found


def _outdated(
    old: State,
    graph: Graph,
    approval: str,
    reads: Mapping[str, _Reads],
    others: frozenset[str],
    redone: frozenset[str],
) -> str:
    """Why an approval does not count any more; "" if it does."""
    if read := reads[approval].inputs(others):
        return f"its question reads {_named(read)}"
    behind = graph.behind((approval,))
    beside = redone - behind
    for name in (name for name in graph.nodes if name in behind and name != approval and name in reads):
        if read := reads[name].inputs(others):
            return f"'{name}' comes after it and reads {_named(read)}"
        if source := next(iter(sorted(reads[name].results(old, beside))), ""):
            return f"'{name}' comes after it and reads the result of '{source}', which runs again"
    return ""


def _named(inputs: Iterable[str]) -> str:
    names = sorted(inputs)
    return f"the {'input' if len(names) == 1 else 'inputs'} {quote_names(names, 3)}, with another value"


class _Reads:
    """What the expressions, files and agents of a step read."""

    def __init__(self, step: Step, graph: Graph) -> None:
        self._step, self._graph = step, graph
        self._expressions = list(expressions_in(step))

    def inputs(self, among: frozenset[str]) -> set[str]:
        """Those of the inputs that are read."""
        found: set[str] = set()
        for one in self._expressions if among else ():
            if "inputs" in one.reads:
                found |= among & names if (names := inputs_read(one)) is not None else among
        return found

    def results(self, old: State, among: frozenset[str]) -> set[str]:
        """Those of the steps whose results are read, as values, as files or as data of the run."""
        if not among:
            return set()
        found: set[str] = set()
        for one in self._expressions:
            for read in one.reads:
                root, _, name = read.partition(".")
                if root == "steps":
                    found |= among if name == "*" else among.intersection((name, *self._graph.matrices.get(name, ())))
                elif root == "run" and _DATA.search(one.source):
                    found |= among.intersection(step_name(data.place) for data in old.run.data.values() if data.place)
        wanted = frozenset(self._step.reads)
        found |= {name for name in among if wanted.intersection(self._graph.nodes[name].step.writes)}
        if any(reads_upstream(command) for command in all_commands((self._step,))):
            found |= among & self._graph.before((self._step.name,))
        return found


def inputs_read(expression: Expression) -> frozenset[str] | None:
    """The inputs that an expression names; None if it may read any of them."""
    uses = list(_INPUT.finditer(expression.source))
    if not uses or any(use.lastindex is None for use in uses):
        return None
    return frozenset(use[use.lastindex or 0] for use in uses)


# -- a fork at an event ------------------------------------------------------------------------------------------------


def approvals_given(state: State) -> list[str]:
    """The steps in which a person may have been asked and has answered, of a run that goes on.

    A child run that has not ended is started anew, and asks again.
    """
    return [name for name in approvals_among(state.graph.nodes, state.graph) if _is_given(state.places[name])]


def _is_given(place: Place) -> bool:
    if not place.is_active:
        return place.status == "completed"
    found = traits_of(place.spec.action)
    return not (found.asks_person or found.calls_run)


def refuse_changed_inputs(state: State, inputs: Mapping[str, Any]) -> None:
    """Refuse to go on from here with these inputs if an approval, or what a program has called, was for others.

    A program makes the same calls in each replay only with the inputs that it had.
    """
    others = changed_inputs(state.run.inputs, inputs)
    graph = state.graph
    if others and state.calls:
        raise Refused(
            f"the program has made calls with another value of {quote_names(sorted(others))}",
            hint="choose an event before its first call, or start another run with these inputs",
        )
    decided = (
        name
        for name in (approvals_among(graph.nodes, graph) if others else ())
        if _is_given(state.places[name]) or state.places[name].status == "skipped"
    )
    for name in decided:
        affected = [name, *sorted(graph.behind((name,)) - {name})]
        if state.places[name].status == "skipped":
            affected += sorted(graph.before((name,)))
        for one in affected:
            if read := _Reads(graph.nodes[one].step, graph).inputs(others):
                whose = "it" if one == name else f"'{one}'"
                raise Refused(
                    f"the approval of '{name}' was for other values: {whose} reads {_named(read)}",
                    hint=f"choose an event before it; or fork the run from '{name}', which asks again",
                    step=name,
                )

"""What the story of a run needs to remember of earlier facts, and no more than is still needed.

A writer that starts in the middle of a run remembers less: its sentences then say less, but nothing wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from functools import cached_property
from typing import Any

import msgspec
from msgspec.structs import replace

from mulligan.core.deciding.end_status import parse_end_output
from mulligan.core.evolve.evolve_places import spec_below
from mulligan.core.evolve.revision import workflow_from_plain
from mulligan.core.model import events as e
from mulligan.core.model.failure import Failure
from mulligan.core.model.graph import Graph
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.workflow import END, Command, Need, Step, Workflow
from mulligan.core.state.program_progress import is_raised_with
from mulligan.core.state.state import ITEM, State
from mulligan.history.called_steps import except_line
from mulligan.history.item_names import index_names, place_name

# A visit of a step.
_Visit = tuple[str, int]


class _Routed(msgspec.Struct, frozen=True):
    """A failed visit that was routed: when it failed, by number of facts; and its loop, if it is in one."""

    number: int
    # The steps that run again, and those of them that the loop leads back to.
    members: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    # The visit that was to lead back, and took no edge since the limit of the loop was reached.
    dead_end: _Visit | None = None


class StoryMemory:
    """The story so far. `update` takes each fact after its sentence was written."""

    def __init__(self, workflow: Workflow | None = None, children: Mapping[tuple[str, int], int] | None = None) -> None:
        self._workflow = workflow
        # The child runs by the place and the attempt that they were started for.
        self.children = children if children is not None else {}
        # Those that attempts have continued.
        self._continued: dict[tuple[str, int], int] = {}
        # The definitions of open commands, and the last failures of places that have not ended.
        self._specs: dict[str, Command] = {}
        self._failures: dict[str, Failure] = {}
        # The end of each step that did not complete.
        self._undone: dict[str, str] = {}
        self._unmet: dict[tuple[str, str], str] = {}
        # The failed visits that are not handled yet, and by visit the failed visits that were routed to it.
        self._open: dict[_Visit, None] = {}
        # Each with the failed visit whose route it follows: its own, or that of a remediation that failed as well.
        self._sent: dict[_Visit, list[tuple[_Visit, _Visit]]] = {}
        # For loops: how many facts there were, when each step was entered last and how often in this round; the failed
        # visits; and those that were routed, until the round ends.
        self._number = 0
        self._entered: dict[str, int] = {}
        self._visits: Counter[str] = Counter()
        self._failed: list[tuple[int, _Visit]] = []
        self._routed: dict[_Visit, _Routed] = {}
        # By handled failure: the failure whose route was the last.
        self._went: dict[_Visit, _Visit] = {}
        # The reason that `end` returned.
        self.reason_of_end = ""
        # The runs whose results steps have reused, until these steps end.
        self._reused: dict[str, int] = {}
        self._reused_items: dict[str, int] = {}
        # The names of the items of maps, by step.
        self._item_names: dict[str, list[str]] = {}
        # What a program has called: the definitions by digest, the steps, and the calls by their labels.
        self._definitions: dict[str, Step] = {}
        self._added: dict[str, Step] = {}
        self._calls: dict[str, e.StepAdded] = {}
        # The calls that it has cancelled.
        self._unwanted: set[str] = set()
        # By program that has raised: the call whose failure it has let through, "" for none.
        self._let_through: dict[str, str] = {}

    def copy(self) -> StoryMemory:
        """An independent memory with the same content."""
        other = StoryMemory(self._workflow, self.children)
        own = ("_continued", "_specs", "_failures", "_undone", "_unmet", "_open", "_item_names", "_definitions")
        for name in (*own, "_added", "_calls", "_let_through", "_reused", "_reused_items"):
            setattr(other, name, dict(getattr(self, name)))
        for name in ("_entered", "_visits", "_failed", "_routed", "_went", "_unwanted"):
            setattr(other, name, copy(getattr(self, name)))
        other._number = self._number
        other._sent = {visit: list(sent) for visit, sent in self._sent.items()}
        other.reason_of_end = self.reason_of_end
        return other

    # -- queries -----------------------------------------------------------------------------------------------------

    @cached_property
    def _steps(self) -> dict[str, Step]:
        flow = self._workflow
        return {} if flow is None else {**{step.name: step for step in flow.steps}, END: flow.end}

    def child_of(self, fact: e.AttemptStarted | e.AttemptSucceeded) -> int:
        """The child run of an attempt; 0 if it is not known, or there is none."""
        if isinstance(fact, e.AttemptStarted) and fact.continues is not None:
            return fact.continues.run_id
        key = fact.place, fact.attempt
        return self._continued.get(key) or self.children.get(key, 0)

    def step(self, name: str) -> Step | None:
        return self._steps.get(name) or self._added.get(name)

    def call(self, step: str) -> e.StepAdded | None:
        """The call that a step is of; None for one of a file."""
        return self._calls.get(step)

    def caught_at(self, step: str) -> str:
        """The `except` that has caught the failure of a call: `nightly.py:34`; "" if nobody can say."""
        call = self._calls.get(step)
        program = None if call is None else self._steps.get(call.program)
        return "" if call is None or program is None else except_line(program.action, call)

    def spec(self, place: str) -> Command | None:
        """The definition of a place, if it is known."""
        return self._specs.get(place) or self.step(place)

    def failure(self, place: str) -> Failure | None:
        """The last failure of a place that has not ended."""
        return self._failures.get(place)

    def reused_run(self, place: str) -> int:
        """The run whose result a place has reused; 0 if it ran itself."""
        return self._reused.get(place, 0)

    def reused_items(self, step: str) -> int:
        """How many items of a map have reused the result of another run."""
        return self._reused_items.get(step, 0)

    def name_of(self, place: str) -> str:
        """The display name of a place, with the names of items; "" if that is its key."""
        if "[" not in place:
            return ""
        step = self.step(step_name(place))
        name = place_name(place, self._item_names.get(step_name(place), ()), len(step.do) if step is not None else 1)
        return "" if name == place else name

    def failures_routed_to(self, step: str, visit: int) -> list[str]:
        """The steps whose failures were routed to this visit, without those that a failed program has caught."""
        sent = self._not_caught(step, self._sent.get((step, visit), []))
        return list(dict.fromkeys(name for (name, _), _ in sent)) if sent else []

    def leads_back(self, fact: e.StepCompleted) -> bool:
        """Whether a visit took the edge of a loop."""
        return any(self._graph.arc(fact.step, index).is_loop for index in fact.taken) if self._graph else False

    def direct_sources(self, steps: Collection[str]) -> dict[str, str]:
        """For each of these steps that depends directly on another one of them: that one."""
        graph, found, groups = self._graph, dict[str, str](), set[str]()
        if graph is None:
            return found
        for step in (name for name in steps if name in graph.nodes):
            targets = graph.onward(step)
            fresh = [target for target in targets if target in graph.barriers and target not in groups]
            groups.update(fresh)
            for target in (*targets, *(member for group in fresh for member in graph.onward(group))):
                found.setdefault(target, step)
        return {step: found[step] for step in steps if step in found}

    @cached_property
    def _graph(self) -> Graph | None:
        return None if self._workflow is None else Graph(self._workflow)

    def unhandled_steps(self) -> list[str]:
        """The steps whose failures are not handled so far."""
        return list(dict.fromkeys(visit[0] for visit in (*self._open, *self._went) if not self._is_handled(visit)))

    def _is_handled(self, visit: _Visit) -> bool:
        """As `core.state.verdict.is_handled` after the run has ended: a failure in a loop counts as the last one."""
        while visit not in self._open:
            followed = self._routed.get(self._went.get(visit, visit))
            if followed is None or not followed.targets:
                return True
            since = max(self._entered.get(name, 0) for name in followed.targets)
            if since < followed.number:
                return followed.dead_end is None
            later = (one for number, one in reversed(self._failed) if number > since and one[0] in followed.members)
            found = next(later, None)
            if found is None:
                return True
            visit = found
        return False

    def unmet_need(self, name: str) -> str:
        """The needed step that keeps this step from starting; "" if it is not known."""
        step = self._steps.get(name)
        return next(filter(None, map(self._missing, step.needs)), "") if step else ""

    def _missing(self, need: Need) -> str:
        """The member of a need that did not complete. A group that thousands of steps need is searched once."""
        if need.on == "always" or self._workflow is None:
            return ""
        known = self._unmet.get((need.of, need.on))
        if known is None or (known and known not in self._undone):
            members = self._workflow.groups[need.of] if need.is_group else (need.of,)
            spared = "skipped" if need.on == "success_or_skipped" else ""
            known = next((one for one in members if self._undone.get(one, spared) != spared), "")
            self._unmet[need.of, need.on] = known
        return known

    # -- updates -----------------------------------------------------------------------------------------------------

    def update(self, fact: e.Fact) -> None:
        """Remember a fact."""
        self._number += 1
        rule = _RULES.get(type(fact))
        if rule is not None:
            rule(self, fact)

    def update_all(self, entries: Iterable[e.Entry]) -> None:
        """Remember many facts, as `update` does."""
        find_rule, find_condition = _RULES.get, _RULE_NEEDS.get
        for entry in entries:
            self._number += 1
            fact = entry.fact
            rule, condition = find_rule(type(fact)), find_condition(type(fact))
            if rule is not None and (condition is None or getattr(fact, condition)):
                rule(self, fact)

    def _command_entered(self, fact: e.CommandEntered) -> None:
        step = self.step(step_name(fact.place))
        above = self.spec(fact.parent) or (ITEM if fact.role == "do" else None)
        spec = spec_below(above, step, fact.role, fact.index) if step is not None and above is not None else None
        if spec is not None:
            self._specs[fact.place] = spec

    def _command_ended(self, fact: Any) -> None:
        self._specs.pop(fact.place, None)
        self._failures.pop(fact.place, None)

    def _attempt_started(self, fact: e.AttemptStarted) -> None:
        if fact.continues is not None:
            self._continued[fact.place, fact.attempt] = fact.continues.run_id

    def _attempt_failed(self, fact: Any) -> None:
        self._failures[fact.place] = fact.failure

    def _attempt_succeeded(self, fact: e.AttemptSucceeded) -> None:
        if fact.reused_run_id and (step := step_name(fact.place)) == fact.place:
            self._reused[step] = fact.reused_run_id
        elif fact.reused_run_id:
            self._reused_items[step] = self._reused_items.get(step, 0) + 1

    def _map_expanded(self, fact: e.MapExpanded) -> None:
        if fact.items is not None:
            self._item_names[fact.place] = index_names(fact.items, fact.names)

    def _step_entered(self, fact: e.StepEntered) -> None:
        self._undone.pop(fact.step, None)
        self._entered[fact.step] = self._number
        self._visits[fact.step] = self._visits.get(fact.step, 0) + 1

    def _step_skipped(self, fact: Any) -> None:
        self._undone[fact.step] = "skipped" if isinstance(fact, e.StepSkipped) else "cancelled"

    def _step_completed(self, fact: e.StepCompleted) -> None:
        self._failures.pop(fact.step, None)
        self._reused.pop(fact.step, None)
        self._reused_items.pop(fact.step, None)
        if fact.step == END:
            self.reason_of_end = str(parse_end_output(fact.output).get("reason") or "")
        own = fact.step, fact.visit
        for handled, followed in self._sent.pop(own, ()):
            self._open.pop(handled, None)
            self._went[handled] = followed
            if fact.no_route and followed in self._routed and self._is_at_limit(fact.step):
                self._routed[followed] = replace(self._routed[followed], dead_end=own)
        # A remediation that is visited once more is no dead end any longer.
        if fact.visit > 1:
            before = (fact.step, fact.visit - 1)
            for visit, routed in self._routed.items():
                if routed.dead_end == before:
                    self._routed[visit] = replace(routed, dead_end=None)

    def _is_at_limit(self, name: str) -> bool:
        """Whether a success edge of the step leads back to one that has no visit left."""
        arcs = self._graph.nodes[name].arcs if self._graph else ()
        back = [self._steps[arc.to] for arc in arcs if arc.is_loop and arc.edge.on == "success"]
        return any(self._visits[step.name] > step.max_visits for step in back)

    def _step_failed(self, fact: e.StepFailed) -> None:
        self._failures.pop(fact.step, None)
        own = fact.step, fact.visit
        sent = self._sent.pop(own, [])
        carried = self._not_caught(fact.step, sent)
        for visit, _ in (one for one in sent if one not in carried):
            # A program has caught it.
            self._open.pop(visit, None)
        if fact.is_allowed or fact.step == END:
            return
        self._undone[fact.step] = "failed"
        self._open[own] = None
        self._failed.append((self._number, own))
        if fact.route.is_sent:
            followed = [(own, own), *((visit, own) for visit, _ in carried)]
            self._sent.setdefault((fact.route.to or "", fact.route.visit), []).extend(followed)
            self._routed[own] = self._loop_of(fact)

    def _program_ended(self, fact: e.ProgramEnded) -> None:
        if fact.how == "raised":
            self._let_through[fact.place] = fact.call
        else:
            self._let_through.pop(fact.place, None)

    def _not_caught(self, step: str, carried: list[tuple[_Visit, _Visit]]) -> list[tuple[_Visit, _Visit]]:
        """Of failures that were routed to a step that has failed, those that it did not handle: see `verdict`."""
        if step not in self._let_through:
            return carried
        escaped = self._calls.get(self._let_through[step])
        return [one for one in carried if one[0][0] == self._let_through[step] or self._is_beside(one[0][0], escaped)]

    def _is_beside(self, step: str, escaped: e.StepAdded | None) -> bool:
        call = self._calls.get(step)
        return call is not None and is_raised_with(call, escaped)

    def _loop_of(self, fact: e.StepFailed) -> _Routed:
        """The loop in which the failure goes round, if its remediation is part of one or lets it run again."""
        if self._graph is None or fact.step not in self._graph.nodes or fact.route.edge is None:
            return _Routed(self._number)
        then = self._graph.arc(fact.step, fact.route.edge).edge.then
        if then == "rerun":
            return _Routed(self._number, (fact.step,), (fact.step,))
        members = self._graph.loops.get(fact.step, ())
        if then == "continue" or fact.route.to not in members:
            return _Routed(self._number)
        arcs = (arc for name in members for arc in self._graph.nodes[name].arcs)
        return _Routed(self._number, members, tuple(arc.to for arc in arcs if arc.is_loop))

    def know_calls(self, state: State) -> None:
        """Know what a program has called before the first entry that is read."""
        self._definitions.update(state.definitions)
        for label, call in state.calls.items():
            if call.kind != "value":
                self._called(
                    e.StepAdded(
                        label,
                        call.program,
                        call.branch,
                        call.ordinal,
                        name=call.name,
                        definition=call.definition,
                        file=call.file,
                        line=call.line,
                        key=call.key,
                        position=call.position,
                    )
                )

    def _defined(self, fact: e.StepDefined) -> None:
        self._definitions[fact.digest] = fact.definition

    def _called(self, fact: e.StepAdded) -> None:
        self._calls[fact.step] = fact
        self._unwanted.discard(fact.step)
        if (definition := self._definitions.get(fact.definition)) is not None:
            self._added[fact.step] = definition

    def _unwanted_call(self, fact: e.CallCancelled) -> None:
        self._unwanted.add(fact.step)

    def is_unwanted(self, step: str) -> bool:
        """Whether a program has cancelled this call."""
        return step in self._unwanted

    def _settled(self, fact: e.StepSettled) -> None:
        """A failure that was handled and fails after all. It belongs to no visit."""
        if fact.failure is not None:
            self._open[fact.step, 0] = None

    def _replaced(self, fact: e.StepReplaced) -> None:
        self._undone.pop(fact.step, None)

    def _revised(self, fact: e.RunRevised) -> None:
        """From here on the corrected definition applies."""
        self._workflow = workflow_from_plain(fact.definition)
        self.__dict__.pop("_steps", None)
        self.__dict__.pop("_graph", None)
        for step in fact.removed:
            self._undone.pop(step, None)

    def _reopened(self, fact: e.RunReopened) -> None:
        for table in (self._open, self._sent, self._routed, self._went, self._visits, self._failed):
            table.clear()
        self._unmet.clear()
        for step in fact.put_back:
            self._undone.pop(step, None)


# The field without which a rule does nothing: of nearly all these facts.
_RULE_NEEDS: dict[type[e.Fact], str] = {e.AttemptStarted: "continues", e.AttemptSucceeded: "reused_run_id"}
_RULES: dict[type[e.Fact], Callable[[StoryMemory, Any], None]] = {
    e.CommandEntered: StoryMemory._command_entered,
    e.CommandCompleted: StoryMemory._command_ended,
    e.CommandFailed: StoryMemory._command_ended,
    e.CommandCancelled: StoryMemory._command_ended,
    e.AttemptStarted: StoryMemory._attempt_started,
    e.AttemptSucceeded: StoryMemory._attempt_succeeded,
    e.AttemptFailed: StoryMemory._attempt_failed,
    e.ResultRejected: StoryMemory._attempt_failed,
    e.MapExpanded: StoryMemory._map_expanded,
    e.StepEntered: StoryMemory._step_entered,
    e.StepSkipped: StoryMemory._step_skipped,
    e.StepCancelled: StoryMemory._step_skipped,
    e.StepCompleted: StoryMemory._step_completed,
    e.StepFailed: StoryMemory._step_failed,
    e.StepDefined: StoryMemory._defined,
    e.StepAdded: StoryMemory._called,
    e.CallCancelled: StoryMemory._unwanted_call,
    e.ProgramEnded: StoryMemory._program_ended,
    e.StepSettled: StoryMemory._settled,
    e.StepReplaced: StoryMemory._replaced,
    e.RunRevised: StoryMemory._revised,
    e.RunReopened: StoryMemory._reopened,
}

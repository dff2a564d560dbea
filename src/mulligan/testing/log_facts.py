"""What an onlooker knows of a run from its log alone: the ground on which the promises stand.

Deliberately apart from `core.evolve`: a mistake there must not hide itself here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from mulligan.core.model import events as e
from mulligan.core.model.failure import Failure
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import END, Command, Workflow
from mulligan.core.model.workflow import decode as read_workflow
from mulligan.testing.agent_spending import AgentSpending

FACTS_SHOWN = 8

TERMINAL = (e.RunCompleted, e.RunFailed, e.RunCancelled)
RESULTS = (e.AttemptSucceeded, e.AttemptFailed)
STEP_ENDS = (e.StepCompleted, e.StepFailed, e.StepCancelled)
COMMAND_ENDS = (e.CommandCompleted, e.CommandFailed, e.CommandCancelled)
ITEM_ENDS = (e.ItemCompleted, e.ItemFailed, e.ItemCancelled)

_OF_ATTEMPTS = (e.AttemptScheduled, e.AttemptStarted, e.AttemptSucceeded, e.AttemptFailed, e.AttemptCancelled)


class LogFacts:
    """The log so far, and what it says in sum. `note` is called after the promises were asked about an entry."""

    def __init__(self, workflow: Workflow, graph: Graph | None = None) -> None:
        self.workflow = workflow
        self.steps = {step.name: step for step in (*workflow.steps, workflow.end)}
        self.log: list[e.Entry] = []
        # The round, and what there is once in it.
        self.round = 0
        self.stop: e.RunStopping | None = None
        self.is_now = False
        self.is_cancelled = False
        self.is_over = False
        self.end_entered = 0
        self.end_ended = 0
        # Places: what they are, below what, and since when.
        self.specs: dict[str, Command] = dict(self.steps)
        self.parents: dict[str, str] = {}
        self.roles: dict[str, str] = dict.fromkeys(self.steps, "step")
        self.entered_at: dict[str, datetime] = {}
        self.entered_once: set[str] = set()
        self.open_commands: set[str] = set()
        self.items_running: Counter[str] = Counter()
        # Attempts: the last number of each place, those that have started, and those that have a result.
        self.attempts: dict[str, int] = {}
        self.started: set[tuple[str, int]] = set()
        self.results: set[tuple[str, int]] = set()
        # The ladder.
        self.granted: dict[str, dict[int, int]] = {}
        self.tries: dict[str, int] = {}
        self.causes: dict[str, Counter[str]] = {}
        self.last_failure: dict[str, Failure] = {}
        self.reserved: dict[str, e.RetryScheduled] = {}
        self.open_scripts: set[str] = set()
        self.scripts_run: set[tuple[str, int]] = set()
        self.handlers: set[str] = set()
        self.handled: set[tuple[str, int]] = set()
        self.parked: set[str] = set()
        # Steps.
        self.visits: dict[str, int] = {}
        self.open_visits: set[str] = set()
        self.visits_in_round: Counter[str] = Counter()
        self.completed: dict[tuple[str, int], int] = {}
        self.loops: set[tuple[str, int]] = set()
        # The graph: which edges were taken, how each step and each visit ended last, whom a loop led to.
        self.graph = graph or Graph(workflow)
        self.has_kept = False
        self.taken: set[str] = set()
        self.outcomes: dict[str, str] = {}
        # Steps that have ever come to something that a fork may keep.
        self.done: set[str] = set()
        self.ends: dict[tuple[str, int], str] = {}
        self.failures: list[e.StepFailed] = []
        self.looped_to: set[str] = set()
        # Steps that their remediation brought back, or stood in for, with the visit that had failed.
        self.repaired: set[tuple[str, int]] = set()
        # Agents.
        self.spending = AgentSpending(workflow)
        # Undo.
        self.undoing: tuple[str, int] | None = None
        self.undone: set[tuple[str, int]] = set()
        # Where in the log that completed which was undone last in this round.
        self.last_undone_seq = 0

    def lineage(self, place: str) -> list[str]:
        """The place, what it belongs to, and so on up to its step."""
        found = [place]
        while found[-1] in self.parents:
            found.append(self.parents[found[-1]])
        return found

    def is_agent(self, place: str) -> bool:
        action = self.specs[place].action
        return action is not None and action.kind == "agent"

    def broken(self, promise: str, sentence: str, entry: e.Entry) -> AssertionError:
        """A promise that does not hold: the sentence, where, and the facts around it."""
        return AssertionError(f"{promise}: {sentence} (seq {entry.seq})\n{story([*self.log[-FACTS_SHOWN:], entry])}")

    # -- learning ----------------------------------------------------------------------------------------------------

    def note(self, entry: e.Entry) -> None:
        self.log.append(entry)
        if isinstance(entry.fact, _OF_ATTEMPTS) and entry.fact.place in self.specs:
            self.spending.note(entry.fact, self.lineage(entry.fact.place)[-1], is_agent=self.is_agent(entry.fact.place))
        elif isinstance(entry.fact, e.RunReopened | e.StepClassified):
            self.spending.raise_budgets(entry.fact.budgets)
        learn = _LEARN.get(type(entry.fact))
        if learn is not None:
            learn(self, entry.fact, entry)

    def begin_round(self, number: int) -> None:
        self.round, self.stop, self.is_now, self.is_cancelled, self.is_over = number, None, False, False, False
        self.end_entered = self.end_ended = 0
        self.visits_in_round.clear()
        self.last_undone_seq = 0

    def forget_climb(self, place: str) -> None:
        self.reserved.pop(place, None)
        self.open_scripts.discard(place)
        self.handlers.discard(place)
        self.parked.discard(place)

    def begin_visit(self, place: str, at: datetime) -> None:
        self.forget_climb(place)
        self.granted[place], self.tries[place], self.entered_at[place] = {}, 0, at
        self.causes[place] = Counter()


def story(entries: list[e.Entry]) -> str:
    """Entries as lines: seq, what it follows from, the fact."""
    return "\n".join(f"  {entry.seq:>4} <- {entry.caused_by:<4} {entry.fact}" for entry in entries)


def _started(seen: LogFacts, fact: e.RunStarted, entry: e.Entry) -> None:
    seen.begin_round(1)
    seen.has_kept = bool(fact.kept)
    seen.done.update(kept.step for kept in fact.kept)


def _revised(seen: LogFacts, fact: e.RunRevised, entry: e.Entry) -> None:
    """Another definition holds: what the log said of steps that are gone, and of edges that are others, is void."""
    before = seen.steps
    seen.workflow = read_workflow(msgspec.json.encode(fact.definition))
    seen.graph = Graph(seen.workflow)
    seen.steps = {step.name: step for step in (*seen.workflow.steps, seen.workflow.end)}
    seen.specs.update(seen.steps)
    seen.roles.update(dict.fromkeys(seen.steps, "step"))
    other = {name for name, step in before.items() if name not in seen.steps or seen.steps[name].edges != step.edges}
    seen.taken = {arc for arc in seen.taken if arc.rpartition("#")[0] not in other}
    seen.failures = [failed for failed in seen.failures if failed.step not in other]
    for name in (*fact.added, *fact.removed):
        seen.outcomes.pop(name, None)


def _reopened(seen: LogFacts, fact: e.RunReopened, entry: e.Entry) -> None:
    seen.begin_round(fact.round)


def _stopping(seen: LogFacts, fact: e.RunStopping, entry: e.Entry) -> None:
    seen.stop, seen.is_now = fact, seen.is_now or fact.now
    seen.is_cancelled = seen.is_cancelled or fact.cause == "cancelled"
    seen.loops.clear()


def _over(seen: LogFacts, fact: e.Fact, entry: e.Entry) -> None:
    seen.is_over = True


def _step_entered(seen: LogFacts, fact: e.StepEntered, entry: e.Entry) -> None:
    seen.visits[fact.step] = fact.visit
    seen.visits_in_round[fact.step] += 1
    seen.open_visits.add(fact.step)
    seen.begin_visit(fact.step, entry.at)
    seen.end_entered += fact.step == END


def _step_ended(seen: LogFacts, fact: e.StepCompleted | e.StepFailed | e.StepCancelled, entry: e.Entry) -> None:
    seen.open_visits.discard(fact.step)
    seen.forget_climb(fact.step)
    seen.end_ended += fact.step == END
    seen.outcomes[fact.step] = seen.ends[fact.step, fact.visit] = _outcome(fact)
    if seen.outcomes[fact.step] in ("completed", "allowed"):
        seen.done.add(fact.step)
    if isinstance(fact, e.StepCompleted):
        seen.completed[fact.step, fact.visit] = entry.seq
    if isinstance(fact, e.StepFailed):
        seen.failures.append(fact)
    if isinstance(fact, e.StepCompleted | e.StepFailed):
        seen.taken.update(f"{fact.step}#{index}" for index in fact.taken)


def _outcome(fact: e.StepCompleted | e.StepFailed | e.StepCancelled) -> str:
    if isinstance(fact, e.StepFailed):
        # An edge to `end` changes nothing.
        is_routed = fact.route.status == "selected" and fact.route.to != END
        return "allowed" if fact.is_allowed and not is_routed else "failed"
    return "completed" if isinstance(fact, e.StepCompleted) else "cancelled"


def _passed_over(seen: LogFacts, fact: e.StepSkipped | e.StepRestored, entry: e.Entry) -> None:
    seen.outcomes[fact.step] = "skipped"
    seen.done.add(fact.step)


def _stood_in(seen: LogFacts, fact: e.StepStoodIn, entry: e.Entry) -> None:
    seen.outcomes[fact.step] = "stood_in"
    seen.done.add(fact.step)
    seen.repaired.add((fact.step, seen.visits.get(fact.step, 0)))
    seen.taken.update(f"{fact.step}#{index}" for index in fact.taken)


def _settled(seen: LogFacts, fact: e.StepSettled, entry: e.Entry) -> None:
    if fact.failure is not None:
        # Its remediation completed, and could not stand in for it: it has heard of it, and is not handled.
        visit = fact.step, seen.visits.get(fact.step, 0)
        seen.repaired.add(visit)
        for index, failed in enumerate(seen.failures):
            if (failed.step, failed.visit) == visit:
                seen.failures[index] = msgspec.structs.replace(failed, route=e.Route("no_route"))


def _put_back(seen: LogFacts, fact: e.StepPutBack, entry: e.Entry) -> None:
    if fact.cause == "rerun":
        seen.repaired.add((fact.step, seen.visits.get(fact.step, 0)))


def _parked(seen: LogFacts, fact: e.StepParked, entry: e.Entry) -> None:
    seen.forget_climb(fact.step)
    seen.parked.add(fact.step)


def _classified(seen: LogFacts, fact: e.StepClassified, entry: e.Entry) -> None:
    seen.parked.discard(fact.step)
    if fact.is_default and fact.verdict == "retry":
        seen.causes.setdefault(fact.step, Counter())["default"] += 1


def _loop_taken(seen: LogFacts, fact: e.LoopTaken, entry: e.Entry) -> None:
    seen.loops.add((fact.step, fact.edge))


def _loop_fired(seen: LogFacts, fact: e.LoopFired, entry: e.Entry) -> None:
    seen.loops.discard((fact.step, fact.edge))
    seen.looped_to.add(fact.to)


def _scheduled(seen: LogFacts, fact: e.AttemptScheduled, entry: e.Entry) -> None:
    seen.attempts[fact.place] = fact.attempt
    seen.causes.setdefault(fact.place, Counter())[fact.cause] += 1
    seen.forget_climb(fact.place)


def _attempt_started(seen: LogFacts, fact: e.AttemptStarted, entry: e.Entry) -> None:
    seen.started.add((fact.place, fact.attempt))


def _failed(seen: LogFacts, fact: e.AttemptFailed, entry: e.Entry) -> None:
    seen.attempts[fact.place] = max(fact.attempt, seen.attempts.get(fact.place, 0))
    seen.results.add((fact.place, fact.attempt))
    seen.tries[fact.place] = seen.tries.get(fact.place, 0) + 1
    seen.last_failure[fact.place] = fact.failure
    seen.forget_climb(fact.place)


def _succeeded(seen: LogFacts, fact: e.AttemptSucceeded, entry: e.Entry) -> None:
    seen.results.add((fact.place, fact.attempt))


def _rejected(seen: LogFacts, fact: e.ResultRejected, entry: e.Entry) -> None:
    seen.tries[fact.place] = seen.tries.get(fact.place, 0) + 1
    seen.last_failure[fact.place] = fact.failure
    seen.handlers.discard(fact.place)


def _reserved(seen: LogFacts, fact: e.RetryScheduled, entry: e.Entry) -> None:
    seen.reserved[fact.place] = fact
    seen.granted.setdefault(fact.place, {})[fact.rule] = fact.number


def _handler_started(seen: LogFacts, fact: e.HandlerStarted, entry: e.Entry) -> None:
    seen.forget_climb(fact.place)
    seen.handlers.add(fact.place)
    seen.handled.add((fact.place, fact.attempt))


def _handler_ended(seen: LogFacts, fact: e.HandlerSucceeded | e.HandlerFailed, entry: e.Entry) -> None:
    seen.handlers.discard(fact.place)


def _command_entered(seen: LogFacts, fact: e.CommandEntered, entry: e.Entry) -> None:
    key = fact.place
    seen.parents[key], seen.roles[key] = fact.parent, fact.role
    seen.specs[key] = command_of(seen, fact)
    seen.open_commands.add(key)
    seen.entered_once.add(key)
    seen.begin_visit(key, entry.at)
    if fact.role == "script":
        seen.open_scripts.add(fact.parent)
        seen.scripts_run.add((fact.parent, seen.reserved[fact.parent].attempt))


def command_of(seen: LogFacts, fact: e.CommandEntered) -> Command:
    """What the workflow says of the command."""
    above = seen.specs.get(fact.parent, Command())
    step = seen.steps[seen.lineage(fact.parent)[-1]]
    handler = above.on_failure.commands if above.on_failure else ()
    lister = step.map.lister if step.map else None
    scripts = tuple(rule.recovery_script for rule in above.rules)
    choices = {"do": step.do, "handler": handler, "success": above.on_success, "script": scripts}
    single = {"validator": above.validator, "undo": step.undo, "lister": lister}
    found = single[fact.role] if fact.role in single else choices[fact.role][fact.index]
    return found or Command()


def _command_ended(
    seen: LogFacts, fact: e.CommandCompleted | e.CommandFailed | e.CommandCancelled, entry: e.Entry
) -> None:
    seen.open_commands.discard(fact.place)
    seen.forget_climb(fact.place)
    if fact.role == "script":
        seen.open_scripts.discard(fact.parent)


def _item_entered(seen: LogFacts, fact: e.ItemEntered, entry: e.Entry) -> None:
    seen.parents[fact.place], seen.roles[fact.place] = fact.parent, "item"
    seen.open_commands.add(fact.place)
    seen.items_running[fact.parent] += 1


def _item_ended(seen: LogFacts, fact: e.ItemCompleted | e.ItemFailed | e.ItemCancelled, entry: e.Entry) -> None:
    seen.open_commands.discard(fact.place)
    seen.items_running[fact.parent] -= 1


def _undo_started(seen: LogFacts, fact: e.UndoStarted, entry: e.Entry) -> None:
    seen.undoing = (fact.step, fact.visit)
    seen.undone.add(seen.undoing)
    seen.last_undone_seq = seen.completed.get(seen.undoing, 0)


def _undo_ended(seen: LogFacts, fact: e.UndoCompleted | e.UndoFailed, entry: e.Entry) -> None:
    seen.undoing = None


_LEARN: dict[type[e.Fact], Callable[[LogFacts, Any, e.Entry], None]] = {
    e.RunStarted: _started,
    e.RunRevised: _revised,
    e.RunReopened: _reopened,
    e.RunStopping: _stopping,
    **dict.fromkeys(TERMINAL, _over),
    e.StepEntered: _step_entered,
    **dict.fromkeys(STEP_ENDS, _step_ended),
    e.StepSkipped: _passed_over,
    e.StepRestored: _passed_over,
    e.StepStoodIn: _stood_in,
    e.StepSettled: _settled,
    e.StepPutBack: _put_back,
    e.StepParked: _parked,
    e.StepClassified: _classified,
    e.LoopTaken: _loop_taken,
    e.LoopFired: _loop_fired,
    e.AttemptScheduled: _scheduled,
    e.AttemptStarted: _attempt_started,
    e.AttemptFailed: _failed,
    e.AttemptSucceeded: _succeeded,
    e.ResultRejected: _rejected,
    e.RetryScheduled: _reserved,
    e.HandlerStarted: _handler_started,
    e.HandlerSucceeded: _handler_ended,
    e.HandlerFailed: _handler_ended,
    e.CommandEntered: _command_entered,
    **dict.fromkeys(COMMAND_ENDS, _command_ended),
    e.ItemEntered: _item_entered,
    **dict.fromkeys(ITEM_ENDS, _item_ended),
    e.UndoStarted: _undo_started,
    e.UndoCompleted: _undo_ended,
    e.UndoFailed: _undo_ended,
}

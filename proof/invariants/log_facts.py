"""What a log says about a run, as the basis of the invariants.

Independent of `core.evolve` on purpose: a mistake there must not be repeated here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from mulligan.core.model import events as e
from mulligan.core.model.actions import traits_of
from mulligan.core.model.event_types import Route
from mulligan.core.model.failure import Failure
from mulligan.core.model.graph import Graph, Node
from mulligan.core.model.place_keys import undo_key
from mulligan.core.model.workflow import END, Action, Command, Step, Workflow
from mulligan.core.model.workflow import decode as read_workflow
from proof.invariants.agent_spending import AgentSpending
from proof.invariants.called_runs import CalledRuns
from proof.invariants.program_calls import ProgramCalls

FACTS_SHOWN = 8

TERMINAL = (e.RunCompleted, e.RunFailed, e.RunCancelled)
RESULTS = (e.AttemptSucceeded, e.AttemptFailed)
STEP_ENDS = (e.StepCompleted, e.StepFailed, e.StepCancelled)
COMMAND_ENDS = (e.CommandCompleted, e.CommandFailed, e.CommandCancelled)
ITEM_ENDS = (e.ItemCompleted, e.ItemFailed, e.ItemCancelled)

_OF_ATTEMPTS = (e.AttemptScheduled, e.AttemptStarted, e.AttemptSucceeded, e.AttemptFailed, e.AttemptCancelled)


class LogFacts:
    """The log so far, and what it adds up to. `record` is called after the invariants checked an entry."""

    def __init__(self, workflow: Workflow, graph: Graph | None = None) -> None:
        self.workflow = workflow
        self.steps = {step.name: step for step in (*workflow.steps, workflow.end)}
        self.log: list[e.Entry] = []
        # The round, and what happens once in it.
        self.round = 0
        self.stop: e.RunStopping | None = None
        self.is_now = False
        self.is_cancelled = False
        self.is_over = False
        self.end_entered = 0
        self.end_ended = 0
        # Places: their command, their parent, and since when they are visited.
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
        # Attempts that their worker or its job has ended; and how often the time of workers was over, in each visit.
        self.ended_by_worker: dict[tuple[str, int], e.AttemptInterrupted | e.AttemptLost] = {}
        self.time_ends: Counter[str] = Counter()
        # The steps that have an output now that was too large to be kept.
        self.without_output: set[str] = set()
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
        # What triagers answered last, by step and attempt; and how many of their decisions were applied.
        self.answers: dict[tuple[str, int], Any] = {}
        self.agent_decisions = 0
        # Steps.
        self.visits: dict[str, int] = {}
        self.open_visits: set[str] = set()
        self.visits_in_round: Counter[str] = Counter()
        # Steps that ended or were skipped in this round; and whether it keeps old results.
        self.decided_in_round: set[str] = set()
        self.keeps_completed = False
        self.completed: dict[tuple[str, int], int] = {}
        self.loops: set[tuple[str, int]] = set()
        # The graph: edges that were taken, how each step and each visit ended last, targets of loops.
        self.graph = (graph or Graph(workflow)).for_run()
        # The definitions of steps that programs call, by digest.
        self.definitions: dict[str, Step] = {}
        self.has_kept = False
        self.taken: set[str] = set()
        self.outcomes: dict[str, str] = {}
        # Steps that ever had a result that a fork may keep.
        self.done: set[str] = set()
        self.ends: dict[tuple[str, int], str] = {}
        self.failures: list[e.StepFailed] = []
        # Completed visits that had success edges and took none.
        self.dead_ends: set[tuple[str, int]] = set()
        self.looped_to: set[str] = set()
        # Steps that their remediation brought back, or substituted, with the visit that had failed.
        self.repaired: set[tuple[str, int]] = set()
        self.replaced_by: dict[str, str] = {}
        # Agents.
        self.spending = AgentSpending(workflow)
        # Undo.
        self.undoing: tuple[str, int] | None = None
        self.undone: set[tuple[str, int]] = set()
        # By step: the visits whose undo failed, with the round; visit 0 for one of the run that was forked.
        self.undo_failed: dict[str, dict[int, int]] = {}
        # Steps that run again in this round only if a person says so, and nobody has.
        self.undecided: set[str] = set()
        # When the time of the run is up.
        self.due: datetime | None = None
        # The position in the log at which the step completed that was undone last in this round.
        self.last_undone_seq = 0
        self.last_undone_step = ""
        # For each agent with tools: the last answer of its model; the open call; the calls with an answer, by id.
        self.turns: dict[str, str] = {}
        self.open_calls: dict[str, tuple[str, int]] = {}
        self.answered_calls: set[tuple[str, str, str]] = set()
        self.called = CalledRuns()
        self.program = ProgramCalls(self.graph.program)
        # Events that nobody has taken, by name; those that items may have once more; the fact that took each other one.
        self.free_events: dict[str, list[int]] = defaultdict(list)
        self.maybe_free: set[int] = set()
        self.taken_events: dict[int, e.EventDelivered] = {}
        self.event_keys: set[str] = set()

    def has_completed(self, step: str) -> bool:
        """Whether its last visit has, also if it was put back for another that was skipped."""
        return "completed" in (self.outcomes.get(step), self.ends.get((step, self.visits.get(step, 0))))

    def lineage(self, place: str) -> list[str]:
        """Return the place, its parent, and so on up to its step."""
        found = [place]
        while found[-1] in self.parents:
            found.append(self.parents[found[-1]])
        return found

    def visit_of(self, place: str) -> int:
        """The visit of the step that a place belongs to."""
        return self.visits.get(self.lineage(place)[-1], 0)

    def is_agent(self, place: str) -> bool:
        """Whether an attempt of it is a call of an agent: not of one whose model is asked turn by turn, below it."""
        spec = self.specs[place]
        is_asked_below = spec.tools is not None or spec.session != ""
        return traits_of(spec.action).is_agent and not is_asked_below

    def violation(self, promise: str, sentence: str, entry: e.Entry) -> AssertionError:
        """Return the error for a violated invariant, with the last facts."""
        return AssertionError(
            f"{promise}: {sentence} (seq {entry.seq})\n{format_entries([*self.log[-FACTS_SHOWN:], entry])}"
        )

    # -- recording ---------------------------------------------------------------------------------------------------

    def record(self, entry: e.Entry) -> None:
        self.log.append(entry)
        self.program.record(entry.fact)
        self.called.record(entry, self.visit_of(getattr(entry.fact, "place", "")), self.graph)
        if isinstance(entry.fact, _OF_ATTEMPTS) and entry.fact.place in self.specs:
            self.spending.record(
                entry.fact, self.lineage(entry.fact.place)[-1], is_agent=self.is_agent(entry.fact.place)
            )
        elif isinstance(entry.fact, e.RunReopened | e.StepClassified):
            self.spending.raise_budgets(entry.fact.budgets)
        learn = _LEARN.get(type(entry.fact))
        if learn is not None:
            learn(self, entry.fact, entry)

    def begin_round(self, number: int, *, keeps_completed: bool = False) -> None:
        self.round, self.stop, self.is_now, self.is_cancelled, self.is_over = number, None, False, False, False
        self.end_entered = self.end_ended = 0
        self.visits_in_round.clear()
        self.decided_in_round.clear()
        self.keeps_completed = keeps_completed
        self.last_undone_seq = 0

    def forget_retries(self, place: str) -> None:
        self.reserved.pop(place, None)
        self.open_scripts.discard(place)
        self.handlers.discard(place)
        self.parked.discard(place)

    def begin_visit(self, place: str, at: datetime) -> None:
        self.forget_retries(place)
        self.granted[place], self.tries[place], self.entered_at[place] = {}, 0, at
        self.causes[place] = Counter()
        self.time_ends.pop(place, None)

    def forget_lost_workers(self, program: str) -> None:
        """A program has got on: the workers that it lost before do not count."""
        self.time_ends.pop(program, None)
        for cause in ("lost", "time"):
            self.causes.get(program, Counter())[cause] = 0


def format_entries(entries: list[e.Entry]) -> str:
    """Format entries as lines: seq, cause, fact."""
    return "\n".join(f"  {entry.seq:>4} <- {entry.caused_by:<4} {entry.fact}" for entry in entries)


def _started(facts: LogFacts, fact: e.RunStarted, entry: e.Entry) -> None:
    facts.begin_round(1)
    facts.due = fact.due
    facts.has_kept = bool(fact.kept)
    facts.done.update(kept.step for kept in fact.kept)


def _revised(facts: LogFacts, fact: e.RunRevised, entry: e.Entry) -> None:
    """Apply a new definition: what the log said about removed steps and changed edges is void."""
    before, graph = facts.steps, facts.graph
    facts.workflow = read_workflow(msgspec.json.encode(fact.definition))
    facts.graph = Graph(facts.workflow).for_run()
    facts.steps = {step.name: step for step in (*facts.workflow.steps, facts.workflow.end)}
    if graph.program:
        # What it has called is not in its definition.
        facts.steps = before | facts.steps
        facts.graph.nodes.update({name: node for name, node in graph.nodes.items() if name != graph.program})
    facts.specs.update(facts.steps)
    facts.roles.update(dict.fromkeys(facts.steps, "step"))
    other = {name for name, step in before.items() if name not in facts.steps or facts.steps[name].edges != step.edges}
    facts.taken = {arc for arc in facts.taken if arc.rpartition("#")[0] not in other}
    facts.failures = [failed for failed in facts.failures if failed.step not in other]
    for name in (*fact.added, *fact.removed):
        facts.outcomes.pop(name, None)
        facts.without_output.discard(name)
        facts.undo_failed.pop(name, None)


def _forked(facts: LogFacts, fact: e.RunForked, entry: e.Entry) -> None:
    """The time between the last kept event and the fork has not passed for the new run."""
    passed = entry.at - facts.log[-2].at
    facts.entered_at = {place: at + passed for place, at in facts.entered_at.items()}
    facts.due = None if facts.due is None else facts.due + passed
    facts.undo_failed = {step: {0: 0} for step, visits in facts.undo_failed.items() if visits}


def _reopened(facts: LogFacts, fact: e.RunReopened, entry: e.Entry) -> None:
    # Without `fresh` it is the round of an older version, which kept old results.
    facts.begin_round(fact.round, keeps_completed=fact.keep_completed or fact.fresh is None)
    facts.without_output.difference_update(fact.put_back)
    facts.due = fact.due
    _give_back_events(facts, {*fact.put_back, *fact.dropped})
    again = {step for step in fact.put_back if facts.undo_failed.get(step)}
    facts.undecided = set() if fact.is_forced else again
    for label in fact.dropped:
        # A program makes these calls again: as steps that were not there.
        for table in (facts.steps, facts.outcomes, facts.graph.nodes, facts.undo_failed):
            table.pop(label, None)
        facts.without_output.discard(label)
        facts.failures = [failed for failed in facts.failures if failed.step != label]


def _step_defined(facts: LogFacts, fact: e.StepDefined, entry: e.Entry) -> None:
    facts.definitions[fact.digest] = fact.definition


def _step_added(facts: LogFacts, fact: e.StepAdded | e.StepRan, entry: e.Entry) -> None:
    definition = facts.definitions[fact.definition]
    facts.steps[fact.step] = facts.specs[fact.step] = definition
    facts.roles[fact.step] = "step"
    facts.graph.nodes[fact.step] = Node(definition, len(facts.graph.nodes))
    if isinstance(fact, e.StepRan):
        visit = facts.visits[fact.step] = facts.visits.get(fact.step, 0) + 1
        facts.attempts[fact.step] = facts.attempts.get(fact.step, 0) + 1
        facts.outcomes[fact.step] = facts.ends[fact.step, visit] = "completed"
        facts.completed[fact.step, visit] = entry.seq
        facts.done.add(fact.step)
        facts.decided_in_round.add(fact.step)
    elif fact.is_kept:
        facts.outcomes[fact.step] = "completed"
        facts.decided_in_round.add(fact.step)
    facts.forget_lost_workers(fact.program)


def _program_got_on(facts: LogFacts, fact: e.ProgramWaiting | e.ValueRecorded, entry: e.Entry) -> None:
    facts.forget_lost_workers(fact.place)


def _stopping(facts: LogFacts, fact: e.RunStopping, entry: e.Entry) -> None:
    facts.stop, facts.is_now = fact, facts.is_now or fact.now
    facts.is_cancelled = facts.is_cancelled or fact.cause == "cancelled"
    facts.loops.clear()
    if fact.not_begun:
        facts.decided_in_round.update(name for name in facts.graph.nodes if not facts.visits.get(name))
        awaited = {failed.route.to for failed in facts.failures if failed.route.status == "selected"}
        new = (name for name in facts.graph.nodes if name not in facts.outcomes and not facts.visits.get(name))
        for name in [name for name in new if name not in awaited]:
            facts.outcomes[name] = facts.ends[name, 0] = "cancelled"


def holds_dropped(value: Any) -> bool:
    """Whether a value contains what stands for an output that was not kept."""
    return b'"format":"dropped"' in msgspec.json.encode(value)


def _over(facts: LogFacts, fact: e.Fact, entry: e.Entry) -> None:
    facts.is_over = True


def _step_entered(facts: LogFacts, fact: e.StepEntered, entry: e.Entry) -> None:
    facts.visits[fact.step] = fact.visit
    if fact.step == facts.graph.program:
        # What is undone from here on was done after what was undone before it began.
        facts.last_undone_seq = 0
    facts.visits_in_round[fact.step] += 1
    facts.open_visits.add(fact.step)
    facts.begin_visit(fact.step, entry.at)
    facts.end_entered += fact.step == END
    facts.without_output.discard(fact.step)


def _step_ended(facts: LogFacts, fact: e.StepCompleted | e.StepFailed | e.StepCancelled, entry: e.Entry) -> None:
    facts.open_visits.discard(fact.step)
    facts.forget_retries(fact.step)
    facts.end_ended += fact.step == END
    facts.decided_in_round.add(fact.step)
    facts.outcomes[fact.step] = facts.ends[fact.step, fact.visit] = _outcome(fact)
    if facts.outcomes[fact.step] in ("completed", "allowed"):
        facts.done.add(fact.step)
    if isinstance(fact, e.StepCompleted):
        facts.completed[fact.step, fact.visit] = entry.seq
        if holds_dropped(fact.output):
            facts.without_output.add(fact.step)
        if fact.no_route:
            facts.dead_ends.add((fact.step, fact.visit))
    if isinstance(fact, e.StepFailed):
        facts.failures.append(fact)
    if isinstance(fact, e.StepCompleted | e.StepFailed):
        facts.taken.update(f"{fact.step}#{index}" for index in fact.taken)


def _outcome(fact: e.StepCompleted | e.StepFailed | e.StepCancelled) -> str:
    if isinstance(fact, e.StepFailed):
        # An edge to `end` changes nothing.
        is_routed = fact.route.status == "selected" and fact.route.to != END
        return "allowed" if fact.is_allowed and not is_routed else "failed"
    return "completed" if isinstance(fact, e.StepCompleted) else "cancelled"


def _skipped(facts: LogFacts, fact: e.StepSkipped | e.StepRestored, entry: e.Entry) -> None:
    facts.decided_in_round.add(fact.step)
    facts.outcomes[fact.step] = "skipped"
    facts.done.add(fact.step)
    facts.without_output.discard(fact.step)
    if facts.failures and not _is_led_back_to(facts, fact.step):
        _pass_over(facts, fact.step)


def _is_led_back_to(facts: LogFacts, step: str) -> bool:
    """Whether a loop that was taken leads back to a step or to what is before it."""
    return any(step in facts.graph.region(facts.graph.arc(name, edge).to) for name, edge in facts.loops)


def _pass_over(facts: LogFacts, step: str) -> None:
    """A step was skipped: failures that wait for a visit of it are not handled, whoever gets its number later."""
    visit = facts.visits.get(step, 0)
    for index, failed in enumerate(facts.failures):
        if failed.route.status == "selected" and failed.route.to == step and failed.route.visit > visit:
            facts.failures[index] = msgspec.structs.replace(failed, route=Route("no_route"))


def _replaced(facts: LogFacts, fact: e.StepReplaced, entry: e.Entry) -> None:
    facts.decided_in_round.add(fact.step)
    facts.replaced_by[fact.step] = fact.by
    facts.outcomes[fact.step] = "stood_in"
    facts.done.add(fact.step)
    facts.repaired.add((fact.step, facts.visits.get(fact.step, 0)))
    if holds_dropped(fact.output):
        facts.without_output.add(fact.step)
    facts.taken.update(f"{fact.step}#{index}" for index in fact.taken)


def _settled(facts: LogFacts, fact: e.StepSettled, entry: e.Entry) -> None:
    if fact.failure is not None:
        # Its remediation completed and could not substitute it: it was notified, and is not handled.
        visit = fact.step, facts.visits.get(fact.step, 0)
        facts.repaired.add(visit)
        for index, failed in enumerate(facts.failures):
            if (failed.step, failed.visit) == visit:
                facts.failures[index] = msgspec.structs.replace(failed, route=Route("no_route"))


def _put_back(facts: LogFacts, fact: e.StepPutBack, entry: e.Entry) -> None:
    facts.without_output.discard(fact.step)
    if fact.cause == "rerun":
        facts.repaired.add((fact.step, facts.visits.get(fact.step, 0)))


def _parked(facts: LogFacts, fact: e.StepParked, entry: e.Entry) -> None:
    facts.forget_retries(fact.step)
    facts.parked.add(fact.step)


def _classified(facts: LogFacts, fact: e.StepClassified, entry: e.Entry) -> None:
    facts.parked.discard(fact.step)
    facts.undecided.discard(fact.step)
    facts.agent_decisions += fact.is_triagers
    if fact.is_default and fact.verdict == "retry":
        facts.causes.setdefault(fact.step, Counter())["default"] += 1


def _loop_taken(facts: LogFacts, fact: e.LoopTaken, entry: e.Entry) -> None:
    facts.loops.add((fact.step, fact.edge))


def _loop_fired(facts: LogFacts, fact: e.LoopFired, entry: e.Entry) -> None:
    facts.loops.discard((fact.step, fact.edge))
    facts.looped_to.add(fact.to)


def _scheduled(facts: LogFacts, fact: e.AttemptScheduled, entry: e.Entry) -> None:
    facts.attempts[fact.place] = fact.attempt
    facts.causes.setdefault(fact.place, Counter())[fact.cause] += 1
    facts.forget_retries(fact.place)


def _attempt_started(facts: LogFacts, fact: e.AttemptStarted, entry: e.Entry) -> None:
    facts.started.add((fact.place, fact.attempt))


def _failed(facts: LogFacts, fact: e.AttemptFailed, entry: e.Entry) -> None:
    facts.attempts[fact.place] = max(fact.attempt, facts.attempts.get(fact.place, 0))
    facts.results.add((fact.place, fact.attempt))
    facts.tries[fact.place] = facts.tries.get(fact.place, 0) + 1
    facts.last_failure[fact.place] = fact.failure
    facts.forget_retries(fact.place)


def _ended_by_worker(facts: LogFacts, fact: e.AttemptInterrupted | e.AttemptLost, entry: e.Entry) -> None:
    facts.ended_by_worker[fact.place, fact.attempt] = fact
    is_time = fact.ending == "time" if isinstance(fact, e.AttemptLost) else fact.life_seconds is not None
    facts.time_ends[fact.place] += is_time


def _succeeded(facts: LogFacts, fact: e.AttemptSucceeded, entry: e.Entry) -> None:
    facts.results.add((fact.place, fact.attempt))


def _rejected(facts: LogFacts, fact: e.ResultRejected, entry: e.Entry) -> None:
    facts.tries[fact.place] = facts.tries.get(fact.place, 0) + 1
    facts.last_failure[fact.place] = fact.failure
    facts.handlers.discard(fact.place)


def _reserved(facts: LogFacts, fact: e.RetryScheduled, entry: e.Entry) -> None:
    facts.reserved[fact.place] = fact
    facts.granted.setdefault(fact.place, {})[fact.rule] = fact.number


def _handler_started(facts: LogFacts, fact: e.HandlerStarted, entry: e.Entry) -> None:
    facts.forget_retries(fact.place)
    facts.handlers.add(fact.place)
    facts.handled.add((fact.place, fact.attempt))


def _handler_ended(facts: LogFacts, fact: e.HandlerSucceeded | e.HandlerFailed, entry: e.Entry) -> None:
    facts.handlers.discard(fact.place)


def _command_entered(facts: LogFacts, fact: e.CommandEntered, entry: e.Entry) -> None:
    key = fact.place
    facts.parents[key], facts.roles[key] = fact.parent, fact.role
    facts.specs[key] = command_of(facts, fact)
    facts.open_commands.add(key)
    facts.entered_once.add(key)
    facts.begin_visit(key, entry.at)
    if fact.role == "script":
        facts.open_scripts.add(fact.parent)
        facts.scripts_run.add((fact.parent, facts.reserved[fact.parent].attempt))


def command_of(facts: LogFacts, fact: e.CommandEntered) -> Command:
    """Return the command as the workflow defines it."""
    above = facts.specs.get(fact.parent, Command())
    step = facts.specs[facts.lineage(fact.parent)[-1]]
    assert isinstance(step, Step)
    handler = above.on_failure.commands if above.on_failure else ()
    lister = step.map.lister if step.map else None
    scripts = tuple(rule.recovery_script for rule in above.rules)
    choices = {"do": step.do, "handler": handler, "success": above.on_success, "script": scripts}
    triager = step.triage.agent.command if step.triage and step.triage.agent else None
    single = {"validator": above.validator, "undo": step.undo, "lister": lister, "triager": triager}
    if above.tools is not None or above.session:
        # A model is asked with the parameters of its agent, whose rules decide about its failures.
        kind = above.action.kind if above.action else ""
        handles_loss = any("WORKER_LOST" in rule.codes for rule in above.rules)
        single["model"] = Command(action=Action(kind, {}), on_lost="fail" if handles_loss else above.on_lost)
        choices["tool"] = above.tools.commands if above.tools else ()
        choices["tool_list"] = tuple(server.command for server in above.tools.servers) if above.tools else ()
    found = single[fact.role] if fact.role in single else choices[fact.role][fact.index]
    return found or Command()


def _command_ended(
    facts: LogFacts, fact: e.CommandCompleted | e.CommandFailed | e.CommandCancelled, entry: e.Entry
) -> None:
    facts.open_commands.discard(fact.place)
    facts.forget_retries(fact.place)
    if fact.role == "script":
        facts.open_scripts.discard(fact.parent)
    elif fact.role == "triager" and isinstance(fact, e.CommandCompleted):
        facts.answers[fact.parent, facts.attempts.get(fact.parent, 0)] = fact.output
    elif fact.role == "model" and isinstance(fact, e.CommandCompleted):
        facts.turns[fact.parent] = fact.place


def _tool_called(facts: LogFacts, fact: e.ToolCalled, entry: e.Entry) -> None:
    facts.open_calls[fact.place] = (fact.id, fact.number)
    facts.spending.record_tool_call(fact, facts.lineage(fact.place)[-1])


def _tool_answered(facts: LogFacts, fact: e.ToolAnswered, entry: e.Entry) -> None:
    facts.open_calls.pop(fact.place, None)
    facts.answered_calls.add((fact.place, facts.turns.get(fact.place, ""), fact.id))


def _item_entered(facts: LogFacts, fact: e.ItemEntered, entry: e.Entry) -> None:
    facts.parents[fact.place], facts.roles[fact.place] = fact.parent, "item"
    facts.open_commands.add(fact.place)
    facts.items_running[fact.parent] += 1


def _item_ended(facts: LogFacts, fact: e.ItemCompleted | e.ItemFailed | e.ItemCancelled, entry: e.Entry) -> None:
    facts.open_commands.discard(fact.place)
    facts.items_running[fact.parent] -= 1


def _undo_started(facts: LogFacts, fact: e.UndoStarted, entry: e.Entry) -> None:
    facts.undoing = (fact.step, fact.visit)
    facts.undone.add(facts.undoing)
    facts.last_undone_seq, facts.last_undone_step = facts.completed.get(facts.undoing, 0), fact.step


def _undo_completed(facts: LogFacts, fact: e.UndoCompleted, entry: e.Entry) -> None:
    facts.undoing = None
    failed = facts.undo_failed.get(fact.step, {})
    failed.pop(fact.visit, None)
    failed.pop(0, None)
    if not failed:
        # What its events stood for is undone: they are never there again.
        own = [number for number, one in facts.taken_events.items() if facts.lineage(one.place)[-1] == fact.step]
        for number in own:
            del facts.taken_events[number]


def _undo_failed(facts: LogFacts, fact: e.UndoFailed, entry: e.Entry) -> None:
    facts.undoing = None
    if fact.is_kept:
        facts.undone.discard((fact.step, fact.visit))
        facts.entered_once.discard(undo_key(fact.step, fact.visit))
        facts.undo_failed.setdefault(fact.step, {})[fact.visit] = facts.round


def _paused(facts: LogFacts, fact: e.RunPaused, entry: e.Entry) -> None:
    # The time of a pause does not count.
    facts.due = None


def _resumed(facts: LogFacts, fact: e.RunResumed, entry: e.Entry) -> None:
    facts.due = fact.due


def _event_received(facts: LogFacts, fact: e.EventReceived, entry: e.Entry) -> None:
    facts.free_events[fact.name].append(entry.seq)
    facts.event_keys.add(fact.key)


def _event_delivered(facts: LogFacts, fact: e.EventDelivered, entry: e.Entry) -> None:
    if fact.event in facts.free_events[fact.name]:
        facts.free_events[fact.name].remove(fact.event)
    facts.maybe_free.discard(fact.event)
    facts.taken_events[fact.event] = fact


def _give_back_events(facts: LogFacts, steps: set[str]) -> None:
    """Steps that have completed with an event and run again take it again; which items do, is not known here."""
    for number, fact in [*facts.taken_events.items()]:
        *_, step = facts.lineage(fact.place)
        if step not in steps or fact.problem:
            continue
        if fact.place != step:
            facts.maybe_free.add(number)
        elif facts.has_completed(step) and facts.attempts[step] == fact.attempt:
            facts.free_events[fact.name] = sorted([*facts.free_events[fact.name], number])
            del facts.taken_events[number]


_LEARN: dict[type[e.Fact], Callable[[LogFacts, Any, e.Entry], None]] = {
    e.EventReceived: _event_received,
    e.EventDelivered: _event_delivered,
    e.StepDefined: _step_defined,
    e.StepAdded: _step_added,
    e.StepRan: _step_added,
    **dict.fromkeys((e.ProgramWaiting, e.ValueRecorded), _program_got_on),
    e.RunStarted: _started,
    e.RunRevised: _revised,
    e.RunForked: _forked,
    e.RunReopened: _reopened,
    e.RunStopping: _stopping,
    **dict.fromkeys(TERMINAL, _over),
    e.ToolCalled: _tool_called,
    e.ToolAnswered: _tool_answered,
    e.StepEntered: _step_entered,
    **dict.fromkeys(STEP_ENDS, _step_ended),
    e.StepSkipped: _skipped,
    e.StepRestored: _skipped,
    e.StepReplaced: _replaced,
    e.StepSettled: _settled,
    e.StepPutBack: _put_back,
    e.StepParked: _parked,
    e.StepClassified: _classified,
    e.LoopTaken: _loop_taken,
    e.LoopFired: _loop_fired,
    e.AttemptScheduled: _scheduled,
    e.AttemptStarted: _attempt_started,
    e.AttemptInterrupted: _ended_by_worker,
    e.AttemptLost: _ended_by_worker,
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
    e.UndoCompleted: _undo_completed,
    e.UndoFailed: _undo_failed,
    e.RunPaused: _paused,
    e.RunResumed: _resumed,
}

"""When the rest of a case is known without playing it.

A case is first played locally: only what belongs to the failing step goes on, everything else that runs is held. Often
that shows how the case ends:
- the step completes as it does without failures: then so does the rest of the run;
- the step fails for good, and behind it are only tasks: then the run fails, whether these are skipped or run;
- the step is parked, or the failure stops the run;
- the step ended in the same way as in an earlier case, which was played to its end.

That is right only for runs in which time plays no part: all that is assumed takes no time, and no wait, approval or
timeout of the run interferes. In any other run all cases are played to their end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import msgspec

from mulligan.analysis.coverage.case_end import CaseEnd, attempts_of, extra_seconds, good_verdict, rung_of
from mulligan.analysis.coverage.failure_kinds import Kind, failing_command
from mulligan.analysis.coverage.injection import InjectedOutcomes
from mulligan.analysis.coverage.results import Verdict
from mulligan.analysis.playing.player import PlayedRun, Player
from mulligan.core.model import events as e
from mulligan.core.model.actions import traits_of
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import END, Expression, Step, Workflow, all_commands, expressions_in
from mulligan.core.state.state import State
from mulligan.core.state.verdict import unhandled

# A step as an expression reads it, and the field that is read.
_READ = re.compile(r"""\bsteps\s*(?:\.\s*([\w-]+)|\[\s*["']([^"']+)["']\s*\])(?:\s*\.\s*(\w+))?""")
_TROUBLE = (e.AttemptFailed, e.ResultRejected, e.StepFailed)
_DECISIVE = frozenset({e.StepCompleted, e.StepFailed, e.StepReplaced, e.StepSettled})
_LOCAL_PARTS = frozenset({"step", "handler", "script", "remediation", "triager", "validator", "success", "lister"})
_STATUSES: dict[Verdict, str] = {"parked": "waiting", "fails": "failed", "stops": "failed"}


class _Reads:
    """What the expressions of a workflow read of its steps."""

    def __init__(self, workflow: Workflow) -> None:
        # The steps of which more is read than the output, such as the status; "*": anything of any step.
        self.in_full: set[str] = set()
        # The steps whose output is read; those of them whose output may be read although they have failed.
        self.outputs: set[str] = set()
        self.after_failure: set[str] = set()
        # The steps that a step reads.
        self.of_step: dict[str, set[str]] = {}
        # The steps that read their own name, number or attempt.
        self.of_themselves: set[str] = set()
        # Whether a failure is read: its code, its message.
        self.failures = False
        self._groups = workflow.groups
        # A failure that is allowed meets needs.
        self._allowed = {step.name for step in workflow.steps if step.continue_on_error}
        for step in workflow.steps:
            self._add(step, step)
        self._add(msgspec.structs.replace(workflow, steps=()), None)

    def _add(self, part: Any, step: Step | None) -> None:
        """Note what a part reads: a step, or with None what belongs to no step."""
        outputs: set[str] = set()
        for one in expressions_in(part):
            self.failures = self.failures or any(name.startswith(("failure", "error")) for name in one.reads)
            fields: dict[str, set[str]] = {}
            for match in _READ.finditer(one.source):
                fields.setdefault(match[1] or match[2], set()).add(match[3] or "")
            named = {name.removeprefix("steps.") for name in one.reads if name.startswith("steps.")}
            for name in named | fields.keys():
                # A step that is read in a way that the pattern does not know is read in full.
                is_output = fields.get(name) == {"output"}
                steps = self._groups.get(name, (name,))
                (outputs if is_output else self.in_full).update(steps)
                if step is not None:
                    self.of_step.setdefault(step.name, set()).update(steps)
        if step is not None and any(_is_of_itself(one) for one in _conditions(step)):
            self.of_themselves.add(step.name)
        if outputs:
            self.outputs |= outputs
            self.after_failure |= outputs - (self._needed(step) - self._allowed)

    def _needed(self, step: Step | None) -> set[str]:
        """The steps without whose success this one is skipped."""
        needs = () if step is None else step.needs
        plain = [need for need in needs if need.on == "success"]
        return {name for need in plain for name in (self._groups[need.of] if need.is_group else (need.of,))}


def _conditions(step: Step) -> Iterator[Expression]:
    """What decides whether the results of a step and of its commands count."""
    return (one.validate for one in all_commands([step]) if one.validate is not None)


def _is_of_itself(condition: Expression) -> bool:
    return any(name.partition(".")[0] in ("attempt", "step") for name in condition.reads)


class Shortcuts:
    """What is known of a workflow from its run without failures."""

    def __init__(self, straight: Player, graph: Graph) -> None:
        self.graph = graph
        self.workflow: Workflow = graph.workflow
        ending = straight.ending()
        self.begun = straight.entries[0].at
        self.completed: dict[str, e.StepCompleted] = {}
        for entry in straight.entries:
            if isinstance(entry.fact, e.StepCompleted):
                self.completed.setdefault(entry.fact.step, entry.fact)
        # What agents have spent in one step decides what they may in the next.
        has_budget = self.workflow.budget is not None or any(one.budget is not None for one in self.workflow.steps)
        is_at_once = ending.status == "completed" and ending.seconds == 0 and len(straight.runs) == 1
        # If nothing fails by itself, what runs again completes as before, and what is behind it too.
        is_smooth = not any(isinstance(entry.fact, _TROUBLE) for entry in straight.entries)
        self._is_timeless = is_at_once and is_smooth and not has_budget
        # How cases went on that were played to their end, by how their step ended: the end, and how long after.
        self.rests: dict[Any, tuple[Verdict, str, float]] = {}

    # -- what may be left out ----------------------------------------------------------------------------------------

    def is_local(self, step: Step, kind: Kind, state: State) -> bool:
        """Whether the case may be decided by what belongs to the step."""
        is_known = step.name in self.completed and step.name != END
        # The time of a wait for an event is a timer of the run, which is held while a step is played locally.
        is_waiting = any(traits_of(one.action).awaits_event for one in all_commands([step]))
        if is_waiting or not (self._is_timeless and is_known and kind.of in _LOCAL_PARTS):
            return False
        is_read = bool({step.name, "*"} & self._reads.in_full)
        return not is_read and self._reads_what_has_ended(step, state) and not self._has_slow_stop

    def _reads_what_has_ended(self, step: Step, state: State) -> bool:
        """Whether what the step reads of others is known: while it is played locally, the others are held."""
        places = state.places
        return all(name in places and places[name].has_ended for name in self._reads.of_step.get(step.name, ()))

    @cached_property
    def _reads(self) -> _Reads:
        return _Reads(self.workflow)

    def is_remedy(self, step: Step, target: Step, state: State) -> bool:
        """Whether the cases of `target`, to which only failures of `step` lead, may be played locally."""
        node = self.graph.nodes.get(target.name)
        if node is None or traits_of(target.action).runs_in == "engine" or target.map is not None:
            return False
        is_alone = not (node.needs or node.waits) and all(arc.source == step.name for arc in node.arrivals)
        is_read = target.name in self._reads.in_full or self.is_output_read(target.name)
        if not (self._reads_what_has_ended(step, state) and self._reads_what_has_ended(target, state)):
            return False
        is_plain = is_alone and target.when is None and not self._reads.failures and not is_read
        return is_plain and self._is_timeless and step.name in self.completed and not self._has_slow_stop

    @property
    def reads_failures(self) -> bool:
        """Whether an expression reads a failure: its code, its message."""
        return self._reads.failures

    def is_read_after_failure(self, step: str) -> bool:
        """Whether an expression may read the output of a step that has failed."""
        return step in self._reads.after_failure

    def is_output_read(self, step: str) -> bool:
        return step in self._reads.outputs

    @cached_property
    def _has_slow_stop(self) -> bool:
        """Whether something that runs when the run is stopped or has failed may wait: an undo, a handler, `end`."""
        steps = (*self.workflow.steps, self.workflow.end)
        parts = [one for step in steps for one in (step.undo, *(step.on_failure.commands if step.on_failure else ()))]
        parts += [one for step in steps for do in step.do for one in (do.on_failure.commands if do.on_failure else ())]
        commands = all_commands((*parts, self.workflow.end))
        return any(one.action is not None and traits_of(one.action).runs_in == "engine" for one in commands)

    @cached_property
    def harmless(self) -> frozenset[str]:
        """The steps and barriers from whose end nothing follows that can fail, wait or repeat: it decides the run.

        Behind them are only tasks, which are assumed to succeed. They may run, or be skipped.
        """
        found: set[str] = set()
        for vertex in _from_the_last(self.graph):
            if all(after in found and self._only_succeeds(after) for after in self.graph.onward(vertex)):
                found.add(vertex)
        return frozenset(vertex for vertex in found if vertex not in self.graph.loops)

    def _only_succeeds(self, vertex: str) -> bool:
        node = self.graph.nodes.get(vertex)
        if node is None:
            return True
        actions = (one.action for one in all_commands([node.step]) if one.action is not None)
        is_waiting = any(traits_of(action).runs_in == "engine" for action in actions)
        return not is_waiting and node.step.no_match != "fail" and vertex not in self.graph.loops

    def shape_of(self, step: Step) -> Any:
        """What decides how the failures of a step are dealt with locally, without its name; None if that is not known.

        That is what the step says, and what the remediations say that it has for itself. What commands do is assumed.
        """
        if not self._is_timeless or step.name == END or self.graph.nodes[step.name].arrivals:
            return None
        own = [edge.to for edge in step.edges if self._is_own_remedy(edge.to, step.name)]
        if len(set(own)) != len(step.edges):
            return None
        names = {step.name: "", **{name: f"remedy {index}" for index, name in enumerate(own)}}
        parts = [self._nameless(self.graph.nodes[name].step, names) for name in names]
        return None if None in parts else tuple(parts)

    def _is_own_remedy(self, name: str, source: str) -> bool:
        """Whether only failures of `source` lead to this step, and nothing follows it but what its edge says."""
        node = self.graph.nodes.get(name)
        if node is None or node.arcs or node.dependents or node.barriers:
            return False
        return not node.needs and not node.waits and all(arc.source == source for arc in node.arrivals)

    def _nameless(self, step: Step, names: dict[str, str]) -> Any:
        """A step as it is compared with others; None if more than its fields decide what becomes of it."""
        commands = [one.action for one in all_commands([step]) if one.action is not None]
        is_task = step.map is None and all(traits_of(action).runs_in != "engine" for action in commands)
        if (
            not is_task
            or any(traits_of(action).calls_run for action in commands)
            or step.when is not None
            or step.name in self._reads.of_themselves
            or step.name in self._reads.in_full | self._reads.after_failure
        ):
            return None
        edges = tuple(msgspec.structs.replace(edge, to=names[edge.to]) for edge in step.edges)
        fields = msgspec.structs.replace(step, name="", action=None, matrix={}, needs=(), edges=edges, accepts={})
        return (
            msgspec.json.encode(fields, order="sorted"),
            step.name in self.harmless,
            self.is_output_read(step.name),
        )

    def has_time_left(self, seconds: float) -> bool:
        return self.workflow.timeout is None or seconds < self.workflow.timeout

    # -- ends --------------------------------------------------------------------------------------------------------

    def end_of_stop(self, player: Player, step: Step, kind: Kind, seconds: float | None = None) -> CaseEnd | None:
        """The end of a run that is cancelled now, or after `seconds`, while a step runs, or whose worker is killed."""
        if not self._is_timeless or self._has_slow_stop or len(player.runs) > 1:
            return None
        if seconds is None:
            seconds = (player.now - self.begun).total_seconds()
        if not self.has_time_left(seconds):
            return None
        if kind.of == "cancel":
            return CaseEnd("allowed", "cancelled", kind.of, 1, seconds)
        if not self._reruns_after_loss or self._reads.of_themselves:
            return None
        return CaseEnd("recovered", "completed", "rerun", 2, seconds, failing_command(step).timeout or 0.0)

    def end_of_kill(self, straight: CaseEnd | None, step: Step) -> CaseEnd | None:
        """The end of a run whose worker is killed while a step runs, if it ends like this without that."""
        if straight is None or straight.verdict != "recovered" or not self._reruns_after_loss:
            return None
        limit = failing_command(step).timeout or 0.0
        return CaseEnd(
            "recovered",
            straight.run_status,
            "rerun",
            straight.attempts + 1,
            seconds=straight.seconds,
            extra_seconds=straight.extra_seconds + limit,
        )

    @cached_property
    def _reruns_after_loss(self) -> bool:
        """Whether everything runs again after its worker was lost."""
        commands = list(all_commands((*self.workflow.steps, self.workflow.end)))
        lost = ("WORKER_LOST" in rule.codes for one in commands for rule in one.rules)
        return all(one.on_lost == "rerun" for one in commands) and not any(lost) and not self._reads.in_full

    def remember(self, key: Any, end: CaseEnd, seconds: float) -> None:
        """Keep how a case went on whose step had ended, as `key` says, after `seconds`."""
        # What the end of the run's time cut off says nothing about other cases.
        if self.has_time_left(max(end.seconds, seconds)):
            self.rests[key] = (end.verdict, end.run_status, end.seconds - seconds)


class LocalPlay:
    """Plays a case locally, and rolls it back. `key` and `seconds`: how and when its step ended, if that decides.

    `remedy`: the step that the case is about, if that is one to which the failure of the first step leads.
    """

    def __init__(
        self,
        known: Shortcuts,
        player: Player,
        run: PlayedRun,
        step: Step,
        kind: Kind,
        keys: list[str],
        remedy: Step | None = None,
    ) -> None:
        self._known, self._player, self._run, self._step, self._kind = known, player, run, step, kind
        self._remedy = remedy
        # When the remedy was visited first.
        self.reached: float | None = None
        # The running tasks of the step.
        self._keys = keys
        self._begin, self._begun_at = len(run.entries), player.now
        # The other steps that were visited, and whether something follows from them.
        self._visited: list[str] = []
        self._spreads = False
        self._verdict: Verdict | None = None
        self._rest: tuple[Verdict, str, float] | None = None
        self.key: Any = None
        self.seconds = 0.0
        # How many events were played.
        self.events = 0

    _outcomes: InjectedOutcomes

    def end(self, outcomes: InjectedOutcomes) -> CaseEnd | None:
        """How the case ends; None if that is not known."""
        player, self._outcomes = self._player, outcomes
        kept = player.outcomes
        player.branch()
        player.outcomes, player.watch = outcomes, self._watch
        player.ask_again(self._run, self._keys, holds_others=True)
        while not (player.is_stopped or player.is_over) and player.step():
            pass
        self.events = len(self._run.entries) - self._begin
        found = self._end() if player.is_stopped else None
        player.rollback()
        player.outcomes, player.watch = kept, None
        return found

    def _end(self) -> CaseEnd | None:
        entries = self._run.entries[self._begin :]
        self.seconds = (entries[-1].at - self._known.begun).total_seconds()
        verdict, status, more = self._verdict, "completed", 0.0
        if self._rest is not None:
            verdict, status, more = self._rest
        elif verdict is not None:
            status = _STATUSES.get(verdict, "completed")
        if verdict is None or not self._known.has_time_left(self.seconds + more):
            return None
        if verdict == "parked" and self._known.workflow.timeout is not None:
            return None
        about, is_own = self._remedy or self._step, self._remedy is None
        if not is_own and status == "completed" and self._rest is None:
            verdict = good_verdict(self._run.state, self._run.state.places[about.name])
        return CaseEnd(
            verdict,
            status,
            rung=rung_of(entries, about.name, self._kind, verdict),
            # The first attempt of the step itself was scheduled before the case began.
            attempts=is_own + attempts_of(entries, about),
            seconds=self.seconds + more,
            extra_seconds=extra_seconds(entries, about, self._begun_at if is_own else None),
        )

    def _watch(self, run: PlayedRun, entry: e.Entry) -> bool:
        fact: Any = entry.fact
        kind = type(fact)
        if kind is e.StepEntered and fact.step != self._step.name and fact.step != END:
            self._visited.append(fact.step)
            if self._remedy is not None and fact.step == self._remedy.name and self.reached is None:
                self.reached = (entry.at - self._known.begun).total_seconds()
            node = self._known.graph.nodes[fact.step]
            self._spreads = self._spreads or bool(node.arcs or node.dependents or node.barriers or node.step.undo)
            return False
        if kind is e.RunStopping:
            self._verdict = "stops"
            return True
        if kind in (e.StepParked, e.TriageSuggested):
            is_asking = kind is e.StepParked and fact.agent
            if fact.due is None and not is_asking:
                self._verdict = "parked"
                return True
            return False
        if kind in _DECISIVE and fact.step == self._step.name:
            return self._decide(fact)
        return False

    def _decide(self, fact: Any) -> bool:
        """Whether the end of the step decides the case, or can be looked up."""
        known, kind = self._known, type(fact)
        if kind is e.StepFailed and not fact.is_final:
            return False
        if not self._spreads and kind in (e.StepCompleted, e.StepReplaced) and self._is_as_before(fact):
            self._verdict = "recovered" if kind is e.StepCompleted else "handled"
            return True
        if fact.step in known.harmless and not known.is_read_after_failure(fact.step) and self._visited_is_harmless:
            is_failed = kind is e.StepFailed and not fact.route.is_sent
            if is_failed or (kind is e.StepSettled and fact.outcome == "failed"):
                self._verdict = self._verdict_of_failed(fact)
                return True
        self.key = self._key_of(fact)
        self._rest = known.rests.get(self.key)
        # Also if nothing is known: then it is played to its end.
        return True

    def _is_as_before(self, fact: Any) -> bool:
        before = self._known.completed[fact.step]
        is_final = getattr(fact, "is_final", True)
        if type(fact) is e.StepReplaced and self._known.is_output_read(fact.step):
            return False  # Its output is that of another step, which nobody knows either.
        return (
            fact.output == before.output
            and fact.taken == before.taken
            and fact.no_route == before.no_route
            and is_final == before.is_final
        )

    def _verdict_of_failed(self, fact: Any) -> Verdict:
        """The verdict if the step has failed for good, and nothing else can fail."""
        state = self._run.state
        if next(unhandled(state), None) is None:
            return good_verdict(state, state.places[self._step.name])
        # After a remediation, whatever stops the run would have done so before.
        is_first = isinstance(fact, e.StepFailed) and not fact.is_allowed
        return self._fails(fact.failure.severity) if is_first else "fails"

    def _fails(self, severity: str) -> Verdict:
        policy = self._step.fail_fast or self._known.workflow.fail_fast
        is_stopping = policy == "always" or (policy == "on_critical" and severity == "critical")
        return "stops" if is_stopping else "fails"

    @property
    def _visited_is_harmless(self) -> bool:
        """Whether the other steps of this case have ended well or badly, and nothing can follow from them."""
        places = self._run.state.places
        known = self._known
        return all(
            name in known.harmless and places[name].has_ended and not known.is_output_read(name)
            for name in self._visited
        )

    def _key_of(self, fact: Any) -> Any:
        places = self._run.state.places
        visited = tuple(sorted((name, places[name].status, places[name].visit) for name in set(self._visited)))
        found = getattr(fact, "failure", None)
        how: tuple[Any, ...] = (type(fact).__name__, getattr(fact, "taken", ()), getattr(fact, "is_allowed", False))
        how += (getattr(fact, "outcome", ""), repr(getattr(fact, "output", None)), getattr(fact, "is_final", True))
        code = "" if found is None or not self._known.reads_failures else f"{found.code} {found.exit_code}"
        severity = None if found is None else (found.severity, code)
        return (fact.step, self._remedy and self._remedy.name, how, visited, severity, self._open_failure())

    def _open_failure(self) -> str:
        """The failure of the case if it may happen again after the step has ended; "" if not."""
        node = self._known.graph.nodes[self._step.name]
        is_visited_again = self._step.name in self._known.graph.loops or node.step.join == "each"
        is_open = is_visited_again or self._kind.of == "remediation" or self._remedy is not None
        return f"{self._kind.name} {self._outcomes.left}" if is_open else ""


def _from_the_last(graph: Graph) -> list[str]:
    """All steps and barriers, each after those that follow it. Steps of a loop and those before them are left out."""
    open_after = {vertex: len(set(graph.onward(vertex))) for vertex in (*graph.nodes, *graph.barriers)}
    before: dict[str, list[str]] = {}
    for vertex in open_after:
        for after in set(graph.onward(vertex)):
            before.setdefault(after, []).append(vertex)
    found = [vertex for vertex, count in open_after.items() if count == 0]
    for vertex in found:
        for source in before.get(vertex, ()):
            open_after[source] -= 1
            if open_after[source] == 0:
                found.append(source)
    return found

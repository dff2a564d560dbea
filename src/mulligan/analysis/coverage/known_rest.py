"""When the rest of a case is known without playing it.

A case is first played locally: only what belongs to the failing step goes on, everything else that runs is held. Often
that shows how the case ends:
- the step completes as it does without failures: then so does the rest of the run;
- the step fails for good, and everything behind it is skipped: then the run fails when the others have ended;
- the step is parked, or the failure stops the run;
- the step ended in the same way as in an earlier case, which was played to its end.

That is right only for runs in which time plays no part: all that is assumed takes no time, and no wait, approval or
timeout of the run interferes. In any other run all cases are played to their end.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

from mulligan.analysis.coverage.case_end import CaseEnd, attempts_of, extra_seconds, rung_of
from mulligan.analysis.coverage.failure_kinds import Kind
from mulligan.analysis.coverage.injection import InjectedOutcomes
from mulligan.analysis.coverage.results import Verdict
from mulligan.analysis.playing.player import PlayedRun, Player
from mulligan.core.model import events as e
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import END, ENGINE_ACTIONS, Step, Workflow, all_commands, encode

# A step as an expression reads it, and the field that is read.
_READ = re.compile(rb"steps(?:\.([\w-]+)|\[\\?[\"']([^\"'\\]+)\\?[\"']\])(?:\.(\w+))?")
_READS = re.compile(rb'"reads":\[([^\]]*)\]')
_DECISIVE = frozenset({e.StepCompleted, e.StepFailed, e.StepStoodIn, e.StepSettled})
_LOCAL_PARTS = frozenset({"step", "handler", "script", "remediation", "triager", "validator", "success", "lister"})
_STATUSES: dict[Verdict, str] = {"parked": "waiting", "fails": "failed", "stops": "failed"}


class KnownRest:
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
        self._is_timeless = ending.status == "completed" and ending.seconds == 0 and len(straight.runs) == 1
        # How cases went on that were played to their end, by how their step ended: the end, and how long after.
        self._rests: dict[Any, tuple[Verdict, str, float]] = {}
        self._quiet: dict[str, bool] = {}

    # -- what may be left out ----------------------------------------------------------------------------------------

    def is_local(self, step: Step, kind: Kind) -> bool:
        """Whether the case may be decided by what belongs to the step."""
        if not self._is_timeless or step.name not in self.completed or kind.of not in _LOCAL_PARTS:
            return False
        return step.name not in self._read_steps and "*" not in self._read_steps and not self._has_slow_stop

    @cached_property
    def _read_steps(self) -> frozenset[str]:
        """The steps of which an expression reads more than the output: such as their status."""
        found = set()
        for match in _READ.finditer(encode(self.workflow)):
            name = (match[1] or match[2]).decode()
            if match[3] != b"output":
                found.add(name)
        if b"steps.*" in encode(self.workflow):
            found.add("*")
        return frozenset(found)

    @cached_property
    def reads_failures(self) -> bool:
        """Whether an expression reads a failure: its code, its message."""
        reads = (match[1] for match in _READS.finditer(encode(self.workflow)))
        return any(b'"failure' in found or b'"error' in found for found in reads)

    @cached_property
    def _has_slow_stop(self) -> bool:
        """Whether something that runs when the run is stopped or has failed may wait: an undo, a handler, `end`."""
        steps = (*self.workflow.steps, self.workflow.end)
        parts = [one for step in steps for one in (step.undo, *(step.on_failure.commands if step.on_failure else ()))]
        parts += [one for step in steps for do in step.do for one in (do.on_failure.commands if do.on_failure else ())]
        commands = all_commands((*parts, self.workflow.end))
        return any(one.action is not None and one.action.kind in ENGINE_ACTIONS for one in commands)

    def is_quiet(self, name: str) -> bool:
        """Whether everything behind a step that fails is skipped, so that nothing else happens because of it."""
        found = self._quiet.get(name)
        if found is None:
            found = self._quiet[name] = self._is_quiet(name)
        return found

    def _is_quiet(self, name: str) -> bool:
        behind = self.graph.behind((name,))
        nodes = self.graph.nodes
        for one in behind:
            node = nodes[one]
            if one in self.graph.loops or one in self._read_steps:
                return False
            if one == name:
                continue
            if any(on != "success" for _, on in node.needs) or any(barrier.on != "success" for barrier in node.waits):
                return False
            if any(arc.source not in behind or arc.edge.on == "always" for arc in node.arrivals):
                return False
            if not (node.needs or node.waits or node.arrivals):
                return False
        return True

    def has_time_left(self, seconds: float) -> bool:
        return self.workflow.timeout is None or seconds < self.workflow.timeout

    # -- ends --------------------------------------------------------------------------------------------------------

    def end_of_stop(self, player: Player, kind: Kind) -> CaseEnd | None:
        """The end of a run that is cancelled now."""
        if not self._is_timeless or self._has_slow_stop or len(player.runs) > 1:
            return None
        return CaseEnd("handled", "cancelled", kind.of, 1, (player.now - self.begun).total_seconds())

    def rest_of(self, key: Any) -> tuple[Verdict, str, float] | None:
        return self._rests.get(key)

    def remember(self, key: Any, end: CaseEnd, seconds: float) -> None:
        """Keep how a case went on whose step had ended, as `key` says, after `seconds`."""
        self._rests[key] = (end.verdict, end.run_status, end.seconds - seconds)


class LocalPlay:
    """Plays a case locally, and rolls it back. `key` and `seconds`: how and when its step ended, if that decides."""

    def __init__(self, known: KnownRest, player: Player, run: PlayedRun, step: Step, kind: Kind) -> None:
        self._known, self._player, self._run, self._step, self._kind = known, player, run, step, kind
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

    def end(self, outcomes: InjectedOutcomes) -> CaseEnd | None:
        """How the case ends; None if that is not known."""
        player = self._player
        kept = player.outcomes
        player.branch()
        player.hold_others(self._run, self._step.name)
        player.outcomes, player.watch = outcomes, self._watch
        player.ask_again(self._run, self._step.name)
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
        return CaseEnd(
            verdict,
            status,
            rung=rung_of(entries, self._step.name, self._kind, verdict),
            # The first attempt was scheduled before the case began.
            attempts=1 + attempts_of(entries, self._step),
            seconds=self.seconds + more,
            extra_seconds=extra_seconds(entries, self._step, self._begun_at),
        )

    def _watch(self, run: PlayedRun, entry: e.Entry) -> bool:
        fact: Any = entry.fact
        kind = type(fact)
        if kind is e.StepEntered and fact.step != self._step.name and fact.step != END:
            self._visited.append(fact.step)
            node = self._known.graph.nodes[fact.step]
            self._spreads = self._spreads or bool(node.arcs or node.dependents or node.barriers or node.step.undo)
            return False
        if kind is e.RunStopping:
            self._verdict = "stops"
            return True
        if kind in (e.StepParked, e.TriageSuggested) and fact.step == self._step.name:
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
        if not self._spreads:
            if kind in (e.StepCompleted, e.StepStoodIn) and self._is_as_before(fact):
                self._verdict = "recovered" if kind is e.StepCompleted else "handled"
                return True
            if kind is e.StepFailed and not fact.taken and not fact.is_allowed and known.is_quiet(fact.step):
                return self._fails(fact.failure.severity)
        self.key = self._key_of(fact)
        self._rest = known.rest_of(self.key)
        # Also if nothing is known: then it is played to its end.
        return True

    def _is_as_before(self, fact: Any) -> bool:
        before = self._known.completed[fact.step]
        is_final = getattr(fact, "is_final", True)
        return (
            fact.output == before.output
            and fact.taken == before.taken
            and fact.no_route == before.no_route
            and is_final == before.is_final
        )

    def _fails(self, severity: str) -> bool:
        policy = self._step.fail_fast or self._known.workflow.fail_fast
        is_stopping = policy == "always" or (policy == "on_critical" and severity == "critical")
        self._verdict = "stops" if is_stopping else "fails"
        return True

    def _key_of(self, fact: Any) -> Any:
        places = self._run.state.places
        visited = tuple(sorted((name, places[name].status, places[name].visit) for name in set(self._visited)))
        found = getattr(fact, "failure", None)
        how: tuple[Any, ...] = (type(fact).__name__, getattr(fact, "taken", ()), getattr(fact, "is_allowed", False))
        how += (getattr(fact, "outcome", ""), repr(getattr(fact, "output", None)), getattr(fact, "is_final", True))
        code = "" if found is None or not self._known.reads_failures else f"{found.code} {found.exit_code}"
        return (fact.step, how, visited, None if found is None else (found.severity, code))

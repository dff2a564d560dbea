"""Plays every failure of every step, from shared prefixes, and says how each case ends.

The run without failures is played once, step by step. At the moment at which a step starts, all of its cases branch off
and are rolled back. A case is given up as soon as its rest is known (`shortcuts`). `play_case` plays a case alone,
from the start of the run to its end; both find the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from mulligan.analysis.coverage.assumptions import Assumptions, assumptions_for
from mulligan.analysis.coverage.case_end import CaseEnd, judge
from mulligan.analysis.coverage.failure_kinds import Kind, kinds_of
from mulligan.analysis.coverage.injection import (
    ALWAYS,
    InjectedOutcomes,
    Injection,
    Path,
    Scenario,
    Stop,
    path_of,
    play_scenario,
    stop_now,
)
from mulligan.analysis.coverage.results import Case, Times
from mulligan.analysis.coverage.shortcuts import LocalPlay, Shortcuts
from mulligan.analysis.playing.assumed_values import AssumingEvaluator, assumed_inputs
from mulligan.analysis.playing.player import PlayedRun, Player
from mulligan.core.model.actions import called_workflow, traits_of
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import Expression, Step, Workflow
from mulligan.core.state.scope import Evaluator
from mulligan.errors import InputInvalid, UnknownStep

TIMES: dict[Times, int] = {"once": 1, "twice": 2, "always": ALWAYS}
# How many events are played at most for one workflow, over all of its cases.
EVENTS_MAX = 5_000_000
# How many events one play may have.
ENTRIES_MAX = 100_000
# Workflows that call each other are followed this deep.
DEPTH_MAX = 5


class Row(msgspec.Struct, frozen=True):
    """A step of the workflow, or of a workflow that it calls by way of `path`."""

    path: Path
    step: Step
    workflow: Workflow

    @property
    def name(self) -> str:
        return "/".join((*self.path, self.step.name))


def rows_of(workflow: Workflow, path: Path = ()) -> Iterator[Row]:
    """All steps; those of child workflows and groups after the step that calls them; `end` if it does something."""
    for step in workflow.steps:
        yield Row(path, step, workflow)
        child = called_by(workflow, step)
        if child is not None and len(path) < DEPTH_MAX:
            yield from rows_of(child, (*path, step.name))
    if workflow.end.action is not None:
        yield Row(path, workflow.end, workflow)


def called_by(workflow: Workflow, step: Step) -> Workflow | None:
    """The workflow that a step calls."""
    return called_workflow(step.action, workflow)


def scenario_of(row: Row, kind: Kind, times: int, assumed: Assumptions) -> Scenario:
    """What goes wrong in a case."""
    if kind.of in ("cancel", "kill"):
        how: Literal["cancel", "kill"] = "kill" if kind.of == "kill" else "cancel"
        return Scenario(assumed.injections, Stop(row.path, row.step.name, "running", how))
    injection = Injection(row.path, row.step, kind, times)
    # An undo runs when the run is cancelled after its step has completed.
    stop = Stop(row.path, row.step.name, "completed") if kind.of == "undo" else None
    return Scenario((*assumed.injections, injection), stop)


class _Moment(msgspec.Struct, frozen=True):
    """The moment at which the step of a row has started: all of its cases branch off there."""

    player: Player
    run: PlayedRun
    row: Row
    assumed: Assumptions
    known: Shortcuts
    # The running tasks of the step.
    keys: list[str]
    # What it has in common with other steps whose failures are dealt with in the same way; None if that is not known.
    shape: Any


class Explorer:
    """Explores one workflow. `unknown` says in words what could not be played."""

    def __init__(
        self,
        workflow: Workflow,
        evaluator: Evaluator,
        inputs: Mapping[str, Any] | None = None,
        events_max: int = EVENTS_MAX,
    ) -> None:
        self.workflow = workflow
        self.inputs = assumed_inputs(workflow, inputs or {})
        self.rows = {row.name: row for row in rows_of(workflow)}
        self.kinds = {name: kinds_of(row.workflow, row.step) for name, row in self.rows.items()}
        self.unknown: list[str] = []
        # Whether somebody stopped it before all cases were played.
        self.is_cut = False
        # How many events were played.
        self.events = 0
        self._evaluator = evaluator
        self._graph = Graph(workflow)
        self._events_max = events_max
        self._evaluators: list[tuple[Assumptions, AssumingEvaluator]] = []
        # Under which assumptions the step of a row is reached.
        self._assumptions: dict[str, Assumptions] = {}
        # How cases ended that were decided locally, by the shape of the step, what failed, and how often.
        self._ends: dict[Any, tuple[CaseEnd, bool]] = {}

    def choose(self, step: str, failure: str) -> None:
        """Play only the failures of this step, only this failure, or only this failure of this step."""
        if step and step not in self.rows:
            raise UnknownStep(f"'{step}' is not a step of workflow '{self.workflow.name}'", step=step)
        chosen = {
            name: [kind for kind in kinds if failure.lower() in ("", kind.name.lower())]
            for name, kinds in self.kinds.items()
            if step in ("", name)
        }
        if not any(chosen.values()):
            known = dict.fromkeys(kind.name for name in chosen for kind in self.kinds[name])
            message = f"step '{step}' cannot fail with '{failure}'" if step else f"no step can fail with '{failure}'"
            raise InputInvalid(message, hint=f"the failures are: {', '.join(known) or 'none'}")
        self.kinds = {name: chosen.get(name, []) for name in self.rows}

    # -- all cases ---------------------------------------------------------------------------------------------------

    def cases(self) -> Iterator[Case]:
        """Every single failure: once, twice and always."""
        left = {name: row for name, row in self.rows.items() if self.kinds[name]}
        yield from self._explore(Assumptions(), left)
        while left and not self.is_spent:
            row = next(iter(left.values()))
            for assumed in self._assumptions_for(row):
                yield from self._explore(assumed, left)
                if row.name not in left or self.is_spent:
                    break
            if left.pop(row.name, None) is not None:
                self.unknown.append(f"step '{row.name}' was not reached, so its failures were not played")
        self.unknown += [f"the failures of '{name}' were not played: there are too many" for name in left]

    @property
    def is_spent(self) -> bool:
        return self.events > self._events_max

    @property
    def assumed(self) -> dict[str, Any]:
        """The sources of the expressions whose values were assumed, with what was assumed."""
        return {source: value for _, one in self._evaluators for source, value in one.assumed.items()}

    def _assumptions_for(self, row: Row) -> Iterator[Assumptions]:
        """Assumptions in which the step of the row may be reached. Its callers are, in theirs."""
        choices: dict[Expression, bool] = {}
        injections: tuple[Injection, ...] = ()
        for depth in range(len(row.path)):
            caller = self._assumptions.get("/".join(row.path[: depth + 1]))
            if caller is None:
                return
            choices |= caller.choices
            injections = caller.injections
        for assumed in assumptions_for(row.workflow, row.path, row.step, choices):
            yield Assumptions(assumed.choices, (*injections, *assumed.injections))

    def _explore(self, assumed: Assumptions, left: dict[str, Row]) -> Iterator[Case]:
        """The cases of all rows that are reached under these assumptions; they are taken out of `left`."""
        # Under other assumptions a condition may mean something else.
        self._ends.clear()
        known = Shortcuts(self.play(Scenario(assumed.injections), assumed), self._graph)
        player = self._player(assumed, assumed.injections)
        by_path: dict[Path, dict[str, Row]] = {}
        for row in left.values():
            by_path.setdefault(row.path, {})[row.step.name] = row
        player.start()
        lengths: list[int] = []
        while True:
            for row, run in _started(player, by_path, lengths):
                del left[row.name]
                self._assumptions[row.name] = assumed
                shape = None if row.path or assumed.injections else self._shape_of(known, row)
                moment = _Moment(player, run, row, assumed, known, player.running(run, row.step.name), shape)
                yield from self._cases_of(moment)
                if not row.path and not assumed.injections:
                    yield from self._cases_of_remedies(moment, left)
            if player.is_over or self.is_spent or not player.step():
                return

    def _shape_of(self, known: Shortcuts, row: Row) -> Any:
        shape = known.shape_of(row.step)
        if shape is None:
            return None
        rows = [row, *(self.rows[edge.to] for edge in row.step.edges)]
        # What can happen to a step depends on its command too.
        kinds = [(kind.of, kind.found.code, kind.found.exit_code) for one in rows for kind in self.kinds[one.name]]
        return (shape, tuple(kinds))

    def _cases_of(self, moment: _Moment) -> Iterator[Case]:
        row = moment.row
        for kind in self.kinds[row.name]:
            end: CaseEnd | None = None
            is_same = False
            for times, number in TIMES.items():
                if self.is_spent:
                    return
                if end is None or not is_same:
                    end, is_same = self._end_of(moment, kind, number)
                yield make_case(row, kind, times, end)

    def _end_of(self, moment: _Moment, kind: Kind, times: int) -> tuple[CaseEnd, bool]:
        """How a case ends, and whether it ends so however often the failure happens."""
        row, known = moment.row, moment.known
        is_first = not row.path and not moment.assumed.injections
        local: LocalPlay | None = None
        if kind.of in ("cancel", "kill"):
            end = known.end_of_stop(moment.player, row.step, kind) if is_first else None
            if end is not None:
                return end, True
        elif is_first and known.is_local(row.step, kind, moment.run.state):
            outcomes = InjectedOutcomes((Injection(row.path, row.step, kind, times),))
            local = LocalPlay(known, moment.player, moment.run, row.step, kind, moment.keys)
            found = self._play_locally(moment, (row, kind, times), local, outcomes)
            if found is not None:
                return found
        end, is_same = self._play_on(moment, kind, times)
        if local is not None and local.key is not None:
            known.remember(local.key, end, local.seconds)
        return end, is_same or kind.of in ("cancel", "kill")

    def _play_locally(
        self, moment: _Moment, case: tuple[Row, Kind, int], local: LocalPlay, outcomes: InjectedOutcomes
    ) -> tuple[CaseEnd, bool] | None:
        """How a case ends, if what belongs to the step decides it; None if not. Steps of one shape are played once."""
        row, kind, times = case
        own = [moment.row.step.name, *(edge.to for edge in moment.row.step.edges)]
        names = [one.name for one in self.kinds[row.name]]
        key = (moment.shape, own.index(row.step.name), names.index(kind.name), times)
        if key in self._ends:
            return self._ends[key]
        end = local.end(outcomes)
        self.events += local.events
        if end is None:
            return None
        found = end, not outcomes.was_asked_again
        if moment.shape is not None and local.key is None:
            self._ends[key] = found
        return found

    def _cases_of_remedies(self, moment: _Moment, left: dict[str, Row]) -> Iterator[Case]:
        """The cases of the steps that only failures of this step lead to, as far as these can be played locally."""
        step = moment.row.step
        for target in dict.fromkeys(edge.to for edge in step.edges if edge.on == "failure"):
            row = left.get(target)
            if row is None or not moment.known.is_remedy(step, row.step, moment.run.state):
                continue
            first = self._way_to(moment, row)
            if first is None:
                continue
            injection, seconds, straight = first
            del left[target]
            assumed = self._assumptions[target] = Assumptions(moment.assumed.choices, (injection,))
            self._evaluators.append((assumed, self._evaluator_of(moment.assumed)))
            for kind in self.kinds[target]:
                end, is_same = None, False
                for times, number in TIMES.items():
                    if end is None or not is_same:
                        end, is_same = self._end_of_remedy(moment, row, kind, number, injection, (seconds, straight))
                    yield make_case(row, kind, times, end)

    def _way_to(self, moment: _Moment, row: Row) -> tuple[Injection, float, CaseEnd | None] | None:
        """How the step of the moment must fail to reach that of the row, when that is, and how the run ends then."""
        for assumed in assumptions_for(row.workflow, (), row.step, {}, self._graph):
            (injection,) = assumed.injections if len(assumed.injections) == 1 else (None,)
            if injection is None or assumed.choices or injection.step.name != moment.row.step.name:
                return None
            local = self._local(moment, injection.kind, row.step)
            end = local.end(InjectedOutcomes((injection,)))
            self.events += local.events
            if local.reached is not None:
                return injection, local.reached, end
        return None

    def _local(self, moment: _Moment, kind: Kind, remedy: Step) -> LocalPlay:
        return LocalPlay(moment.known, moment.player, moment.run, moment.row.step, kind, moment.keys, remedy)

    def _end_of_remedy(
        self, moment: _Moment, row: Row, kind: Kind, times: int, first: Injection, way: tuple[float, CaseEnd | None]
    ) -> tuple[CaseEnd, bool]:
        known, local, end = moment.known, None, None
        seconds, straight = way
        if kind.of == "cancel":
            end, is_same = known.end_of_stop(moment.player, row.step, kind, seconds), True
        elif kind.of == "kill":
            end, is_same = known.end_of_kill(straight, row.step), True
        elif known.is_local(moment.row.step, kind, moment.run.state):
            outcomes = InjectedOutcomes((first, Injection((), row.step, kind, times)))
            local = self._local(moment, kind, row.step)
            end, is_same = self._play_locally(moment, (row, kind, times), local, outcomes) or (None, False)
        if end is None:
            end, is_same = self._play_alone(row, kind, times, self._assumptions[row.name])
            if local is not None and local.key is not None:
                known.remember(local.key, end, local.seconds)
        return end, is_same or kind.of in ("cancel", "kill")

    def _play_on(self, moment: _Moment, kind: Kind, times: int) -> tuple[CaseEnd, bool]:
        """Play a case to its end from this moment, or from the start if it begins earlier."""
        row, player = moment.row, moment.player
        # What ends from outside is decided when the step starts, and cannot be decided otherwise after that.
        action = traits_of(row.step.action)
        is_from_outside = action.calls_run or action.asks_person or action.awaits_event
        is_decided = is_from_outside and kind.of not in ("cancel", "kill")
        if is_decided or moment.assumed.injections:
            return self._play_alone(row, kind, times, moment.assumed)
        scenario = scenario_of(row, kind, times, moment.assumed)
        outcomes = InjectedOutcomes(scenario.injections)
        before, kept = _length(player), player.outcomes
        player.branch()
        player.outcomes = outcomes
        if scenario.stop is not None and scenario.stop.when == "running":
            stop_now(player, scenario.stop.how)
            play_scenario(player, None)
        else:
            player.ask_again(moment.run, moment.keys)
            play_scenario(player, scenario.stop)
        self.events += _length(player) - before
        end = judge(player, row.path, row.step, kind)
        player.rollback()
        player.outcomes = kept
        return end, not outcomes.was_asked_again

    # -- one case ----------------------------------------------------------------------------------------------------

    def play_case(self, row: Row, kind: Kind, times: int) -> Player:
        """Play a case alone, from the start of the run to its end."""
        return self.play(scenario_of(row, kind, times, self.assumptions_of(row)), self.assumptions_of(row))

    def play(self, scenario: Scenario, assumed: Assumptions, outcomes: InjectedOutcomes | None = None) -> Player:
        player = self._player(assumed, scenario.injections, outcomes)
        play_scenario(player, scenario.stop)
        self.events += _length(player)
        return player

    def assumptions_of(self, row: Row) -> Assumptions:
        """The assumptions under which the step of the row is reached."""
        found = self._assumptions.get(row.name)
        if found is None:
            self._find(row)
            found = self._assumptions.get(row.name, Assumptions())
        return found

    def _find(self, row: Row) -> None:
        """Look for the assumptions of a row and of its callers, without playing their cases."""
        for depth in range(len(row.path)):
            self.assumptions_of(self.rows["/".join(row.path[: depth + 1])])
        for assumed in (Assumptions(), *self._assumptions_for(row)):
            player = self._player(assumed, assumed.injections)
            play_scenario(player, None)
            runs = [run for run in player.runs if path_of(run) == row.path]
            if any(run.state.places[row.step.name].visit for run in runs):
                self._assumptions[row.name] = assumed
                return

    def _play_alone(self, row: Row, kind: Kind, times: int, assumed: Assumptions) -> tuple[CaseEnd, bool]:
        scenario = scenario_of(row, kind, times, assumed)
        outcomes = InjectedOutcomes(scenario.injections)
        player = self.play(scenario, assumed, outcomes)
        return judge(player, row.path, row.step, kind), not outcomes.was_asked_again

    def _player(
        self, assumed: Assumptions, injections: tuple[Injection, ...], outcomes: InjectedOutcomes | None = None
    ) -> Player:
        return Player(
            self.workflow,
            evaluator=self._evaluator_of(assumed),
            outcomes=outcomes or InjectedOutcomes(injections),
            inputs=self.inputs,
            graph=self._graph,
            child_inputs=assumed_inputs,
            entries_max=ENTRIES_MAX,
        )

    def _evaluator_of(self, assumed: Assumptions) -> AssumingEvaluator:
        for known, evaluator in self._evaluators:
            if known is assumed:
                return evaluator
        evaluator = AssumingEvaluator(self._evaluator, self.workflow, assumed.choices)
        self._evaluators.append((assumed, evaluator))
        return evaluator


def make_case(row: Row, kind: Kind, times: Times, end: CaseEnd) -> Case:
    return Case(
        step=row.name,
        failure=kind.name,
        times=times,
        verdict=end.verdict,
        run_status=end.run_status,
        rung=end.rung,
        attempts=end.attempts,
        seconds=end.seconds + end.extra_seconds,
        at=end.at,
        needs=end.needs,
    )


def _length(player: Player) -> int:
    return sum(len(run.entries) for run in player.runs)


def _started(
    player: Player, by_path: Mapping[Path, dict[str, Row]], lengths: list[int]
) -> Iterator[tuple[Row, PlayedRun]]:
    """The rows whose step has begun to run since this was asked last."""
    for index, run in enumerate(list(player.runs)):
        if index == len(lengths):
            lengths.append(0)
        begin, lengths[index] = lengths[index], len(run.entries)
        rows = by_path.get(path_of(run))
        if not rows:
            continue
        for entry in run.entries[begin:]:
            name = getattr(entry.fact, "place", "")
            if name in rows and run.state.places[name].status == "running":
                yield rows.pop(name), run

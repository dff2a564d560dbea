"""Plays the rehearsed path of a program, and each failure of each call on it, from shared prefixes.

The path is played twice: first alone, to know its calls and that it completes; then with all cases branching off at the
moment at which their call starts. A case that leads to a call without a fake is unknown: code decides what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from mulligan.analysis.coverage.case_end import CaseEnd, judge, recovered_end
from mulligan.analysis.coverage.explore import story_lines
from mulligan.analysis.coverage.exploring import EVENTS_MAX, TIMES, Row, make_case
from mulligan.analysis.coverage.failure_kinds import Kind, code_kinds, kinds_of
from mulligan.analysis.coverage.injection import Path, Stop, is_time_for, path_of, run_at, stop_now
from mulligan.analysis.coverage.programs.rehearsal import (
    FailingCall,
    NeededFake,
    ProgramTurns,
    RehearsedOutcomes,
)
from mulligan.analysis.coverage.results import DEALT_WITH, Case, Times
from mulligan.analysis.playing.assumed_values import assumed_inputs
from mulligan.analysis.playing.player import PlayedRun, Player
from mulligan.core.deciding.fakes import FakeEnd
from mulligan.core.model import events as e
from mulligan.core.model.actions import traits_of
from mulligan.core.model.program_calls import name_of
from mulligan.core.model.workflow import Step, Workflow
from mulligan.core.state.scope import Evaluator
from mulligan.core.state.state import State
from mulligan.errors import InputInvalid, UnknownStep
from mulligan.history.called_steps import codes_named, handled_at, line_text
from mulligan.history.story import StoryLine

# Of so many calls the failures are played.
CALLS_MAX = 1_000
# And of so many that are only made after a failure of another one.
BEHIND_MAX = 50
# How many more events than the rehearsed path a case may have: a program that tries for ever is cut off there.
MORE_EVENTS_MAX = 2_000
# The failures of an inline step: it has no process of its own.
_NOT_INLINE = frozenset({"WORKER_LOST", "OUT_OF_MEMORY", "TIMEOUT"})


class CalledRow(msgspec.Struct, frozen=True):
    """A call that is made on the rehearsed path, or behind a failure."""

    name: str
    row: Row
    # Where it is called: `nightly.py:14`, and the number of that line.
    at: str
    line: int
    is_inline: bool = False
    # The failures that lead to it; none for a call of the rehearsed path.
    after: tuple[FailingCall, ...] = ()


class Rehearsed(msgspec.Struct, frozen=True):
    """How the rehearsed path goes when nothing fails that its fakes do not let fail."""

    status: str
    # Why it does not complete; the call that has no fake.
    problem: str
    needed: NeededFake | None
    events: int
    # The states of all runs of programs, at their ends.
    states: tuple[State, ...]


class ProgramExplorer:
    """Explores one program. `unknown` says in words what was not played."""

    def __init__(
        self,
        workflow: Workflow,
        evaluator: Evaluator,
        inputs: Mapping[str, Any],
        fakes: Mapping[str, tuple[FakeEnd, ...]],
        turns: Callable[[], ProgramTurns],
        *,
        keeps_stories: bool = False,
        events_max: int = EVENTS_MAX,
    ) -> None:
        self.workflow = workflow
        self.inputs = dict(inputs)
        self.rows: dict[str, CalledRow] = {}
        self.kinds: dict[str, list[Kind]] = {}
        self.unknown: list[str] = []
        # The fakes that were used by any play.
        self.used: set[str] = set()
        self.events = 0
        # By step, failure and times.
        self.stories: dict[tuple[str, str, str], tuple[StoryLine, ...]] = {}
        self._evaluator = evaluator
        self._fakes = fakes
        self._turns = turns
        self._keeps_stories = keeps_stories
        self._events_max = events_max
        self._path_events = 0
        self._path_seconds = 0.0
        # Whether nothing on the path depends on how late it is: see `_ends_as_the_path`.
        self._is_timeless = False
        self._left_out = 0
        # Calls that are only made after a failure, as they were found.
        self._behind: dict[tuple[Path, str, str], CalledRow] = {}
        # Those of the case that is played.
        self._noted: list[CalledRow] = []
        # The calls without a fake, with the cells that lead to them.
        self.needs: dict[NeededFake, list[tuple[str, str]]] = {}
        self._chosen = ("", "")

    # -- the path

    def rehearse(self) -> Rehearsed:
        """Play the path alone, and note its calls."""
        outcomes = self._outcomes((), keeps_inline=True)
        player = self._player(outcomes)
        player.start()
        watch = _Started(player, outcomes)
        while True:
            for found in watch.new():
                self._add(found)
            if not self._may_step(player, outcomes) or not player.step():
                break
        ending = player.ending()
        self._path_events = _length(player)
        self.events += self._path_events
        outcomes.close()
        self.used |= outcomes.used
        problem = ""
        if outcomes.misbehaved is not None:
            problem = _misbehaviour(outcomes)
        elif ending.status != "completed" and outcomes.needed is None:
            problem = _why(player, ending.status)
        states = tuple(run.state for run in player.runs if run.state.graph.program)
        self._path_seconds = ending.seconds
        self._is_timeless = all(map(_is_timeless, states)) and len(states) == len(player.runs)
        return Rehearsed(ending.status, problem, outcomes.needed, self._path_events, states)

    def _add(self, found: CalledRow) -> None:
        if found.name in self.rows:
            return
        if len(self.rows) >= CALLS_MAX:
            self._left_out += 1
            return
        self.rows[found.name] = found
        self.kinds[found.name] = self._kinds_of(found)

    def _kinds_of(self, found: CalledRow) -> list[Kind]:
        kinds = kinds_of(found.row.workflow, found.row.step)
        if traits_of(found.row.step.action).runs_python:
            named = code_kinds(found.row.workflow, found.row.step, self._codes(found))
            known = {kind.name for kind in kinds}
            kinds = [*(one for one in named if one.name not in known), *kinds]
        if found.is_inline:
            kinds = [kind for kind in kinds if kind.name not in _NOT_INLINE]
        return kinds

    def _codes(self, found: CalledRow) -> tuple[str, ...]:
        """The codes of failures that the program names, or that the function of the step raises."""
        program = next((step for step in found.row.workflow.steps if traits_of(step.action).is_program), None)
        action = found.row.step.action
        if program is None or program.action is None or action is None:
            return ()
        function = str(action.params.get("call", "")).partition(":")[2]
        return codes_named(str(program.action.params.get("source", "")), found.line, function)

    def choose(self, step: str, failure: str) -> None:
        """Play only the failures of this step, only this failure, or only this failure of this step."""
        self._chosen = (step, failure)

    def is_chosen(self, name: str, kind: Kind) -> bool:
        step, failure = self._chosen
        return step in ("", name) and failure.lower() in ("", kind.name.lower())

    def check_chosen(self) -> None:
        """Refuse a choice that no row has; after all rows are known."""
        step, failure = self._chosen
        if step and step not in self.rows:
            raise UnknownStep(f"'{step}' is no call of the rehearsed path of '{self.workflow.name}'", step=step)
        names = [step] if step else list(self.rows)
        if not any(self.is_chosen(name, kind) for name in names for kind in self.kinds[name]):
            known = dict.fromkeys(kind.name for name in names for kind in self.kinds[name])
            message = f"'{step}' cannot fail with '{failure}'" if step else f"no call can fail with '{failure}'"
            raise InputInvalid(message, hint=f"the failures are: {', '.join(known) or 'none'}")

    # -- all cases

    @property
    def is_spent(self) -> bool:
        return self.events > self._events_max

    def cases(self) -> Iterator[Case]:
        """Every single failure: once, twice and always."""
        yield from self._cases_on_path()
        for found in list(self._behind.values())[:BEHIND_MAX]:
            name = found.name
            if name in self.rows:
                name = f"{name} ({found.at})"
            if name in self.rows:
                continue
            found = self.rows[name] = msgspec.structs.replace(found, name=name)
            self.kinds[name] = self._kinds_of(found)
            yield from self._cases_of(found, partial(self.play_alone, found))
        if len(self._behind) > BEHIND_MAX:
            count = len(self._behind) - BEHIND_MAX
            self.unknown.append(f"the failures of {count:,} calls that only follow from failures were not played")
        if self._left_out:
            self.unknown.append(
                f"the failures of {self._left_out:,} further calls were not played: at most {CALLS_MAX:,} are"
            )
        if self.is_spent:
            self.unknown.append("not all failures were played: there are too many")

    def _cases_on_path(self) -> Iterator[Case]:
        outcomes = self._outcomes((), keeps_inline=True)
        player = self._player(outcomes)
        player.start()
        watch = _Started(player, outcomes)
        try:
            while True:
                for found in watch.new():
                    known = self.rows.get(found.name)
                    if known is not None:
                        yield from self._cases_of(known, partial(self._end_of, player, known))
                if player.is_over or self.is_spent or not player.step():
                    return
        finally:
            self.used |= outcomes.used
            outcomes.close()

    def _cases_of(self, found: CalledRow, end_of: Callable[[Kind, Times], tuple[CaseEnd, bool]]) -> Iterator[Case]:
        for kind in self.kinds[found.name]:
            end: CaseEnd | None = None
            is_same = False
            if not self.is_chosen(found.name, kind):
                continue
            for times in TIMES:
                if self.is_spent:
                    return
                if end is None or not is_same:
                    end, is_same = end_of(kind, times)
                elif self._keeps_stories:
                    self.stories[found.name, kind.name, times] = self.stories[found.name, kind.name, "once"]
                yield msgspec.structs.replace(make_case(found.row, kind, times, end), step=found.name)

    def _end_of(self, player: Player, found: CalledRow, kind: Kind, times: Times) -> tuple[CaseEnd, bool]:
        """How a case ends that branches off here, where its call has started."""
        row, run = found.row, run_at(player, found.row.path)
        assert run is not None
        base = player.outcomes
        assert isinstance(base, RehearsedOutcomes)
        traits = traits_of(row.step.action)
        is_stop = kind.of in ("cancel", "kill")
        # What ends from outside is decided when the step starts, and cannot be decided otherwise after that.
        if (traits.calls_run or traits.asks_person or traits.awaits_event) and not is_stop:
            return self.play_alone(found, kind, times)
        asked = base.inline.get(run.state.run.uid) if found.is_inline else None
        turns = asked.turns.copy() if asked is not None else base.turns.copy()
        outcomes = self._outcomes(_failing(row, kind, times), turns)
        before, begun = _length(player), player.now
        player.branch()
        player.outcomes = outcomes
        stop = None
        if is_stop:
            stop_now(player, "kill" if kind.of == "kill" else "cancel")
        else:
            player.ask_again(run, [run.state.graph.program if found.is_inline else row.step.name])
            stop = Stop(row.path, row.step.name, "completed") if kind.of == "undo" else None
        may_be_short = self._may_end_as_the_path(run, found, kind)
        if self._play_out(player, outcomes, stop, found, kind, run if may_be_short else None):
            seconds = self._path_seconds + (player.now - begun).total_seconds()
            end = recovered_end(run.entries, row.step, kind, seconds)
        else:
            end = self._judge(player, outcomes, found, kind, times)
        self.events += _length(player) - before
        player.rollback()
        player.outcomes = base
        outcomes.close()
        self.used |= outcomes.used
        return end, is_stop or not outcomes.was_asked_again

    def case_alone(self, found: CalledRow, kind: Kind, times: Times) -> Case:
        """A case that is played from the start of the run."""
        end, _ = self.play_alone(found, kind, times)
        return msgspec.structs.replace(make_case(found.row, kind, times, end), step=found.name)

    def play_alone(self, found: CalledRow, kind: Kind, times: Times) -> tuple[CaseEnd, bool]:
        """How a case ends that is played from the start of the run."""
        row = found.row
        outcomes = self._outcomes((*found.after, *_failing(row, kind, times)))
        player = self._player(outcomes)
        player.start()
        stop = None
        if kind.of in ("cancel", "kill"):
            stop = Stop(row.path, row.step.name, "running", "kill" if kind.of == "kill" else "cancel")
        elif kind.of == "undo":
            stop = Stop(row.path, row.step.name, "completed")
        self._play_out(player, outcomes, stop, found, kind)
        end = self._judge(player, outcomes, found, kind, times)
        self.events += _length(player)
        outcomes.close()
        self.used |= outcomes.used
        return end, kind.of in ("cancel", "kill") or not outcomes.was_asked_again

    def _may_end_as_the_path(self, run: PlayedRun, found: CalledRow, kind: Kind) -> bool:
        """Whether the rest is that of the path once the call has completed: nothing else runs, and no time counts."""
        step, state = found.row.step, run.state
        if self._keeps_stories or not self._is_timeless or found.is_inline or found.row.path or kind.of == "undo":
            return False
        # A handler may give another output, and so may a second attempt.
        ends = self._fakes.get(step.name) or self._fakes.get(name_of(step.name)) or (FakeEnd(),)
        is_same = len(ends) == 1 and ends[0].failure is None and step.on_failure is None
        return is_same and len(state.graph.nodes) - 1 - len(state.deliveries) == 1

    def _play_out(
        self,
        player: Player,
        outcomes: RehearsedOutcomes,
        stop: Stop | None,
        found: CalledRow,
        kind: Kind,
        short: PlayedRun | None = None,
    ) -> bool:
        """Play to the end; True if the call of `short` has completed, after which everything is as on the path."""
        watch = _Started(player, outcomes, is_branch=True)
        while True:
            if short is not None and short.state.places[found.row.step.name].status == "completed":
                return True
            if stop is not None and is_time_for(player, stop):
                stop_now(player, stop.how)
                stop = None
            self._note_behind(watch, outcomes, found, kind)
            if not self._may_step(player, outcomes) or not player.step():
                return False

    def _may_step(self, player: Player, outcomes: RehearsedOutcomes) -> bool:
        """Whether the play goes on: not if it waits for what nobody knows."""
        if player.is_over or outcomes.misbehaved is not None:
            return False
        if self._is_endless(player):
            return False
        return outcomes.needed is None or player.next_due == player.now

    def _is_endless(self, player: Player) -> bool:
        """Whether the program goes on for much longer than on the path: it tries again and again."""
        return bool(self._path_events) and _length(player) > 2 * self._path_events + MORE_EVENTS_MAX

    def _note_behind(self, watch: _Started, outcomes: RehearsedOutcomes, found: CalledRow, kind: Kind) -> None:
        """Note the calls that are only made after this failure: their own failures are played later."""
        if found.after or kind.of in ("cancel", "kill", "undo") or outcomes.needed is not None:
            return
        for one in watch.new():
            known = self.rows.get(one.name)
            if (known is not None and known.at == one.at) or one.is_inline or traits_of(one.row.step.action).is_timer:
                continue
            if any(row.at == one.at and row.row.path == one.row.path for row in self.rows.values()):
                continue  # another call of a line of the path
            self._noted.append(msgspec.structs.replace(one, after=_failing(found.row, kind, "always")))

    def _judge(
        self, player: Player, outcomes: RehearsedOutcomes, found: CalledRow, kind: Kind, times: Times
    ) -> CaseEnd:
        row = found.row
        end = judge(player, row.path, row.step, kind)
        run = run_at(player, row.path)
        place = None if run is None else run.state.places.get(row.step.name)
        if place is not None:
            # The first attempt of an inline step is not scheduled.
            end = msgspec.structs.replace(end, attempts=place.attempt)
        is_over = player.state.run.status in ("completed", "failed", "cancelled")
        if not is_over and (outcomes.needed is not None or outcomes.misbehaved is not None):
            needed = outcomes.needed
            if needed is None:
                problem = outcomes.misbehaved
                assert problem is not None
                needed = NeededFake("", "", problem.at, problem.why)
            end = msgspec.structs.replace(
                end, verdict="unknown", run_status="unknown", rung="code", at=needed.at, needs=needed.label
            )
            self.needs.setdefault(needed, []).append((found.name, kind.name))
        elif not is_over and self._is_endless(player):
            # In a run, the limit of its calls ends it.
            end = msgspec.structs.replace(end, verdict="fails", run_status="endless", rung="nothing")
        elif end.verdict == "handled" and kind.of == "kill" and place is not None and place.status != "failed":
            # The program did not want it any more, as on the path.
            end = msgspec.structs.replace(end, verdict="recovered", rung="rerun")
        elif end.verdict == "handled":
            at = "" if run is None else handled_at(run.state, row.step.name)
            end = msgspec.structs.replace(end, rung="code", at=at)
        if end.verdict in DEALT_WITH:
            # Where the run fails anyway, it makes no difference how these calls end.
            for one in self._noted:
                self._behind.setdefault((one.row.path, name_of(one.row.step.name), one.at), one)
        self._noted.clear()
        if self._keeps_stories:
            self.stories[found.name, kind.name, times] = tuple(story_lines(player, found.row, kind))
        return end

    # -- playing

    def _outcomes(
        self, failing: tuple[FailingCall, ...], turns: ProgramTurns | None = None, *, keeps_inline: bool = False
    ) -> RehearsedOutcomes:
        return RehearsedOutcomes(self._fakes, turns or self._turns(), failing, keeps_inline=keeps_inline)

    def _player(self, outcomes: RehearsedOutcomes) -> Player:
        return Player(
            self.workflow,
            evaluator=self._evaluator,
            outcomes=outcomes,
            inputs=self.inputs,
            child_inputs=assumed_inputs,
        )


class _Started:
    """The calls that have started in a play since this was asked last."""

    def __init__(self, player: Player, outcomes: RehearsedOutcomes, *, is_branch: bool = False) -> None:
        self._player = player
        self._outcomes = outcomes
        self._lengths = [len(run.entries) for run in player.runs] if is_branch else []
        self._inline: set[tuple[str, str]] = set()

    def new(self) -> Iterator[CalledRow]:
        for index, run in enumerate(list(self._player.runs)):
            if index == len(self._lengths):
                self._lengths.append(0)
            begin, self._lengths[index] = self._lengths[index], len(run.entries)
            for entry in run.entries[begin:]:
                if isinstance(entry.fact, e.AttemptStarted) and entry.fact.place in run.state.calls:
                    yield _called_row(run, entry.fact.place)
            asked = self._outcomes.inline.get(run.state.run.uid)
            key = (run.state.run.uid, "" if asked is None else asked.call.label)
            if asked is not None and key not in self._inline:
                self._inline.add(key)
                call = asked.call
                row = _row(run, call.label, call.step)
                at = f"{call.file.rpartition('/')[2]}:{call.line}"
                yield CalledRow(row.name, row, at, call.line, is_inline=True)


def _called_row(run: PlayedRun, label: str) -> CalledRow:
    call = run.state.calls[label]
    row = _row(run, label, run.state.graph.nodes[label].step)
    return CalledRow(row.name, row, line_text(call), call.line, is_inline=call.kind == "inline")


def _row(run: PlayedRun, label: str, step: Step) -> Row:
    return Row(path_of(run), msgspec.structs.replace(step, name=label), run.state.workflow)


def _failing(row: Row, kind: Kind, times: Times) -> tuple[FailingCall, ...]:
    if kind.of in ("cancel", "kill"):
        return ()
    return (FailingCall(row.path, row.step.name, kind, TIMES[times]),)


def _is_timeless(state: State) -> bool:
    """Whether what a program does cannot depend on how late it is."""
    workflow = state.workflow
    step = next((one for one in workflow.steps if one.action is not None), Step())
    source = str(step.action.params.get("source", "")) if step.action is not None else ""
    has_limit = workflow.timeout is not None or step.deadline is not None
    uses_time = any(call.kind == "value" and call.name == "now" for call in state.calls.values())
    return not (has_limit or uses_time or "async def" in source)


def _length(player: Player) -> int:
    return sum(len(run.entries) for run in player.runs)


def _misbehaviour(outcomes: RehearsedOutcomes) -> str:
    problem = outcomes.misbehaved
    assert problem is not None
    return f"{problem.why}, behind its call at {problem.at}" if problem.at else problem.why


def _why(player: Player, status: str) -> str:
    """Why a run did not complete, as the end of a sentence."""
    if status == "waiting":
        waits = player.waiting_for_people()
        return f"it waits for '{waits[0]}', and nobody answers" if waits else "it waits for something that never comes"
    if status == "endless":
        return "it goes on and on"
    place = player.state.places[player.state.graph.program]
    end = None if place.program is None else place.program.end
    found = end.failure if end is not None and end.failure is not None else place.failure
    at = next(
        (f" ({entry.fact.at})" for entry in player.entries if isinstance(entry.fact, e.ProgramEnded) and entry.fact.at),
        "",
    )
    return f"{found.code}: {found.message}{at}" if found is not None else f"it was {status}"

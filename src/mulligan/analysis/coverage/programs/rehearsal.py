"""How the calls of a rehearsed program end: as the fakes say, except those that a case makes fail.

The program itself is code, which runs elsewhere: `ProgramTurns` says what it calls in a turn.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from mulligan.analysis.coverage.failure_kinds import Kind
from mulligan.analysis.coverage.injection import (
    ALWAYS,
    WELL,
    Path,
    assumed_child_failure,
    assumed_failure,
    assumed_task,
)
from mulligan.analysis.playing.outcomes import Assumed, AssumedChild, Decision
from mulligan.analysis.playing.player import SECONDS_MAX
from mulligan.core.deciding.fakes import FakeEnd
from mulligan.core.effects.effects import QueueTask
from mulligan.core.model.actions import traits_of
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.program_calls import TurnEnd, name_of
from mulligan.core.model.workflow import Step, Workflow
from mulligan.core.state.state import Place, State

_EXPIRED = "APPROVAL_EXPIRED"


class InlineCall(msgspec.Struct, frozen=True):
    """A call of an inline step, which has not run."""

    label: str
    name: str
    digest: str
    # The digest of its definition, and that itself.
    definition: str
    step: Step
    file: str
    line: int


class TurnSaid(msgspec.Struct, frozen=True):
    """What a program says at the end of a turn, and what it has returned if it has ended."""

    turn: TurnEnd
    output: Any = None


class Misbehaved(Exception):
    """The process of a program does not do what that of a program does. `at`: behind which call, `nightly.py:14`."""

    def __init__(self, why: str, at: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.at = at


class NoEnd(Exception):
    """A program has called an inline step, and nobody says how it ends."""


# How an inline call ends; None if nobody says.
InlineEnds = Callable[[State, InlineCall], FakeEnd | None]


class ProgramTurns(ABC):
    """The programs of one play. A branch has a copy, and the original goes on from where it was."""

    @abstractmethod
    def say(self, state: State, place: Place, at: datetime, ends: InlineEnds) -> TurnSaid:
        """What the program of a run says in its next turn. May raise Misbehaved, or NoEnd if `ends` says nothing."""

    @abstractmethod
    def copy(self) -> ProgramTurns: ...

    @abstractmethod
    def copy_of(self, uid: str) -> ProgramTurns:
        """A copy that keeps the program of this run as it is in the middle of its turn."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def returns_nothing(self, definition: str) -> bool:
        """Whether a step has an annotation that says that it returns nothing."""


class NeededFake(msgspec.Struct, frozen=True):
    """A call that a program makes, and for which there is no fake: what follows is decided by code."""

    # The name of the step and the label of the call, with those that call its run.
    name: str
    label: str
    at: str
    # Why a fake is of no use; "" if it is.
    problem: str = ""


class FailingCall(msgspec.Struct, frozen=True):
    """A call that fails in this way, so often: also a later one with the same arguments, as code makes it again."""

    path: Path
    label: str
    kind: Kind
    times: int = ALWAYS


class AskedInline(msgspec.Struct, frozen=True):
    """An inline call of the play so far, and the play as it was when its end was asked for."""

    call: InlineCall
    turns: ProgramTurns


class RehearsedOutcomes:
    """Every call ends as its fake says, except those that fail. Good for one play, and for what branches off."""

    def __init__(
        self,
        fakes: Mapping[str, tuple[FakeEnd, ...]],
        turns: ProgramTurns,
        failing: tuple[FailingCall, ...] = (),
        *,
        keeps_inline: bool = False,
    ) -> None:
        self.fakes = fakes
        self.turns = turns
        self._failing = [one for call in failing for one in _opened(call)]
        self._keeps_inline = keeps_inline
        # How often the last failure could have happened and how often it did.
        self.asked = self.injected = 0
        # The fakes that were used.
        self.used: set[str] = set()
        # What has no fake, and has not ended; why a program did not go on.
        self.needed: NeededFake | None = None
        self.misbehaved: Misbehaved | None = None
        # The last inline call, by the uid of its run.
        self.inline: dict[str, AskedInline] = {}

    def close(self) -> None:
        """End the programs of this play."""
        for one in self.inline.values():
            one.turns.close()
        self.turns.close()

    @property
    def was_asked_again(self) -> bool:
        """Whether more failures would change anything."""
        return self.asked > self.injected

    # -- what the player asks

    def of_task(self, state: State, place: Place, task: QueueTask, at: datetime) -> Assumed:
        if place.key == state.graph.program:
            return self._turn(state, place, at)
        label = state.step_of(place).key
        if (kind := self._failure_of(state, place, label)) is not None:
            return assumed_failure(kind, place)
        if place.role == "triager" and (end := self._fake(state, f"{label}.triager", place.attempt)):
            return _assumed(end)
        if place.role != "step" or label not in state.calls:
            return assumed_task(state, place)
        found = self._fake(state, label, place.attempt)
        if found is not None:
            return _assumed(found)
        if self.turns.returns_nothing(state.calls[label].definition):
            return WELL
        call = state.calls[label]
        return self._missing(state, label, call.name, call.file, call.line)

    def of_child(self, state: State, place: Place, child: Workflow, at: datetime) -> AssumedChild | None:
        label = place.key
        if (kind := self._failure_of(state, place, label)) is not None:
            return assumed_child_failure(kind)
        end = self._fake(state, label, place.attempt)
        if end is None:
            if any(traits_of(step.action).is_program for step in child.steps):
                return None  # it is played too
            call = state.calls[label]
            self._missing(state, label, call.name, call.file, call.line)
            return AssumedChild(seconds=SECONDS_MAX)
        if end.failure is not None:
            return AssumedChild("failed", failures=(end.failure,))
        return AssumedChild(outputs=_as_outputs(child, end.output))

    def of_event(self, state: State, place: Place, at: datetime) -> Assumed | None:
        label = place.key
        if (kind := self._failure_of(state, place, label)) is not None:
            return None if kind.found.code == "TIMEOUT" else assumed_failure(kind, place)
        end = self._fake(state, label, place.attempt)
        if end is None:
            call = state.calls[label]
            return self._missing(state, label, call.name, call.file, call.line)
        if end.failure is not None and end.failure.code == "TIMEOUT":
            return None
        return _assumed(end)

    def of_person(self, state: State, place: Place, at: datetime) -> Decision | None:
        if place.status == "pending_failed":
            return None
        label = place.key
        kind = self._failure_of(state, place, label)
        end = None if kind is not None else self._fake(state, label, place.attempt)
        found = kind.found if kind is not None else None if end is None else end.failure
        if found is None:
            refuses = end is not None and end.output is False
            return Decision("refuse" if refuses else "approve")
        return None if found.code == _EXPIRED else Decision("refuse")

    # -- programs

    def _turn(self, state: State, place: Place, at: datetime) -> Assumed:
        try:
            said = self.turns.say(state, place, at, self._inline_end)
        except Misbehaved as problem:
            self.misbehaved = problem
            return Assumed(seconds=SECONDS_MAX)
        except NoEnd:
            return Assumed(seconds=SECONDS_MAX)
        return Assumed(turn=said.turn, output=said.output)

    def _inline_end(self, state: State, call: InlineCall) -> FakeEnd | None:
        if self._keeps_inline:
            if (before := self.inline.get(state.run.uid)) is not None:
                before.turns.close()
            self.inline[state.run.uid] = AskedInline(call, self.turns.copy_of(state.run.uid))
        for one in self._failing:
            if one.is_for_inline(state, call):
                if self._count(one):
                    return FakeEnd(failure=one.kind.found)
                break
        found = self._fake(state, call.label, 1)
        if found is not None:
            return found
        if self.turns.returns_nothing(call.definition):
            return FakeEnd()
        self._missing(state, call.label, call.name, call.file, call.line)
        return None

    # -- what fails, and what is faked

    def _failure_of(self, state: State, place: Place, label: str) -> Kind | None:
        """In which way this task fails by a failure that happens; None if it does not."""
        for one in self._failing:
            if one.is_for(state, place, label):
                return one.kind if self._count(one) else None
        return None

    def _count(self, one: _Failing) -> bool:
        """Whether the failure happens now, once more."""
        happens = one.left > 0
        one.left -= happens
        if one is self._failing[-1]:
            self.asked += 1
            self.injected += happens
        return happens

    def _fake(self, state: State, label: str, attempt: int) -> FakeEnd | None:
        """How this call ends by its fake: that of the call, else that of its step."""
        step, dot, of = label.partition(".")
        path = _labels_of(state.run.uid)
        for name in dict.fromkeys(("/".join((*path, step)), step, name_of(step))):
            ends = self.fakes.get(f"{name}{dot}{of}")
            if ends is not None:
                self.used.add(f"{name}{dot}{of}")
                return ends[min(max(attempt, 1), len(ends)) - 1]
        return None

    def _missing(self, state: State, label: str, name: str, file: str, line: int) -> Assumed:
        """It never ends: nobody knows how."""
        if self.needed is None:
            whole = "/".join((*_labels_of(state.run.uid), label))
            self.needed = NeededFake(name, whole, f"{file.rpartition('/')[2]}:{line}")
        return Assumed(seconds=SECONDS_MAX)


class _Failing:
    """A failure that may still happen."""

    def __init__(self, call: FailingCall, first: _Failing | None = None) -> None:
        self.kind = call.kind
        self.left = call.times
        self._times = call.times
        self._label = call.label
        # The failure that must have happened before.
        self._first = first
        self._uid = uid_pattern(call.path)
        # The name and the digest of the arguments; and the later calls that are the same, made again.
        self._same: tuple[str, str] | None = None
        self._again: set[str] = set()

    @property
    def _may_happen(self) -> bool:
        return self._first is None or self._first.left < self._first._times

    def is_for(self, state: State, place: Place, label: str) -> bool:
        """Whether this task fails by this failure."""
        if self._uid.fullmatch(state.run.uid) is None or not self._is_it(state, label):
            return False
        role, of = place.role, self.kind.of
        if of == "script" and str(place.index) != self.kind.target:
            return False
        return role == ("step" if of == "step" else of) and self._may_happen

    def is_for_inline(self, state: State, call: InlineCall) -> bool:
        if self.kind.of != "step" or self._uid.fullmatch(state.run.uid) is None:
            return False
        if call.label == self._label:
            self._same = call.name, call.digest
            return True
        return self._is_again(state, call.label, (call.name, call.digest))

    def _is_it(self, state: State, label: str) -> bool:
        call = state.calls.get(label)
        if call is None:
            return False
        if label == self._label:
            self._same = call.name, call.digest
            return True
        return label in self._again or self._is_again(state, label, (call.name, call.digest))

    def _is_again(self, state: State, label: str, same: tuple[str, str]) -> bool:
        """Whether it is the call that has failed, which the program makes again."""
        if same != self._same or self._left_well(state):
            return False
        last = max((state.calls[one].index for one in (self._label, *self._again) if one in state.calls), default=-1)
        places = [state.places[one] for one in (self._label, *self._again) if one in state.places]
        call = state.calls.get(label)
        if (call is not None and call.index < last) or not places or any(one.status != "failed" for one in places):
            return False
        self._again.add(label)
        return True

    def _left_well(self, state: State) -> bool:
        place = state.places.get(self._label)
        return place is not None and place.status == "completed"


def _opened(call: FailingCall) -> Iterator[_Failing]:
    """The failure, after that which brings it about."""
    after = call.kind.after
    first = None if after is None else _Failing(FailingCall(call.path, call.label, after))
    if first is not None:
        yield first
    yield _Failing(call, first)


def uid_pattern(path: Path) -> re.Pattern[str]:
    """Matches the uid of a run that was called by way of these places."""
    return re.compile("run" + "".join(rf"\.{re.escape(one)}\.\d+" for one in path))


def _labels_of(uid: str) -> list[str]:
    """The labels of the calls that led to a run."""
    return uid.split(".")[1::2]


def _assumed(end: FakeEnd) -> Assumed:
    if end.failure is not None:
        return Assumed(Outcome(exit_code=None, said=end.failure))
    return Assumed(output=end.output)


def _as_outputs(child: Workflow, output: Any) -> dict[str, Any]:
    """The outputs of a run that has ended with this: a program has one."""
    if isinstance(output, dict) and not any(traits_of(step.action).is_program for step in child.steps):
        return output
    return dict.fromkeys(child.outputs, output) if len(child.outputs) == 1 else {"result": output}

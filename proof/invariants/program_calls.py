"""What a log says about the calls of a program: each is made once, and told once how it ended, in the log's order."""

from __future__ import annotations

from typing import TypeGuard

from mulligan.core.model import events as e

_Made = e.StepAdded | e.StepRan | e.ValueRecorded
MADE = (e.StepAdded, e.StepRan, e.ValueRecorded)
_End = e.StepCompleted | e.StepFailed | e.StepCancelled | e.StepSkipped | e.StepRan | e.StepAdded
_ENDS = (e.StepCompleted, e.StepFailed, e.StepCancelled, e.StepSkipped, e.StepRan)


def _is_end(fact: e.Fact) -> TypeGuard[_End]:
    return fact.is_kept if isinstance(fact, e.StepAdded) else isinstance(fact, _ENDS)


class ProgramCalls:
    """Follows one log."""

    def __init__(self, program: str) -> None:
        self._program = program
        # By branch and ordinal: the label. By label: the same.
        self.labels: dict[tuple[str, int], str] = {}
        self.identities: dict[str, tuple[str, int]] = {}
        # The calls that have ended and of which the program was not told, in the order of the log.
        self.untold: list[str] = []
        self._ended: set[str] = set()
        # The completed visits of steps with an undo that was not tried, in the order of the log; and the last visits.
        self._undoable: dict[tuple[str, int], None] = {}
        self._visits: dict[str, int] = {}
        self._has_undo: dict[str, bool] = {}
        self._of_labels: dict[str, str] = {}
        # The calls that this round makes anew.
        self._dropped: tuple[str, ...] = ()
        # The visit that is being undone, which a fork undoes to its end.
        self._undoing: tuple[str, int] | None = None
        # In a fork: the visits of the other run that it has left to that one.
        self._of_other_run: set[tuple[str, int]] = set()
        # Whether the program has ended in a run that goes on; the calls that are cancelled.
        self._has_ended = False
        self._unwanted: set[str] = set()
        # Whether the program has returned or raised, and its attempt goes on.
        self._is_ending = False

    def record(self, fact: e.Fact) -> None:
        if not self._program:
            return
        self._record_undo(fact)
        if isinstance(fact, e.ProgramEnded):
            self._is_ending = True
        elif isinstance(fact, e.AttemptScheduled) and fact.place == self._program:
            self._is_ending = False
        if isinstance(fact, e.CallCancelled):
            self._unwanted.add(fact.step)
        elif isinstance(fact, e.StepCompleted | e.StepFailed) and fact.step == self._program:
            self._has_ended = True
        elif isinstance(fact, e.RunStopping | e.RunReopened):
            # What runs is stopped, or made again.
            self._has_ended = False
            self._unwanted.clear()
        if isinstance(fact, MADE):
            label = label_of(fact)
            self.labels[fact.branch, fact.ordinal] = label
            self.identities[label] = fact.branch, fact.ordinal
        if _is_end(fact) and fact.step in self.identities and fact.step not in self._ended:
            self._ended.add(fact.step)
            if not _is_known(fact):
                self.untold.append(fact.step)
        elif isinstance(fact, e.ProgramResumed) or (
            isinstance(fact, e.AttemptScheduled) and fact.place == self._program
        ):
            # An attempt begins with all that has ended.
            self.untold.clear()
        elif isinstance(fact, e.RunReopened):
            self.untold.clear()
            for label in fact.dropped:
                # One that the round before has dropped, and not undone, has none any more.
                self.labels.pop(self.identities.pop(label, ("", -1)), None)
                self._ended.discard(label)

    def _record_undo(self, fact: e.Fact) -> None:
        if isinstance(fact, e.StepDefined):
            self._has_undo[fact.digest] = fact.definition.undo is not None
        elif isinstance(fact, e.StepAdded | e.StepRan):
            self._of_labels[fact.step] = fact.definition
        if isinstance(fact, e.StepEntered):
            self._visits[fact.step] = fact.visit
        elif isinstance(fact, e.StepRan):
            self._visits[fact.step] = self._visits.get(fact.step, 0) + 1
        if isinstance(fact, e.StepCompleted | e.StepRan) and self._has_undo.get(self._of_labels.get(fact.step, "")):
            self._undoable[fact.step, self._visits[fact.step]] = None
        elif isinstance(fact, e.UndoStarted):
            self._undoing = fact.step, fact.visit
        elif isinstance(fact, e.UndoCompleted | e.UndoFailed):
            self._undoable.pop((fact.step, fact.visit), None)
            self._undoing = None
        elif isinstance(fact, e.RunForked):
            self._of_other_run.update(self._undoable.keys() - {self._undoing})
            self._undoable = {one: None for one in self._undoable if one == self._undoing}
        elif isinstance(fact, e.RunReopened):
            self._dropped = fact.dropped

    def left_to_undo(self, fact: e.StepEntered) -> str:
        """A visit of a dropped call that was not undone before the program begins again."""
        if fact.step != self._program:
            return ""
        return next((f"{label}@{visit}" for label, visit in self._undoable if label in self._dropped), "")

    def is_dropped(self, step: str) -> bool:
        """Whether it is a call that this round makes anew."""
        return step in self._dropped

    def has_ended(self, place: str) -> bool:
        """Whether it is a call that has ended and that no round makes again."""
        return place in self.identities and place in self._ended

    def is_of_other_run(self, step: str, visit: int) -> bool:
        """Whether a visit was completed in the run that this one is a fork of."""
        return (step, visit) in self._of_other_run

    def is_refused(self, fact: e.AttemptFailed) -> bool:
        """Whether the core does not believe what the process of the program has said."""
        is_of_program = fact.place == self._program and not self._is_ending
        return is_of_program and fact.failure.code == "OUTPUT_INVALID"

    def goes_on(self, place: str) -> bool:
        """Whether it is a call that begins something although its program has ended and nobody waits for it."""
        return self._has_ended and place in self.identities and place not in self._unwanted

    def open_at_the_end_of(self, place: str) -> str:
        """A call that has not ended when the attempt of the program succeeds; "" if there is none."""
        if place != self._program:
            return ""
        return next((label for label in self.identities if label in self._of_labels and label not in self._ended), "")


def label_of(fact: _Made) -> str:
    return fact.value if isinstance(fact, e.ValueRecorded) else fact.step


def problem_of(calls: ProgramCalls, fact: e.Fact) -> str:
    """What is wrong with a fact of a program, if anything."""
    if isinstance(fact, MADE):
        return _made(calls, fact)
    if isinstance(fact, e.StepEntered) and (left := calls.left_to_undo(fact)):
        return f"the program begins again, and '{left}', which it drops, is not undone"
    if isinstance(fact, e.UndoStarted) and calls.is_of_other_run(fact.step, fact.visit):
        return f"the fork undoes visit {fact.visit} of '{fact.step}', which the other run has done"
    if isinstance(fact, e.AttemptStarted) and calls.has_ended(fact.place):
        return f"the call '{fact.place}' has ended, and runs again"
    if isinstance(fact, e.AttemptStarted) and calls.goes_on(fact.place):
        return f"the program has ended, and its call '{fact.place}' goes on"
    if isinstance(fact, e.AttemptFailed) and calls.is_refused(fact):
        return f"a turn of the program is refused: {fact.failure.message}"
    if isinstance(fact, e.AttemptSucceeded) and (open_ := calls.open_at_the_end_of(fact.place)):
        return f"the program has ended, and its call '{open_}' goes on"
    return _resumed(calls, fact) if isinstance(fact, e.ProgramResumed) else ""


def _made(calls: ProgramCalls, fact: _Made) -> str:
    label, identity = label_of(fact), (fact.branch, fact.ordinal)
    if (before := calls.labels.get(identity)) is not None:
        return f"call {identity} was made as '{before}', and is made again as '{label}'"
    if _is_known(fact) and calls.untold:
        return f"the program is told that '{label}' has ended before {calls.untold}, which ended before"
    return f"there is a call '{label}' already" if label in calls.identities else ""


def _is_known(fact: e.Fact) -> bool:
    """Whether the program gets the end of a call in the turn in which it has made it."""
    return isinstance(fact, e.StepRan) and fact.is_known


def _resumed(calls: ProgramCalls, fact: e.ProgramResumed) -> str:
    if list(fact.ended) == calls.untold:
        return ""
    return f"the program is told that {list(fact.ended)} have ended, and the log says {calls.untold}"


CHECKED = (
    *MADE,
    e.ProgramResumed,
    e.StepEntered,
    e.AttemptStarted,
    e.AttemptFailed,
    e.AttemptSucceeded,
    e.UndoStarted,
)

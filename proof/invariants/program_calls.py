"""What a log says about the calls of a program: each is made once, and told once how it ended, in the log's order."""

from __future__ import annotations

from mulligan.core.model import events as e

_Made = e.StepAdded | e.StepRan | e.ValueRecorded
MADE = (e.StepAdded, e.StepRan, e.ValueRecorded)
_ENDS = (e.StepCompleted, e.StepFailed, e.StepCancelled, e.StepSkipped, e.StepRan)


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

    def record(self, fact: e.Fact) -> None:
        if not self._program:
            return
        if isinstance(fact, MADE):
            label = label_of(fact)
            self.labels[fact.branch, fact.ordinal] = label
            self.identities[label] = fact.branch, fact.ordinal
        if isinstance(fact, _ENDS) and fact.step in self.identities and fact.step not in self._ended:
            self._ended.add(fact.step)
            self.untold.append(fact.step)
        elif isinstance(fact, e.ProgramResumed) or (
            isinstance(fact, e.AttemptScheduled) and fact.place == self._program
        ):
            # An attempt begins with all that has ended.
            self.untold.clear()
        elif isinstance(fact, e.RunReopened):
            self.untold.clear()
            for label in fact.dropped:
                self.labels.pop(self.identities.pop(label), None)
                self._ended.discard(label)


def label_of(fact: _Made) -> str:
    return fact.value if isinstance(fact, e.ValueRecorded) else fact.step


def problem_of(calls: ProgramCalls, fact: e.Fact) -> str:
    """What is wrong with a fact of a program, if anything."""
    if isinstance(fact, MADE):
        return _made(calls, fact)
    return _resumed(calls, fact) if isinstance(fact, e.ProgramResumed) else ""


def _made(calls: ProgramCalls, fact: _Made) -> str:
    label, identity = label_of(fact), (fact.branch, fact.ordinal)
    if (before := calls.labels.get(identity)) is not None:
        return f"call {identity} was made as '{before}', and is made again as '{label}'"
    return f"there is a call '{label}' already" if label in calls.identities else ""


def _resumed(calls: ProgramCalls, fact: e.ProgramResumed) -> str:
    if list(fact.ended) == calls.untold:
        return ""
    return f"the program is told that {list(fact.ended)} have ended, and the log says {calls.untold}"


CHECKED = (*MADE, e.ProgramResumed)

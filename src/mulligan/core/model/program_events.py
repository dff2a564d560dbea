"""The facts of programs: what they call, their turns, and how they end."""

from __future__ import annotations

from typing import Any, Literal

from mulligan.core.model.fact import Fact
from mulligan.core.model.failure import Failure
from mulligan.core.model.program_calls import CallKind
from mulligan.core.model.workflow import Step


class StepDefined(Fact):
    """A program is going to call a step: its definition, by its digest."""

    place: str
    digest: str
    definition: Step


class CallFact(Fact):
    """A program has called a step, which is a step of the run from now on: `step` is the label of the call."""

    step: str
    program: str
    branch: str
    ordinal: int
    name: str
    definition: str
    arguments: dict[str, Any] = {}
    digest: str = ""
    # Where it was called.
    file: str = ""
    line: int = 0
    # The key that the program has chosen for it.
    key: str = ""
    # In a gather: its position, and how many calls there are.
    position: tuple[int, int] | None = None


class StepAdded(CallFact):
    """The step of a call, which a worker or the engine runs; of an inline one, whose first attempt has failed."""

    kind: CallKind = "step"
    # It has the result of a call that an earlier round has dropped, and does not run.
    is_kept: bool = False


class StepRan(CallFact):
    """The process of a program has run a step itself, and it has completed: all of that at once."""

    visit: int = 1
    attempt: int = 1
    output: Any = None
    seconds: float = 0.0
    # The program gets its end in the same turn.
    is_known: bool = False


class ValueRecorded(Fact):
    """A program has asked for the time, or a random value: a replay returns the same."""

    place: str
    value: str
    branch: str
    ordinal: int
    name: str
    output: Any = None
    file: str = ""
    line: int = 0


class ProgramWaiting(Fact):
    """A turn of a program is over: it waits for its calls, and needs no process meanwhile. `at`: where it waits."""

    place: str
    attempt: int
    turn: int
    at: str = ""
    # It only waited until this was recorded.
    goes_on: bool = False
    # What it has published in this turn; None if nothing.
    published: dict[str, Any] | None = None
    # The processor time of its process in this turn, and the most memory that this has used; 0 if unknown.
    cpu: float = 0.0
    peak: int = 0


class ProgramResumed(Fact):
    """The next turn of a program is queued: these calls have ended."""

    place: str
    attempt: int
    turn: int
    ended: tuple[str, ...] = ()


class TurnStarted(Fact):
    """A worker carries out a later turn of an attempt of a program: the first one begins with the attempt."""

    place: str
    attempt: int
    turn: int
    worker: str = ""
    host: str = ""


class ProgramEnded(Fact):
    """A program has returned or raised. Its open calls are cancelled before its attempt ends."""

    place: str
    attempt: int
    turn: int
    how: Literal["returned", "raised"]
    output: Any = None
    failure: Failure | None = None
    at: str = ""
    # The call whose failure it has let through; "" if it was another exception.
    call: str = ""
    cpu: float = 0.0
    peak: int = 0
    published: dict[str, Any] | None = None


class CallCancelled(Fact):
    """A program does not want a call any more: the step is asked to end, and is not tried again."""

    step: str


ProgramFact = (
    StepDefined
    | StepAdded
    | StepRan
    | ValueRecorded
    | ProgramWaiting
    | ProgramResumed
    | TurnStarted
    | ProgramEnded
    | CallCancelled
)

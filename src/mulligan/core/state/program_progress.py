"""How far a program is, and the calls that it has made: a part of the state of its run."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from mulligan.core.model.failure import Failure
from mulligan.core.model.file_records import FileRecord
from mulligan.core.model.program_calls import CallKind, name_of
from mulligan.core.model.program_events import CallFact

NO_TIME = timedelta(0)


class RecordedCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of a program. How it has ended is in the place of its step; only a value has its output here."""

    # How many calls of the run came before it.
    index: int
    program: str
    branch: str
    ordinal: int
    name: str
    kind: CallKind = "step"
    definition: str = ""
    arguments: dict[str, Any] = {}
    digest: str = ""
    file: str = ""
    line: int = 0
    key: str = ""
    position: tuple[int, int] | None = None
    output: Any = None
    # How many ends of calls the program knew when it made this one.
    known: int = 0


def is_raised_with(call: RecordedCall | CallFact, escaped: RecordedCall | CallFact | None) -> bool:
    """Whether the failure of a call was raised with that of another: a gather raises the first one with the others."""
    if escaped is None or call.position is None or escaped.position is None:
        return False
    above = call.branch.rpartition(".")[0]
    return (call.file, call.line, above) == (escaped.file, escaped.line, escaped.branch.rpartition(".")[0])


class DroppedCall(msgspec.Struct, frozen=True, array_like=True):
    """A call that was dropped in an earlier round: if it is made again, its step goes on counting.

    If it has a result, that is the result of the next call in its branch with its name and its arguments.
    """

    branch: str
    ordinal: int
    visit: int
    attempt: int
    digest: str = ""
    output: Any = None
    files: tuple[FileRecord, ...] = ()
    has_result: bool = False

    def identity(self, label: str) -> tuple[str, int, str]:
        """What a call has in common with the one that is made in its place: branch, ordinal and name."""
        return self.branch, self.ordinal, name_of(label)

    def result_key(self, label: str) -> ResultKey:
        return self.branch, name_of(label), self.digest


# Of a call for which nothing is known from earlier rounds.
NEVER_MADE = DroppedCall("", 0, 0, 0)
# What a call has in common with the one whose result it gets: branch, name, digest of the arguments.
ResultKey = tuple[str, str, str]


class ProgramEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a program has ended, while its open calls are cancelled."""

    output: Any = None
    failure: Failure | None = None
    # The call whose failure it has let through.
    call: str = ""


class ProgramProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a program is, over all of its attempts."""

    # The number of its turn, and how many ends of calls it knew before that.
    turn: int = 1
    delivered: int = 0
    # How many calls have ended since: those that this turn announces, and those that wait for the next one. Which they
    # are is in `State.deliveries`: this row is written with each end of a call.
    announced: int = 0
    ended: int = 0
    # Of `delivered`: those that no turn has ended with, since the attempt before was lost.
    unseen: int = 0
    # Whether its attempt has had a turn before this one.
    is_later: bool = False
    # How many calls it has made, and how often each name, in all rounds; a call that is made again has its number.
    made: int = 0
    numbers: dict[str, int] = {}
    # Where it waits: `nightly.py:14`.
    at: str = ""
    end: ProgramEnd | None = None
    # The dropped calls that are undone before the program begins again, in the order in which they completed.
    leaving: tuple[str, ...] = ()
    # Of these, the last one that could not be undone.
    not_undone: str = ""
    # When its clock began, if that was before this visit; how far its clock is behind, since forks let no time pass.
    begun: datetime | None = None
    behind: timedelta = NO_TIME
    # The processor time of the turns of its attempt, and the most memory that one has used.
    cpu: float = 0.0
    peak: int = 0

    @property
    def known(self) -> int:
        """How many ends of calls the program knows, those of this turn among them."""
        return self.delivered + self.announced

    @property
    def last(self) -> int:
        """The number of the last call that has ended."""
        return self.delivered + self.announced + self.ended

    @property
    def usage(self) -> dict[str, Any]:
        """What the turns of its attempt have used; empty if that is not known."""
        return {"cpu_seconds": round(self.cpu, 6), "peak_memory": self.peak} if self.peak else {}


NO_PROGRESS = ProgramProgress()

"""How far a program is, and the calls that it has made: a part of the state of its run."""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.core.model.failure import Failure
from mulligan.core.model.program_calls import CallKind


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


class DroppedCall(msgspec.Struct, frozen=True, array_like=True):
    """A call that was dropped in an earlier round: if it is made again, its step goes on counting."""

    branch: str
    ordinal: int
    visit: int
    attempt: int


class ProgramEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a program has ended, while its open calls are cancelled."""

    how: str
    output: Any = None
    failure: Failure | None = None
    # The call whose failure it has let through.
    call: str = ""


class ProgramProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a program is, over all of its attempts."""

    # The number of its turn, and how many ends of calls it knew before that.
    turn: int = 1
    delivered: int = 0
    # The calls that have ended since: those that this turn tells it, and those that wait for the next one.
    told: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    # Whether its attempt has had a turn before this one.
    is_later: bool = False
    # How often each name was called.
    numbers: dict[str, int] = {}
    # Where it waits: `nightly.py:14`.
    at: str = ""
    end: ProgramEnd | None = None
    # The calls that were dropped, by label.
    dropped: dict[str, DroppedCall] = {}

    @property
    def known(self) -> int:
        """How many ends of calls the program knows, or is told now."""
        return self.delivered + len(self.told)


NO_PROGRESS = ProgramProgress()

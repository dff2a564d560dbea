"""What a program says at the end of a turn: which steps it has called, and whether it waits or has ended.

A call is identified by its branch and its ordinal in that branch; a step of the run is added for it, which is named by
the label of the call: `load`, `load#2`, `load#eu`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from mulligan.core.model.failure import Failure
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import Step

# "step": a worker or the engine runs it. "inline": the process of the program has run it. "value": it is of the clock
# or the randomness of the program, and no step.
CallKind = Literal["step", "inline", "value"]

CALLS_MAX = 25_000
# How long the name of a branch may be, and what else a call says of where it is: each call has them in its event.
BRANCH_CHARS_MAX = PLACE_CHARS_MAX = 4096
# How much a program may publish, as JSON: it is written with each turn that has changed it.
PUBLISHED_BYTES_MAX = 4096
_NAME = lazy_regex(r"[A-Za-z0-9_-]{1,200}")
_KEY = lazy_regex(r"[A-Za-z0-9_-]{1,80}")


class ProgramCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call as the program has made it."""

    branch: str
    ordinal: int
    name: str
    kind: CallKind = "step"
    # The digest of the definition of its step; "" for a value.
    definition: str = ""
    arguments: dict[str, Any] = {}
    digest: str = ""
    file: str = ""
    line: int = 0
    key: str = ""
    position: tuple[int, int] | None = None
    # Of an inline step and a value: what came of it.
    output: Any = None
    failure: Failure | None = None
    seconds: float = 0.0


class TurnEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker reports at the end of a turn of a program: it waits, or has ended (`how`).

    What it has returned is the output of the report.
    """

    turn: int
    definitions: dict[str, Step] = {}
    calls: tuple[ProgramCall, ...] = ()
    # The open calls that the program does not want any more: branch and ordinal.
    cancelled: tuple[tuple[str, int], ...] = ()
    # Where the program is: `nightly.py:14`.
    at: str = ""
    # The program goes on when this is recorded, whether or not a call has ended.
    goes_on: bool = False
    how: Literal["", "returned", "raised"] = ""
    failure: Failure | None = None
    # The label of the call whose failure it has let through.
    call: str = ""
    # What it has published since its last turn; None if nothing.
    published: dict[str, Any] | None = None


class Delivery(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a call has ended, for its program."""

    branch: str
    ordinal: int
    label: str
    output: Any = None
    failure: Failure | None = None
    # Seconds since 1970.
    at: float = 0.0


class ProgramTurn(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker needs for the next turn of a program: the ends of calls that the program does not know yet.

    `delivered`: how many it knows. A process that has not lived through the turns before gets the whole history.
    """

    turn: int
    # When the program was entered, in seconds since 1970.
    begun: float = 0.0
    delivered: int = 0
    deliveries: tuple[Delivery, ...] = ()
    # How many of those that it knows no turn has ended with: the worker of an earlier attempt was lost.
    unseen: int = 0

    @property
    def seen(self) -> int:
        """How many ends it had got when it last said that it waits."""
        return self.delivered - self.unseen


def label_of(name: str, number: int, key: str) -> str:
    """The label of the n-th call of a name; a key that was chosen takes the place of the number."""
    if key:
        return f"{name}#{key}"
    return name if number == 1 else f"{name}#{number}"


def name_of(label: str) -> str:
    """The name of the step that a call of this label has called."""
    return label.partition("#")[0]


def by_number(label: str) -> tuple[int, str]:
    """A key that sorts the labels of calls of one name by their numbers."""
    return len(label), label


def free_label(name: str, number: int, key: str, is_taken: Callable[[str], bool]) -> str:
    """The label of a call: numbers go on until one is free, since a key may look like one, and so may the program."""
    label = label_of(name, number, key)
    while is_taken(label):
        number += 1
        label = label_of(name, number, "")
    return label


def is_name(name: str) -> bool:
    """Whether a call can have this name."""
    return _NAME.fullmatch(name) is not None


def key_problem(key: str) -> str:
    """Why a call cannot have this key, as the end of a sentence; "" if it can."""
    return "" if _KEY.fullmatch(key) else "has other characters than letters, digits, '_' and '-', or more than 80"

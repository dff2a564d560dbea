"""The values that facts hold: what a fork keeps, adjusted limits, hosts to avoid, the route of a failure."""

from datetime import datetime
from typing import Any, Literal

import msgspec

from mulligan.core.model.file_records import FileRecord, StaleFile
from mulligan.core.model.workflow import END, Budget

Rung = Literal["retry", "handle", "triage", "route"]
Role = Literal[
    "step",
    "item",
    "do",
    "handler",
    "script",
    "success",
    "validator",
    "lister",
    "undo",
    "tool_list",
    "model",
    "tool",
    "triager",
]
StopCause = Literal["cancelled", "timed_out", "failed_fast"]


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """A result that a fork takes over from the run it was forked from."""

    step: str
    status: str
    output: Any = None
    taken: tuple[str, ...] = ()
    files: tuple[FileRecord, ...] = ()
    fingerprint: str = ""
    # The run that produced a result with a fingerprint.
    run_id: int = 0


class WorktreeOrigin(msgspec.Struct, frozen=True, omit_defaults=True):
    """The Git worktree that a fork copies before its steps run."""

    # What the step returned that opened it in the other run.
    work: dict[str, Any]
    # A commit of its files when the fork was made. "": they are taken as they are when the copy is made.
    commit: str = ""
    # The host that it is on.
    host: str = ""


class HostCapacity(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run was started with in place of what its machine has: processors, bytes of memory, GPUs."""

    cpus: int | None = None
    memory: int | None = None
    gpus: int | None = None
    # The cluster whose workers run the tasks, like `dask://HOST:PORT`; "" for this machine.
    on: str = ""


class Adjusted(msgspec.Struct, frozen=True, omit_defaults=True):
    """The limits of the next attempt, instead of those in the workflow. Absolute values."""

    memory: int | None = None
    cpus: float | None = None
    timeout: float | None = None


class AvoidedHosts(msgspec.Struct, frozen=True):
    """The hosts on which a visit has failed: until then, an attempt waits for another one."""

    hosts: tuple[str, ...]
    until: datetime


class Passed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A failure edge that was not chosen, and why."""

    edge: int
    to: str
    reason: str


class Route(msgspec.Struct, frozen=True, omit_defaults=True):
    """The decision of rung 4: the chosen edge, and why the others were not chosen."""

    status: Literal["selected", "no_route", "skipped_terminal"]
    edge: int | None = None
    to: str | None = None
    visit: int = 0
    reason: str = ""
    passed: tuple[Passed, ...] = ()

    @property
    def is_sent(self) -> bool:
        """Whether the failure was routed to another step. An edge to `end` does not count."""
        return self.status == "selected" and self.to != END


class ChildRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """A round of a child run that an attempt has called. `called_with`: a digest of its inputs and its folder."""

    run_id: int
    round: int = 1
    called_with: str = ""
    # It could not undo all that it did.
    undo_failed: bool = False


class ChildRound(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the next round of one child run is asked for, in a request to the run that called it."""

    # The place that called the child run, and the round that follows there.
    place: str
    run_id: int
    round: int
    # A new child run in place of another round.
    from_start: bool = False
    # As in a request for a round of a run.
    from_step: str = ""
    items: tuple[int, ...] | None = None
    adjust: bool = False
    peaks: dict[str, int] = {}
    stale: tuple[StaleFile, ...] = ()
    budgets: dict[str, Budget] = {}
    # The round of one child run of that child run.
    child: "ChildRound | None" = None


class ReceivedEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event that was sent to the run, and who has taken it: the step, the place in it, and the attempt."""

    name: str
    at: datetime
    value: Any = None
    by: str = ""
    key: str = ""
    step: str = ""
    place: str = ""
    attempt: int = 0

    @property
    def is_free(self) -> bool:
        return not self.place

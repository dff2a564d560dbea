"""The few Protocols between the parts: what an engine asks of a store, a queue, a runner and a clock.

Small on purpose. A memory store (`mulligan.testing.store`) and the databases make the same promises, and one suite
of tests holds them to it. The promises are in the docstrings; the data that passes through is plain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from .core.classify import Outcome
from .core.effects import Effect
from .core.events import Entry
from .core.reports import Report, TimerKind
from .core.scope import Evaluator as Evaluator
from .core.state import State
from .core.workflow import Workflow


class Message(msgspec.Struct, frozen=True):
    """A report in a run's inbox."""

    id: int
    run_id: int
    report: Report


class Turn(msgspec.Struct, frozen=True):
    """The short right to write a run. `fence` grows with each holder: an older one is refused."""

    run_id: int
    holder: str
    fence: int
    expires_at: datetime


class Commit(msgspec.Struct, frozen=True):
    """What one turn writes, together or not at all."""

    entries: Sequence[Entry]
    effects: Sequence[Effect]
    # The messages that this turn has answered.
    drained: Sequence[int]
    # The state after the turn: the read model is written from it.
    state: State


class Task(msgspec.Struct, frozen=True):
    """What a worker executes. Known by its run, place and attempt: queued twice it is still one."""

    run_id: int
    place: str
    attempt: int


class Lease(msgspec.Struct, frozen=True):
    """A worker's time-limited, fenced right to a task."""

    task: Task
    worker: str
    token: int
    expires_at: datetime


class Timer(msgspec.Struct, frozen=True):
    """A time a run waits for. Known by all but its due time: set again, it is moved."""

    run_id: int
    kind: TimerKind
    place: str
    number: int
    due: datetime


class Clock(Protocol):
    def now(self) -> datetime:
        """The time, in UTC. It may jump; the log's own time never goes back."""


class Store(Protocol):
    """Keeps runs. `commit` is the only writer of a run's state."""

    def create(self, run_id: int, workflow: Workflow) -> None:
        """Pin the workflow of a new run."""

    def workflow(self, run_id: int) -> Workflow:
        """The workflow as it was pinned."""

    def put(self, run_id: int, report: Report) -> int:
        """Add a report to the run's inbox, with one insert. It stays there until a commit has drained it."""

    def inbox(self, run_id: int) -> list[Message]:
        """What waits in the run's inbox, oldest first."""

    def log(self, run_id: int, after: int = 0) -> list[Entry]:
        """The entries of the run's log behind `after`, in order."""

    def take_turn(self, run_id: int, holder: str, now: datetime) -> Turn | None:
        """The right to write the run for a short while, or None while another holder has it."""

    def commit(self, turn: Turn, commit: Commit) -> None:
        """Write log, read model, tasks and timers, and drain the messages: all or nothing.

        Raises `Conflict` if the turn is void, or if the log has grown behind the first entry. Any other error says
        nothing about whether it was written: read the log to know.
        """

    def fire_timers(self, now: datetime) -> int:
        """Move every timer that is due into its run's inbox as a report, and say how many. None is lost or early."""


class Tasks(Protocol):
    """The queue of tasks and the leases on them."""

    def lease(self, worker: str, now: datetime) -> Lease | None:
        """Hand one task to `worker`, or None. No two workers ever hold the same task; a paused run hands out none."""

    def renew(self, token: int, now: datetime) -> Lease:
        """A longer lease on the same task; `StaleLease` if it is void."""

    def report(self, token: int, report: Report) -> None:
        """Accept the last report of a lease, once, and end the lease; `StaleLease` if it is void."""

    def expire(self, now: datetime) -> list[Lease]:
        """Void the leases that ran out and report them to their runs. What that means is for the core to judge."""


class Runner(Protocol):
    """Carries out one action: one per kind, in a worker."""

    def run(self, lease: Lease, params: dict[str, Any]) -> Outcome:
        """Run it to its end and say what was seen. What that means is for the core to judge."""


# -- fault points ----------------------------------------------------------------------------------------------------

# Where a test may let the program die. Each is named once in the code, by `fault`.
FAULT_POINTS = {
    "before_turn": "the inbox was read, nothing has been decided",
    "before_commit": "the turn is decided, nothing is written",
    "after_commit": "the turn is written, its holder does not know yet",
    "after_drain": "the turn is written and known, its tasks are not handed out yet",
    "after_lease": "a worker holds a task, its process does not exist yet",
    "before_report": "a task has ended, nobody was told",
}

fault_listeners: list[Callable[[str], None]] = []


def fault(name: str) -> None:
    """A point at which a test may let the program die. Free otherwise: nobody listens."""
    for listener in fault_listeners:
        listener(name)

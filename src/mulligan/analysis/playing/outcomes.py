"""What a player assumes instead of running anything: how tasks and child runs end, and what people decide."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec

from mulligan.core.effects.effects import QueueTask
from mulligan.core.model.failure import Failure
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.program_calls import TurnEnd
from mulligan.core.model.workflow import Workflow
from mulligan.core.state.state import Place, State


class Assumed(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an attempt ends, and after how many seconds. The player cuts it off at the limit of the attempt."""

    outcome: Outcome = Outcome()
    seconds: float = 0.0
    output: Any = None
    usage: dict[str, Any] = {}
    # The data of the run that it sets.
    data: dict[str, Any] = {}
    # Its worker is lost: nothing is known of how it ended.
    is_lost: bool = False
    # For a program: what it has called in this turn.
    turn: TurnEnd | None = None


class AssumedChild(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a child run ends that is not played itself."""

    status: Literal["completed", "failed", "cancelled"] = "completed"
    seconds: float = 0.0
    outputs: dict[str, Any] = {}
    failures: tuple[Failure, ...] = ()
    usage: dict[str, Any] = {}
    reason: str = ""


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person says about a parked step (`retry`, `fail`) or an approval (`approve`, `refuse`), and when."""

    verdict: Literal["retry", "fail", "approve", "refuse"]
    seconds: float = 0.0
    by: str = "someone"
    reason: str = "assumed"
    memory: int | None = None
    timeout: float | None = None


class Outcomes(Protocol):
    """Says how what a run asks for ends. Each is asked once, when it starts."""

    def of_task(self, state: State, place: Place, task: QueueTask, at: datetime) -> Assumed:
        """How this attempt ends."""

    def of_child(self, state: State, place: Place, child: Workflow, at: datetime) -> AssumedChild | None:
        """How the child run that this place calls ends; None to play it too."""

    def of_event(self, state: State, place: Place, at: datetime) -> Assumed | None:
        """How a wait for an event ends; None if no event comes by itself."""

    def of_person(self, state: State, place: Place, at: datetime) -> Decision | None:
        """What is decided about a parked step or an approval; None if nobody ever decides."""

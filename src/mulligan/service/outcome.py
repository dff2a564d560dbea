"""What came of driving a run, for whoever tells it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ..core.budgets import RUN, budget_of
from ..core.spending import in_words
from ..core.state import State
from ..core.transitions import RUN_ENDED
from ..core.views import Wait, progress, waiting
from .account import Account, Answered
from .artifacts import located
from .driver import Driver, Ending
from .following import Following
from .verbs import Service

__all__ = ["Outcome", "Wait", "outcome"]

# What was written before we looked on is read again to tell it, up to so many entries.
ENTRIES_READ_MAX = 50_000


class Outcome(msgspec.Struct, frozen=True):
    """How a run stands when nobody drives it any more."""

    run_id: int
    ending: Ending
    status: str
    degraded: bool
    reason: str
    seconds: float
    counts: dict[str, int]
    answers: list[Answered]
    # Persons that are waited for: the run (itself or a child of it), and what they have to do.
    waits: list[tuple[int, Wait]]
    outputs: dict[str, Any]
    is_cut: bool = False
    # What its agents have spent, in words; "" where nothing is known of it.
    spent: str = ""

    @property
    def exit_code(self) -> int:
        return exit_code(self.ending, self.status)


def exit_code(ending: Ending, status: str) -> int:
    """What a process says in the end that has driven a run."""
    return _EXIT_CODES[status if ending == "ended" else ending]


_EXIT_CODES = {"completed": 0, "failed": 1, "cancelled": 3, "waiting": 4, "interrupted": 130}


def outcome(
    service: Service, driver: Driver, run_id: int, ending: Ending, following: Following, seconds: float
) -> Outcome:
    """What came of it, as the driver has it: to be asked before it retires."""
    state = _state(service, driver, run_id, ending, following)
    account = following.account if state is following.root else Account()
    run = state.run
    return Outcome(
        run_id,
        ending,
        run.status,
        run.degraded,
        run.reason,
        seconds,
        progress(state),
        _account(service, state, account).answers(state),
        _waits(state, (drive.state for drive in driver.engine.drives.values())) if ending == "waiting" else [],
        located(service.store.artifacts, run.outputs),
        following.is_cut,
        _spent(state),
    )


def _spent(state: State) -> str:
    """What agents have spent; "" where nobody has reported tokens or money, and no budget asks for it."""
    spent = state.run.spent
    is_told = spent.tokens is not None or spent.cost is not None or budget_of(state, RUN) is not None
    return in_words(spent) if is_told else ""


def _state(service: Service, driver: Driver, run_id: int, ending: Ending, following: Following) -> State:
    drive, seen = driver.engine.drives.get(run_id), following.root
    if drive is not None:
        return drive.state
    # Another worker may have brought it to its end, or a commit was written though we saw an error.
    has_missed_the_end = ending == "ended" and seen is not None and seen.run.status not in RUN_ENDED
    return service.state(run_id) if seen is None or has_missed_the_end else seen


def _account(service: Service, state: State, account: Account) -> Account:
    """The account, with what happened before we looked on: all of it, where nothing has happened since."""
    before = account.first_seq or state.run.seq + 1
    if 1 < before <= ENTRIES_READ_MAX:
        account.see_before(entry for entry in service.events(state.run.run_id) if entry.seq < before)
    return account


def _waits(root: State, states: Iterable[State]) -> list[tuple[int, Wait]]:
    states = {state.run.run_id: state for state in (root, *states)}.values()
    return [(state.run.run_id, wait) for state in states for wait in waiting(state) if wait.is_for_a_person]

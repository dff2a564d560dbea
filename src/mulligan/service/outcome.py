"""What came of driving a run, for whoever tells it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec

from mulligan.core.deciding.budgets import RUN, budget_of
from mulligan.core.model.spending import format_spent
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import StoreUnavailable
from mulligan.history.matrices import counted_failures
from mulligan.history.views import Wait, progress, waiting
from mulligan.service.artifacts import with_artifact_paths
from mulligan.service.driver import Driver, Ending
from mulligan.service.failure_summary import Account, Answered
from mulligan.service.run_progress import Following
from mulligan.service.run_reader import RunReader

__all__ = ["MatrixFailures", "Outcome", "Wait", "outcome"]

# What was written before we looked on is read again to tell it, up to so many entries.
ENTRIES_READ_MAX = 50_000
# So many failed steps of one matrix are told one by one.
ONE_BY_ONE_MAX = 3


class MatrixFailures(msgspec.Struct, frozen=True):
    """The steps of one matrix that failed and that nobody dealt with, where they are many."""

    name: str
    # How many steps it has, and those that failed.
    count: int
    failed: tuple[str, ...]
    # How many failed in which way, the most frequent first.
    kinds: dict[str, int]


class Outcome(msgspec.Struct, frozen=True):
    """How a run stands when nobody drives it any more."""

    run_id: int
    ending: Ending
    status: str
    degraded: bool
    reason: str
    # Since the run was asked for.
    seconds: float
    counts: dict[str, int]
    answers: list[Answered]
    # Persons that are waited for: the run (itself or a child of it), and what they have to do.
    waits: list[tuple[int, Wait]]
    outputs: dict[str, Any]
    is_cut: bool = False
    # Steps that took over what an earlier run had done.
    up_to_date: int = 0
    # Of the answers, those that can be told together.
    matrices: tuple[MatrixFailures, ...] = ()
    # How long it was driven just now; None where that is all of it.
    stretch_seconds: float | None = None
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
    service: RunReader,
    driver: Driver,
    run_id: int,
    ending: Ending,
    following: Following,
    seconds: float,
    *,
    is_taken_up: bool = False,
) -> Outcome:
    """What came of it, as the driver has it: to be asked before it retires.

    `seconds`: how long it was driven; `is_taken_up`: it had begun before that.
    """
    state = _state(service, driver, run_id, ending, following)
    account = following.account if state is following.root else Account()
    run, answers = state.run, _account(service, state, account).answers(state)
    return Outcome(
        run_id,
        ending,
        run.status,
        run.degraded,
        run.reason,
        _whole_seconds(service, run_id, seconds, is_taken_up=is_taken_up),
        progress(state),
        answers,
        _waits(state, (drive.state for drive in driver.engine.drivers.values())) if ending == "waiting" else [],
        with_artifact_paths(service.store.artifacts, run.outputs),
        following.is_cut,
        sum(place.reused_run_id > 0 for place in state.steps()),
        _matrices(state, answers),
        seconds if is_taken_up else None,
        _spent(state),
    )


def _matrices(state: State, answers: Iterable[Answered]) -> tuple[MatrixFailures, ...]:
    """The matrices of which more steps failed, and are open, than one wants to read one by one."""
    found: dict[str, list[str]] = {}
    for one in answers:
        if one.is_open and not one.is_item and (sweep := state.step(one.step).matrix_name):
            found.setdefault(sweep, []).append(one.step)
    return tuple(_failures(state, name, failed) for name, failed in found.items() if len(failed) > ONE_BY_ONE_MAX)


def _failures(state: State, name: str, failed: list[str]) -> MatrixFailures:
    failures = (state.places[step].failure for step in failed)
    kinds = counted_failures(failure for failure in failures if failure is not None)
    return MatrixFailures(name, len(state.graph.matrices[name]), tuple(failed), kinds)


def _whole_seconds(service: RunReader, run_id: int, driven: float, *, is_taken_up: bool) -> float:
    """From the moment in which the run was asked for to the last that was written of it, as lists and reports say it.

    Not less than this stretch of it, and of a run that has not ended until now. Where the store does not answer, this
    stretch alone: whoever interrupts a run while its server is away is told that it was interrupted.
    """
    try:
        record = service.record(run_id)
    except StoreUnavailable:
        return driven
    whole = max(0.0, (record.updated_at - record.created_at).total_seconds())
    if is_taken_up:
        return max(driven, whole)
    return whole if record.status in RUN_ENDED else driven


def recall(service: RunReader, run_id: int, following: Following) -> bool:
    """Let `following` know what is written of a run that is about to be driven; whether anything is.

    A sentence may name what happened before: whoever knows that says it in the same words as one who was there.
    """
    written = service.record(run_id).seq
    if 0 < written <= ENTRIES_READ_MAX:
        following.recall(run_id, list(service.events(run_id)))
    return written > 0


def _spent(state: State) -> str:
    """What agents have spent; "" where nobody has reported tokens or money, and no budget asks for it."""
    spent = state.run.spent
    is_told = spent.tokens is not None or spent.cost is not None or budget_of(state, RUN) is not None
    return format_spent(spent) if is_told else ""


def _state(service: RunReader, driver: Driver, run_id: int, ending: Ending, following: Following) -> State:
    drive, seen = driver.engine.drivers.get(run_id), following.root
    if drive is not None:
        return drive.state
    # Another worker may have brought it to its end, or a commit was written though we saw an error.
    has_missed_the_end = ending == "ended" and seen is not None and seen.run.status not in RUN_ENDED
    return service.state(run_id) if seen is None or has_missed_the_end else seen


def _account(service: RunReader, state: State, account: Account) -> Account:
    """The account, with what happened before we looked on: all of it, where nothing has happened since."""
    before = account.first_seq or state.run.seq + 1
    if 1 < before <= ENTRIES_READ_MAX:
        with suppress(StoreUnavailable):
            account.see_before([entry for entry in service.events(state.run.run_id) if entry.seq < before])
    return account


def _waits(root: State, states: Iterable[State]) -> list[tuple[int, Wait]]:
    states = {state.run.run_id: state for state in (root, *states)}.values()
    return [(state.run.run_id, wait) for state in states for wait in waiting(state) if wait.is_for_a_person]

"""The outcome of driving a run, for the faces to show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from mulligan.core.deciding.agents.budgets import RUN, budget_of
from mulligan.core.deciding.rounds.rounds import needs_force
from mulligan.core.model.agents.spending import format_spent
from mulligan.core.model.workflow import END
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.state.verdict import dropped_outputs, is_handled, open_failures, unhandled
from mulligan.errors import StoreUnavailable
from mulligan.history.matrices import count_failures
from mulligan.history.phrases import describe_degraded
from mulligan.history.route_outcomes import FailureOutcome
from mulligan.history.views import Wait, count_steps, list_waits
from mulligan.service.driving.driver import Ending
from mulligan.service.driving.run_progress import RunProgress
from mulligan.service.runs.stored.artifacts import with_artifact_paths
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.views.failure_summary import FailureLine, FailureSummary

__all__ = ["MatrixFailures", "Outcome", "Wait", "build_outcome"]

# Up to this many earlier entries are read again for the summary.
ENTRIES_READ_MAX = 50_000
# Of up to this many child runs the summary says what went well after a failure.
CHILDREN_READ_MAX = 50
# Up to this many failed steps of one matrix are listed one by one.
ONE_BY_ONE_MAX = 3


class MatrixFailures(msgspec.Struct, frozen=True):
    """The unhandled failures of the steps of one matrix, if they are many."""

    name: str
    # The number of its steps, and those that failed.
    count: int
    failed: tuple[str, ...]
    # How many failed with which label, the most frequent first.
    kinds: dict[str, int]


class Outcome(msgspec.Struct, frozen=True):
    """The status of a run when it is no longer driven."""

    run_id: int
    ending: Ending
    status: str
    # `degraded: 1 recovered`, of a run that completed after failures; "" for any other.
    degraded: str
    reason: str
    # Since the run was created.
    seconds: float
    counts: dict[str, int]
    failures: list[FailureLine]
    # The waits for a person, each with its run: this one or a child run.
    waits: list[tuple[int, Wait]]
    outputs: dict[str, Any]
    is_cut: bool = False
    # The number of steps that reused the result of an earlier run.
    up_to_date: int = 0
    # The failures that are listed together.
    matrices: tuple[MatrixFailures, ...] = ()
    # How long this process drove it; None if that is all of it.
    stretch_seconds: float | None = None
    # What its agents have spent, as text; "" if that is unknown.
    spent: str = ""
    # Another round is refused without `--force`: what could not be undone would run again.
    needs_force: bool = False

    @property
    def exit_code(self) -> int:
        return exit_code(self.ending, self.status)


def exit_code(ending: Ending, status: str) -> int:
    """The exit code of a process that has driven a run."""
    return _EXIT_CODES[status if ending == "ended" else ending]


_EXIT_CODES = {"completed": 0, "failed": 1, "cancelled": 3, "waiting": 4, "interrupted": 130, "detached": 130}


def build_outcome(
    service: RunReader,
    states: Mapping[int, State],
    run_id: int,
    ending: Ending,
    progress: RunProgress,
    seconds: float,
    *,
    is_taken_up: bool = False,
) -> Outcome:
    """Build the outcome from the states of the runs that are driven or followed here.

    `seconds`: how long it was driven; `is_taken_up`: the run had started earlier.
    """
    state = _latest_state(service, states, run_id, ending, progress)
    summary = progress.failures if state is progress.root else FailureSummary()
    run, failures = state.run, _complete_summary(service, state, summary).lines(state)
    return Outcome(
        run_id=run_id,
        ending=ending,
        status=run.status,
        degraded=_describe_degraded(state) if run.degraded else "",
        reason=run.reason,
        seconds=_whole_seconds(service, run_id, seconds, is_taken_up=is_taken_up),
        counts=count_steps(state),
        failures=[*failures, *_repaired_below(service, run_id)],
        waits=_waits(state, states.values()) if ending == "waiting" else [],
        outputs=with_artifact_paths(service.store.artifacts, run.outputs),
        is_cut=progress.is_cut,
        up_to_date=sum(place.reused_run_id > 0 for place in state.steps()) if state.places else 0,
        matrices=_matrices(state, failures),
        stretch_seconds=seconds if is_taken_up else None,
        spent=_spent(state),
        needs_force=run.status in RUN_ENDED and needs_force(state),
    )


def failure_outcomes(service: RunReader, run_id: int) -> list[FailureLine]:
    """Every step and item that ever failed, and how its failure was handled."""
    summary = FailureSummary()
    summary.update(service.events(run_id))
    return summary.lines(service.state(run_id))


def _repaired_below(
    service: RunReader, run_id: int, above: str = "", left: list[int] | None = None
) -> list[FailureLine]:
    """What failed in child runs and went well after all: open failures are those of the step that called them."""
    left = [CHILDREN_READ_MAX] if left is None else left
    found: list[FailureLine] = []
    try:
        children = service.store.children(run_id)[: left[0]]
        names = service.name_places(run_id, [child.parent_place for child in children])
        for child in children:
            left[0] -= 1
            if left[0] < 0:
                break
            where = f"{above}{names[child.parent_place]}/"
            if service.lazy_state(child.run_id).tallies:
                repaired = (
                    one for one in failure_outcomes(service, child.run_id) if one.outcome == FailureOutcome.REPAIRED
                )
                found += [replace(one, run_id=child.run_id, above=where) for one in repaired]
            found += _repaired_below(service, child.run_id, where, left)
    except StoreUnavailable:
        # A summary without them is better than none.
        return found
    return found


def _describe_degraded(state: State) -> str:
    places = state.places.values()
    recovered = {place.parent if place.role == "item" else place.key for place in places if place.recovered_by}
    handled = {record.step for record in open_failures(state) if record.step != END and is_handled(state, record)}
    failed = {record.step for record in unhandled(state)}
    dropped = sum(1 for _ in dropped_outputs(state))
    return describe_degraded(len(recovered & state.graph.nodes.keys()), len(handled - failed), dropped)


def _matrices(state: State, failures: Iterable[FailureLine]) -> tuple[MatrixFailures, ...]:
    """The matrices with too many open failures to list one by one."""
    found: dict[str, list[str]] = {}
    for one in failures:
        if one.is_unhandled and not one.is_item and (sweep := state.step(one.step).matrix_name):
            found.setdefault(sweep, []).append(one.step)

    def summed(name: str, failed: list[str]) -> MatrixFailures:
        kinds = count_failures(one for step in failed if (one := state.places[step].failure) is not None)
        return MatrixFailures(name, len(state.graph.matrices[name]), tuple(failed), kinds)

    return tuple(summed(name, failed) for name, failed in found.items() if len(failed) > ONE_BY_ONE_MAX)


def _whole_seconds(service: RunReader, run_id: int, driven: float, *, is_taken_up: bool) -> float:
    """The time from the creation of the run to its last update, as in lists and reports.

    At least the time that it was driven. If the store does not answer, only that time: a run that is interrupted while
    its server is away still gets a summary.
    """
    try:
        record = service.record(run_id)
    except StoreUnavailable:
        return driven
    whole = max(0.0, (record.updated_at - record.created_at).total_seconds())
    if is_taken_up:
        return max(driven, whole)
    return whole if record.status in RUN_ENDED else driven


def add_earlier_events(service: RunReader, run_id: int, progress: RunProgress) -> bool:
    """Add the earlier entries of a run to `progress` before it is driven; return whether there are any.

    Later sentences refer to them, so that a resumed run has the same story lines.
    """
    written = service.record(run_id).seq
    if 0 < written <= ENTRIES_READ_MAX:
        progress.add_earlier(run_id, list(service.events(run_id)))
    return written > 0


def _spent(state: State) -> str:
    """What agents have spent; "" if no tokens or costs were reported and there is no budget."""
    spent = state.run.spent
    is_shown = spent.tokens is not None or spent.cost is not None or budget_of(state, RUN) is not None
    return format_spent(spent) if is_shown else ""


def _latest_state(
    service: RunReader, states: Mapping[int, State], run_id: int, ending: Ending, progress: RunProgress
) -> State:
    last = progress.root
    if run_id in states:
        return states[run_id]
    # Another worker may have ended it, or a commit was written although it reported an error.
    has_missed_the_end = ending == "ended" and last is not None and last.run.status not in RUN_ENDED
    return service.state(run_id) if last is None or has_missed_the_end else last


def _complete_summary(service: RunReader, state: State, summary: FailureSummary) -> FailureSummary:
    """The summary with the earlier entries added; with all entries, if there are no later ones."""
    before = summary.first_seq or state.run.seq + 1
    if 1 < before <= ENTRIES_READ_MAX:
        with suppress(StoreUnavailable):
            summary.add_earlier([entry for entry in service.events(state.run.run_id) if entry.seq < before])
    return summary


def _waits(root: State, states: Iterable[State]) -> list[tuple[int, Wait]]:
    states = {state.run.run_id: state for state in (root, *states)}.values()
    return [(state.run.run_id, wait) for state in states for wait in list_waits(state) if wait.is_from_outside]

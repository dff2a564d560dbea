"""How long the steps of a workflow took in its earlier runs, as the store has it."""

from __future__ import annotations

from collections.abc import Iterator

from mulligan.core.state.state import State
from mulligan.history.estimate import StepDuration, measure_steps, median_durations
from mulligan.ports import RunRecord, Store

# Of how many runs the newest completed ones of the same workflow are looked for, how many of them count, and how long
# a log may be that is read for it: this is done while the run is driven.
RUNS_SEEN_MAX, RUNS_READ_MAX, ENTRIES_READ_MAX = 200, 3, 4_000


def typical_durations(store: Store, state: State) -> dict[str, StepDuration]:
    """What each step takes typically, by the newest completed runs of this workflow; nothing where there is none."""
    logs = (store.log(record.run_id, limit=ENTRIES_READ_MAX) for record in _earlier(store, state))
    runs = (found for log in logs if len(log) < ENTRIES_READ_MAX and (found := measure_steps(log)) is not None)
    return median_durations(runs)


def _earlier(store: Store, state: State) -> Iterator[RunRecord]:
    count = 0
    for record in store.runs(limit=RUNS_SEEN_MAX, before=state.run.run_id, statuses=("completed",)):
        if count < RUNS_READ_MAX and record.workflow == state.workflow.name and record.parent_run_id is None:
            count += 1
            yield record

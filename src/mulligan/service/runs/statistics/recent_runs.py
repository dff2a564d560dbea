"""What fails now, and how the runs of the last days ended: for a page that somebody opens first.

All of it is bounded: failures by their number, the days by an index and by what is remembered of each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, tzinfo
from itertools import pairwise

import msgspec

from mulligan.core.effects.run_lists import OutcomeCount, RunFilter
from mulligan.ports import RunRecord
from mulligan.service.decisions.pending import find_waiting
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.views.run_list import RunLine, RunQuery, run_lines, run_page

# How far back is looked, in days.
DAYS = 14
# For how long a failure is recent, though later runs have completed: a night, or a weekend.
RECENT = timedelta(days=3)
# How many of the newest failed runs are looked at.
FAILED_RUNS_MAX = 200
# How many groups of them are listed, the newest ones.
GROUPS_MAX = 20
# For how long the counts of a day that has passed are good. Its runs rarely change, but one may be run again.
KEPT = timedelta(seconds=60)


class FailingGroup(msgspec.Struct, frozen=True):
    """Failed runs of one workflow with the same failure code."""

    workflow: str
    # "" for a run that failed without a failure that nothing handled, such as one over its time limit.
    code: str
    # The newest of them.
    run: RunLine
    count: int
    # The oldest of those that were looked at.
    first_at: datetime
    # The run that has completed since, if there is one. What the failed ones had to do may be missing all the same.
    completed: RunRecord | None
    # How many of them failed recently, and after what the reader has seen.
    recent_count: int = 0


class Failing(msgspec.Struct, frozen=True):
    """What failed: what fails still comes first, then what failed recently, then the newest."""

    groups: list[FailingGroup]
    # Since when, or since the oldest run that was looked at.
    since: datetime
    # Whether there are failed runs that were not looked at.
    is_cut: bool


class WaitingRuns(msgspec.Struct, frozen=True):
    """The runs that wait for a person, those that wait longest first, and how many places of runs wait."""

    runs: list[RunLine]
    run_count: int
    place_count: int


class Day(msgspec.Struct, frozen=True):
    """A day in the life of a workflow: how many runs that were created then have each outcome."""

    begin: datetime
    end: datetime
    outcomes: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.outcomes.values())


class WorkflowDays(msgspec.Struct, frozen=True):
    """The last days of a workflow, the oldest first."""

    workflow: str
    days: list[Day]
    # Of all days.
    outcomes: dict[str, int]


class RecentRuns:
    """Reads what the runs of the last days did."""

    def __init__(self, reader: RunReader, now: Callable[[], datetime]) -> None:
        self._reader = reader
        self._now = now

    def failing(self, seen: datetime | None = None) -> Failing:
        """The failed runs of the last days, by workflow and failure code. `seen`: until when the reader knows them."""
        now = self._now()
        recent = max(now - RECENT, seen) if seen is not None else now - RECENT
        since = now - timedelta(days=DAYS)
        if not self._reader.home.is_there:
            return Failing([], since, is_cut=False)
        query = RunQuery(statuses=("failed",), since=since, limit=FAILED_RUNS_MAX)
        page = run_page(self._reader.store, query, self._reader.live_workers(), now)
        found: dict[tuple[str, str], list[RunLine]] = defaultdict(list)
        for run in page.runs:
            found[run.workflow, run.failure.code if run.failure else ""].append(run)
        # The newest run of each group comes first, and so do the groups.
        listed = list(found.items())[:GROUPS_MAX]
        newest = {workflow: runs[0] for (workflow, _), runs in reversed(listed)}
        completed = {workflow: self._completed_since(run) for workflow, run in newest.items()}
        groups = [
            FailingGroup(
                workflow=workflow,
                code=code,
                run=runs[0],
                count=len(runs),
                first_at=runs[-1].created_at,
                completed=completed[workflow],
                recent_count=sum(run.updated_at > recent for run in runs),
            )
            for (workflow, code), runs in listed
        ]
        groups.sort(key=lambda one: (one.completed is not None, one.recent_count == 0))
        is_cut = page.next is not None or len(found) > len(listed)
        return Failing(groups, page.runs[-1].created_at if page.next else since, is_cut)

    def _completed_since(self, run: RunLine) -> RunRecord | None:
        """The newest run of the workflow that completed after this one had failed."""
        wanted = RunFilter(workflows=(run.workflow,), statuses=("completed",))
        found = self._reader.store.lists.find(wanted, limit=1)
        return found[0] if found and found[0].updated_at > run.updated_at else None

    def waiting(self, limit: int) -> WaitingRuns:
        """Which runs wait for a person. The state of none of them is loaded."""
        if not self._reader.home.is_there:
            return WaitingRuns([], 0, 0)
        store = self._reader.store
        found = find_waiting(store)
        # What a run waits for is shown of the run that called it, too.
        roots = sorted({one.root_run_id or one.run_id for one in found.values()})
        records = sorted(store.lists.records(roots[:limit]), key=lambda one: one.run_id)
        return WaitingRuns(run_lines(store, records, self._reader.live_workers(), self._now()), len(roots), len(found))

    def history(self, zone: tzinfo) -> list[WorkflowDays]:
        """The last days of each workflow, by the calendar of a time zone; the one with most failures first.

        A degraded run has the outcome `degraded`; a new one counts as running.
        """
        if not self._reader.home.is_there:
            return []
        now = self._now()
        days = _days(now.astimezone(zone))
        counted = [self._counts(begin, end, now) for begin, end in days]
        names = dict.fromkeys(one.workflow for counts in counted for one in counts)
        by_day = [_outcomes(counts) for counts in counted]
        found = []
        for name in names:
            of_days = [dict(of.get(name, {})) for of in by_day]
            total: Counter[str] = Counter()
            for one in of_days:
                total.update(one)
            spans = zip(days, of_days, strict=True)
            found.append(WorkflowDays(name, [Day(begin, end, one) for (begin, end), one in spans], dict(total)))
        return sorted(found, key=_by_trouble)

    def _counts(self, begin: datetime, end: datetime, now: datetime) -> Sequence[OutcomeCount]:
        reader = self._reader
        return reader.counts.read(
            ("outcomes", reader.project, begin, end),
            lambda: reader.store.lists.outcome_counts(begin, end),
            lambda store: store.lists.outcome_counts(begin, end, reader.project),
            lambda counts: sum(one.count for one in counts),
            at_least=KEPT if end <= now else timedelta(0),
        )


def _by_trouble(one: WorkflowDays) -> tuple[int, int, str]:
    counts = one.outcomes
    return -counts.get("failed", 0), -sum(counts.values()), one.workflow


def _days(now: datetime) -> list[tuple[datetime, datetime]]:
    """The beginning and the end of the last days, today last. A day may have 23 or 25 hours."""
    zone, today = now.tzinfo, now.date()
    starts = [
        datetime.combine(today - timedelta(days=back), datetime.min.time(), zone) for back in range(DAYS - 1, -2, -1)
    ]
    return list(pairwise(starts))


def _outcomes(counts: Sequence[OutcomeCount]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for one in counts:
        status = "running" if one.status == "new" else one.status
        found[one.workflow]["degraded" if one.degraded and status == "completed" else status] += one.count
    return found

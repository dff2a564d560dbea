"""What many runs together say: which recovery works, week by week; what steps use; what agents cost.

Each looks at the newest runs only, so that it takes about as long in a large store as in a small one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import msgspec

from mulligan.core.effects.run_lists import RunFilter, unhandled_by_records
from mulligan.core.effects.snapshot import read_failure, read_spent, read_tally
from mulligan.core.evolve.tallies import parse_tally_key
from mulligan.core.model.agents.spending import NOTHING_SPENT, Spent, spent_json
from mulligan.core.model.events import Entry
from mulligan.core.model.workflow import Workflow
from mulligan.core.state.state import FailureRecord
from mulligan.errors import InputInvalid
from mulligan.history.consumption import consumption
from mulligan.ports import RunRecord
from mulligan.service.runs.statistics.stats import (
    OF_AGENTS,
    AgentStats,
    Counted,
    RungStats,
    sum_agent_tallies,
    sum_tallies,
)
from mulligan.service.runs.statistics.usage import StepUsage, step_usage
from mulligan.service.runs.stored.damaged_runs import readable_runs
from mulligan.service.runs.stored.run_reader import RunReader, readable

WEEKS_MAX, DAYS_MAX, RUNS_MAX = 104, 366, 5000
# How many counters of one run are read. A run has one for each step and rung that was tried.
_TALLIES_MAX = 2000
# How many failed visits of one run are read.
_FAILURES_MAX = 500
# How many events are read to compare what steps asked for and used, and of how many runs at most.
EVENTS_MAX, USAGE_RUNS_MAX = 60_000, 50


class WeekStats(msgspec.Struct, frozen=True):
    """How often one kind of rung was tried and worked in the runs that began in a week."""

    # A Monday, 0:00 UTC.
    week: datetime
    rung: str
    tried: int
    worked: int


class CodeStats(msgspec.Struct, frozen=True):
    """What became of the visits that failed with a code, after all retries."""

    code: str
    runs: int
    failed: int
    # A handler made them succeed; a failure edge or the file itself dealt with them; nothing did.
    recovered: int
    handled: int
    unhandled: int


class RecoveryTrend(msgspec.Struct, frozen=True):
    """Which recovery works: week by week, and over the whole time for each step and rung."""

    since: datetime
    # Those with something to show, the oldest first.
    weeks: list[WeekStats]
    stats: list[RungStats]
    # How often agents that decide about failures were right.
    agents: list[AgentStats]
    # The workflows that the runs are of.
    workflows: list[str]
    runs: int
    # There are older runs in this time, which are not counted.
    is_cut: bool
    # Those with most unhandled failures first.
    codes: list[CodeStats] = []


class WorkflowUsage(msgspec.Struct, frozen=True):
    """What the steps of a workflow asked for and used, over its newest runs together."""

    workflow: str
    # The newest first. The numbers of steps are of all of them; what was asked for is of the newest.
    run_ids: list[int]
    usage: list[StepUsage]
    # Runs that were left out since they have too many events to read, or are damaged.
    left_out: int = 0


class WorkflowSpending(msgspec.Struct, frozen=True):
    """What the agents of a workflow have spent."""

    workflow: str
    # How many of its runs have spent something.
    runs: int
    spent: dict[str, Any]
    # The run that has cost most, or used most tokens where no cost is known.
    largest_run_id: int
    largest: dict[str, Any]


class Spending(msgspec.Struct, frozen=True):
    """What agents have spent since then, the most expensive workflow first."""

    since: datetime
    workflows: list[WorkflowSpending]
    total: dict[str, Any]
    runs: int
    is_cut: bool


class Trends:
    """Readings over the newest runs of a store, or of the one project that `reader` shows."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader

    def recovery(self, now: datetime, *, weeks: int = 26, workflow: str = "") -> RecoveryTrend:
        """How often each rung was tried and worked, in the runs of the last weeks."""
        _check(weeks, WEEKS_MAX, "weeks")
        since = monday(now) - timedelta(weeks=weeks - 1)
        records, is_cut = self._newest(
            RunFilter(since=since, workflows=(workflow,) if workflow else (), with_children=True)
        )
        by_id = {record.run_id: record for record in records}
        rows = self._rows(list(by_id), "tallies", _TALLIES_MAX)
        counted = [
            Counted(run_id, by_id[run_id].workflow, by_id[run_id].version, key, tally)
            for run_id, key, tally in readable(sorted(rows, key=lambda row: -row[0]), read_tally)
        ]
        sums: dict[tuple[datetime, str], list[int]] = defaultdict(lambda: [0, 0])
        for run_id, _, _, key, tally in counted:
            rung = parse_tally_key(key)[2]
            if rung in OF_AGENTS:
                continue
            found = sums[monday(by_id[run_id].created_at), rung]
            found[0] += tally.tried
            found[1] += tally.worked
        return RecoveryTrend(
            since=since,
            weeks=[WeekStats(week, rung, *sums[week, rung]) for week, rung in sorted(sums) if sums[week, rung][0]],
            stats=sum_tallies(self._reader.store, counted),
            agents=sum_agent_tallies(counted),
            workflows=sorted({record.workflow for record in records}),
            runs=len(records),
            is_cut=is_cut,
            codes=self._codes(by_id),
        )

    def _codes(self, by_id: Mapping[int, RunRecord]) -> list[CodeStats]:
        """What became of failures, by their code."""
        records: dict[int, list[FailureRecord]] = defaultdict(list)
        for kind in ("failures", "recoveries"):
            for run_id, _, failure in readable(self._rows(list(by_id), kind, _FAILURES_MAX), read_failure):
                records[run_id].append(failure)
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        runs: dict[str, set[int]] = defaultdict(set)
        for run_id, some in records.items():
            # A run that did not fail has handled or allowed what failed in it, perhaps by another round.
            has_failed = by_id[run_id].status in ("failed", "cancelled")
            left = {(one.step, one.visit) for one in unhandled_by_records(some)} if has_failed else set()
            for one in some:
                is_left = not one.is_closed and (one.step, one.visit) in left
                became = "recovered" if one.recovered_by else "unhandled" if is_left else "handled"
                counts[one.failure.code][became] += 1
                runs[one.failure.code].add(run_id)
        found = [
            CodeStats(code, len(runs[code]), of.total(), of["recovered"], of["handled"], of["unhandled"])
            for code, of in counts.items()
        ]
        return sorted(found, key=lambda one: (-one.unhandled, -one.failed, one.code))

    def workflows(self, limit: int = 500) -> list[str]:
        """The workflows of the newest runs, those with most runs first."""
        found = Counter(record.workflow for record in self._newest(RunFilter(with_children=True), limit)[0])
        return sorted(found, key=lambda name: (-found[name], name))

    def usage(self, workflow: str, *, runs: int = 10, events_max: int = EVENTS_MAX) -> WorkflowUsage:
        """What the steps of a workflow asked for and used, in its newest runs that have ended."""
        _check(runs, USAGE_RUNS_MAX, "runs")
        wanted = RunFilter(statuses=("completed", "failed", "cancelled"), workflows=(workflow,), with_children=True)
        chosen: list[int] = []
        budget, left_out = events_max, 0
        for record in self._newest(wanted, runs)[0]:
            if record.seq <= budget:
                budget -= record.seq
                chosen.append(record.run_id)
            else:
                left_out += 1
        read = list(readable_runs(self._reader, chosen, self._recorded))
        left_out += len(chosen) - len(read)
        if not read:
            return WorkflowUsage(workflow, [], [], left_out)
        run_id, newest, _ = read[0]
        entries = chain.from_iterable(log for _, _, log in read)
        usage = [step_usage(run_id, one) for one in consumption(newest, entries)]
        return WorkflowUsage(workflow, [run_id for run_id, _, _ in read], usage, left_out)

    def _recorded(self, run_id: int) -> tuple[int, Workflow, list[Entry]]:
        return run_id, self._reader.lazy_state(run_id).workflow, list(self._reader.events(run_id))

    def spending(self, now: datetime, *, days: int = 30) -> Spending:
        """What agents have spent in the runs of the last days, by workflow."""
        _check(days, DAYS_MAX, "days")
        since = now - timedelta(days=days)
        # What a child run has spent is part of what its parent has.
        records, is_cut = self._newest(RunFilter(since=since))
        by_id = {record.run_id: record for record in records}
        spent: dict[str, dict[int, Spent]] = defaultdict(dict)
        for run_id, _, found in readable(self._rows(list(by_id), "spent", 1), read_spent):
            if found:
                spent[by_id[run_id].workflow][run_id] = found
        sums = {workflow: sum(of.values(), NOTHING_SPENT) for workflow, of in spent.items()}
        ordered = sorted(spent, key=lambda workflow: (*_size(sums[workflow]), workflow), reverse=True)
        return Spending(
            since=since,
            workflows=[_spending(workflow, sums[workflow], spent[workflow]) for workflow in ordered],
            total=spent_json(sum(sums.values(), NOTHING_SPENT)) or {},
            runs=len(records),
            is_cut=is_cut,
        )

    def _newest(self, wanted: RunFilter, limit: int = RUNS_MAX) -> tuple[list[RunRecord], bool]:
        """The newest runs that match, and whether there are more."""
        if not self._reader.home.is_there:
            return [], False
        wanted = msgspec.structs.replace(wanted, project=self._reader.project)
        found = self._reader.store.lists.find(wanted, limit=limit + 1)
        return found[:limit], len(found) > limit

    def _rows(self, run_ids: list[int], kind: str, limit: int) -> list[tuple[int, str, bytes]]:
        return self._reader.store.lists.rows(run_ids, kind, limit) if run_ids else []


def monday(at: datetime) -> datetime:
    """The beginning of the week of a time, in UTC."""
    day = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day - timedelta(days=day.weekday())


def _spending(workflow: str, total: Spent, by_run: dict[int, Spent]) -> WorkflowSpending:
    largest = max(by_run, key=lambda run_id: (*_size(by_run[run_id]), run_id))
    return WorkflowSpending(
        workflow=workflow,
        runs=len(by_run),
        spent=spent_json(total) or {},
        largest_run_id=largest,
        largest=spent_json(by_run[largest]) or {},
    )


def _size(spent: Spent) -> tuple[Any, int, int]:
    return spent.cost or 0, spent.tokens or 0, spent.calls


def _check(number: int, most: int, what: str) -> None:
    if not 1 <= number <= most:
        raise InputInvalid(f"'{what}' is between 1 and {most:,}, not {number:,}", parameter=what)

"""Lists of runs and of work, from a database.

Runs are found by candidates from the shortest index, then the whole filter for each of them. All lists of candidates
are in the order of run ids, the newest first. So a page takes time in proportion to the shortest list, however many
runs there are, and a page continues where the one before ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from mulligan.core.effects.run_lists import Attribute, LeasedTask, OpenTasks, OpenTimer, OutcomeCount, RunFilter
from mulligan.ports import RunRecord
from mulligan.store.columns import (
    attribute_from,
    kept_row,
    leased_task_from,
    open_tasks_from,
    open_timer_from,
    run_from,
)
from mulligan.store.encoding import micros
from mulligan.store.run_filters import FILTERS, Lookup, Words, asked_fields, lookups, micros_or_none, parameters
from mulligan.store.run_search import NO_LIMIT
from mulligan.store.sql.shared_outputs import whole_rows
from mulligan.store.sql.sql_arrays import Bigints
from mulligan.store.sql.sql_database import SqlDatabase

# What a run may be.
RUN_STATUSES = ("new", "running", "paused", "completed", "failed", "cancelled")
# How many candidates of each list are read to find out which list is the shortest.
SAMPLE = 200
# How many candidates are checked at once: at first, and at most.
CHUNK_MIN, CHUNK_MAX = 200, 5_000


class Source(msgspec.Struct, frozen=True):
    """Runs that may match: those that one statement gives for any of these parameters."""

    statement: str
    params: Sequence[dict[str, Any]]
    # The fields of the filter that all of these runs match.
    answers: frozenset[str]


class SqlRunLists:
    def __init__(self, database: SqlDatabase) -> None:
        self._db = database

    # -- what differs

    def _candidates_by_words(self, words: tuple[str, ...], before: int, after: int, limit: int) -> list[int]:
        raise NotImplementedError

    def _words(self, words: tuple[str, ...]) -> Any:
        """These words as the statement takes them that looks for them in given runs."""
        raise NotImplementedError

    def _places(self, keys: Collection[tuple[int, str]]) -> list[Any]:
        raise NotImplementedError

    # -- runs

    def find(self, wanted: RunFilter, *, limit: int, before: int | None = None) -> list[RunRecord]:
        return self.records(self._found(wanted, limit=limit, before=before))

    def records(self, run_ids: Collection[int]) -> list[RunRecord]:
        return [run_from(row) for row in self._db.query("runs_with_ids", Bigints(run_ids))] if run_ids else []

    def count(self, wanted: RunFilter, *, limit: int) -> int:
        return len(self._found(wanted, limit=limit))

    def status_counts(self, project: str | None = None) -> dict[str, int]:
        if project is None:
            return dict(self._db.query("status_counts"))
        return dict(self._db.query("status_counts_of_project", project))

    def outcome_counts(self, since: datetime, until: datetime, project: str | None = None) -> list[OutcomeCount]:
        rows = self._db.query("outcome_counts", since=micros(since), until=micros(until), project=project)
        return [OutcomeCount(workflow, status, bool(degraded), count) for workflow, status, degraded, count in rows]

    # -- searching

    def _found(self, wanted: RunFilter, *, limit: int, before: int | None = None) -> list[int]:
        """The ids of the runs that match, the newest first, at most `limit`."""
        first, after = NO_LIMIT if before is None else min(before, NO_LIMIT), -1
        if wanted.since is not None or wanted.until is not None:
            # No run that was created in this time has a higher id than the first, or a lower one than the second.
            times = {"since": micros_or_none(wanted.since), "until": micros_or_none(wanted.until)}
            ((highest, lowest),) = self._db.query("time_bounds", **times)
            first, after = min(first, highest or NO_LIMIT), lowest or after
        sources = list(self._sources(wanted))
        if not sources:
            answers = frozenset(["with_children"])
            sources = [Source("candidates_of_all", [{"with_children": wanted.with_children}], answers)]
        source = sources[0] if len(sources) == 1 else self._shortest(sources, first, after)
        if len(sources) == 1 and asked_fields(wanted).keys() <= source.answers:
            return self._candidates(source, first, after, limit)
        found: list[int] = []
        chunk = min(CHUNK_MAX, max(CHUNK_MIN, 2 * limit))
        while len(found) < limit:
            run_ids = self._candidates(source, first, after, chunk)
            found += self._matching(wanted, run_ids) if run_ids else ()
            if len(run_ids) < chunk:
                break
            first, chunk = run_ids[-1], min(CHUNK_MAX, chunk * 4)
        return found[:limit]

    def _sources(self, wanted: RunFilter) -> Iterator[Source]:
        """The indexes that contain every run that matches."""
        for name, value in asked_fields(wanted).items():
            index = FILTERS[name].listed_by
            if index is not None and (index.has_children or not wanted.with_children):
                answers = frozenset([name] if index.has_children else [name, "with_children"])
                yield from (Source(index.statement, params, answers) for params in index.lists(value))
        if not wanted.with_children and (wanted.statuses or wanted.project is not None):
            # One index for both: each project has a list for each status.
            is_of_all = wanted.project is None
            projects = [row[0] for row in self._db.query("projects")] if is_of_all else [wanted.project]
            statuses = dict.fromkeys(wanted.statuses or RUN_STATUSES)
            params = [{"project": project, "value": status} for project in projects for status in statuses]
            yield Source("candidates_by_status", params, frozenset(["statuses", "project", "with_children"]))

    def _shortest(self, sources: Sequence[Source], before: int, after: int) -> Source:
        """The source with the fewest candidates: one that ends within the sample, or whose sample reaches back most."""

        def reach(source: Source) -> tuple[bool, int]:
            sample = self._candidates(source, before, after, SAMPLE)
            return (False, len(sample)) if len(sample) < SAMPLE else (True, sample[-1])

        return min(sources, key=reach)

    def _candidates(self, source: Source, before: int, after: int, limit: int) -> list[int]:
        """Ids between `before` and `after`, without these two, the newest first."""
        between = {"before": before, "after": after, "limit": limit}
        if source.statement == "candidates_by_words":
            return self._candidates_by_words(source.params[0]["words"], **between)
        lists = [self._db.query(source.statement, **params, **between) for params in source.params]
        return sorted({run_id for rows in lists for (run_id,) in rows}, reverse=True)[:limit]

    def _matching(self, wanted: RunFilter, run_ids: Collection[int]) -> list[int]:
        """Those of these runs that match, the newest first."""
        # First what is found in the fewest pages: entries of one value stand together, rows of runs are spread.
        found = self._looked_up(run_ids, lookups(wanted, is_slow=False))
        if found:
            rows = self._db.query("matching_runs", run_ids=Bigints(found), **parameters(wanted))
            found = [run_id for (run_id,) in rows]
        return self._looked_up(found, lookups(wanted, is_slow=True))

    def _looked_up(self, run_ids: Collection[int], asked: Iterable[Lookup]) -> list[int]:
        """Those of these runs that all these statements find, the newest first if one was asked."""
        found = list(run_ids)
        for lookup in asked:
            if found:
                given = [self._words(one) if isinstance(one, Words) else one for one in lookup.params]
                found = [run_id for (run_id,) in self._db.query(lookup.statement, Bigints(found), *given)]
        return found

    # -- what is shown of runs

    def attributes(self, run_ids: Collection[int]) -> list[tuple[int, Attribute]]:
        return [attribute_from(row) for row in self._db.query("attributes", Bigints(run_ids))]

    def rows(self, run_ids: Collection[int], kind: str, limit: int) -> list[tuple[int, str, bytes]]:
        rows = self._db.query("rows_of_kind", Bigints(run_ids), kind, limit)
        return [kept_row(row) for row in whole_rows(rows, self._db)]

    def places(self, keys: Collection[tuple[int, str]]) -> list[tuple[int, str, bytes]]:
        return [kept_row(row) for row in whole_rows(self._places(keys), self._db)]

    # -- work

    def open_tasks(self, root_run_ids: Collection[int]) -> list[OpenTasks]:
        # SQLite has one more column, by which it chooses the row.
        return [open_tasks_from(row[:7]) for row in self._db.query("open_tasks", Bigints(root_run_ids))]

    def open_timers(self, root_run_ids: Collection[int]) -> list[OpenTimer]:
        return [open_timer_from(row) for row in self._db.query("open_timers", Bigints(root_run_ids))]

    def leased_tasks(self) -> list[LeasedTask]:
        return [leased_task_from(row) for row in self._db.query("leased_tasks")]

    def holders(self) -> list[tuple[str, int, int]]:
        return [(name, count, run_id) for name, count, run_id in self._db.query("holders")]

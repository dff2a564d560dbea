"""Finds runs by a filter in a database: candidates from the shortest index, then the whole filter for each of them.

All lists of candidates are in the order of run ids, the newest first. So a page takes time in proportion to the
shortest list, however many runs there are, and a page continues where the one before ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from mulligan.core.effects.run_lists import Attribute, RunFilter, attribute_words, attributes, start_words
from mulligan.ports import NewRun
from mulligan.store.encoding import micros
from mulligan.store.run_filters import FILTERS, asked_fields

NO_LIMIT = 2**63 - 1
# What a run may be.
RUN_STATUSES = ("new", "running", "paused", "completed", "failed", "cancelled")
# How many candidates of each list are read to find out which list is the shortest.
SAMPLE = 200
# How many of the newest runs are searched for words before the index is asked for all of them.
NEAR_RUNS = 1_000
# How many candidates are checked at once: at first, and at most.
CHUNK_MIN, CHUNK_MAX = 200, 5_000


class NewEntries(NamedTuple):
    """What a new run is found by: attributes, words that stay, and words of inputs, which a corrected file changes."""

    attributes: Sequence[Attribute]
    words: str
    input_words: str


def new_entries(run: NewRun) -> NewEntries:
    request = run.request
    found = attributes(request.inputs, request.labels)
    return NewEntries(found, start_words(run.name, request.by, request.labels), attribute_words(found))


def creation_skew(runs: Iterable[NewRun]) -> tuple[int, int]:
    """The earliest creation time of new runs, and how far their order by time differs from their own; microseconds."""
    latest = among = 0
    times = [micros(run.request.at) for run in runs]
    for at in times:
        latest = max(latest, at)
        among = max(among, latest - at)
    return min(times), among


class Source(NamedTuple):
    """Runs that may match: those that one statement gives for any of these parameters."""

    statement: str
    params: Sequence[dict[str, Any]]
    # The fields of the filter that all of these runs match.
    answers: frozenset[str]


class SearchTables(Protocol):
    """What the search asks of a database."""

    def candidates(self, source: str, params: dict[str, Any], before: int, after: int, limit: int) -> list[int]:
        """Ids between `before` and `after`, without these two, the newest first."""

    def matching(self, wanted: RunFilter, run_ids: Collection[int]) -> list[int]:
        """Those of these runs that match, the newest first."""

    def projects(self) -> list[str]:
        """The projects that have runs."""

    def time_bounds(self, since: datetime | None, until: datetime | None) -> tuple[int | None, int | None]:
        """Two runs: none that was created in this time has a higher id than the first, or a lower than the second."""


def search(tables: SearchTables, wanted: RunFilter, *, limit: int, before: int | None = None) -> list[int]:
    """The ids of the runs that match, the newest first, at most `limit`."""
    first, after = NO_LIMIT if before is None else min(before, NO_LIMIT), -1
    if wanted.since is not None or wanted.until is not None:
        highest, lowest = tables.time_bounds(wanted.since, wanted.until)
        first, after = min(first, highest or NO_LIMIT), lowest or after
    sources = list(_sources(tables, wanted))
    if not sources:
        answers = frozenset(["with_children"])
        sources = [Source("candidates_of_all", [{"with_children": wanted.with_children}], answers)]
    source = sources[0] if len(sources) == 1 else _shortest(tables, sources, first, after)
    if len(sources) == 1 and asked_fields(wanted).keys() <= source.answers:
        return _candidates(tables, source, first, after, limit)
    found: list[int] = []
    chunk = min(CHUNK_MAX, max(CHUNK_MIN, 2 * limit))
    while len(found) < limit:
        run_ids = _candidates(tables, source, first, after, chunk)
        found += tables.matching(wanted, run_ids) if run_ids else ()
        if len(run_ids) < chunk:
            break
        first, chunk = run_ids[-1], min(CHUNK_MAX, chunk * 4)
    return found[:limit]


def _sources(tables: SearchTables, wanted: RunFilter) -> Iterator[Source]:
    """The indexes that contain every run that matches."""
    for name, value in asked_fields(wanted).items():
        index = FILTERS[name].listed_by
        if index is not None and (index.has_children or not wanted.with_children):
            answers = frozenset([name] if index.has_children else [name, "with_children"])
            yield from (Source(index.statement, params, answers) for params in index.lists(value))
    if not wanted.with_children and (wanted.statuses or wanted.project is not None):
        # One index for both: each project has a list for each status.
        projects = tables.projects() if wanted.project is None else [wanted.project]
        statuses = dict.fromkeys(wanted.statuses or RUN_STATUSES)
        params = [{"project": project, "value": status} for project in projects for status in statuses]
        yield Source("candidates_by_status", params, frozenset(["statuses", "project", "with_children"]))


def _shortest(tables: SearchTables, sources: Sequence[Source], before: int, after: int) -> Source:
    """The source with the fewest candidates: one that ends within the sample, or whose sample reaches back most."""

    def reach(source: Source) -> tuple[bool, int]:
        sample = _candidates(tables, source, before, after, SAMPLE)
        return (False, len(sample)) if len(sample) < SAMPLE else (True, sample[-1])

    return min(sources, key=reach)


def _candidates(tables: SearchTables, source: Source, before: int, after: int, limit: int) -> list[int]:
    lists = [tables.candidates(source.statement, params, before, after, limit) for params in source.params]
    if len(lists) == 1:
        return lists[0]
    return sorted({run_id for one in lists for run_id in one}, reverse=True)[:limit]

"""A run as pages for people show it: as a graph, as a grid, as a feed of events, beside another run."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from mulligan.service.runs.stored.run_data import DataEntry, data_entries
from mulligan.service.runs.views.run_comparison import RunComparer, RunComparison
from mulligan.service.runs.views.run_events import EventFeed, read_feed
from mulligan.service.runs.views.run_graph import HrefOf, RunGraph, draw_run_graph
from mulligan.service.runs.views.run_grid import GridPage, GridQuery, read_grid

if TYPE_CHECKING:
    from mulligan.service.runs.stored.run_cache import RunCache
    from mulligan.service.runs.stored.run_reader import RunReader
    from mulligan.service.server.catalogue.catalogue import Catalogue


class RunViews:
    """Reads runs for pages."""

    def __init__(self, reader: RunReader, cache: RunCache, catalogue: Callable[[], Catalogue]) -> None:
        self._reader, self._cache, self._catalogue = reader, cache, catalogue

    def graph(self, run_id: int, href: HrefOf, *, step: str = "", is_expanded: bool = False) -> RunGraph:
        """The graph of a run as SVG; around a step, if one is named or the graph is too large."""
        return draw_run_graph(self._cache.get(run_id).state, step, href, is_expanded=is_expanded)

    def grid(self, run_id: int, query: GridQuery) -> GridPage:
        """Steps by rounds and attempts, failures first."""
        return read_grid(self._cache, run_id, query, self._reader.called(run_id))

    def feed(
        self,
        run_id: int,
        *,
        groups: Collection[str] = (),
        types: Collection[str] = (),
        step: str = "",
        before: int | None = None,
        limit: int = 100,
    ) -> EventFeed:
        """Events in words, the newest first."""
        return read_feed(self._reader, run_id, groups=groups, types=types, step=step, before=before, limit=limit)

    def data(self, run_id: int) -> list[DataEntry]:
        """The values that the steps of a run have set, by name."""
        return data_entries(self._cache.get(run_id).state)

    def compare(self, a: int, b: int) -> RunComparison:
        """What differs between two runs."""
        return RunComparer(self._reader, self._cache, self._catalogue()).compare(a, b)

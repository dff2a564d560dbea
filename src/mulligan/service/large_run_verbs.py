"""The verbs of `Service` that read a part of a run: a run of 100,000 steps or items is answered in a second."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mulligan.lazy_modules import LazyModule
from mulligan.service.runs.stored.run_reader import RunReader

if TYPE_CHECKING:
    from mulligan.service.driving.run_progress import RunProgress
    from mulligan.service.runs.views import items, overview
    from mulligan.service.runs.views.items import Item, SomeItems
    from mulligan.service.runs.views.run_view import RunView
else:
    items = LazyModule("mulligan.service.runs.views.items")
    overview = LazyModule("mulligan.service.runs.views.overview")


class LargeRunVerbs:
    """A part of `Service`."""

    reader: RunReader

    def show_in_parts(self, run_id: int, progress: RunProgress) -> Iterator[tuple[str, Any]]:
        """The keys and values of `show`, one after the other; the steps are pairs of name and step.

        `progress`: of the display that has shown the run while it was driven.
        """
        return overview.show_run_in_parts(self.reader, run_id, progress.root)

    def is_large(self, run_id: int) -> bool:
        """Whether a run is shown in brief, unless all of it is asked for."""
        return overview.is_large(self.reader, run_id)

    def brief_overview(self, run_id: int) -> RunView:
        """A run with the steps that need attention alone; the others are counted."""
        return overview.brief_overview(self.reader, run_id)

    def some_items(
        self, run_id: int, step: str, *, is_failed: bool = False, after: int = -1, limit: int | None = None
    ) -> SomeItems:
        """Those behind an index, and how many of all are in each status."""
        return items.list_some_items(self.reader, run_id, step, is_failed=is_failed, after=after, limit=limit)

    def find_items(self, run_id: int, step: str, words: Sequence[str]) -> list[int]:
        """The indexes of the items of a map that people name, by index or by name."""
        return items.find_item_indexes(self.reader, run_id, step, words)

    def find_place(self, run_id: int, named: str) -> str:
        """The key of the place that a person names: `check[1].0`, or with the name of the item, `check[web]`."""
        return self.reader.find_place(run_id, named)

    def name_places(self, run_id: int, keys: Iterable[str]) -> dict[str, str]:
        """The names that people know for places, by key: `load[west]` for `load[1].0`."""
        return self.reader.name_places(run_id, keys)

    def item_histories(self, run_id: int, step: str, indexes: Sequence[int]) -> list[Item]:
        """Items with every attempt at them; the log is read once."""
        return items.item_histories(self.reader, run_id, step, indexes)

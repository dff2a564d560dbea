"""What the tabs of the run page have in common: what they are asked for, and what each gives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from mulligan.api.http.routing import Call, Query
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html
from mulligan.service.runs.views.run_list import RunLine
from mulligan.service.runs.views.run_view import RunView

TabName = Literal["overview", "graph", "grid", "events", "replay", "data"]


class RunPageQuery(Query, frozen=True):
    """Which tab to show, and what of it."""

    tab: TabName = "overview"
    # The step that is in the middle of the graph.
    step: str = ""
    # Pages of the grid and of the events.
    text: str = ""
    type: tuple[str, ...] = ()
    cursor: str = ""
    # Whether the graph has each step of a matrix.
    expand: bool = False
    # Whether steps that completed are left out.
    hide_completed: bool = False
    # The event after which the run is shown; 0 for the last one.
    at: int = 0


@dataclass(frozen=True)
class RunOnPage:
    """A run without its steps. `view`: None while a large run is loading; until then there is only its `line`."""

    call: Call
    run_id: int
    view: RunView | None

    @property
    def head(self) -> RunView | RunLine:
        return self.view or self.line

    @property
    def query(self) -> RunPageQuery:
        found: RunPageQuery = self.call.query
        return found

    @cached_property
    def line(self) -> RunLine:
        """The run as the list of runs shows it."""
        (found,) = self.call.service.runs.summarize([self.run_id])
        return found

    @property
    def has_ended(self) -> bool:
        return self.head.status in ("completed", "failed", "cancelled")

    @property
    def live(self) -> str:
        """What makes the server render the page again: the run, until it has ended."""
        return "" if self.has_ended else f"run:{self.run_id}"

    def path(self, **query: object) -> str:
        """The address of the page, with those parameters that are not empty."""
        return ui.link_with(ui.path_to("runs", self.run_id), **query)


@dataclass(frozen=True)
class Tab:
    """What a tab shows, and the files that it needs."""

    content: Html
    modules: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()
    # What makes the server render the page again; "" if a module of the tab follows the run itself.
    live: str = ""

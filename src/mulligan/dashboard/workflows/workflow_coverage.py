"""Coverage of a published workflow: what it does about each failure of each step, and the story of a chosen cell."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from mulligan.analysis.coverage.figures import count_figures, describe_figures
from mulligan.analysis.coverage.results import Coverage, FailureKind, Finding, Times
from mulligan.analysis.coverage.table import CoverageRow, CoverageTable, arrange_table
from mulligan.analysis.coverage.words import describe_failure_of, played_text
from mulligan.api.http.routing import Answer, Call, Query
from mulligan.dashboard.components.parts import chips
from mulligan.dashboard.components.shell import empty, page, page_route, panel, problems_panel
from mulligan.dashboard.workflows.workflows import workflow_heading, workflow_tabs
from mulligan.errors import InputInvalid, LanguageError, NotFound
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.coverage import (
    render_figures,
    render_findings,
    render_heat_map,
    render_legend,
    render_pairs,
    render_story,
)
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.server.catalogue.catalogue import PublishedWorkflow

# So many rows are shown, those in which the most is wrong.
ROWS_MAX = 200
_TIMES: tuple[tuple[Times, str], ...] = (("once", "once"), ("twice", "twice"), ("always", "every time"))


class CoverageQuery(Query, frozen=True):
    """Of which version; and the cell whose story is shown."""

    version: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    step: str = ""
    failure: str = ""
    times: Times = "always"


def show_coverage(call: Call) -> Answer:
    name, asked = call.path["name"], call.query
    found = call.service.catalogue.workflow(name, asked.version)
    newest = found if asked.version is None else call.service.catalogue.workflow(name)
    return page(
        call,
        f"Coverage of {name}",
        workflow_heading(call, found, newest),
        workflow_tabs(call, found, newest, "coverage"),
        _content(call, found),
        section="workflows",
        styles=("coverage.css",),
    )


def _content(call: Call, found: PublishedWorkflow) -> Html:
    try:
        coverage = call.service.workflows.play_published(found.name, found.version).cover()
    except LanguageError as refused:
        return problems_panel("This version cannot be played", refused)
    except InputInvalid as refused:
        return empty(f"{refused.message}.", element("p", refused.hint))
    whole = arrange_table(coverage, shows_all=True)
    if not whole.rows:
        return empty("There is no step that could fail.")
    figures = count_figures(coverage)
    return join_html(
        [
            panel(describe_figures(figures), render_figures(figures), name="figures"),
            element("div", _table(call, found, whole), _story(call, found), class_="coverage-columns"),
            panel("Findings", render_findings(coverage.findings, lambda one: _place(found, one)), name="findings"),
            panel("Two failures in one run", pairs, name="pairs") if (pairs := render_pairs(coverage)) else "",
            _played(coverage),
        ]
    )


def _address(call: Call, found: PublishedWorkflow, **more: Any) -> str:
    return ui.link_with(ui.path_to("workflows", found.name, "coverage"), version=call.query.version, **more)


def _table(call: Call, found: PublishedWorkflow, whole: CoverageTable) -> Html:
    table = CoverageTable(whole.columns, whole.rows[:ROWS_MAX])

    def link(row: CoverageRow, kind: FailureKind) -> tuple[str, str]:
        return f"{_address(call, found, step=row.steps[0], failure=kind.name)}#story", ""

    chosen = (call.query.step, call.query.failure)
    left = len(whole.rows) - len(table.rows)
    more = f"{left:,} rows are left out, those in which the least is wrong; mulligan coverage --all shows all."
    return panel(
        "What happens when a step fails",
        render_legend(table),
        render_heat_map(table, link, chosen=chosen),
        ui.note(more) if left else "",
        name="table",
    )


def _story(call: Call, found: PublishedWorkflow) -> Html | str:
    """What happens in the chosen cell, once, twice or every time."""
    asked = call.query
    if not asked.step or not asked.failure:
        return ""
    close = element("a", "Close", href=_address(call, found))
    try:
        played = call.service.workflows.play_published(found.name, found.version)
        shown = played.story_of_case(asked.step, asked.failure, asked.times)
    except (NotFound, InputInvalid) as refused:
        said = (element("p", refused.message), element("p", refused.hint))
        return panel("No such case", *said, name="story", beside=close)
    here = {"step": asked.step, "failure": asked.failure}
    times = [
        (words, f"{_address(call, found, **here, times=times)}#story", times == asked.times) for times, words in _TIMES
    ]
    parts = (
        chips("How often it happens", times),
        ui.note(f"Named by {shown.kind.named_by}.") if shown.kind.named_by else "",
        render_story(shown.case, shown.story),
    )
    title = describe_failure_of(shown.case.step, shown.kind, shown.case.times)
    return panel(title, *parts, name="story", beside=close)


def _place(found: PublishedWorkflow, one: Finding) -> Html | str:
    """The line of a finding, in the editor."""
    if not one.line:
        return ""
    href = f"{ui.path_to('workflows', found.name, 'edit')}?version={found.version}#line-{one.line}"
    return element("a", f"line {one.line}", href=href)


def _played(coverage: Coverage) -> Html:
    words = element("p", f"{played_text(coverage)}. A cell is the worst of its cases.")
    unknown = ui.bullets(coverage.unknown[:100]) if coverage.unknown else ""
    return panel("How this was played", words, unknown, name="played")


ROUTES = (
    page_route(
        "/workflows/{name}/coverage", show_coverage, "Coverage of a workflow.", query=CoverageQuery, is_slow=True
    ),
)

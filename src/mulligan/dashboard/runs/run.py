"""The page of a run: its heading with what can be done, and one tab."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mulligan.api.http.routing import Answer, Call
from mulligan.dashboard.components.parts import tabs
from mulligan.dashboard.components.shell import heading, may, page, page_route
from mulligan.dashboard.runs.run_actions import render_actions
from mulligan.dashboard.runs.run_data import render_data
from mulligan.dashboard.runs.run_events import render_events
from mulligan.dashboard.runs.run_graph import render_graph
from mulligan.dashboard.runs.run_grid import render_grid
from mulligan.dashboard.runs.run_overview import render_overview
from mulligan.dashboard.runs.run_replay import render_replay
from mulligan.dashboard.runs.run_tab import RunOnPage, RunPageQuery, Tab, TabName
from mulligan.errors import NotFound
from mulligan.service.rendering.descriptions import describe_value
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import format_elapsed, status_label, status_tone, time_element
from mulligan.service.runs.views.run_reasons import waits_only_for_a_person

_TABS: dict[TabName, tuple[str, Callable[[RunOnPage], Tab]]] = {
    "overview": ("Overview", render_overview),
    "graph": ("Graph", render_graph),
    "grid": ("Grid", render_grid),
    "events": ("Events", render_events),
    "replay": ("Replay", render_replay),
    "data": ("Data", render_data),
}


# How many inputs and labels stand in the head of a run.
_FACTS_MAX = 8


def show_run(call: Call) -> Answer:
    """A run, as far as the tab in the address shows it."""
    run = _read(call)
    tab = _TABS[run.query.tab][1](run)
    title = f"{run.head.workflow}, run {run.run_id}"
    content = (
        heading(_title(run), render_actions(run), over=join_html(_places(run), " · ")),
        _facts(run),
        _tabs(run),
        element("div", tab.content, id=f"tab-{run.query.tab}", class_="tab"),
    )
    modules, styles = ("run_actions.js", *tab.modules), ("run_tabs.css", *tab.styles)
    return page(call, title, *content, section="runs", live=tab.live, modules=modules, styles=styles)


def _read(call: Call) -> RunOnPage:
    """The run; of a large one that is not loaded yet only what is known at once, so that the page is there soon."""
    run_id = int(call.path["run_id"])
    is_shown = call.query.tab != "overview" or call.service.details.is_quick(run_id)
    call.service.runs.record(run_id)
    return RunOnPage(call, run_id, call.service.details.head(run_id) if is_shown else None)


def _title(run: RunOnPage) -> Html:
    status = run.head.status
    asked = waits_only_for_a_person(run.line)
    words = asked or status_label(status)
    if run.head.degraded:
        words += ", degraded"
    badge = element("span", words, class_=f"badge {'ask' if asked else status_tone(status)}", id="run-status")
    return join_html([run.head.workflow, badge], " ")


def _facts(run: RunOnPage) -> Html:
    """When it began, how long it took, and what its program has published; its labels and short inputs."""
    line = run.line
    took = f"{'took' if run.has_ended else 'for'} {format_elapsed(line.seconds)}"
    shown = [(name, value) for name, value in line.inputs.items()]
    shown += [(name, value) for name, value in line.labels.items() if name != "version" and (name, value) not in shown]
    shown = [(name, describe_value(value)) for name, value in _published(run).items()] + shown
    given = [element("span", f"{name}={value}", class_="chip", title=value) for name, value in shown[:_FACTS_MAX]]
    more = element("small", f"+{len(shown) - _FACTS_MAX}") if len(shown) > _FACTS_MAX else ""
    words = ui.muted("started ", time_element(line.created_at), f", {took}")
    return element("p", words, *given, more, class_="run-facts", id="run-facts")


def _published(run: RunOnPage) -> dict[str, Any]:
    """What its program has published; a large run is shown by its row, which does not say."""
    return {} if run.view is None else run.view.state


def _places(run: RunOnPage) -> Iterator[object]:
    """Where the run belongs: its workflow, the run that called it, its round."""
    head = run.head
    yield ui.link("Runs", "runs")
    if head.parent_run_id:
        yield ui.link(f"called by run {head.parent_run_id}", "runs", head.parent_run_id)
    yield f"run {run.run_id}" + (f", round {head.round}" if head.round > 1 else "")
    if _is_published(run):
        yield ui.link("workflow", "workflows", head.workflow)
        if may(run.call, "write"):
            yield ui.link("edit", "workflows", head.workflow, "edit")
    published = run.line.labels.get("version")
    digest = str(head.version)
    yield element("span", f"version {published or digest[:12]}", title=f"digest of the definition: {digest}")
    if head.started_by:
        yield f"started by {head.started_by}"


def _is_published(run: RunOnPage) -> bool:
    try:
        run.call.service.catalogue.workflow(run.head.workflow)
    except NotFound:
        return False
    return True


def _tabs(run: RunOnPage) -> Html:
    entries = (
        (title, run.path(tab="" if name == "overview" else name), name == run.query.tab)
        for name, (title, _) in _TABS.items()
    )
    # What is about the run on pages of their own.
    usage = element("a", "Usage", href=f"/usage?run={run.run_id}")
    report = element("a", "Report", href=f"/api/v1/runs/{run.run_id}/report", title="One page to keep or to send")
    return tabs("Parts of the run", entries, usage, report)


ROUTES = (page_route("/runs/{run_id:int}", show_run, "One run.", query=RunPageQuery),)

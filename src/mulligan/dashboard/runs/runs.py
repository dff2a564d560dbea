"""The list of runs: filters in the address, counts, and what can be done to many at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from mulligan.api.areas.run_filters import RunFilters, run_query
from mulligan.api.http.routing import Answer, Call
from mulligan.dashboard.components.parts import hidden_fields, run_status, tabs
from mulligan.dashboard.components.shell import empty, heading, may, page, page_route
from mulligan.service.authoring.values import parse_time
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import format_elapsed, time_element
from mulligan.service.runs.changes.preflight import SERVER_LABELS
from mulligan.service.runs.views.run_list import RunLine, RunPage, RunQuery, parse_statuses

PER_PAGE = 50
# How many runs of each status are counted that match a filter: counting takes time for each of them.
COUNTED_MAX = 200
# How many labels of a run are shown in its row. Those that the server sets itself say what other columns say.
LABELS_SHOWN_MAX = 3
STATUSES = ("running", "paused", "failed", "completed", "cancelled")
TIMES = (
    ("", "Any time"),
    ("1h", "Last hour"),
    ("24h", "Last 24 hours"),
    ("7d", "Last 7 days"),
    ("14d", "Last 14 days"),
)


class RunsPageQuery(RunFilters, frozen=True):
    """Which runs to show. An empty text is no filter: a form sends all its fields."""

    # Only runs with a lower number.
    before: Annotated[int, msgspec.Meta(ge=1)] | None = None


def runs_path(**filters: object) -> str:
    """The address of the list with these filters: `runs_path(workflow="nightly", status="failed")`."""
    return ui.link_with("/runs", **filters)


def show_runs(call: Call) -> Answer:
    asked = _given(call.query)
    query = run_query(asked, limit=PER_PAGE, before=asked.before)
    found = call.service.runs.page(query)
    can_change = may(call, "run")
    return page(
        call,
        "Runs",
        heading("Runs"),
        _views(call),
        _filters(call, asked, found.runs),
        _active_filters(asked),
        _statuses(call, asked, query, found),
        _toolbar() if can_change else "",
        _table(found.runs, asked, can_change=can_change) if found.runs else _nothing(asked),
        ui.paged(
            ui.button_link("Newest", _path(asked)) if asked.before is not None else "",
            ui.button_link("Older", _path(asked, before=found.next), rel="next") if found.next is not None else "",
            kind="pager actions",
        ),
        section="runs",
        live="runs,pending",
        modules=("runs.js",),
        styles=("runs.css",),
    )


# -- filters ---------------------------------------------------------------------------------------------------------


def _given(asked: RunsPageQuery) -> RunsPageQuery:
    """The filters without those that are empty."""

    def clean(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(dict.fromkeys(one.strip() for one in value if one.strip()))
        return value.strip() if isinstance(value, str) else value

    return RunsPageQuery(**{name: clean(value) for name, value in msgspec.structs.asdict(asked).items()})


def _path(asked: RunsPageQuery, **changes: object) -> str:
    """The address of the list with other filters; from its first page, unless `before` is given."""
    return runs_path(**{**msgspec.structs.asdict(asked), "before": None, **changes})


def _views(call: Call) -> Html:
    """Views that everybody has; the script adds those that were saved in this browser."""
    ready = (
        ("All", "/runs"),
        ("Failed, last 24 hours", runs_path(status="failed", since="24h")),
        ("Open", runs_path(status="open")),
        ("Mine", runs_path(who=call.token.user)),
    )
    links = [element("a", title, href=path, class_="chip") for title, path in ready]
    save = element("button", "Save this view", type="button", id="save-view", class_="quiet")
    # The script marks the view that is shown, and adds and removes its own.
    return element("nav", *links, save, id="views", class_="views", aria_label="Views", data_keep=True)


def _filters(call: Call, asked: RunsPageQuery, runs: list[RunLine]) -> Html:
    published = call.service.catalogue.workflows(limit=200).workflows
    names = sorted({*(one.name for one in published), *(run.workflow for run in runs)})
    codes = sorted({run.failure.code for run in runs if run.failure})
    times = [*TIMES, *([(asked.since, f"since {asked.since}")] if asked.since not in dict(TIMES) else [])]
    choices = [element("option", title, value=value, selected=value == asked.since) for value, title in times]
    boxed = ("workflow", "failure", "who", "label")
    first = {name: next(iter(getattr(asked, name)), "") for name in boxed}
    # What one box cannot say stays as it is.
    rest = {name: getattr(asked, name)[1:] for name in boxed}
    rest |= {"status": asked.status, "input": asked.input, "until": (asked.until,) if asked.until else ()}
    return element(
        "form",
        _box("text", asked.text, "Text", "words of the run", type="search"),
        _box("workflow", first["workflow"], "Workflow", "any", choices=names),
        _box("failure", first["failure"], "Failure code", "any", choices=codes),
        _box("label", first["label"], "Label", "team=data"),
        _box("who", first["who"], "Started by", "anyone"),
        element("label", element("span", "Created"), element("select", *choices, name="since"), class_="filter"),
        hidden_fields(**rest),
        element("button", "Filter", type="submit", class_="apply"),
        element("button", "More filters", type="button", id="more-filters", aria_expanded="false", class_="quiet"),
        class_="filters run-filters",
        id="filters",
        method="get",
        action="/runs",
        data_keep=True,
    )


def _box(name: str, value: str, title: str, hint: str, *, type: str = "text", choices: Iterable[str] = ()) -> Html:
    options = [element("option", value=one) for one in choices]
    known = element("datalist", *options, id=f"known-{name}") if options else ""
    about = {"value": value, "placeholder": hint, "autocomplete": "off", "list": f"known-{name}" if options else None}
    box = element("input", type=type, name=name, **about)
    return element("label", element("span", title), box, known, class_="filter")


def _active_filters(asked: RunsPageQuery) -> Html:
    """What is filtered by, each with a link that leaves it out."""
    chips = []
    for name in ("workflow", "failure", "label", "input", "who"):
        values: tuple[str, ...] = getattr(asked, name)
        for value in values:
            left = tuple(one for one in values if one != value)
            chips.append(_chip(f"{name.replace('who', 'started by')}: {value}", _path(asked, **{name: left})))
    if asked.text:
        chips.append(_chip(f"text: {asked.text}", _path(asked, text="")))
    for name, given in (("since", asked.since), ("until", asked.until)):
        if given:
            shown = time_element(parse_time(given, datetime.now(UTC))) if given[:4].isdecimal() else f"{given} ago"
            chips.append(_chip(join_html([f"{name} ", shown]), _path(asked, **{name: ""})))
    if not chips:
        return Html("")
    clear = element("a", "Clear all", href=_path(RunsPageQuery(), status=asked.status))
    return element("p", join_html([*chips, clear], " "), class_="active-filters", id="active-filters")


def _chip(text: object, path: str) -> Html:
    cross = element("span", "×", aria_hidden="true")
    return element("a", text, cross, href=path, class_="chip", title="Leave out this filter")


def _statuses(call: Call, asked: RunsPageQuery, query: RunQuery, found: RunPage) -> Html:
    """A tab for each status, with the number of runs that match everything else."""
    counts = _counts(call, asked, query, found)
    total = sum(counts.values())
    is_cut = any(count >= COUNTED_MAX for count in counts.values()) and not _is_plain(asked)
    chosen = set(parse_statuses(asked.status)) - {"new"}
    entries: list[tuple[object, str, bool]] = [
        (_counted("All", f"{total:,}{'+' if is_cut else ''}"), _path(asked, status=()), not asked.status)
    ]
    for name in STATUSES:
        count = counts.get(name, 0)
        text = f"{count:,}{'+' if count >= COUNTED_MAX and not _is_plain(asked) else ''}"
        title = _counted(ui.status(name, tone="" if count else "idle"), text)
        entries.append((title, _path(asked, status=name), chosen == {name}))
    return tabs("Status", entries)


def _counted(title: object, count: str) -> Html:
    return join_html([title, " ", element("small", count)])


def _counts(call: Call, asked: RunsPageQuery, query: RunQuery, found: RunPage) -> dict[str, int]:
    if _is_plain(asked):
        return call.service.runs.status_counts()
    if not asked.status and asked.before is None and found.next is None:
        # This page has all of them.
        return Counter(run.status for run in found.runs)
    everything = msgspec.structs.replace(query, before=None)
    return {
        status: call.service.runs.count(
            msgspec.structs.replace(everything, statuses=parse_statuses([status])), limit=COUNTED_MAX
        )
        for status in STATUSES
    }


def _is_plain(asked: RunsPageQuery) -> bool:
    """Whether nothing but the status is filtered by."""
    return msgspec.structs.replace(asked, status=(), before=None) == RunsPageQuery()


# -- the list --------------------------------------------------------------------------------------------------------


def _toolbar() -> Html:
    """What can be done to the runs that are selected. The script shows it when there are some."""
    verbs = {"retry": "Retry…", "cancel": "Cancel…", "compare": "Compare", "clear": "Clear"}
    buttons = [
        element("button", title, type="button", data_bulk=verb, class_="quiet" if verb == "clear" else "")
        for verb, title in verbs.items()
    ]
    count = element("span", id="selected-count", role="status")
    about = {"hidden": True, "data_keep": True, "role": "toolbar", "aria_label": "Selected runs"}
    return element("div", count, *buttons, id="bulk", class_="bulk", **about)


def _table(runs: list[RunLine], asked: RunsPageQuery, *, can_change: bool) -> Html:
    everything = element("input", type="checkbox", id="select-all", aria_label="Select all runs of this page")
    titles = ("Run", "Status", "What happens", "Labels", "Created", "Took")
    head = [*map(ui.Column, titles, ("run", "nowrap", "what", "labels", "created", "n"))]
    select = [ui.Column(everything, "check")] if can_change else []
    return ui.table([*select, *head], (_row(run, asked, can_change) for run in runs), label="Runs", keyed=True)


def _row(run: RunLine, asked: RunsPageQuery, can_change: bool) -> ui.Row:
    about = {"aria_label": f"Select run {run.run_id}", "data_workflow": run.workflow, "data_status": run.status}
    box = element("input", type="checkbox", class_="select", value=run.run_id, **about)
    name = ui.link(run.workflow, "runs", run.run_id, class_="run-link")
    rounds = element("small", f" round {run.round}") if run.round > 1 else ""
    starter = element("small", f" {run.started_by}") if run.started_by else ""
    return ui.row(
        *([box] if can_change else []),
        join_html([name, element("small", f" {run.run_id}"), rounds]),
        run_status(run),
        _what(run),
        _labels(run, asked),
        join_html([time_element(run.created_at), starter]),
        format_elapsed(run.seconds),
        id=f"run-{run.run_id}",
    )


def _what(run: RunLine) -> Html | str:
    """Why it failed, or what it waits for, or what it does."""
    if run.damage:
        return element("span", run.damage, class_="words")
    if run.failure is not None and run.status in ("failed", "running", "paused") and not run.waiting_for:
        step = ui.step_link(run.run_id, run.failure.step)
        more = f" and {run.failure.count - 1:,} more" if run.failure.count > 1 else ""
        return join_html([step, ": ", element("span", run.failure.text, class_="words"), element("small", more)])
    if run.waiting_for:
        first, *others = run.waiting_for
        more = element("small", f" and {len(others):,} more") if others else ""
        return join_html([element("span", first.text, class_="words"), more])
    return element("span", run.reason, class_="words") if run.reason else ""


def _labels(run: RunLine, asked: RunsPageQuery) -> Html:
    own = [f"{name}={value}" for name, value in run.labels.items() if name not in SERVER_LABELS]
    shown = own[:LABELS_SHOWN_MAX]
    chips = [
        element("a", text, href=_path(asked, label=tuple(dict.fromkeys((*asked.label, text)))), class_="chip")
        for text in shown
    ]
    rest = own[LABELS_SHOWN_MAX:]
    return join_html([*chips, element("small", f"+{len(rest)}", title=", ".join(rest))] if rest else chips, " ")


def _nothing(asked: RunsPageQuery) -> Html:
    if asked != RunsPageQuery():
        return empty("No run matches.", element("p", ui.link("Show all runs", "runs")))
    return empty("There is no run yet.", element("p", ui.link("Publish a workflow and start it", "workflows")))


ROUTES = (page_route("/runs", show_runs, "The list of runs.", query=RunsPageQuery),)

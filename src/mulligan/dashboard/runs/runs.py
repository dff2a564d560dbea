"""The list of runs: filters in the address, counts, and what can be done to many at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlencode

import msgspec

from mulligan.api.areas.run_filters import RunFilters, run_query
from mulligan.api.http.routing import Answer, Call
from mulligan.dashboard.components.parts import run_status
from mulligan.dashboard.components.shell import empty, heading, may, page, page_route, path_to, table
from mulligan.service.authoring.values import parse_time
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import format_elapsed, status_label, status_tone, time_element
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
    given = [
        (name, str(one))
        for name, value in filters.items()
        for one in (value if isinstance(value, tuple) else (value,))
        if one not in ("", None, False)
    ]
    return f"/runs?{urlencode(given)}" if given else "/runs"


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
        _pager(asked, found.next),
        section="runs",
        live="runs,pending",
        modules=("runs.js",),
        styles=("runs.css",),
    )


# -- filters ---------------------------------------------------------------------------------------------------------


def _given(asked: RunsPageQuery) -> RunsPageQuery:
    """The filters without those that are empty."""

    def texts(values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.strip() for one in values if one.strip()))

    return RunsPageQuery(
        workflow=texts(asked.workflow),
        status=texts(asked.status),
        since=asked.since.strip(),
        until=asked.until.strip(),
        who=texts(asked.who),
        label=texts(asked.label),
        input=texts(asked.input),
        text=asked.text.strip(),
        failure=texts(asked.failure),
        before=asked.before,
    )


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
    first = {name: next(iter(getattr(asked, name)), "") for name in ("workflow", "failure", "who", "label")}
    # What one box cannot say stays as it is.
    rest = [
        *(("workflow", one) for one in asked.workflow[1:]),
        *(("failure", one) for one in asked.failure[1:]),
        *(("who", one) for one in asked.who[1:]),
        *(("label", one) for one in asked.label[1:]),
        *(("status", one) for one in asked.status),
        *(("input", one) for one in asked.input),
        *([("until", asked.until)] if asked.until else []),
    ]
    return element(
        "form",
        _box("text", asked.text, "Text", "words of the run", type="search"),
        _box("workflow", first["workflow"], "Workflow", "any", choices=names),
        _box("failure", first["failure"], "Failure code", "any", choices=codes),
        _box("label", first["label"], "Label", "team=data"),
        _box("who", first["who"], "Started by", "anyone"),
        element("label", element("span", "Created"), element("select", *choices, name="since"), class_="filter"),
        *(element("input", type="hidden", name=name, value=value) for name, value in rest),
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
    box = element(
        "input",
        type=type,
        name=name,
        value=value,
        placeholder=hint,
        autocomplete="off",
        list=f"known-{name}" if options else None,
    )
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
    tabs = [_tab("All", f"{total:,}{'+' if is_cut else ''}", _path(asked, status=()), is_chosen=not asked.status)]
    for status in STATUSES:
        count = counts.get(status, 0)
        text = f"{count:,}{'+' if count >= COUNTED_MAX and not _is_plain(asked) else ''}"
        tone = status_tone(status) if count else "idle"
        name = element("span", status_label(status), class_=f"status {tone}")
        tabs.append(_tab(name, text, _path(asked, status=status), is_chosen=chosen == {status}))
    return element("nav", *tabs, class_="tabs", aria_label="Status")


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


def _tab(title: object, count: str, path: str, *, is_chosen: bool) -> Html:
    return element("a", title, " ", element("small", count), href=path, aria_current="page" if is_chosen else None)


# -- the list --------------------------------------------------------------------------------------------------------


def _toolbar() -> Html:
    """What can be done to the runs that are selected. The script shows it when there are some."""
    buttons = [
        element("button", title, type="button", data_bulk=verb, class_=kind)
        for verb, title, kind in (
            ("retry", "Retry…", ""),
            ("cancel", "Cancel…", ""),
            ("compare", "Compare", ""),
            ("clear", "Clear", "quiet"),
        )
    ]
    count = element("span", id="selected-count", role="status")
    return element(
        "div", count, *buttons, id="bulk", class_="bulk", hidden=True, data_keep=True, role="toolbar",
        aria_label="Selected runs",
    )  # fmt: skip


def _table(runs: list[RunLine], asked: RunsPageQuery, *, can_change: bool) -> Html:
    everything = element("input", type="checkbox", id="select-all", aria_label="Select all runs of this page")
    select = (everything,) if can_change else ()
    head = (*select, "Run", "Status", "What happens", "Labels", "Created", "Took")
    return table(head, [_row(run, asked, can_change=can_change) for run in runs], label="Runs", keyed=True)


def _row(run: RunLine, asked: RunsPageQuery, *, can_change: bool) -> Html:
    path = path_to("runs", run.run_id)
    box = element(
        "input", type="checkbox", class_="select", value=run.run_id, aria_label=f"Select run {run.run_id}",
        data_workflow=run.workflow, data_status=run.status,
    )  # fmt: skip
    number = element("a", run.workflow, href=path, class_="run-link")
    rounds = element("small", f" round {run.round}") if run.round > 1 else ""
    return element(
        "tr",
        element("td", box, class_="check") if can_change else "",
        element("td", number, element("small", f" {run.run_id}"), rounds, class_="run"),
        element("td", run_status(run), class_="nowrap"),
        element("td", _what(run), class_="what"),
        element("td", _labels(run, asked), class_="labels"),
        element("td", time_element(run.created_at), _starter(run), class_="created"),
        element("td", format_elapsed(run.seconds), class_="n"),
        id=f"run-{run.run_id}",
    )


def _what(run: RunLine) -> Html | str:
    """Why it failed, or what it waits for, or what it does."""
    if run.damage:
        return element("span", run.damage, class_="words")
    if run.failure is not None and run.status in ("failed", "running", "paused") and not run.waiting_for:
        step = element("a", run.failure.step, href=path_to("runs", run.run_id, "steps", run.failure.step))
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


def _starter(run: RunLine) -> Html | str:
    return element("small", f" {run.started_by}") if run.started_by else ""


def _nothing(asked: RunsPageQuery) -> Html:
    if asked != RunsPageQuery():
        return empty("No run matches.", element("p", element("a", "Show all runs", href="/runs")))
    return empty(
        "There is no run yet.",
        element("p", element("a", "Publish a workflow and start it", href="/workflows")),
    )


def _pager(asked: RunsPageQuery, next_: int | None) -> Html | str:
    links = []
    if asked.before is not None:
        links.append(element("a", "Newest", href=_path(asked), class_="button"))
    if next_ is not None:
        links.append(element("a", "Older", href=_path(asked, before=next_), class_="button", rel="next"))
    return element("nav", *links, class_="pager actions", aria_label="Pages") if links else ""


ROUTES = (page_route("/runs", show_runs, "The list of runs.", query=RunsPageQuery),)

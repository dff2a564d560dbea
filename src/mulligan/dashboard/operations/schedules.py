"""Schedules: what is started when, what came of it, and changing that."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from mulligan.api.http.routing import Answer, Call, Query
from mulligan.dashboard.components.parts import action_button, facts, link_with, moment, run_link, status
from mulligan.dashboard.components.shell import empty, heading, may, page, page_route, panel, path_to, shortened, table
from mulligan.dashboard.workflows.input_fields import input_fields
from mulligan.errors import MulliganError
from mulligan.service.rendering.formatting import format_input, pluralize
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import status_label, status_tone
from mulligan.service.runs.views.run_list import RunLine
from mulligan.service.server.schedules.past_instants import PastInstant
from mulligan.service.server.schedules.schedules import ScheduleView
from mulligan.service.server.schedules.timing_words import describe_timing

_SECTION, _STYLES = "schedules", ("operations.css",)
# Of how many schedules the list shows what came of the last instants, and of how many instants.
_STRIPS_MAX, _STRIP = 50, 12
_PAST = 200
# More of them a day are drawn small.
_FEW_A_DAY = 4
_TROUBLE_MAX = 12
_TONES = {"skipped": "idle", "missed": "try", "waiting": "idle"}
_GLYPHS = {"good": "✓", "bad": "✕", "now": "…", "ask": "?", "try": "!", "idle": "-"}


# -- the list --------------------------------------------------------------------------------------------------------


def show_schedules(call: Call) -> Answer:
    found = sorted(call.service.schedules.all(), key=lambda one: (not one.is_paused, one.name))
    new = element("a", "New schedule", href="/schedules/new", class_="button primary") if may(call, "write") else ""
    if not found:
        words = "A schedule starts a published workflow on time, once for each instant."
        return page(
            call,
            "Schedules",
            heading("Schedules", new),
            empty("No schedules yet.", element("p", words, class_="note")),
            section=_SECTION,
            styles=_STYLES,
        )
    ids = {one.last.run_id for one in found if one.last is not None}
    statuses = {record.run_id: record.status for record in call.service.runs.records(ids)} if ids else {}
    rows = [_row(call, one, statuses, with_strip=number < _STRIPS_MAX) for number, one in enumerate(found)]
    head = ("Schedule", "When", "Next", "Last", "Last instants", "")
    return page(
        call,
        "Schedules",
        heading("Schedules", new),
        table(head, rows, label="Schedules", keyed=True),
        section=_SECTION,
        live="runs",
        styles=_STYLES,
    )


def _row(call: Call, one: ScheduleView, statuses: dict[int, str], *, with_strip: bool) -> Html:
    name = element("a", one.name, href=path_to("schedules", one.name), class_="strong")
    starts = element("small", "starts ", element("a", one.workflow, href=path_to("workflows", one.workflow)))
    when = [describe_timing(one.cron, one.every), element("br"), element("small", one.timezone or "")]
    last: object = element("span", "never", class_="muted")
    if one.last is not None:
        known = statuses.get(one.last.run_id, "")
        last = join_html([run_link(one.last.run_id), status(known) if known else ""], " ")
    strip = _strip(call.service.schedules.past(one.name, limit=_STRIP).instants) if with_strip else ""
    return element(
        "tr",
        element("td", name, element("br"), starts),
        element("td", *when),
        element("td", _next(one)),
        element("td", last),
        element("td", strip),
        element("td", _pause_button(call, one, small=True), class_="n"),
        id=f"schedule-{one.name}",
    )


def _next(one: ScheduleView) -> Html:
    if one.pause is not None:
        who = "by itself" if one.pause.is_automatic else f"by {one.pause.by}"
        return element("span", f"paused {who}", class_="status ask", title=one.pause.reason or None)
    parts = [moment(one.next[0])] if one.next else [element("span", "never", class_="muted")]
    if one.waiting:
        parts.append(element("small", f" {pluralize(one.waiting, 'start')} waiting"))
    return join_html(parts)


def _strip(past: Sequence[PastInstant]) -> Html:
    squares = [_square(one, glyph=False) for one in reversed(past)]
    return element("span", *squares, class_="instants")


# -- one schedule ----------------------------------------------------------------------------------------------------


def show_schedule(call: Call) -> Answer:
    one = call.service.schedules.show(call.path["name"])
    past = call.service.schedules.past(one.name, limit=_PAST)
    zone = ZoneInfo(past.timezone)
    # While it is paused the service gives no instants.
    coming = _coming(one, zone) if one.next else empty("Nothing is started while it is paused.")
    return page(
        call,
        one.name,
        heading(
            join_html([one.name, _badge(one)]),
            *_actions(call, one),
            over=element("a", "Schedules", href="/schedules"),
        ),
        element("p", *_sentence(one), class_="sentence lead"),
        _paused(call, one),
        element(
            "div",
            panel("The next ten instants" if len(one.next) == 10 else "Next", coming, name="next"),
            panel("How", _settings(one), name="how"),
            class_="columns",
        ),
        panel(
            "What came of it",
            _calendar(past.instants, zone, datetime.now(UTC)),
            name="past",
            beside=element("small", f"days in {past.timezone}" + (f"; the newest {_PAST}" if past.is_cut else "")),
        ),
        _trouble(call, past.instants, zone),
        section=_SECTION,
        live="runs",
        styles=_STYLES,
        modules=("schedules.js",),
    )


def _badge(one: ScheduleView) -> Html | str:
    return element("span", "paused", class_="badge ask") if one.is_paused else ""


def _sentence(one: ScheduleView) -> list[object]:
    version = f" version {one.version}" if one.version else ""
    words: list[object] = ["Starts ", element("a", one.workflow, href=path_to("workflows", one.workflow)), version, " "]
    words.append(describe_timing(one.cron, one.every))
    words.append(f", {one.timezone}." if one.timezone else ".")
    if one.active:
        words += [" Now: ", join_html([run_link(each.run_id) for each in one.active[:3]], ", "), "."]
    if one.waiting:
        words.append(f" {pluralize(one.waiting, 'start')} waiting.")
    return words


def _paused(call: Call, one: ScheduleView) -> Html | str:
    if one.pause is None:
        return ""
    who = "It paused itself" if one.pause.is_automatic else f"Paused by {one.pause.by}"
    why = f": {one.pause.reason}" if one.pause.reason else ""
    words = [element("strong", f"{who}{why}"), " ", moment(one.pause.at), ". Nothing is started until it is resumed."]
    return element("section", element("p", *words), class_="panel ask", aria_label="Paused")


def _actions(call: Call, one: ScheduleView) -> list[Html | str]:
    found: list[Html | str] = [_pause_button(call, one)]
    path = f"schedules/{_segment(one.name)}"
    if may(call, "run"):
        until = datetime.now(UTC).replace(second=0, microsecond=0)
        action = {
            "path": f"{path}:backfill",
            "title": f"Backfill {one.name}",
            "text": "Starts the past instants of this time that have no run yet, one after another.",
            "label": "Start them",
            "done": "the runs are being started",
            "preview": True,
            "fields": [
                {
                    "name": "from",
                    "label": "From",
                    "type": "datetime-local",
                    "value": (until - timedelta(days=1)).isoformat(),
                },
                {"name": "to", "label": "To", "type": "datetime-local", "value": until.isoformat()},
            ],
        }
        found.append(element("button", "Backfill…", type="button", data_backfill=json.dumps(action)))
    if may(call, "write") and not one.is_from_file:
        found.append(element("a", "Edit", href=path_to("schedules", one.name, "edit"), class_="button"))
        remove = {
            "method": "DELETE",
            "path": path,
            "bodyless": True,
            "title": f"Remove {one.name}?",
            "text": "Nothing is started by it any more. Its runs stay.",
            "label": "Remove the schedule",
            "danger": True,
            "done": f"{one.name} is removed",
            "next": "/schedules",
        }
        found.append(action_button("Remove", remove))
    return found


def _pause_button(call: Call, one: ScheduleView, *, small: bool = False) -> Html | str:
    if not may(call, "run"):
        return ""
    path = f"schedules/{_segment(one.name)}"
    kind = "quiet" if small else ""
    if one.is_paused:
        resume = {
            "path": f"{path}:resume",
            "title": f"Resume {one.name}",
            "text": "It goes on with the next instant. What passed meanwhile is not made up for: that is a backfill.",
            "reason": "optional",
            "label": "Resume",
            "done": f"{one.name} goes on",
        }
        return action_button("Resume", resume, kind=kind or "primary")
    pause = {
        "path": f"{path}:pause",
        "title": f"Pause {one.name}",
        "text": "Nothing more is started until somebody resumes it. Runs that are there go on.",
        "reason": "optional",
        "label": "Pause",
        "done": f"{one.name} is paused",
    }
    return action_button("Pause", pause, kind=kind)


def _segment(name: str) -> str:
    return path_to(name)[1:]


def _coming(one: ScheduleView, zone: ZoneInfo) -> Html:
    heads = (one.timezone or "UTC", "Your time", "", *(("Inputs",) if one.next_inputs else ()))
    soon = datetime.now(UTC) + timedelta(days=7)
    rows = [
        element(
            "tr",
            element("td", f"{at.astimezone(zone):%A %-d %B, %H:%M}"),
            element("td", moment(at, "time")),
            element("td", moment(at) if at < soon else "", class_="muted"),
            *(
                [element("td", shortened(_input_texts(one.next_inputs[number]), 120), class_="given")]
                if one.next_inputs
                else []
            ),
        )
        for number, at in enumerate(one.next)
    ]
    return table(heads, rows, label="The next instants")


def _input_texts(inputs: dict[str, Any]) -> str:
    return ", ".join(f"{name}={format_input(value)}" for name, value in inputs.items())


def _settings(one: ScheduleView) -> Html:
    text = element("code", one.cron) if one.cron else ""
    overlap = {
        "skip": "skip the instant",
        "queue": "start it when the run has ended",
        "cancel": "cancel the earlier run",
        "allow": "start it all the same",
    }
    catch_up = {"none": "nothing", "last": "start the newest one"}
    found: list[tuple[str, object]] = [
        ("While a run of it goes on", overlap.get(one.overlap, one.overlap)),
        ("For what was missed", catch_up.get(one.catch_up, f"start {one.catch_up}")),
    ]
    if text:
        found.insert(0, ("Cron", text))
    if one.anchor is not None:
        found.append(("Counted from", moment(one.anchor, "time")))
    if one.pause_after:
        found.append(("Pauses itself", f"after {pluralize(one.pause_after, 'failed run')} in a row"))
    if one.failures:
        found.append(("Failed in a row", element("span", one.failures, class_="status bad")))
    if one.inputs:
        found.append(("Inputs", _input_texts(one.inputs)))
    if one.labels:
        found.append(("Labels", ", ".join(f"{name}={value}" for name, value in one.labels.items())))
    if one.is_from_file:
        words = [
            "the text of ",
            element("a", one.workflow, href=path_to("workflows", one.workflow)),
            ": publish it to change this",
        ]
        found.append(("Belongs to", join_html(words)))
    by = f" by {one.updated_by}" if one.updated_by else ""
    found.append(("Changed", join_html([moment(one.updated_at), by])))
    runs = element("a", "its runs", href=link_with("/runs", label=f"schedule={one.name}"))
    found.append(("Runs", runs))
    return facts(found)


# -- the past --------------------------------------------------------------------------------------------------------


def _calendar(past: Sequence[PastInstant], zone: ZoneInfo, now: datetime) -> Html:
    """Weeks from Monday to Sunday, with a square for each instant."""
    if not past:
        return empty("No instant has passed yet.")
    by_day = {
        day: list(found) for day, found in groupby(reversed(past), key=lambda one: one.instant.astimezone(zone).date())
    }
    first, today = min(by_day), max(max(by_day), now.astimezone(zone).date())
    start = first - timedelta(days=first.weekday())
    is_few = max(map(len, by_day.values())) <= _FEW_A_DAY
    days = []
    for number in range((today - start).days + 7 - today.weekday()):
        day = start + timedelta(days=number)
        date = f"{day:%-d %b}" if day.day == 1 or not number else f"{day.day}"
        squares = [_square(one, zone, glyph=is_few) for one in by_day.get(day, ())]
        outside = day < first or day > today
        label = element("time", date, data_plain=True) if squares else element("span", date)
        days.append(
            element(
                "li",
                label,
                element("span", *squares, class_="instants"),
                class_="outside" if outside else "today" if day == today else None,
            )
        )
    names = element(
        "ul",
        *(element("li", name) for name in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")),
        class_="weekdays",
        aria_hidden="true",
    )
    grid = element("ol", *days, class_="calendar few" if is_few else "calendar")
    return element("div", _legend(), names, grid, class_="calendar-box")


def _legend() -> Html:
    entries = (
        ("good", "completed"),
        ("bad", "failed"),
        ("now", "running"),
        ("ask", "waits for a person"),
        ("try", "missed"),
        ("idle", "skipped, cancelled or waiting"),
    )
    return element("ul", *(element("li", element("i", class_=tone), name) for tone, name in entries), class_="legend")


def _square(one: PastInstant, zone: ZoneInfo | None = None, *, glyph: bool) -> Html:
    tone = _TONES.get(one.outcome) or status_tone(one.status)
    at = one.instant.astimezone(zone or UTC)
    words = f"{at:%a %-d %b %H:%M}: {_words(one)}"
    kind = f"instant {tone} {'hollow' if one.run_id is None else ''}".strip()
    sign = _GLYPHS[tone] if glyph else ""
    if one.run_id is not None:
        return element("a", sign, href=path_to("runs", one.run_id), class_=kind, title=words, aria_label=words)
    return element("span", sign, class_=kind, title=words, role="img", aria_label=words)


def _words(one: PastInstant) -> str:
    if one.run_id is not None:
        return f"run {one.run_id} {status_label(one.status)}"
    return f"{one.outcome}{f': {one.reason}' if one.reason else ''}"


def _trouble(call: Call, past: Sequence[PastInstant], zone: ZoneInfo) -> Html | str:
    """The instants that did not end well, the newest first."""
    found = [
        one for one in past if one.outcome in ("skipped", "missed") or one.status in ("failed", "cancelled", "paused")
    ]
    if not found:
        return ""
    shown = found[:_TROUBLE_MAX]
    lines = {line.run_id: line for line in call.service.runs.summarize(one.run_id for one in shown if one.run_id)}
    rows = [
        element(
            "tr",
            element("td", f"{one.instant.astimezone(zone):%a %-d %b %H:%M}", class_="nowrap"),
            element("td", _outcome(one)),
            element("td", *_reason(one, lines)),
        )
        for one in shown
    ]
    more = element("p", f"and {len(found) - len(shown):,} earlier", class_="note") if len(found) > len(shown) else ""
    listed = table(("Instant", "Outcome", "Why"), rows, label="What did not work", keyed=True)
    return panel("What did not work", listed, more, name="trouble")


def _outcome(one: PastInstant) -> Html:
    return status(one.status) if one.run_id else element("span", one.outcome, class_=f"status {_TONES[one.outcome]}")


def _reason(one: PastInstant, lines: dict[int, RunLine]) -> list[object]:
    if one.run_id is None:
        return [one.reason]
    line = lines[one.run_id]
    failure = f" {line.failure.step}: {line.failure.text}" if line.failure else f" {line.reason}"
    return [run_link(one.run_id), failure]


# -- the form --------------------------------------------------------------------------------------------------------


class NewQuery(Query, frozen=True):
    """The workflow that a new schedule is for."""

    workflow: str = ""


def new_schedule(call: Call) -> Answer:
    return _form_page(call, None, call.query.workflow)


def edit_schedule(call: Call) -> Answer:
    return _form_page(call, call.service.schedules.show(call.path["name"]), "")


def _form_page(call: Call, one: ScheduleView | None, workflow: str) -> Answer:
    title = f"Edit {one.name}" if one else "New schedule"
    over: list[object] = [element("a", "Schedules", href="/schedules")]
    if one:
        over += [" / ", element("a", one.name, href=path_to("schedules", one.name))]
    preview = panel(
        "It would start at",
        element(
            "div", element("p", "Fill in the form.", class_="muted"), id="preview", data_keep=True, aria_live="polite"
        ),
        name="coming",
    )
    return page(
        call,
        title,
        heading(title, over=join_html(over)),
        element("div", _form(call, one, workflow), preview, class_="columns form-page"),
        section=_SECTION,
        styles=_STYLES,
        modules=("schedules.js",),
    )


# What most schedules have of what stands under "More".
_USUAL = ("skip", "last", None, None)


def _form(call: Call, one: ScheduleView | None, workflow: str) -> Html:
    known = [each.name for each in call.service.catalogue.workflows(limit=500).workflows]
    is_interval = one is not None and one.every is not None
    zones = sorted(name for name in available_timezones() if "/" in name or name == "UTC")
    more = [
        _choice(
            "overlap",
            "While a run of it goes on",
            [
                ("skip", "skip the instant"),
                ("queue", "start it when the run has ended"),
                ("cancel", "cancel the earlier run"),
                ("allow", "start it all the same"),
            ],
            one.overlap if one else "skip",
        ),
        _field(
            "For what was missed",
            _input("catch_up", one.catch_up if one else "last"),
            hint="none, last, all, or all(20) for the newest 20",
        ),
        _field(
            "Pauses itself after failed runs in a row",
            _input(
                "pause_after",
                one.pause_after if one and one.pause_after else "",
                type="number",
                min=1,
                placeholder="never",
            ),
        ),
        _field(
            "Version",
            _input(
                "version", one.version if one and one.version else "", type="number", min=1, placeholder="the newest"
            ),
        ),
    ]
    parts = [
        _field("Name", _input("name", one.name if one else "", required=True, readonly=one is not None)),
        _field(
            "Workflow",
            _input("workflow", one.workflow if one else workflow, required=True, list="workflows"),
            hint="a published one; its newest version" if not (one and one.version) else "",
        ),
        element("datalist", *(element("option", value=name) for name in known), id="workflows"),
        _choice(
            "kind",
            "Starts",
            [("cron", "at times (cron)"), ("every", "at intervals")],
            "every" if is_interval else "cron",
        ),
        _field(
            "Cron",
            _input("cron", (one.cron if one else None) or "30 2 * * *", class_="mono"),
            hint="minute hour day month weekday: 30 2 * * MON-FRI",
            kind="cron",
        ),
        _field(
            "Time zone",
            _input("timezone", (one.timezone if one else None) or "", list="zones", placeholder="UTC"),
            kind="cron",
            hint="such as Europe/Berlin",
        ),
        element("datalist", *(element("option", value=name) for name in zones), id="zones"),
        _field(
            "Every",
            _input("every", f"{one.every:g}s" if one and one.every else "", placeholder="6h", class_="mono"),
            hint="30s, 15m, 6h",
            kind="every",
        ),
        _field(
            "Counted from",
            _input("anchor", one.anchor.isoformat() if one and one.anchor else "", placeholder="2026-01-01T00:00:00Z"),
            kind="every",
            hint="leave empty for midnight UTC",
        ),
        _inputs(call, one, one.workflow if one else workflow),
        element(
            "details",
            element("summary", "More: overlaps, what was missed, version"),
            *more,
            class_="inner",
            open=one is not None and (one.overlap, one.catch_up, one.pause_after, one.version) != _USUAL,
        ),
        element("p", id="form-problem", class_="problem", role="alert", data_keep=True),
        element(
            "div",
            element("button", "Save" if one else "Make the schedule", type="submit", class_="primary"),
            element("a", "Back", href=path_to("schedules", one.name) if one else "/schedules", class_="button quiet"),
            class_="buttons",
        ),
    ]
    labels = json.dumps(one.labels) if one else "{}"
    return element(
        "form",
        *parts,
        id="schedule-form",
        class_="panel",
        data_revision=str(one.revision if one else 0),
        data_labels=labels,
    )


def _inputs(call: Call, one: ScheduleView | None, workflow: str) -> Html:
    """The inputs of each run: a field for each that the workflow has. The script asks again for another workflow."""
    given = one.inputs if one and one.workflow == workflow else {}
    fields: Html = element("p", "Name a published workflow: its inputs appear here.", class_="muted")
    try:
        declared = call.service.catalogue.load(workflow, one.version if one else None).inputs if workflow else None
    except MulliganError:
        declared = None
    if declared is not None:
        fields = input_fields(declared, given, allows_placeholders=True)
    if declared:
        date, before = (element("code", f"${{schedule.{field}}}") for field in ("date", "previous_date"))
        words = (date, " is the date of each start, ", before, " that of the start before it.")
        note = element("p", *words, class_="note")
        fields = join_html([fields, note])
    title = element("legend", "Inputs of each run")
    return element("fieldset", title, fields, id="schedule-inputs", class_="inputs", data_given=json.dumps(given))


def _input(name: str, value: object, *, type: str = "text", **others: Any) -> Html:
    return element(
        "input",
        type=type,
        name=name,
        id=f"form-{name}",
        value=str(value) if value != "" else None,
        autocomplete="off",
        **others,
    )


def _field(label: str, control: Html, *, hint: str = "", kind: str = "") -> Html:
    name = control.split('id="', 1)[1].split('"', 1)[0]
    note = element("small", hint) if hint else ""
    return element("p", element("label", label, for_=name), control, note, class_="field", data_kind=kind or None)


def _choice(name: str, label: str, options: list[tuple[str, str]], chosen: str) -> Html:
    made = [element("option", text, value=value, selected=value == chosen) for value, text in options]
    return _field(label, element("select", *made, name=name, id=f"form-{name}"))


ROUTES = (
    page_route("/schedules", show_schedules, "The schedules, and what each does next."),
    page_route(
        "/schedules/new", new_schedule, "A form for a new schedule.", query=NewQuery, scope="write", is_slow=True
    ),
    page_route("/schedules/{name}", show_schedule, "A schedule: what comes, and what came of it."),
    page_route("/schedules/{name}/edit", edit_schedule, "A form for a schedule.", scope="write", is_slow=True),
)

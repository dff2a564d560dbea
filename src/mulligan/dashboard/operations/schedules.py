"""Schedules: what is started when, what came of it, and changing that."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from mulligan.api.http.routing import Answer, Call, Query
from mulligan.dashboard.components.parts import action_button, removal_button
from mulligan.dashboard.components.shell import empty, heading, may, page, page_route, panel, shortened
from mulligan.dashboard.workflows.input_fields import input_fields
from mulligan.errors import MulliganError
from mulligan.service.rendering.formatting import format_input, pluralize
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import status_label, status_tone
from mulligan.service.runs.views.run_list import RunLine
from mulligan.service.server.schedules.past_instants import PastInstant
from mulligan.service.server.schedules.schedules import ScheduleView
from mulligan.service.server.schedules.timing_words import describe_timing

_SECTION = "schedules"
# What happens while a run of it goes on, and for what was missed.
_OVERLAPS = {
    "skip": "skip the instant",
    "queue": "start it when the run has ended",
    "cancel": "cancel the earlier run",
    "allow": "start it all the same",
}
_CATCH_UPS = {"none": "nothing", "last": "start the newest one"}
_STARTS = {"cron": "at times (cron)", "every": "at intervals"}
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
    new = ui.button_link("New schedule", "/schedules/new", "primary") if may(call, "write") else ""
    if not found:
        nothing = empty(
            "No schedules yet.", ui.note("A schedule starts a published workflow on time, once for each instant.")
        )
        return page(call, "Schedules", heading("Schedules", new), nothing, section=_SECTION)
    ids = {one.last.run_id for one in found if one.last is not None}
    statuses = {record.run_id: record.status for record in call.service.runs.records(ids)} if ids else {}
    rows = [_row(call, one, statuses, with_strip=number < _STRIPS_MAX) for number, one in enumerate(found)]
    head = ("Schedule", "When", "Next", "Last", "Last instants", ui.figure(""))
    listed = ui.table(head, rows, label="Schedules", keyed=True)
    return page(call, "Schedules", heading("Schedules", new), listed, section=_SECTION, live="runs")


def _row(call: Call, one: ScheduleView, statuses: dict[int, str], *, with_strip: bool) -> ui.Row:
    name = ui.link(one.name, "schedules", one.name, class_="strong")
    starts = element("small", "starts ", ui.link(one.workflow, "workflows", one.workflow))
    when = [describe_timing(one.cron, one.every), element("br"), element("small", one.timezone or "")]
    last = ui.muted("never")
    if one.last is not None:
        known = statuses.get(one.last.run_id, "")
        last = join_html([ui.run_link(one.last.run_id), ui.status(known) if known else ""], " ")
    past = call.service.schedules.past(one.name, limit=_STRIP).instants if with_strip else ()
    squares = [_square(each, glyph=False) for each in reversed(past)]
    return ui.row(
        join_html([name, element("br"), starts]),
        join_html(when),
        _next(one),
        last,
        element("span", *squares, class_="instants") if with_strip else "",
        _pause_button(call, one, small=True),
        id=f"schedule-{one.name}",
    )


def _next(one: ScheduleView) -> Html:
    if one.pause is not None:
        who = "by itself" if one.pause.is_automatic else f"by {one.pause.by}"
        return ui.status("paused", f"paused {who}", title=one.pause.reason or None)
    parts = [ui.moment(one.next[0])] if one.next else [ui.muted("never")]
    if one.waiting:
        parts.append(element("small", f" {pluralize(one.waiting, 'start')} waiting"))
    return join_html(parts)


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
            join_html([one.name, element("span", "paused", class_="badge ask") if one.is_paused else ""]),
            *_actions(call, one),
            over=ui.link("Schedules", "schedules"),
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
        modules=("schedules.js",),
    )


def _sentence(one: ScheduleView) -> list[object]:
    version = f" version {one.version}" if one.version else ""
    words: list[object] = ["Starts ", ui.link(one.workflow, "workflows", one.workflow), version, " "]
    words.append(describe_timing(one.cron, one.every))
    words.append(f", {one.timezone}." if one.timezone else ".")
    if one.active:
        words += [" Now: ", join_html([ui.run_link(each.run_id) for each in one.active[:3]], ", "), "."]
    if one.waiting:
        words.append(f" {pluralize(one.waiting, 'start')} waiting.")
    return words


def _paused(call: Call, one: ScheduleView) -> Html | str:
    if one.pause is None:
        return ""
    who = "It paused itself" if one.pause.is_automatic else f"Paused by {one.pause.by}"
    why = f": {one.pause.reason}" if one.pause.reason else ""
    words = [
        element("strong", f"{who}{why}"),
        " ",
        ui.moment(one.pause.at),
        ". Nothing is started until it is resumed.",
    ]
    return element("section", element("p", *words), class_="panel ask", aria_label="Paused")


def _actions(call: Call, one: ScheduleView) -> list[Html | str]:
    found: list[Html | str] = [_pause_button(call, one)]
    path = f"schedules/{_segment(one.name)}"
    if may(call, "run"):
        until = datetime.now(UTC).replace(second=0, microsecond=0)
        range_ = (("from", "From", until - timedelta(days=1)), ("to", "To", until))
        action = {
            "path": f"{path}:backfill",
            "title": f"Backfill {one.name}",
            "text": "Starts the past instants of this time that have no run yet, one after another.",
            "label": "Start them",
            "done": "the runs are being started",
            "preview": True,
            "fields": [
                {"name": name, "label": label, "type": "datetime-local", "value": at.isoformat()}
                for name, label, at in range_
            ],
        }
        found.append(element("button", "Backfill…", type="button", data_backfill=json.dumps(action)))
    if may(call, "write") and not one.is_from_file:
        found.append(ui.button_link("Edit", ui.path_to("schedules", one.name, "edit")))
        more = {"text": "Nothing is started by it any more. Its runs stay.", "next": "/schedules"}
        done, confirm = f"{one.name} is removed", "Remove the schedule"
        found.append(removal_button("Remove", path, f"Remove {one.name}?", done=done, confirm=confirm, **more))
    return found


def _pause_button(call: Call, one: ScheduleView, *, small: bool = False) -> Html | str:
    if not may(call, "run"):
        return ""
    path = f"schedules/{_segment(one.name)}"
    verb, done, kind = "Pause", "is paused", "quiet" if small else ""
    text = "Nothing more is started until somebody resumes it. Runs that are there go on."
    if one.is_paused:
        verb, done, kind = "Resume", "goes on", kind or "primary"
        text = "It goes on with the next instant. What passed meanwhile is not made up for: that is a backfill."
    how = {"text": text, "reason": "optional", "done": f"{one.name} {done}"}
    return action_button(verb, f"{path}:{verb.lower()}", f"{verb} {one.name}", kind=kind, **how)


def _segment(name: str) -> str:
    return ui.path_to(name)[1:]


def _coming(one: ScheduleView, zone: ZoneInfo) -> Html:
    given = (ui.Column("Inputs", "given"),) if one.next_inputs else ()
    heads = (one.timezone or "UTC", "Your time", ui.Column("", "muted"), *given)
    soon = datetime.now(UTC) + timedelta(days=7)
    rows = [
        ui.row(
            f"{at.astimezone(zone):%A %-d %B, %H:%M}",
            ui.moment(at, "time"),
            ui.moment(at) if at < soon else "",
            *([shortened(_input_texts(one.next_inputs[number]), 120)] if given else []),
        )
        for number, at in enumerate(one.next)
    ]
    return ui.table(heads, rows, label="The next instants")


def _input_texts(inputs: dict[str, Any]) -> str:
    return ", ".join(f"{name}={format_input(value)}" for name, value in inputs.items())


def _settings(one: ScheduleView) -> Html:
    found: list[tuple[str, object]] = [("Cron", element("code", one.cron))] if one.cron else []
    found.append(("While a run of it goes on", _OVERLAPS.get(one.overlap, one.overlap)))
    found.append(("For what was missed", _CATCH_UPS.get(one.catch_up, f"start {one.catch_up}")))
    if one.anchor is not None:
        found.append(("Counted from", ui.moment(one.anchor, "time")))
    if one.pause_after:
        found.append(("Pauses itself", f"after {pluralize(one.pause_after, 'failed run')} in a row"))
    if one.failures:
        found.append(("Failed in a row", ui.status("failed", one.failures)))
    if one.inputs:
        found.append(("Inputs", _input_texts(one.inputs)))
    if one.labels:
        found.append(("Labels", ", ".join(f"{name}={value}" for name, value in one.labels.items())))
    if one.is_from_file:
        words = ["the text of ", ui.link(one.workflow, "workflows", one.workflow), ": publish it to change this"]
        found.append(("Belongs to", join_html(words)))
    by = f" by {one.updated_by}" if one.updated_by else ""
    found.append(("Changed", join_html([ui.moment(one.updated_at), by])))
    found.append(("Runs", element("a", "its runs", href=ui.link_with("/runs", label=f"schedule={one.name}"))))
    return ui.pairs(found)


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
        kind = "outside" if outside else "today" if day == today else None
        days.append(element("li", label, element("span", *squares, class_="instants"), class_=kind))
    names = ui.bullets(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"), "weekdays", aria_hidden="true")
    grid = element("ol", *days, class_="calendar few" if is_few else "calendar")
    return element("div", ui.legend(_LEGEND), names, grid, class_="calendar-box")


_LEGEND = (
    ("good", "completed"),
    ("bad", "failed"),
    ("now", "running"),
    ("ask", "waits for a person"),
    ("try", "missed"),
    ("idle", "skipped, cancelled or waiting"),
)


def _square(one: PastInstant, zone: ZoneInfo | None = None, *, glyph: bool) -> Html:
    tone = _TONES.get(one.outcome) or status_tone(one.status)
    at = one.instant.astimezone(zone or UTC)
    said = f"{one.outcome}{f': {one.reason}' if one.reason else ''}"
    if one.run_id is not None:
        said = f"run {one.run_id} {status_label(one.status)}"
    words = f"{at:%a %-d %b %H:%M}: {said}"
    kind = f"instant {tone} {'hollow' if one.run_id is None else ''}".strip()
    sign = _GLYPHS[tone] if glyph else ""
    if one.run_id is not None:
        return ui.link(sign, "runs", one.run_id, class_=kind, title=words, aria_label=words)
    return element("span", sign, class_=kind, title=words, role="img", aria_label=words)


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
        ui.row(
            f"{one.instant.astimezone(zone):%a %-d %b %H:%M}",
            ui.status(one.status) if one.run_id else ui.status("", one.outcome, tone=_TONES[one.outcome]),
            join_html(_reason(one, lines)),
        )
        for one in shown
    ]
    listed = ui.table((ui.Column("Instant", "nowrap"), "Outcome", "Why"), rows, label="What did not work", keyed=True)
    return panel("What did not work", listed, ui.left_out(len(found) - len(shown), "earlier"), name="trouble")


def _reason(one: PastInstant, lines: dict[int, RunLine]) -> list[object]:
    if one.run_id is None:
        return [one.reason]
    line = lines[one.run_id]
    failure = f" {line.failure.step}: {line.failure.text}" if line.failure else f" {line.reason}"
    return [ui.run_link(one.run_id), failure]


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
    over = [ui.link("Schedules", "schedules"), *([" / ", ui.link(one.name, "schedules", one.name)] if one else [])]
    todo = element("p", "Fill in the form.", class_="muted")
    coming = element("div", todo, id="preview", data_keep=True, aria_live="polite")
    preview = panel("It would start at", coming, name="coming")
    return page(
        call,
        title,
        heading(title, over=join_html(over)),
        element("div", _form(call, one, workflow), preview, class_="columns form-page"),
        section=_SECTION,
        modules=("schedules.js",),
    )


def _form(call: Call, one: ScheduleView | None, workflow: str) -> Html:
    known = [each.name for each in call.service.catalogue.workflows(limit=500).workflows]
    zones = sorted(name for name in available_timezones() if "/" in name or name == "UTC")
    workflow = one.workflow if one else workflow
    newest = "" if one and one.version else "a published one; its newest version"
    cron, zone = (one.cron, one.timezone) if one else ("", "")
    cron = cron or "30 2 * * *"
    every = f"{one.every:g}s" if one and one.every else ""
    anchor, counted = one.anchor.isoformat() if one and one.anchor else "", "leave empty for midnight UTC"
    usual = (None, None, "skip", "last")
    pause_after, version, overlap, catch_up = (
        (one.pause_after, one.version, one.overlap, one.catch_up) if one else usual
    )
    is_unusual = (pause_after, version, overlap, catch_up) != usual
    catching = "none, last, all, or all(20) for the newest 20"
    number: dict[str, Any] = {"type": "number", "min": 1}
    more = [
        _choice("overlap", "While a run of it goes on", _OVERLAPS, overlap),
        _field("For what was missed", "catch_up", catch_up, hint=catching),
        _field("Pauses itself after failed runs in a row", "pause_after", pause_after, placeholder="never", **number),
        _field("Version", "version", version, placeholder="the newest", **number),
    ]
    parts = [
        _field("Name", "name", one.name if one else "", required=True, readonly=one is not None),
        _field("Workflow", "workflow", workflow, hint=newest, required=True, list="workflows"),
        _choices("workflows", known),
        _choice("kind", "Starts", _STARTS, "every" if one is not None and one.every is not None else "cron"),
        _field(
            "Cron", "cron", cron, hint="minute hour day month weekday: 30 2 * * MON-FRI", when="cron", class_="mono"
        ),
        _field(
            "Time zone", "timezone", zone, hint="such as Europe/Berlin", when="cron", list="zones", placeholder="UTC"
        ),
        _choices("zones", zones),
        _field("Every", "every", every, hint="30s, 15m, 6h", when="every", placeholder="6h", class_="mono"),
        _field("Counted from", "anchor", anchor, hint=counted, when="every", placeholder="2026-01-01T00:00:00Z"),
        _inputs(call, one, workflow),
        ui.details("More: overlaps, what was missed, version", *more, open=is_unusual),
        element("p", id="form-problem", class_="problem", role="alert", data_keep=True),
        element(
            "div",
            element("button", "Save" if one else "Make the schedule", type="submit", class_="primary"),
            ui.button_link("Back", ui.path_to("schedules", one.name) if one else "/schedules", "quiet"),
            class_="buttons",
        ),
    ]
    about = {"data_revision": str(one.revision if one else 0), "data_labels": json.dumps(one.labels) if one else "{}"}
    return element("form", *parts, id="schedule-form", class_="panel", **about)


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
        fields = join_html([fields, ui.note(*words)])
    title = element("legend", "Inputs of each run")
    return element("fieldset", title, fields, id="schedule-inputs", class_="inputs", data_given=json.dumps(given))


def _field(
    label: str, name: str, value: object, *, hint: str = "", when: str = "", type: str = "text", **others: Any
) -> Html:
    """A field of the form. `when`: only for schedules of this kind."""
    about = {"name": name, "id": f"form-{name}", "value": str(value) if value else None, "autocomplete": "off"}
    control = element("input", type=type, **about, **others)
    return _labelled(label, name, control, element("small", hint) if hint else "", data_kind=when or None)


def _choice(name: str, label: str, options: Mapping[str, str], chosen: str) -> Html:
    made = [element("option", text, value=value, selected=value == chosen) for value, text in options.items()]
    return _labelled(label, name, element("select", *made, name=name, id=f"form-{name}"))


def _labelled(label: str, name: str, *control: object, **attributes: Any) -> Html:
    return element("p", element("label", label, for_=f"form-{name}"), *control, class_="field", **attributes)


def _choices(name: str, values: Iterable[str]) -> Html:
    """What a field proposes."""
    return element("datalist", *(element("option", value=value) for value in values), id=name)


ROUTES = (
    page_route("/schedules", show_schedules, "The schedules, and what each does next."),
    page_route(
        "/schedules/new", new_schedule, "A form for a new schedule.", query=NewQuery, scope="write", is_slow=True
    ),
    page_route("/schedules/{name}", show_schedule, "A schedule: what comes, and what came of it."),
    page_route("/schedules/{name}/edit", edit_schedule, "A form for a schedule.", scope="write", is_slow=True),
)

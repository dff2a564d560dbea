"""The tab Grid of a run: steps down, rounds across, each attempt in the colour of its outcome; failures first."""

from __future__ import annotations

from mulligan.dashboard.components.parts import hidden_fields, search_box
from mulligan.dashboard.components.shell import empty
from mulligan.dashboard.runs.run_actions import step_buttons
from mulligan.dashboard.runs.run_tab import RunOnPage, Tab
from mulligan.errors import InputInvalid
from mulligan.service.rendering.descriptions import summarize_failure
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import OUTCOMES, format_elapsed, status_label
from mulligan.service.runs.stored.attempts import AttemptRecord, part_of
from mulligan.service.runs.views.run_grid import GridPage, GridQuery, GridRow

ROWS = 100
# How many attempts of a round are drawn one by one, the newest.
ATTEMPTS_MAX = 24
_PARTS = {
    "own": "",
    "handler": "handler ",
    "script": "recovery script ",
    "check": "check ",
    "undo": "undo ",
    "triager": "triager ",
    "model": "question ",
    "tool": "tool call ",
}


def render_grid(run: RunOnPage) -> Tab:
    """A page of the grid."""
    asked = run.query
    query = GridQuery(text=asked.text, hides_completed=asked.hide_completed, start=_start(asked.cursor), limit=ROWS)
    found = run.call.service.details.grid(run.run_id, query)
    if found.rows:
        rounds = [f"Round {number}" if found.rounds > 1 else "Attempts" for number in range(1, found.rounds + 1)]
        heads = ("Step", "Status", *(ui.Column(one, "cells") for one in rounds), ui.figure(""))
        rows = (_row(run, one, found.rounds) for one in found.rows)
        body = ui.table(heads, rows, label="Steps by rounds and attempts", keyed=True)
    else:
        body = empty("Every step has completed or was skipped." if found.hidden else "No step has this in its name.")
    content = element("section", _filters(run, found), _reading(found), body, _pages(run, found), class_="grid-tab")
    return Tab(content, modules=("run_tabs.js",), live=run.live)


def _reading(found: GridPage) -> Html:
    """While the log of a large run is read, the statuses are there and the attempts are not. The script asks again."""
    if found.read_share >= 1.0:
        return Html("")
    words = f"Reading the attempts of a large run … {found.read_share:.0%}"
    return element("p", words, class_="note", role="status", data_again=True)


def _start(cursor: str) -> int:
    if cursor and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
        raise InputInvalid("this address names no page of the grid", hint="open the tab Grid", parameter="cursor")
    return int(cursor or 0)


def _address(run: RunOnPage, *, start: int = 0, hides: bool | None = None) -> str:
    asked = run.query
    hidden = "true" if (asked.hide_completed if hides is None else hides) else ""
    return run.path(tab="grid", text=asked.text, hide_completed=hidden, cursor=start)


def _filters(run: RunOnPage, found: GridPage) -> Html:
    asked = run.query
    hidden = hidden_fields(tab="grid", hide_completed=("true",) if asked.hide_completed else ())
    box = search_box("text", asked.text, "Part of a name", "Find steps")
    form = element("form", hidden, box, method="get", role="search")
    hide = element(
        "a",
        "Hide completed",
        href=_address(run, hides=not asked.hide_completed),
        class_="chip",
        role="button",
        aria_pressed="true" if asked.hide_completed else "false",
        id="hide-completed",
    )
    words = f"{found.total:,} step{'' if found.total == 1 else 's'}"
    if found.hidden and asked.hide_completed:
        words += f", {found.hidden:,} completed or skipped are hidden"
    return element("div", form, hide, element("span", words, class_="muted", id="grid-count"), class_="filters")


def _row(run: RunOnPage, found: GridRow, rounds: int) -> ui.Row:
    step = found.step
    state = [ui.status(step.status, "paused" if step.paused else "")]
    if step.failure and step.status in ("failed", "pending_failed", "backing_off", "handling"):
        handled = ", handled" if step.is_handled else ""
        state.append(element("p", f"{step.failure}{handled}", class_="grid-failure", title=step.failure))
    elif step.recovered_by:
        state.append(element("small", f" by {step.recovered_by}"))
    elif step.up_to_date_since:
        state.append(element("small", f" taken from run {step.up_to_date_since}"))
    cells = [_cell(run, found, number) for number in range(1, rounds + 1)]
    if found.is_folded or (step.items and not found.attempts):
        cells[-1] = _items(step.items or {})
    buttons = step_buttons(run, step.name, step.status, is_paused=step.paused, is_short=True)
    link = ui.link(step.name, "runs", run.run_id, "steps", step.name, data_open=True)
    where = element("small", step.called_at, class_="muted") if step.called_at else ""
    name = ui.name_cell(join_html([link, " ", where]))
    return ui.row(name, join_html(state), *cells, buttons, id=f"row-{step.name}")


def _cell(run: RunOnPage, found: GridRow, number: int) -> Html:
    attempts = [one for one in found.attempts if one.round == number]
    marks = [_mark(run, found, one) for one in attempts[-ATTEMPTS_MAX:]]
    if len(attempts) > ATTEMPTS_MAX:
        marks.insert(0, element("small", f"{len(attempts) - ATTEMPTS_MAX:,} before "))
    # How its items stand is known for now only: it belongs to the last round in which it ran.
    if found.step.items and marks and number == max(one.round for one in found.attempts):
        marks.append(_items(found.step.items))
    return join_html(marks)


def _mark(run: RunOnPage, found: GridRow, one: AttemptRecord) -> Html:
    """One attempt. Its letter says the outcome to those who do not see the colour."""
    seconds, part, child = one.wall_seconds, part_of(one.place), found.called.get((one.place, one.attempt))
    took = f", {format_elapsed(seconds)}" if isinstance(seconds, int | float) else ""
    what = f": {summarize_failure(one.failure)}" if one.failure else ""
    said = f"{_PARTS[part]}attempt {one.attempt} {one.status}{took}{what}"
    kind = "mark" if part == "own" else "mark part"
    text = one.attempt if part == "own" else part[0]
    if child:
        said += f", by run {child}"
    about = {"class_": f"{kind} {OUTCOMES[one.status]}", "title": said, "aria_label": said}
    mark = ui.link(text, "runs", run.run_id, "steps", found.step.name, **about)
    return join_html([mark, ui.link(f"run {child}", "runs", child, class_="called") if child else ""])


def _items(counts: dict[str, int]) -> Html:
    total = counts.get("total", 0)
    words = [f"{count:,} {status_label(status)}" for status, count in counts.items() if status != "total" and count]
    return element("span", f"{total:,} items: {', '.join(words)}" if total else "items", class_="items-note")


def _pages(run: RunOnPage, found: GridPage) -> Html:
    if found.total <= len(found.rows):
        return Html("")
    end = found.start + len(found.rows)
    return ui.paged(
        ui.button_link("Before", _address(run, start=max(0, found.start - ROWS))) if found.start else "",
        ui.muted(f"{found.start + 1:,} to {end:,} of {found.total:,}"),
        ui.button_link("Next", _address(run, start=end), rel="next") if end < found.total else "",
    )

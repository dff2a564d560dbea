"""The tab Grid of a run: steps down, rounds across, each attempt in the colour of its outcome; failures first."""

from __future__ import annotations

from urllib.parse import urlencode

from mulligan.dashboard.components.shell import empty, path_to, table
from mulligan.dashboard.runs.run_actions import step_buttons
from mulligan.dashboard.runs.run_tab import RunOnPage, Tab
from mulligan.errors import InputInvalid
from mulligan.service.rendering.descriptions import summarize_failure
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import format_elapsed, status_label, status_tone
from mulligan.service.runs.stored.attempts import AttemptRecord, part_of
from mulligan.service.runs.views.run_grid import GridPage, GridQuery, GridRow

ROWS = 100
# How many attempts of a round are drawn one by one, the newest.
ATTEMPTS_MAX = 24
_TONES = {"succeeded": "good", "failed": "bad", "running": "now", "queued": "idle"}
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
        body = table(
            ("Step", "Status", *rounds, ""),
            [_row(run, row, found.rounds) for row in found.rows],
            label="Steps by rounds and attempts",
            keyed=True,
        )
    else:
        body = empty("Every step has completed or was skipped." if found.hidden else "No step has this in its name.")
    return Tab(
        element("section", _filters(run, found), _reading(found), body, _pages(run, found), class_="grid-tab"),
        modules=("run_tabs.js",),
        styles=("run_tabs.css",),
        live="" if run.has_ended else f"run:{run.run_id}",
    )


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
    query = {
        "tab": "grid",
        **({"text": asked.text} if asked.text else {}),
        **({"hide_completed": "true"} if (asked.hide_completed if hides is None else hides) else {}),
        **({"cursor": str(start)} if start else {}),
    }
    return f"{path_to('runs', run.run_id)}?{urlencode(query)}"


def _filters(run: RunOnPage, found: GridPage) -> Html:
    asked = run.query
    box = element(
        "input", type="search", name="text", value=asked.text, placeholder="Part of a name", aria_label="Find steps"
    )
    hidden = [element("input", type="hidden", name="tab", value="grid")]
    if asked.hide_completed:
        hidden.append(element("input", type="hidden", name="hide_completed", value="true"))
    form = element("form", *hidden, box, method="get", role="search")
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


def _row(run: RunOnPage, row: GridRow, rounds: int) -> Html:
    step = row.step
    name = element("a", step.name, href=path_to("runs", run.run_id, "steps", step.name), data_open=True)
    words = status_label(step.status) if not step.paused else "paused"
    status: list[object] = [element("span", words, class_=f"status {status_tone(step.status)}")]
    if step.failure and step.status in ("failed", "pending_failed", "backing_off", "handling"):
        status.append(element("p", step.failure, class_="grid-failure", title=step.failure))
    elif step.recovered_by:
        status.append(element("small", f" by {step.recovered_by}"))
    elif step.up_to_date_since:
        status.append(element("small", f" taken from run {step.up_to_date_since}"))
    cells = [element("td", _cell(run, row, number), class_="cells") for number in range(1, rounds + 1)]
    if row.is_folded or (step.items and not row.attempts):
        cells[-1] = element("td", _items(step.items or {}), class_="cells")
    return element(
        "tr",
        element("th", name, scope="row"),
        element("td", *status),
        *cells,
        element("td", step_buttons(run, step.name, step.status, is_paused=step.paused, is_short=True), class_="n"),
        id=f"row-{step.name}",
    )


def _cell(run: RunOnPage, row: GridRow, number: int) -> Html:
    attempts = [one for one in row.attempts if one.round == number]
    marks = [_mark(run, row, one) for one in attempts[-ATTEMPTS_MAX:]]
    if len(attempts) > ATTEMPTS_MAX:
        marks.insert(0, element("small", f"{len(attempts) - ATTEMPTS_MAX:,} before "))
    # How its items stand is known for now only: it belongs to the last round in which it ran.
    if row.step.items and marks and number == max(one.round for one in row.attempts):
        marks.append(_items(row.step.items))
    return join_html(marks)


def _mark(run: RunOnPage, row: GridRow, one: AttemptRecord) -> Html:
    """One attempt. Its letter says the outcome to those who do not see the colour."""
    seconds, part, child = one.wall_seconds, part_of(one.place), row.called.get((one.place, one.attempt))
    took = f", {format_elapsed(seconds)}" if isinstance(seconds, int | float) else ""
    what = f": {summarize_failure(one.failure)}" if one.failure else ""
    said = f"{_PARTS[part]}attempt {one.attempt} {one.status}{took}{what}"
    kind = "mark" if part == "own" else "mark part"
    text = one.attempt if part == "own" else part[0]
    if child:
        said += f", by run {child}"
    mark = element(
        "a",
        text,
        href=path_to("runs", run.run_id, "steps", row.step.name),
        class_=f"{kind} {_TONES.get(one.status, 'odd')}",
        title=said,
        aria_label=said,
    )
    if child:
        called = element("a", f"run {child}", href=path_to("runs", child), class_="called")
        return join_html([mark, called])
    return mark


def _items(counts: dict[str, int]) -> Html:
    total = counts.get("total", 0)
    words = [f"{count:,} {status_label(status)}" for status, count in counts.items() if status != "total" and count]
    return element("span", f"{total:,} items: {', '.join(words)}" if total else "items", class_="items-note")


def _pages(run: RunOnPage, found: GridPage) -> Html:
    if found.total <= len(found.rows):
        return Html("")
    end = found.start + len(found.rows)
    parts: list[object] = []
    if found.start:
        parts.append(element("a", "Before", href=_address(run, start=max(0, found.start - ROWS)), class_="button"))
    parts.append(element("span", f"{found.start + 1:,} to {end:,} of {found.total:,}", class_="muted"))
    if end < found.total:
        parts.append(element("a", "Next", href=_address(run, start=end), class_="button", rel="next"))
    return element("nav", *parts, class_="pages", aria_label="Pages")

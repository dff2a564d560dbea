"""The attempts at a step side by side: how each ended, where it ran, what it asked for and used, what changed."""

from __future__ import annotations

from collections.abc import Iterator

from mulligan.service.rendering.formatting import format_duration, format_size
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import OUTCOMES, format_elapsed, time_element
from mulligan.service.runs.views.step_history import AttemptLine

_PARTS = {"handler": "handler", "script": "recovery script", "check": "check", "undo": "undo", "triager": "triager"}
# What an agent with tools does, numbered by the attempt of the agent.
_TURNS = {"model": "question", "tool": "tool call", "tool_list": "list of tools"}
# The widths of a bar for memory that was used of that which was asked for.
_BAR_WIDTH, _BAR_HEIGHT = 72, 6


def attempts_table(attempts: list[AttemptLine], unit: str, count: int) -> Html:
    """One row for each attempt; between two of them a line that says why there is another, and what is different."""
    rows = (row for one in attempts for row in _rows(one, unit))
    cut = ui.note(f"The last {len(attempts)} of {count:,} attempts.") if count > len(attempts) else ""
    return join_html([cut, element("div", ui.table(_COLUMNS, rows, label="Attempts", keyed=True), class_="attempts")])


_COLUMNS = (
    "attempt",
    "outcome",
    ui.Column("exit", "nowrap"),
    ui.Column("started", "nowrap"),
    ui.figure("took"),
    ui.figure("CPU"),
    ui.Column("memory used of asked", "nowrap"),
    ui.Column("CPUs, timeout", "nowrap dim"),
    ui.Column("ran on", "dim"),
)


def _rows(one: AttemptLine, unit: str) -> Iterator[ui.Row]:
    key = f"attempt-{one.place}-{one.attempt}"
    if one.because:
        said = ui.cell(element("span", "↳ ", one.because), colspan=len(_COLUMNS))
        yield ui.row(said, class_="because adjusted" if one.is_adjusted else "because", id=f"{key}-because")
    yield ui.row(
        _name(one, unit),
        _outcome(one),
        _exit(one),
        time_element(one.started_at) if one.started_at else "",
        _took(one),
        "" if one.cpu_seconds is None else format_elapsed(one.cpu_seconds),
        _memory(one),
        _limits(one),
        element("span", one.host or "", title=one.worker or None),
        id=key,
        class_=None if one.part == "own" else "part",
    )


def _name(one: AttemptLine, unit: str) -> Html:
    rest = one.place.removeprefix(unit).lstrip(".")
    command = f"command {int(rest) + 1}" if rest.isdecimal() and rest != "0" else ""
    turn, _, number = rest.rpartition("@")
    what = _PARTS.get(one.part, command)
    if turn in _TURNS:
        what = f"{_TURNS[turn]} {int(number.rpartition('.')[2]) + 1}, attempt"
    # The log of an attempt is shown by the viewer below, without loading the page again.
    about = {"data_log_place": one.place, "data_log_attempt": one.attempt, "title": "Show its log"}
    shown = element("a", f"{what} {one.attempt}".strip(), href="#log", **about)
    return join_html([shown, element("small", f" round {one.round}") if one.round > 1 else ""])


def _outcome(one: AttemptLine) -> Html:
    detail = one.what or one.progress
    state = ui.status(one.outcome, one.outcome, tone=OUTCOMES[one.outcome])
    return join_html([state, element("div", detail, class_="what") if detail else ""])


def _exit(one: AttemptLine) -> str:
    if one.signal is not None:
        return f"signal {one.signal}"
    return "" if one.exit_code is None else str(one.exit_code)


def _took(one: AttemptLine) -> str:
    if one.wall_seconds is not None:
        return format_elapsed(one.wall_seconds)
    if one.started_at and one.ended_at:
        return format_elapsed(max(0.0, (one.ended_at - one.started_at).total_seconds()))
    return ""


def _memory(one: AttemptLine) -> Html | str:
    if one.peak_memory is None and one.memory is None:
        return ""
    used = format_size(one.peak_memory) if one.peak_memory is not None else "?"
    if one.memory is None:
        return used
    share = min(1.0, (one.peak_memory or 0) / one.memory) if one.memory else 0.0
    tone = "bad" if share > 0.95 else "try" if share > 0.8 else "good"
    bar = ui.gauge(share, tone, width=_BAR_WIDTH, height=_BAR_HEIGHT)
    return join_html([bar, f" {used} of {format_size(one.memory)}"])


def _limits(one: AttemptLine) -> str:
    words = [f"{one.cpus:g} CPU{'' if one.cpus == 1 else 's'}"] if one.cpus is not None else []
    words += [format_duration(one.timeout)] if one.timeout is not None else []
    return ", ".join(words)

"""The attempts at a step side by side: how each ended, where it ran, what it asked for and used, what changed."""

from __future__ import annotations

from collections.abc import Iterator

from mulligan.dashboard.components.shell import table
from mulligan.service.rendering.formatting import format_duration, format_size
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import format_elapsed, time_element
from mulligan.service.runs.views.step_history import AttemptLine

_TONES = {
    "succeeded": "good",
    "failed": "bad",
    "running": "now",
    "queued": "idle",
    "lost": "bad",
    "interrupted": "idle",
    "cancelled": "idle",
}
_PARTS = {"handler": "handler", "script": "recovery script", "check": "check", "undo": "undo", "triager": "triager"}
# What an agent with tools does, numbered by the attempt of the agent.
_TURNS = {"model": "question", "tool": "tool call", "tool_list": "list of tools"}
# The widths of a bar for memory that was used of that which was asked for.
_BAR_WIDTH, _BAR_HEIGHT = 72, 6
_COLUMNS = 9


def attempts_table(attempts: list[AttemptLine], unit: str, count: int) -> Html:
    """One row for each attempt; between two of them a line that says why there is another, and what is different."""
    head = ("attempt", "outcome", "exit", "started", "took", "CPU", "memory used of asked", "CPUs, timeout", "ran on")
    rows = [row for one in attempts for row in _rows(one, unit)]
    left = count - len(attempts)
    note = element("p", f"The last {len(attempts)} of {count:,} attempts.", class_="note") if left > 0 else ""
    return join_html([note, element("div", table(head, rows, label="Attempts", keyed=True), class_="attempts")])


def _rows(one: AttemptLine, unit: str) -> Iterator[Html]:
    key = f"attempt-{one.place}-{one.attempt}"
    if one.because:
        said = element("td", element("span", "↳ ", one.because), colspan=_COLUMNS)
        yield element("tr", said, class_="because adjusted" if one.is_adjusted else "because", id=f"{key}-because")
    cells = (
        (_name(one, unit), ""),
        (_outcome(one), ""),
        (_exit(one), "nowrap"),
        (time_element(one.started_at) if one.started_at else "", "nowrap"),
        (_took(one), "n"),
        (_cpu(one), "n"),
        (_memory(one), "nowrap"),
        (_limits(one), "nowrap dim"),
        (_where(one), "dim"),
    )
    is_own = one.part == "own"
    yield element(
        "tr",
        join_html(element("td", inside, class_=kind or None) for inside, kind in cells),
        id=key,
        class_=None if is_own else "part",
    )


def _name(one: AttemptLine, unit: str) -> Html:
    rest = one.place.removeprefix(unit).lstrip(".")
    command = f"command {int(rest) + 1}" if rest.isdecimal() and rest != "0" else ""
    turn, _, number = rest.rpartition("@")
    what = _PARTS.get(one.part, command)
    if turn in _TURNS:
        what = f"{_TURNS[turn]} {int(number.rpartition('.')[2]) + 1}, attempt"
    # The log of an attempt is shown by the viewer below, without loading the page again.
    link = element(
        "a",
        f"{what} {one.attempt}".strip() if what else f"{one.attempt}",
        href="#log",
        data_log_place=one.place,
        data_log_attempt=one.attempt,
        title="Show its log",
    )
    words = [f"round {one.round}"] if one.round > 1 else []
    return join_html([link, element("small", " ", ", ".join(words)) if words else ""])


def _outcome(one: AttemptLine) -> Html:
    status = element("span", one.outcome, class_=f"status {_TONES[one.outcome]}")
    detail = one.what or one.progress
    return join_html([status, element("div", detail, class_="what") if detail else ""])


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


def _cpu(one: AttemptLine) -> str:
    return "" if one.cpu_seconds is None else format_elapsed(one.cpu_seconds)


def _memory(one: AttemptLine) -> Html | str:
    if one.peak_memory is None and one.memory is None:
        return ""
    used = format_size(one.peak_memory) if one.peak_memory is not None else "?"
    if one.memory is None:
        return used
    share = min(1.0, (one.peak_memory or 0) / one.memory) if one.memory else 0.0
    tone = "bad" if share > 0.95 else "try" if share > 0.8 else "good"
    bar = element(
        "svg",
        element("rect", class_="room", width=_BAR_WIDTH, height=_BAR_HEIGHT, rx=2),
        element("rect", class_=tone, width=round(_BAR_WIDTH * share, 1), height=_BAR_HEIGHT, rx=2),
        class_="track gauge",
        width=_BAR_WIDTH,
        height=_BAR_HEIGHT,
        aria_hidden="true",
    )
    return join_html([bar, f" {used} of {format_size(one.memory)}"])


def _limits(one: AttemptLine) -> str:
    words = [f"{one.cpus:g} CPU{'' if one.cpus == 1 else 's'}"] if one.cpus is not None else []
    words += [format_duration(one.timeout)] if one.timeout is not None else []
    return ", ".join(words)


def _where(one: AttemptLine) -> Html:
    return element("span", one.host or "", title=one.worker or None)

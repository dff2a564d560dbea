"""The top of a page: the workflow and its status, as a sentence and in numbers."""

from __future__ import annotations

from collections.abc import Iterator

from mulligan.core.model.text.formatting import format_size, pluralize
from mulligan.history.phrases import describe_degraded
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import format_elapsed, status_label, status_tone, time_element
from mulligan.service.runs.views.report import Report
from mulligan.service.runs.views.report.build import Round

_VERDICTS = {
    "completed": "completed",
    "failed": "failed",
    "cancelled": "was cancelled",
    "running": "is still running",
    "paused": "is paused",
}
_GLYPHS = {"completed": "✓", "failed": "✕", "cancelled": "■", "running": "▸", "paused": "‖"}
# How many earlier rounds the sentence names.
ROUNDS_MAX = 3
# The order of the statuses in the bar.
_BAR = (
    *("completed", "failed", "pending_failed", "running", "handling", "backing_off", "ready"),
    *("waiting", "skipped", "cancelled"),
)


def render_headline(report: Report) -> Html:
    """Workflow, run and status, then a sentence."""
    round_ = f", round {report.round}" if report.round > 1 else ""
    words = f"{_GLYPHS.get(report.status, '')} {report.status}{', degraded' if report.degraded else ''}"
    return element(
        "header",
        element("p", f"Mulligan · run {report.run_id}{round_}", class_="over"),
        element("h1", report.workflow, " ", ui.badge(words, status_tone(report.status))),
        element("p", report.description, class_="description") if report.description else "",
        element("p", join_html(_sentence(report)), class_="sentence"),
    )


def _degraded(report: Report) -> str:
    counts = report.counts
    if not counts:
        return "degraded"
    return describe_degraded(counts.recovered_steps_count, counts.handled_steps_count, counts.dropped_outputs_count)


def _sentence(report: Report) -> Iterator[object]:
    yield f"Run {report.run_id} {_VERDICTS.get(report.status, report.status)}"
    yield f" in round {report.round}" if report.round > 1 else ""
    if report.status == "completed":
        yield f" ({_degraded(report)})" if report.degraded else ""
    yield f": {report.reason}" if report.reason else ""
    before = [_round(one) for one in report.rounds if one.number < report.round]
    yield f"; {', '.join(before[-ROUNDS_MAX:])}. " if before else ". "
    yield from ("Started ", time_element(report.started_at))
    yield f" by {report.by}" if report.by else ""
    if report.ended_at is not None:
        yield from (", ended ", time_element(report.ended_at), f", after {format_elapsed(report.seconds)}.")
    else:
        yield from (". Status as of ", time_element(report.as_of), f", after {format_elapsed(report.seconds)}.")
    yield f" It was forked from run {report.forked_from}." if report.forked_from else ""
    yield f" It was called by run {report.parent_run_id}." if report.parent_run_id else ""


def _round(one: Round) -> str:
    """`8 steps failed in round 1`."""
    if one.failed:
        return f"{pluralize(one.failed, 'step')} failed in round {one.number}"
    return f"round {one.number} {_VERDICTS[one.status]}"


def render_summary(report: Report, home_option: str = "") -> Html:
    """Numbers, the steps by status, what `end` returned, what the run waits for, and the next commands."""
    parts = [ui.tiles(_tiles(report)), _status_bar(report)]
    if report.end_said:
        parts.append(element("p", "end returned: ", element("q", report.end_said), class_="sentence"))
    parts += [_waits(report)] if report.waits else []
    parts += [_next(report, home_option)] if report.next_commands else []
    return ui.section("Summary", "summary", *parts)


def _next(report: Report, home_option: str) -> Html:
    rows = (
        join_html([element("code", f"{one.text}{home_option}"), element("span", one.why) if one.why else ""])
        for one in report.next_commands
    )
    return join_html([element("h3", "Next commands"), ui.bullets(rows, "commands")])


def _tiles(report: Report) -> Iterator[tuple[str, str, str]]:
    counts, own = report.counts, [one for one in report.attempts if one.part == "own" and not one.is_map]
    statuses = report.statuses
    total = counts.total_steps if counts else sum(statuses.values())
    yield "steps", f"{total:,}", ""
    yield "completed", f"{statuses['completed']:,}", "good" if statuses["completed"] else ""
    failed = counts.failed_steps_count if counts else statuses["failed"]
    yield "failed, unhandled" if counts else "failed", f"{failed:,}", "bad" if failed else ""
    if counts is not None:
        yield "handled", f"{counts.handled_steps_count:,}", ""
        yield "recovered", f"{counts.recovered_steps_count:,}", ""
        yield "skipped", f"{counts.skipped_steps_count:,}", ""
    yield "attempts", f"{len(own):,}", ""
    yield "time", format_elapsed(report.seconds), ""
    if any(one.cpu_seconds for one in report.attempts):
        yield "CPU time", format_elapsed(sum(one.cpu_seconds or 0.0 for one in report.attempts)), ""
    if peak := max((one.peak_memory or 0 for one in report.attempts), default=0):
        yield "peak memory", format_size(peak), ""
    if report.agents:
        yield "agents", report.agents, ""
    if report.budget:
        yield "agent budget", report.budget, ""


def _status_bar(report: Report) -> Html:
    """A bar with the share of each status among all steps, and the counts below it."""
    found = [(status, count) for status in _BAR if (count := report.statuses.get(status, 0))]
    if not found:
        return Html("")
    words = ", ".join(f"{count:,} {status_label(status)}" for status, count in found)
    bar = ui.stacked_bar([(status_tone(status), count) for status, count in found], f"steps by status: {words}")
    return element("div", bar, ui.note(words), class_="statuses")


def _waits(report: Report) -> Html:
    rows = join_html(
        element(
            "li",
            element("b", wait.where or "the run"),
            f" waits for {wait.text}",
            class_="ask" if wait.is_for_a_person else None,
        )
        for wait in report.waits
    )
    title = element("h3", f"Waiting for ({len(report.waits):,})")
    return join_html([title, element("ul", rows, class_="waits")])

"""The tables of a page: steps, attempts, child runs, values, events. Long ones are folded and bounded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mulligan.core.model.text.formatting import format_size, pluralize
from mulligan.history.phrases import UNDO_FAILED, up_to_date_since
from mulligan.service.rendering.page.groups import (
    group_by_matrix,
    render_matrix,
    status_counts,
    steps_by_matrix,
    values_of,
)
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import OUTCOMES, STATUSES, format_elapsed, status_label
from mulligan.service.runs.views.report import Report
from mulligan.service.runs.views.report.build import Attempt, StepRow, Value

# A table with more rows than the first is folded; rows beyond the second are not shown.
OPEN_ROWS_MAX, ROWS_MAX = 25, 1_000


def render_table(heads: Sequence[tuple[str, str]], rows: Iterable[Sequence[object]]) -> Html:
    """A table that scrolls on a narrow page. Each head comes with the class of its column."""
    top = element("tr", join_html(element("th", name, class_=kind or None, scope="col") for name, kind in heads))
    body = join_html(element("tr", join_html(_cells(heads, row))) for row in rows)
    return element(
        "div",
        element("table", element("thead", top), element("tbody", body)),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=", ".join(name for name, _ in heads if name),
    )


def _cells(heads: Sequence[tuple[str, str]], row: Sequence[object]) -> Iterator[Html]:
    return (element("td", cell, class_=kind or None) for (_, kind), cell in zip(heads, row, strict=True))


def note_left_out(count: int, noun: str) -> Html | str:
    """How many more there are than are shown; nothing if all are."""
    return element("p", f"and {count:,} more {noun}", class_="note") if count > 0 else ""


def render_details(title: str, inside: Html, *, is_open: bool = False) -> Html:
    return element("details", element("summary", title), inside, class_="inner", open=is_open)


def steps_table(report: Report) -> Html:
    heads = [
        ("step", ""),
        ("action", "dim"),
        ("status", ""),
        ("attempts", "n"),
        ("time", "n"),
        ("CPU time", "n"),
        ("peak memory", "n"),
        ("", "dim"),
    ]

    def rows(steps: Sequence[StepRow]) -> Html:
        shown = render_table(heads, (_step(step, of_matrix) for step in steps[:ROWS_MAX]))
        return join_html([shown, note_left_out(len(steps) - ROWS_MAX, "steps")])

    lines, of_matrix = group_by_matrix(report.steps), steps_by_matrix(report.steps)
    title = pluralize(len(report.steps), "step") + " including end"
    inside = rows(lines) if len(lines) <= OPEN_ROWS_MAX else render_details(title, rows(lines))
    return join_html([inside, *(render_matrix(name, steps, rows) for name, steps in of_matrix.items())])


def _step(step: StepRow, of_matrix: Mapping[str, Sequence[StepRow]]) -> list[object]:
    status = element("span", status_label(step.status), class_=f"status {STATUSES.get(step.status, 'idle')}")
    figures = [format_elapsed(step.wall_seconds), format_elapsed(step.cpu_seconds)] if step.peak_memory else ["", ""]
    memory = format_size(step.peak_memory) if step.peak_memory else ""
    return [
        step.name,
        step.action,
        status,
        f"{step.attempts:,}" if step.attempts else "",
        *figures,
        memory,
        _remarks(step, of_matrix),
    ]


def _remarks(step: StepRow, of_matrix: Mapping[str, Sequence[StepRow]]) -> str:
    # The row of a whole matrix has no values.
    words = [values_of(step) or status_counts(of_matrix[step.matrix])] if step.matrix else []
    words += [f"{step.visits} visits"] if step.visits > 1 else []
    words += ["recovered"] if step.recovered else []
    words += ["undone"] if step.undone else []
    words += [UNDO_FAILED] if step.undo_failed else []
    words += [up_to_date_since(step.up_to_date_since)] if step.up_to_date_since else []
    if step.items:
        words.append(pluralize(step.items, "item") + (f", {step.items_failed:,} failed" if step.items_failed else ""))
    words += [f"agents: {step.agents}"] if step.agents else []
    words += [f"at {step.progress}"] if step.progress and step.status != "completed" else []
    return ", ".join(words)


def attempts_table(report: Report) -> Html:
    """The attempts of the timeline as a table."""
    heads = [
        ("attempt", ""),
        ("result", ""),
        ("started", "n"),
        ("duration", "n"),
        ("CPU time", "n"),
        ("peak memory", "n"),
        ("memory limit", "n"),
        ("", "dim"),
    ]
    found = [one for one in report.attempts if not one.is_map]
    rows = render_table(heads, (_attempt(one, report) for one in found[:ROWS_MAX]))
    inside = join_html([rows, note_left_out(len(found) - ROWS_MAX, "attempts")])
    return render_details(f"As a table ({pluralize(len(found), 'attempt')})", inside)


def _attempt(one: Attempt, report: Report) -> list[object]:
    began = format_elapsed((one.started_at - report.started_at).total_seconds()) if one.started_at else ""
    took = format_elapsed((one.ended_at - one.started_at).total_seconds()) if one.ended_at and one.started_at else ""
    return [
        join_html([f"{report.name_of(one.place)} #{one.attempt}", _named(report, one)]),
        element("span", one.outcome, class_=f"status {OUTCOMES[one.outcome]}"),
        began,
        took,
        format_elapsed(one.cpu_seconds) if one.cpu_seconds is not None else "",
        format_size(one.peak_memory) if one.peak_memory else "",
        format_size(one.memory) if one.memory else "",
        join_html(filter(None, (one.what, f"at {one.progress}" if one.progress else "")), between="; "),
    ]


def _named(report: Report, one: Attempt) -> Html:
    """The name of an item, if it is not in that of the place."""
    name = "" if one.place in report.place_names else report.item_names.get(one.unit, "")
    return element("small", f" {name}") if name else Html("")


def children_table(report: Report) -> Html:
    heads = [("run", "n"), ("workflow", ""), ("status", ""), ("called by", "")]
    rows = (
        [
            child.run_id,
            child.workflow,
            element("span", status_label(child.status), class_=f"status {STATUSES.get(child.status, 'idle')}"),
            f"{report.name_of(child.place)}, attempt {child.attempt}"
            + (f" (round {child.round})" if child.round > 1 else ""),
        ]
        for child in report.children
    )
    return join_html([render_table(heads, rows), note_left_out(report.children_count - len(report.children), "runs")])


def artifacts_table(report: Report) -> Html:
    """The files that steps kept."""
    heads = [("file", ""), ("step", ""), ("attempt", "n"), ("size", "n"), ("SHA-256", "dim"), ("where", "dim")]
    rows = (
        [
            one.file,
            report.name_of(one.place),
            one.attempt,
            format_size(one.size),
            one.sha256[:16],
            one.path or f"the store: {one.name}",
        ]
        for one in report.artifacts
    )
    left = report.artifacts_count - len(report.artifacts)
    return join_html([render_table(heads, rows), note_left_out(left, "artifacts")])


def render_values(title: str, found: Sequence[Value]) -> Html:
    """Inputs or outputs, each with its value, cut if it is long."""
    pairs = join_html(
        join_html(
            [
                element("dt", one.name),
                element("dd", element("pre", one.text + (" …" if one.is_cut else ""), tabindex="0")),
            ]
        )
        for one in found
    )
    return join_html(
        [element("h3", title), element("dl", pairs, class_="values") if found else element("p", "none", class_="note")]
    )


def events_table(report: Report) -> Html:
    heads = [("seq", "n"), ("time", "time"), ("event", ""), ("where", "")]
    rows = ([one.seq, f"{one.at:%Y-%m-%d %H:%M:%S}", one.type, report.name_of(one.place)] for one in report.events)
    title = f"The last {len(report.events):,} of {pluralize(report.events_count, 'event')}"
    return render_details(title, render_table(heads, rows))

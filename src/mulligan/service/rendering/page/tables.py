"""The tables of a page: steps, attempts, child runs, values, events. Long ones are folded and bounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mulligan.core.model.text.formatting import format_size, pluralize
from mulligan.history.matrices import values_text
from mulligan.history.phrases import UNDO_FAILED, up_to_date_since
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.groups import group_by_matrix, render_matrix, status_counts, steps_by_matrix
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import OUTCOMES, format_elapsed
from mulligan.service.runs.views.report import Report
from mulligan.service.runs.views.report.build import Attempt, StepRow, Value

# A table with more rows than the first is folded; rows beyond the second are not shown.
OPEN_ROWS_MAX, ROWS_MAX = 25, 1_000


def steps_table(report: Report) -> Html:
    figures = map(ui.figure, ("attempts", "time", "CPU time", "peak memory"))
    heads = ["step", ui.Column("action", "dim"), "status", *figures, ui.Column("", "dim")]

    def rows(steps: Sequence[StepRow]) -> Html:
        listed = ui.table(heads, (_step(step, of_matrix) for step in steps[:ROWS_MAX]), label="Steps")
        return join_html([listed, ui.left_out(len(steps) - ROWS_MAX, "more steps")])

    lines, of_matrix = group_by_matrix(report.steps), steps_by_matrix(report.steps)
    title = pluralize(len(report.steps), "step") + " including end"
    inside = rows(lines) if len(lines) <= OPEN_ROWS_MAX else ui.details(title, rows(lines))
    return join_html([inside, *(render_matrix(name, steps, rows) for name, steps in of_matrix.items())])


def _step(step: StepRow, of_matrix: Mapping[str, Sequence[StepRow]]) -> ui.Row:
    # The time of a program is not measured.
    took = format_elapsed(step.wall_seconds) if step.wall_seconds else ""
    figures = [took, format_elapsed(step.cpu_seconds)] if step.peak_memory else ["", ""]
    return ui.row(
        step.name,
        step.action,
        ui.status(step.status),
        f"{step.attempts:,}" if step.attempts else "",
        *figures,
        format_size(step.peak_memory) if step.peak_memory else "",
        _remarks(step, of_matrix),
    )


def _remarks(step: StepRow, of_matrix: Mapping[str, Sequence[StepRow]]) -> str:
    # The row of a whole matrix has no values.
    words = [values_text(step.values) or status_counts(of_matrix[step.matrix])] if step.matrix else []
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
    figures = map(ui.figure, ("started", "duration", "CPU time", "peak memory", "memory limit"))
    found = [one for one in report.attempts if not one.is_map]
    rows = (_attempt(one, report) for one in found[:ROWS_MAX])
    listed = ui.table(("attempt", "result", *figures, ui.Column("", "dim")), rows, label="Attempts")
    more = ui.left_out(len(found) - ROWS_MAX, "more attempts")
    return ui.details(f"As a table ({pluralize(len(found), 'attempt')})", listed, more)


def _attempt(one: Attempt, report: Report) -> ui.Row:
    began = format_elapsed((one.started_at - report.started_at).total_seconds()) if one.started_at else ""
    took = format_elapsed((one.ended_at - one.started_at).total_seconds()) if one.ended_at and one.started_at else ""
    # The name of an item, if it is not in that of the place.
    item = "" if one.place in report.place_names else report.item_names.get(one.unit, "")
    named = element("small", f" {item}") if item else ""
    return ui.row(
        join_html([f"{report.name_of(one.place)} #{one.attempt}", named]),
        ui.status(one.outcome, one.outcome, tone=OUTCOMES[one.outcome]),
        began,
        took,
        format_elapsed(one.cpu_seconds) if one.cpu_seconds is not None else "",
        format_size(one.peak_memory) if one.peak_memory else "",
        format_size(one.memory) if one.memory else "",
        join_html(filter(None, (one.what, f"at {one.progress}" if one.progress else "")), between="; "),
    )


def children_table(report: Report) -> Html:
    rows = (
        ui.row(
            child.run_id,
            child.workflow,
            ui.status(child.status),
            f"{report.name_of(child.place)}, attempt {child.attempt}"
            + (f" (round {child.round})" if child.round > 1 else ""),
        )
        for child in report.children
    )
    listed = ui.table((ui.figure("run"), "workflow", "status", "called by"), rows, label="Child runs")
    return join_html([listed, ui.left_out(report.children_count - len(report.children), "more runs")])


def artifacts_table(report: Report) -> Html:
    """The files that steps kept."""
    heads = (
        "file",
        "step",
        ui.figure("attempt"),
        ui.figure("size"),
        ui.Column("SHA-256", "dim"),
        ui.Column("where", "dim"),
    )
    rows = (
        ui.row(
            one.file,
            report.name_of(one.place),
            one.attempt,
            format_size(one.size),
            one.sha256[:16],
            one.path or (f"{one.bucket}/{one.name}" if one.bucket else f"the store: {one.name}"),
        )
        for one in report.artifacts
    )
    listed = ui.table(heads, rows, label="Artifacts")
    return join_html([listed, ui.left_out(report.artifacts_count - len(report.artifacts), "more artifacts")])


def render_values(title: str, found: Sequence[Value]) -> Html:
    """Inputs or outputs, each with its value, cut if it is long."""
    values = ((one.name, ui.text_block(one.text + (" …" if one.is_cut else ""))) for one in found)
    return join_html([element("h3", title), ui.pairs(values, "values") if found else ui.note("none")])


def events_table(report: Report) -> Html:
    rows = (
        ui.row(one.seq, f"{one.at:%Y-%m-%d %H:%M:%S}", one.type, report.name_of(one.place)) for one in report.events
    )
    title = f"The last {len(report.events):,} of {pluralize(report.events_count, 'event')}"
    return ui.details(
        title, ui.table((ui.figure("seq"), ui.Column("time", "time"), "event", "where"), rows, label="Events")
    )

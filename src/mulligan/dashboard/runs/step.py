"""One step, one item, or a matrix: what is wrong, what was tried, and what can be done; its logs, output and items."""

from __future__ import annotations

import json
from typing import Literal

from mulligan.api.http.paging import Count
from mulligan.api.http.routing import Answer, Call, Query
from mulligan.dashboard.components.shell import heading, page, page_route, panel
from mulligan.dashboard.components.value_view import value_view
from mulligan.dashboard.runs.step_attempts import attempts_table
from mulligan.dashboard.runs.step_headline import headline, step_actions
from mulligan.dashboard.runs.step_ladder import ladder, ladder_title, plan
from mulligan.service.rendering.formatting import format_size, pluralize
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import format_elapsed, status_label, status_tone
from mulligan.service.runs.stored.attempts import Cost
from mulligan.service.runs.views.output_tables import OutputTable
from mulligan.service.runs.views.run_view import CallView
from mulligan.service.runs.views.step_history import StepHistory


class StepPageQuery(Query, frozen=True):
    """What a link to a line of a log, or to some of the items, has."""

    place: str = ""
    attempt: Count = 0
    stream: Literal["", "stdout", "stderr"] = ""
    # Only items with this status.
    status: str = ""


def show_step(call: Call) -> Answer:
    found = call.service.step_histories.step(int(call.path["run_id"]), call.path["step"])
    return _page(call, found)


def show_item(call: Call) -> Answer:
    run_id, step, index = int(call.path["run_id"]), call.path["step"], int(call.path["index"])
    return _page(call, call.service.step_histories.item(run_id, step, index))


def _page(call: Call, found: StepHistory) -> Answer:
    parts = {
        "head": _head(call, found),
        "headline": headline(found),
        "items": _items(found),
        "tried": _tried(found),
        "attempts": _attempts(found),
        "tools": _tool_calls(found),
        "log": _logs(found),
        "output": _output(found),
        "files": _files(call, found),
        "called": _children(found),
    }
    # Each part has a place of its own, also while it is empty, so that a new version of it replaces no other.
    content = [element("div", part, id=f"part-{name}") for name, part in parts.items()]
    title = f"{_title(found)} · run {found.run_id}"
    about = element(
        "div",
        id="step-page",
        data_run=found.run_id,
        data_step=found.step,
        data_matrix=_matrix(found) or None,
        data_open=not found.has_run_ended,
    )
    return page(call, title, about, *content, section="runs", modules=("step.js",), styles=("step.css",))


def _title(found: StepHistory) -> str:
    return found.step if found.item is None else f"{found.step}[{found.item}]"


def _matrix(found: StepHistory) -> str:
    return found.view.matrix.name if found.view and found.view.matrix else ""


# -- the head --------------------------------------------------------------------------------------------------------


def _head(call: Call, found: StepHistory) -> Html:
    above = [ui.link(f"Run {found.run_id}", "runs", found.run_id), " ", found.workflow]
    if matrix := _matrix(found):
        above += [" · ", ui.step_link(found.run_id, matrix)]
    if found.item is not None:
        above += [" · ", ui.step_link(found.run_id, found.step)]
    if called := _call(found):
        above += [" · called by ", ui.step_link(found.run_id, called.program), f" at {called.text}"]
    badge = element("span", status_label(found.status), class_=f"badge {status_tone(found.status)}")
    name = join_html([_title(found), badge])
    return heading(name, *_neighbours(found), *step_actions(call, found), over=join_html(above))


def _call(found: StepHistory) -> CallView | None:
    """Where a program has called the step."""
    return found.view.call or None if found.view else None


def _neighbours(found: StepHistory) -> list[Html]:
    """Links to the failed steps before and behind this one, which n and p follow; of an item, to the failed items."""
    links = []
    what = "step" if found.item is None else "item"
    for rel, name, key, sign in (("prev", found.failed_before, "p", "←"), ("next", found.failed_behind, "n", "→")):
        if name:
            parts = ("steps", name) if found.item is None else ("steps", found.step, "items", name)
            which = "previous" if rel == "prev" else "next"
            label = f"The {which} failed {what}: {name} (key {key})"
            sides = [sign, " ", "failed"] if rel == "prev" else ["failed", " ", sign]
            href = ui.path_to("runs", found.run_id, *parts)
            links.append(element("a", *sides, href=href, rel=rel, class_="button quiet", aria_label=label, title=label))
    return links


# -- what was tried --------------------------------------------------------------------------------------------------


def _tried(found: StepHistory) -> Html:
    if not found.ladders:
        if found.handlers is None or found.kind == "item":
            return Html("")
        inside = ui.details("What would deal with a failure", plan(found.handlers), kind="")
        return element("section", inside, class_="folded", id="tried")
    last, *earlier = found.ladders
    # The headline has said what failed, unless it is mended.
    has_failure = found.status not in ("failed", "pending_failed", "backing_off")
    beside = element("span", ladder_title(last, has_failure=has_failure), class_="ladder-title")
    parts = [ladder(last, found.handlers)]
    if earlier:
        folds = join_html(
            element(
                "details",
                element("summary", ladder_title(one), class_="ladder-title"),
                ladder(one, found.handlers),
                id=f"visit-{one.visit.visit}-{one.visit.round}",
            )
            for one in earlier
        )
        more = ui.left_out(found.ladders_count - len(found.ladders))
        parts.append(element("div", element("h3", "Earlier"), folds, more, class_="earlier"))
    return panel("What was tried", *parts, name="tried", beside=beside)


def _attempts(found: StepHistory) -> Html:
    if not found.attempts:
        return Html("")
    listed = attempts_table(found.attempts, found.unit, found.attempts_count)
    return panel("Attempts", listed, name="attempts", beside=_usage(found.view.usage if found.view else None))


def _usage(usage: Cost | None) -> Html | str:
    if not usage or not usage.peak_memory:
        return ""
    # The time of a program is not measured.
    in_all = f"{format_elapsed(usage.wall_seconds)} in all, " if usage.wall_seconds else ""
    text = f"{in_all}CPU {format_elapsed(usage.cpu_seconds)}, at most {format_size(usage.peak_memory)}"
    return ui.muted(text)


# -- logs ------------------------------------------------------------------------------------------------------------


def _logs(found: StepHistory) -> Html:
    """The viewer. What it may show stands beside it, since the viewer itself belongs to its script."""
    logs = [
        {"place": one.place, "attempt": one.attempt, "outcome": one.outcome, "host": one.host, "part": one.part}
        for one in found.attempts
        # A map runs nothing itself: its items have logs.
        if one.started_at is not None and not (found.kind == "map" and one.place == found.step)
    ]
    if not logs:
        return Html("")
    called = _call(found)
    if called and called.kind == "inline" and len(logs) == 1:
        link = ui.step_link(found.run_id, called.program)
        return panel("Log", element("p", "It ran inline: what it wrote is in the log of ", link, "."), name="log")
    data = element("div", id="log-attempts", hidden=True, data_attempts=json.dumps(logs), data_unit=found.unit)
    without = element("noscript", ui.note("The log is shown by a script; the interface has it too."))
    return panel("Log", data, element("div", without, id="log-view", data_keep=True), name="log")


# -- output, items, files --------------------------------------------------------------------------------------------


def _output(found: StepHistory) -> Html:
    parts = []
    raw = ui.path_to("api", "v1", "runs", found.run_id, "outputs", found.unit)
    here = ui.path_to("api", "v1", "runs", found.run_id, "steps", found.step)
    if found.of_item:
        path = f"{here}/items/{found.item}"
        parts.append(panel("Item", value_view(found.of_item.item, name="item", raw=path), name="item"))
    elif found.view and (matrix := found.view.matrix) is not None:
        parts.append(panel("Values", value_view(matrix.values, name="values", raw=here), name="values"))
    if (called := _call(found)) and called.arguments:
        parts.append(panel("Arguments", value_view(called.arguments, name="arguments", raw=here), name="arguments"))
    output = found.output
    if output is not None:
        tables = join_html(map(_table, found.tables))
        parts.append(panel("Output", tables, value_view(output, name="output", raw=raw), name="output"))
    elif found.ladders and (refused := found.ladders[0].visit.refused):
        parts.append(panel("The output that 'validate' rejected", ui.text_block(refused), name="output"))
    return join_html(parts)


def _table(one: OutputTable) -> Html:
    """A table: what has changed in it, its columns with their types, and its first rows."""
    preview, label = one.table.preview, one.name or "The first rows"
    width = min(map(len, preview.rows), default=0)
    # What the whole output is stands below it.
    parts: list[object] = [element("h3", one.name), element("p", one.words)] if one.name else []
    if one.since is not None:
        since = ui.link(f"run {one.since}", "runs", one.since)
        parts.append(element("div", element("p", "Since ", since, ":"), ui.bullets(one.changes), class_="changes"))
    if width:
        heads = [element("span", name, " ", element("small", kind)) for name, kind in preview.columns[:width]]
        parts.append(ui.table(heads, [ui.row(*cells[:width]) for cells in preview.rows], label=label))
        parts.append(ui.left_out((one.table.rows or 0) - len(preview.rows), "more rows"))
    if len(preview.columns) > width:
        rows = [ui.row(name, element("code", kind)) for name, kind in preview.columns]
        listed = ui.table(("Column", "Type"), rows, label="Columns")
        known = len(preview.columns) - preview.index
        more = ui.left_out((one.table.columns or 0) - known, "more columns")
        parts.append(ui.details(f"Columns ({one.table.columns or known:,})", listed, more))
    return element("div", *parts, class_="frame")


def _items(found: StepHistory) -> Html:
    if found.kind not in ("map", "matrix"):
        return Html("")
    total = sum(found.items.values())
    what = "item" if found.kind == "map" else "step"
    if not total:
        return panel(f"{what.capitalize()}s", element("p", "None yet.", class_="muted"), name="items")
    # The script reads pages of it; the number of each status is rendered, so that it is there at once.
    data = element("div", id="item-counts", hidden=True, data_counts=json.dumps(found.items), data_kind=found.kind)
    view = element("div", id="item-view", data_keep=True)
    return panel(pluralize(total, what), data, view, name="items")


def _files(call: Call, found: StepHistory) -> Html:
    if not found.files:
        return Html("")
    names = call.service.runs.name_places(found.run_id, [one.place for one in found.files])
    rows = [
        ui.row(
            ui.link(one.name, "api", "v1", "runs", found.run_id, "artifacts", one.sha256),
            format_size(one.size),
            f"{names[one.place]}, attempt {one.attempt}",
        )
        for one in found.files
    ]
    head = ("file", ui.figure("size"), ui.Column("kept by", "dim"))
    return panel("Files", ui.table(head, rows, label="Files"), name="files")


def _tool_calls(found: StepHistory) -> Html:
    """The tools that the agent of the step has called in this visit, in order."""
    calls = found.view.tool_calls if found.view else []
    if not calls:
        return Html("")
    rows = [
        ui.row(
            element("code", call["tool"]),
            element("code", call["arguments"]),
            ui.cell(call["error"], kind="bad") if call["error"] else element("code", call["output"]),
        )
        for call in calls
    ]
    return panel("Tool calls", ui.table(("Tool", "Arguments", "Answer"), rows, label="Tool calls"), name="tools")


def _children(found: StepHistory) -> Html:
    children = found.view.children if found.view else []
    if not children:
        return Html("")
    links = join_html((ui.link(f"run {one}", "runs", one) for one in children[:100]), ", ")
    more = f" and {len(children) - 100:,} more" if len(children) > 100 else ""
    return panel("Called runs", element("p", links, more), name="called")


ROUTES = (
    page_route(
        "/runs/{run_id:int}/steps/{step}",
        show_step,
        "A step: what is wrong, what was tried, what can be done; its logs, output and items.",
        query=StepPageQuery,
    ),
    page_route(
        "/runs/{run_id:int}/steps/{step}/items/{index:int}",
        show_item,
        "An item of a map step, with its attempts, its logs and its output.",
        query=StepPageQuery,
    ),
)

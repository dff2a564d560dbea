"""The tab Data of a run: its inputs and outputs, the values that its steps set, the files that they kept."""

from __future__ import annotations

from typing import Any

from mulligan.dashboard.components.shell import empty, panel
from mulligan.dashboard.components.value_tree import value_tree
from mulligan.dashboard.runs.run_tab import RunOnPage, Tab
from mulligan.service.rendering.formatting import format_size
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.runs.stored.artifacts import KeptFile
from mulligan.service.runs.stored.run_data import DataEntry

# How many files are listed.
FILES_MAX = 500


def render_data(run: RunOnPage) -> Tab:
    """What went in and what came out."""
    head, service = run.view, run.call.service
    assert head is not None
    entries = service.details.data(run.run_id)
    files = service.details.artifacts(run.run_id)
    outputs = head.outputs
    when = "This run has no outputs." if run.has_ended else "They are known when the run has ended."
    raw = ui.link("JSON", "api", "v1", "runs", run.run_id, class_="muted")
    parts = [
        panel("Outputs", _values("outputs", outputs, when), name="outputs", beside=raw if outputs else ""),
        panel("Inputs", _values("inputs", head.inputs, "This run has no inputs."), name="inputs"),
    ]
    if head.state:
        parts.append(panel("State", _values("state", head.state, ""), name="state"))
    if head.labels:
        parts.append(panel("Labels", _values("labels", head.labels, ""), name="labels"))
    head_ = ("Name", "Value", "Set by", ui.Column("Changed", "muted nowrap"))
    rows = [_data_row(run, one) for one in entries]
    data = ui.table(head_, rows, label="Data") if rows else empty("No step has set a value.")
    parts.append(panel("Data that steps share", data, name="data"))
    parts.append(panel(f"Files ({len(files):,})" if files else "Files", _files(run, files), name="files"))
    return Tab(element("section", *parts, class_="data-tab"), live=run.live)


def _values(name: str, values: dict[str, Any], nothing: str) -> Html:
    if not values:
        return element("p", nothing, class_="muted")
    trees = ((key, value_tree(value, name=f"{name}-{number}")) for number, (key, value) in enumerate(values.items()))
    return ui.pairs(trees, "values trees")


def _data_row(run: RunOnPage, one: DataEntry) -> ui.Row:
    who: object = "the workflow file"
    if one.step:
        who = join_html([ui.step_link(run.run_id, one.step), f", attempt {one.attempt}"])
    times = "once" if one.version == 1 else f"{one.version} times"
    value = value_tree(one.value, name=f"data-{one.name}")
    return ui.row(ui.name_cell(one.name), value, who, times, id=f"data-{one.name}")


def _files(run: RunOnPage, files: list[KeptFile]) -> Html:
    if not files:
        return element("p", "No step has kept a file.", class_="muted")
    names = run.call.service.runs.name_places(run.run_id, [one.place for one in files[:FILES_MAX]])
    rows = [
        ui.row(
            ui.name_cell(ui.link(one.file, "api", "v1", "runs", run.run_id, "artifacts", one.sha256)),
            format_size(one.size),
            one.format or "file",
            join_html([names[one.place], element("small", f" attempt {one.attempt}")]),
            element("code", one.sha256[:12], title=one.sha256),
        )
        for one in files[:FILES_MAX]
    ]
    titles = ("File", ui.figure("Size"), ui.Column("Format", "muted"), "Kept by", "SHA-256")
    return join_html([ui.table(titles, rows, label="Files that steps kept"), ui.left_out(len(files) - FILES_MAX)])

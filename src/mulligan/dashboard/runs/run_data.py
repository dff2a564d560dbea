"""The tab Data of a run: its inputs and outputs, the values that its steps set, the files that they kept."""

from __future__ import annotations

from typing import Any

from mulligan.dashboard.components.shell import empty, panel, path_to, table
from mulligan.dashboard.components.value_tree import value_tree
from mulligan.dashboard.runs.run_tab import RunOnPage, Tab
from mulligan.service.rendering.formatting import format_size
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.runs.stored.artifacts import KeptFile

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
    raw = element("a", "JSON", href=f"/api/v1{path_to('runs', run.run_id)}", class_="muted")
    parts = [
        panel("Outputs", _values("outputs", outputs, when), name="outputs", beside=raw if outputs else ""),
        panel("Inputs", _values("inputs", head.inputs, "This run has no inputs."), name="inputs"),
    ]
    if head.labels:
        parts.append(panel("Labels", _values("labels", head.labels, ""), name="labels"))
    set_by = [
        element("tr", *_data_cells(run, one.name, one.value, one.step, one.attempt, one.version), id=f"data-{one.name}")
        for one in entries
    ]
    nothing = "No step has set a value."
    data = table(("Name", "Value", "Set by", "Changed"), set_by, label="Data") if set_by else empty(nothing)
    parts.append(panel("Data that steps share", data, name="data"))
    parts.append(panel(_files_title(files), _files(run, files), name="files"))
    return Tab(
        element("section", *parts, class_="data-tab"),
        styles=("run_tabs.css",),
        live="" if run.has_ended else f"run:{run.run_id}",
    )


def _values(name: str, values: dict[str, Any], nothing: str) -> Html:
    if not values:
        return element("p", nothing, class_="muted")
    lines = (
        join_html([element("dt", key), element("dd", value_tree(value, name=f"{name}-{number}"))])
        for number, (key, value) in enumerate(values.items())
    )
    return element("dl", join_html(lines), class_="values trees")


def _data_cells(run: RunOnPage, name: str, value: Any, step: str, attempt: int, version: int) -> list[Html]:
    who: object = "the workflow file"
    if step:
        who = join_html([element("a", step, href=path_to("runs", run.run_id, "steps", step)), f", attempt {attempt}"])
    times = "once" if version == 1 else f"{version} times"
    return [
        element("th", name, scope="row"),
        element("td", value_tree(value, name=f"data-{name}")),
        element("td", who),
        element("td", times, class_="muted nowrap"),
    ]


def _files_title(files: list[KeptFile]) -> str:
    return f"Files ({len(files):,})" if files else "Files"


def _files(run: RunOnPage, files: list[KeptFile]) -> Html:
    if not files:
        return element("p", "No step has kept a file.", class_="muted")
    names = run.call.service.runs.name_places(run.run_id, [one.place for one in files[:FILES_MAX]])
    rows = [
        element(
            "tr",
            element(
                "th",
                element("a", one.file, href=f"/api/v1{path_to('runs', run.run_id, 'artifacts', one.sha256)}"),
                scope="row",
            ),
            element("td", format_size(one.size), class_="n"),
            element("td", one.format or "file", class_="muted"),
            element("td", names[one.place], element("small", f" attempt {one.attempt}")),
            element("td", element("code", one.sha256[:12], title=one.sha256)),
        )
        for one in files[:FILES_MAX]
    ]
    more = len(files) - FILES_MAX
    rest = element("p", f"and {more:,} more", class_="muted") if more > 0 else ""
    titles = ("File", "Size", "Format", "Kept by", "SHA-256")
    return join_html([table(titles, rows, label="Files that steps kept"), rest])

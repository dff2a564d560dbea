"""Published workflows: the list, and one with its graph, its runs, its versions, and a form that starts it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from mulligan.api.http.routing import Answer, Call, Query
from mulligan.core.model.workflow import Workflow
from mulligan.dashboard.components.parts import diff, hidden_fields, run_status, tabs
from mulligan.dashboard.components.shell import empty, heading, may, page, page_route, panel, problems_panel
from mulligan.dashboard.workflows.input_fields import input_fields
from mulligan.errors import LanguageError, NotFound
from mulligan.service.rendering.drawing import draw_page_svg
from mulligan.service.rendering.formatting import format_size
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import format_elapsed, time_element
from mulligan.service.runs.views.run_list import RunLine, RunQuery
from mulligan.service.server.catalogue.catalogue import Draft, PublishedWorkflow
from mulligan.service.server.catalogue.text_diff import diff_texts
from mulligan.service.server.catalogue.workflow_lines import WorkflowLine, list_workflow_lines
from mulligan.service.server.publishing.deploying import file_changes

Number = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Tab = Literal["overview", "run", "text", "versions"]
_RUNS_SHOWN = 20
_VERSIONS_SHOWN = 50
_NODES_MAX = 300
_TEXT_SHOWN = 200_000
_DIGEST_SHOWN = 16


class ListQuery(Query, frozen=True):
    """`after`: the name behind which the page begins."""

    after: str = ""


class WorkflowQuery(Query, frozen=True):
    """What to show of a workflow. `version`: of which version; `old` and `new`: which two to compare."""

    tab: Tab = "overview"
    version: Number | None = None
    old: Number | None = None
    new: Number | None = None
    before: Number | None = None


# -- the list --------------------------------------------------------------------------------------------------------


def show_workflows(call: Call) -> Answer:
    found = list_workflow_lines(call.service, after=call.query.after)
    new = ui.button_link("New workflow", "/workflows/new", "primary") if may(call, "write") else ""
    if not found.lines:
        command = element("code", "mulligan publish FILE")
        how = element("p", "Write one here, or publish a file from a terminal: ", command)
        body = empty("No workflow is published.", how)
    else:
        head = ("Workflow", "Last run", "", "Next start", "Version", "Published", ui.figure(""))
        rows = [_line(call, one) for one in found.lines]
        body = element("div", ui.table(head, rows, label="Workflows", keyed=True), id="workflows")
    more = ""
    if found.next:
        more = element("p", ui.button_link("More", ui.link_with("/workflows", after=found.next)))
    return page(call, "Workflows", heading("Workflows", new), body, more, section="workflows", live="runs")


def _line(call: Call, one: WorkflowLine) -> ui.Row:
    here = ui.path_to("workflows", one.name)
    buttons = []
    if one.published and may(call, "run"):
        buttons.append(ui.button_link("Run", f"{here}?tab=run", aria_label=f"Run {one.name}"))
    if may(call, "write"):
        buttons.append(ui.button_link("Edit", f"{here}/edit", aria_label=f"Edit {one.name}"))
    return ui.row(
        join_html([ui.link(one.name, "workflows", one.name, class_="strong"), _draft_badge(one.draft)]),
        *_last_run(one.last_run),
        _next_start(one),
        *_published(one.published),
        join_html(buttons, " "),
        id=f"workflow-{one.name}",
    )


def _draft_badge(draft: Draft | None) -> Html | str:
    if draft is None:
        return ""
    return element("span", "draft", class_="badge idle", title=f"a draft of {draft.updated_by}, not published")


def _last_run(run: RunLine | None) -> tuple[object, object]:
    """How the last run ended, and which one it was."""
    if run is None:
        return ui.muted("never"), ""
    why = ui.muted(f" {run.failure.step}: {run.failure.code}") if run.failure else ""
    number = ui.link(f"#{run.run_id}", "runs", run.run_id)
    return join_html([run_status(run), why]), join_html([number, " ", time_element(run.created_at)])


def _next_start(one: WorkflowLine) -> Html | str:
    if one.next_at is None:
        return ui.muted("not scheduled")
    return join_html([time_element(one.next_at), " ", ui.link(one.next_schedule, "schedules", one.next_schedule)])


def _published(one: PublishedWorkflow | None) -> tuple[object, object]:
    if one is None:
        return "", ui.muted("not published")
    return one.version, join_html([time_element(one.published_at), ui.muted(f" by {one.published_by}")])


# -- one workflow ----------------------------------------------------------------------------------------------------


def show_workflow(call: Call) -> Answer:
    name, query = call.path["name"], call.query
    draft = _find_draft(call, name)
    try:
        found = call.service.catalogue.workflow(name, query.version)
    except NotFound:
        if draft is None or query.version is not None:
            raise
        return _show_draft_only(call, draft)
    newest = found if query.version is None else call.service.catalogue.workflow(name)
    content = {"overview": _overview, "run": _run, "text": _text, "versions": _versions}[query.tab](call, found, newest)
    live = "runs" if query.tab == "overview" else ""
    modules = ("run_form.js",) if query.tab == "run" else ()
    return page(
        call,
        name,
        workflow_heading(call, found, newest, draft),
        _draft_note(call, draft),
        workflow_tabs(call, found, newest, query.tab),
        content,
        section="workflows",
        live=live,
        modules=modules,
    )


def _find_draft(call: Call, name: str) -> Draft | None:
    try:
        draft: Draft = call.service.catalogue.draft(name)
    except NotFound:
        return None
    return draft


def _show_draft_only(call: Call, draft: Draft) -> Answer:
    words = element("p", "It has a draft, which is not published. Nothing runs it yet.", class_="sentence")
    head = heading(draft.name, *_buttons(call, draft.name, draft, is_published=False), over="Workflow")
    text = ui.text_block(draft.text[:_TEXT_SHOWN], class_="source")
    return page(call, draft.name, head, words, text, section="workflows")


def _over(found: PublishedWorkflow, newest: PublishedWorkflow) -> Html:
    parts: list[object] = [ui.link("Workflows", "workflows"), f" · version {found.version}"]
    if found.version != newest.version:
        parts.append(f", the newest is {newest.version}")
    return join_html(parts)


def _buttons(
    call: Call, name: str, draft: Draft | None, *, is_published: bool = True, has_files: bool = False
) -> list[Html]:
    here = ui.path_to("workflows", name)
    buttons = []
    if is_published and may(call, "run"):
        buttons.append(ui.button_link("Run", f"{here}?tab=run", "primary"))
    # What is published with its files is changed in its project.
    if may(call, "write") and (draft is not None or not has_files):
        buttons.append(ui.button_link("Edit the draft" if draft else "Edit", f"{here}/edit"))
    if draft is not None:
        buttons.append(ui.button_link("What if", f"{here}/whatif"))
    return buttons


def _draft_note(call: Call, draft: Draft | None) -> Html | str:
    if draft is None:
        return ""
    return ui.note(f"A draft by {draft.updated_by} is not published yet, changed ", time_element(draft.updated_at))


def workflow_heading(
    call: Call, found: PublishedWorkflow, newest: PublishedWorkflow, draft: Draft | None = None
) -> Html:
    """The top of every page about a published workflow."""
    buttons = _buttons(call, found.name, draft, has_files=bool(newest.files))
    return heading(found.name, *buttons, over=_over(found, newest))


def workflow_tabs(call: Call, found: PublishedWorkflow, newest: PublishedWorkflow, current: str) -> Html:
    """The parts of a workflow, of which one is shown. Coverage has a page of its own: it may take seconds."""
    titles = {"overview": "Overview", "coverage": "Coverage", "run": "Run", "text": "Text", "versions": "Versions"}
    if not may(call, "run"):
        del titles["run"]
    entries = []
    for tab, title in titles.items():
        path = ui.path_to("workflows", found.name) + ("/coverage" if tab == "coverage" else "")
        version = found.version if found.version != newest.version and tab != "versions" else None
        href = ui.link_with(path, tab="" if tab in ("overview", "coverage") else tab, version=version)
        entries.append((title, href, tab == current))
    return tabs("Parts of the workflow", entries)


def _overview(call: Call, found: PublishedWorkflow, newest: PublishedWorkflow) -> Html:
    workflow, refusal = _load(call, found)
    drawn = _graph(call, workflow) if workflow else refusal
    return join_html([element("div", drawn, _facts(call, found, workflow), class_="about"), _runs(call, found.name)])


def _load(call: Call, found: PublishedWorkflow) -> tuple[Workflow | None, Html | str]:
    """The workflow of a version; or what is wrong with it, if this release does not read it any more."""
    try:
        return call.service.catalogue.load(found.name, found.version), ""
    except LanguageError as refused:
        return None, problems_panel("This version cannot be read", refused)


def _graph(call: Call, workflow: Workflow) -> Html:
    svg = draw_page_svg(workflow, nodes_max=_NODES_MAX)
    if not svg:
        return element("p", f"{len(workflow.steps):,} steps are too many to draw here.", class_="empty")
    return element("figure", Html(svg), class_="drawing", tabindex="0", aria_label="Graph of the workflow")


def _facts(call: Call, found: PublishedWorkflow, workflow: Workflow | None) -> Html:
    facts: list[tuple[str, object]] = [
        ("Published", join_html([time_element(found.published_at), f" by {found.published_by}"])),
    ]
    if found.note:
        facts.append(("Note", found.note))
    if workflow is not None and workflow.description:
        facts.append(("For", workflow.description))
    if workflow is not None:
        facts.append(("Steps", f"{len(workflow.steps):,}"))
        facts.append(("Inputs", ", ".join(workflow.inputs) or "none"))
    if found.format != "mulligan":
        facts.append(("File of", found.format))
    if found.labels:
        facts.append(("Labels", join_html(element("span", f"{k}={v}", class_="chip") for k, v in found.labels.items())))
    schedules = [one for one in call.service.schedules.all() if one.workflow == found.name]
    if schedules:
        links = (ui.link(one.name, "schedules", one.name) for one in schedules)
        facts.append(("Schedules", join_html(links, ", ")))
    return ui.pairs(facts)


def _runs(call: Call, name: str) -> Html:
    runs = call.service.runs.page(RunQuery(workflows=(name,), limit=_RUNS_SHOWN)).runs
    if not runs:
        return panel("Runs", empty("It was never run."), name="runs")
    rows = [
        ui.row(
            ui.link(f"#{one.run_id}", "runs", one.run_id),
            run_status(one),
            f"{one.failure.step}: {one.failure.code}" if one.failure else one.reason,
            one.labels.get("version", ""),
            time_element(one.created_at),
            format_elapsed(one.seconds),
            one.started_by,
            id=f"run-{one.run_id}",
        )
        for one in runs
    ]
    head = ("Run", "Status", ui.Column("Why", "what"), "Version", "Started", "Took", "By")
    every = element("a", "All runs", href=ui.link_with("/runs", workflow=name))
    return panel("Runs", ui.table(head, rows, label="Runs", keyed=True), name="runs", beside=every)


def _text(call: Call, found: PublishedWorkflow, newest: PublishedWorkflow) -> Html:
    text = ui.text_block((found.text or "")[:_TEXT_SHOWN], class_="source", aria_label="Text of the workflow")
    if not found.files:
        return text
    rows = [ui.row(one.path, format_size(one.size), one.digest[:_DIGEST_SHOWN]) for one in found.files]
    table = ui.table(("File", "Size", "SHA-256"), rows, label="Files")
    return join_html([text, panel("Published with it", table, name="files")])


# -- running it ------------------------------------------------------------------------------------------------------


def _run(call: Call, found: PublishedWorkflow, newest: PublishedWorkflow) -> Html:
    workflow, refusal = _load(call, found)
    if workflow is None:
        return join_html([refusal])
    if not may(call, "run"):
        return empty("Your token may not start runs.")
    about = {"name": "labels", "placeholder": "team=data, reason=backfill", "autocomplete": "off"}
    labels = element(
        "div",
        element("label", "Labels", for_="run-labels"),
        element("input", id="run-labels", **about),
        element("small", "to find the run by; key=value, separated by commas"),
        class_="field",
    )
    form = element(
        "form",
        input_fields(workflow.inputs),
        labels,
        element("p", id="run-problem", class_="problem", role="alert"),
        element("div", element("button", "Run", type="submit", class_="primary"), class_="buttons"),
        id="run-form",
        class_="run-form",
        data_workflow=found.name,
        data_version=found.version if found.version != newest.version else None,
        novalidate=True,
    )
    return panel(f"Run version {found.version}", form, name="run")


# -- versions --------------------------------------------------------------------------------------------------------


def _versions(call: Call, found: PublishedWorkflow, newest: PublishedWorkflow) -> Html:
    listed = call.service.catalogue.versions(found.name, before=call.query.before, limit=_VERSIONS_SHOWN)
    new = call.query.new or newest.version
    old = call.query.old or max(new - 1, 1)
    here = ui.path_to("workflows", found.name)
    rows = (_version_row(call, one, old, new) for one in listed.workflows)
    head = ("From", "To", "Version", "Published", "By", ui.Column("Note", "what"), ui.figure(""))
    fields = (
        hidden_fields(tab="versions"),
        ui.table(head, rows, label="Versions"),
        element("p", element("button", "Compare", type="submit"), class_="buttons"),
    )
    form = element("form", *fields, action=here, method="get")
    more = ""
    if listed.next:
        earlier = ui.link_with(here, tab="versions", before=listed.next)
        more = element("p", element("a", "Earlier versions", href=earlier))
    return join_html([panel("Versions", form, more, name="versions"), _comparison(call, found.name, old, new)])


def _version_row(call: Call, one: PublishedWorkflow, old: int, new: int) -> ui.Row:
    here = ui.path_to("workflows", one.name)

    def choice(name: str, word: str, chosen: int) -> Html:
        about = {"checked": one.version == chosen, "aria_label": f"{word} version {one.version}"}
        return element("input", type="radio", name=name, value=one.version, **about)

    links = [element("a", "Text", href=f"{here}?tab=text&version={one.version}")]
    if may(call, "write"):
        links.append(element("a", "Edit from here", href=f"{here}/edit?version={one.version}"))
    return ui.row(
        choice("old", "from", old),
        choice("new", "to", new),
        element("a", one.version, href=f"{here}?version={one.version}"),
        time_element(one.published_at),
        one.published_by,
        one.note,
        join_html(links, " · "),
        id=f"version-{one.version}",
    )


def _comparison(call: Call, name: str, old: int, new: int) -> Html:
    if old == new:
        return join_html([])
    catalogue = call.service.catalogue
    before, after = catalogue.workflow(name, old), catalogue.workflow(name, new)
    lines = diff_texts(before.text or "", after.text or "")
    title = f"Version {old} → {new}"
    files = ", ".join(file_changes(before.files, after.files))
    if not lines:
        same = f"The texts are the same; other files: {files}" if files else "The texts are the same."
        return panel(title, element("p", same, class_="muted"), name="diff")
    added, removed = (sum(line.kind == kind for line in lines) for kind in ("added", "removed"))
    counts = ui.muted(f"{added} added, {removed} removed")
    return panel(title, diff(lines, title), name="diff", beside=counts)


ROUTES = (
    page_route("/workflows", show_workflows, "The published workflows.", query=ListQuery),
    page_route("/workflows/{name}", show_workflow, "One workflow.", query=WorkflowQuery, is_slow=True),
)

"""Published workflows: the list, and one with its graph, its runs, its versions, and a form that starts it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from mulligan.api.http.routing import Answer, Call, Query
from mulligan.core.model.workflow import Workflow
from mulligan.dashboard.components.parts import run_status
from mulligan.dashboard.components.shell import empty, heading, may, page, page_route, panel, path_to, table
from mulligan.dashboard.workflows.input_fields import input_fields
from mulligan.errors import LanguageError, NotFound
from mulligan.service.rendering.drawing import draw_page_svg
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import format_elapsed, time_element
from mulligan.service.runs.views.run_list import RunLine, RunQuery
from mulligan.service.server.catalogue.catalogue import Draft, PublishedWorkflow
from mulligan.service.server.catalogue.text_diff import DiffLine, diff_texts
from mulligan.service.server.catalogue.workflow_lines import WorkflowLine, list_workflow_lines

Number = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Tab = Literal["overview", "run", "text", "versions"]
_STYLES = ("workflows.css",)
_RUNS_SHOWN = 20
_VERSIONS_SHOWN = 50
_NODES_MAX = 300
_TEXT_SHOWN = 200_000


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
    new = element("a", "New workflow", href="/workflows/new", class_="button primary") if may(call, "write") else ""
    if not found.lines:
        command = element("code", "mulligan publish FILE")
        how = element("p", "Write one here, or publish a file from a terminal: ", command)
        body = empty("No workflow is published.", how)
    else:
        head = ("Workflow", "Last run", "", "Next start", "Version", "Published", "")
        rows = [_line(call, one) for one in found.lines]
        body = element("div", table(head, rows, label="Workflows", keyed=True), id="workflows")
    more = ""
    if found.next:
        more = element("p", element("a", "More", href=f"/workflows?after={found.next}", class_="button"))
    return page(
        call, "Workflows", heading("Workflows", new), body, more, section="workflows", live="runs", styles=_STYLES
    )


def _line(call: Call, one: WorkflowLine) -> Html:
    here = path_to("workflows", one.name)
    buttons = []
    if one.published and may(call, "run"):
        buttons.append(element("a", "Run", href=f"{here}?tab=run", class_="button", aria_label=f"Run {one.name}"))
    if may(call, "write"):
        buttons.append(element("a", "Edit", href=f"{here}/edit", class_="button", aria_label=f"Edit {one.name}"))
    name = element("a", one.name, href=here, class_="strong")
    return element(
        "tr",
        element("td", name, _draft_badge(one.draft)),
        *_last_run(one.last_run),
        element("td", _next_start(one)),
        *_published(one.published),
        element("td", join_html(buttons, " "), class_="n"),
        id=f"workflow-{one.name}",
    )


def _draft_badge(draft: Draft | None) -> Html | str:
    if draft is None:
        return ""
    return element("span", "draft", class_="badge idle", title=f"a draft of {draft.updated_by}, not published")


def _last_run(run: RunLine | None) -> tuple[Html, Html]:
    """How the last run ended, and which one it was."""
    if run is None:
        return element("td", element("span", "never", class_="muted")), element("td")
    why = element("span", f" {run.failure.step}: {run.failure.code}", class_="muted") if run.failure else ""
    number = element("a", f"#{run.run_id}", href=path_to("runs", run.run_id))
    return element("td", run_status(run), why), element("td", number, " ", time_element(run.created_at))


def _next_start(one: WorkflowLine) -> Html | str:
    if one.next_at is None:
        return element("span", "not scheduled", class_="muted")
    schedule = element("a", one.next_schedule, href=path_to("schedules", one.next_schedule))
    return join_html([time_element(one.next_at), " ", schedule])


def _published(one: PublishedWorkflow | None) -> tuple[Html, Html]:
    if one is None:
        return element("td"), element("td", element("span", "not published", class_="muted"))
    by = element("span", f" by {one.published_by}", class_="muted")
    return element("td", one.version), element("td", time_element(one.published_at), by)


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
        styles=_STYLES,
    )


def _find_draft(call: Call, name: str) -> Draft | None:
    try:
        draft: Draft = call.service.catalogue.draft(name)
    except NotFound:
        return None
    return draft


def _show_draft_only(call: Call, draft: Draft) -> Answer:
    note = element("p", "It has a draft, which is not published. Nothing runs it yet.", class_="sentence")
    return page(
        call,
        draft.name,
        heading(draft.name, *_buttons(call, draft.name, draft, is_published=False), over="Workflow"),
        note,
        element("pre", draft.text[:_TEXT_SHOWN], class_="source", tabindex="0"),
        section="workflows",
        styles=_STYLES,
    )


def _over(found: PublishedWorkflow, newest: PublishedWorkflow) -> Html:
    parts: list[object] = [element("a", "Workflows", href="/workflows"), f" · version {found.version}"]
    if found.version != newest.version:
        parts.append(f", the newest is {newest.version}")
    return join_html(parts)


def _buttons(call: Call, name: str, draft: Draft | None, *, is_published: bool = True) -> list[Html]:
    here = path_to("workflows", name)
    buttons = []
    if is_published and may(call, "run"):
        buttons.append(element("a", "Run", href=f"{here}?tab=run", class_="button primary"))
    if may(call, "write"):
        buttons.append(element("a", "Edit the draft" if draft else "Edit", href=f"{here}/edit", class_="button"))
    if draft is not None:
        buttons.append(element("a", "What if", href=f"{here}/whatif", class_="button"))
    return buttons


def _draft_note(call: Call, draft: Draft | None) -> Html | str:
    if draft is None:
        return ""
    when = join_html([f"A draft by {draft.updated_by} is not published yet, changed ", time_element(draft.updated_at)])
    return element("p", when, class_="note")


def workflow_heading(
    call: Call, found: PublishedWorkflow, newest: PublishedWorkflow, draft: Draft | None = None
) -> Html:
    """The top of every page about a published workflow."""
    return heading(found.name, *_buttons(call, found.name, draft), over=_over(found, newest))


def workflow_tabs(call: Call, found: PublishedWorkflow, newest: PublishedWorkflow, current: str) -> Html:
    """The parts of a workflow, of which one is shown. Coverage has a page of its own: it may take seconds."""
    titles = {
        "overview": "Overview",
        "coverage": "Coverage",
        "run": "Run",
        "text": "Text",
        "versions": "Versions",
    }
    if not may(call, "run"):
        del titles["run"]
    links = []
    for tab, title in titles.items():
        path = path_to("workflows", found.name) + ("/coverage" if tab == "coverage" else "")
        given: dict[str, str] = {"tab": tab} if tab not in ("overview", "coverage") else {}
        if found.version != newest.version and tab != "versions":
            given["version"] = str(found.version)
        written = "&".join(f"{key}={value}" for key, value in given.items())
        href = path + (f"?{written}" if written else "")
        links.append(element("a", title, href=href, aria_current="page" if tab == current else None))
    return element("nav", *links, class_="tabs", aria_label="Parts of the workflow")


def _overview(call: Call, found: PublishedWorkflow, newest: PublishedWorkflow) -> Html:
    workflow, refusal = _load(call, found)
    drawn = _graph(call, workflow) if workflow else refusal
    return join_html([element("div", drawn, _facts(call, found, workflow), class_="about"), _runs(call, found.name)])


def _load(call: Call, found: PublishedWorkflow) -> tuple[Workflow | None, Html | str]:
    """The workflow of a version; or what is wrong with it, if this release does not read it any more."""
    try:
        return call.service.catalogue.load(found.name, found.version), ""
    except LanguageError as refused:
        lines = join_html((one.render() for one in refused.problems[:20]), "\n")
        return None, panel("This version cannot be read", element("pre", lines, tabindex="0"), tone="bad")


def _graph(call: Call, workflow: Workflow) -> Html:
    svg = draw_page_svg(workflow, nodes_max=_NODES_MAX)
    if not svg:
        count = len(workflow.steps)
        return element("p", f"{count:,} steps are too many to draw here.", class_="empty")
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
        inputs = ", ".join(workflow.inputs) or "none"
        facts.append(("Steps", f"{len(workflow.steps):,}"))
        facts.append(("Inputs", inputs))
    if found.format != "mulligan":
        facts.append(("File of", found.format))
    if found.labels:
        facts.append(("Labels", join_html(element("span", f"{k}={v}", class_="chip") for k, v in found.labels.items())))
    schedules = [one for one in call.service.schedules.all() if one.workflow == found.name]
    if schedules:
        links = (element("a", one.name, href=path_to("schedules", one.name)) for one in schedules)
        facts.append(("Schedules", join_html(links, ", ")))
    rows = join_html(join_html([element("dt", name), element("dd", value)]) for name, value in facts)
    return element("dl", rows, class_="facts")


def _runs(call: Call, name: str) -> Html:
    runs = call.service.runs.page(RunQuery(workflows=(name,), limit=_RUNS_SHOWN)).runs
    if not runs:
        return panel("Runs", empty("It was never run."), name="runs")
    rows = [
        element(
            "tr",
            element("td", element("a", f"#{one.run_id}", href=path_to("runs", one.run_id))),
            element("td", run_status(one)),
            element("td", f"{one.failure.step}: {one.failure.code}" if one.failure else one.reason, class_="what"),
            element("td", one.labels.get("version", "")),
            element("td", time_element(one.created_at)),
            element("td", format_elapsed(one.seconds)),
            element("td", one.started_by),
            id=f"run-{one.run_id}",
        )
        for one in runs
    ]
    head = ("Run", "Status", "Why", "Version", "Started", "Took", "By")
    every = element("a", "All runs", href=f"/runs?workflow={name}")
    return panel("Runs", table(head, rows, label="Runs", keyed=True), name="runs", beside=every)


def _text(call: Call, found: PublishedWorkflow, newest: PublishedWorkflow) -> Html:
    text = found.text or ""
    return element("pre", text[:_TEXT_SHOWN], class_="source", tabindex="0", aria_label="Text of the workflow")


# -- running it ------------------------------------------------------------------------------------------------------


def _run(call: Call, found: PublishedWorkflow, newest: PublishedWorkflow) -> Html:
    workflow, refusal = _load(call, found)
    if workflow is None:
        return join_html([refusal])
    if not may(call, "run"):
        return empty("Your token may not start runs.")
    labels = element(
        "div",
        element("label", "Labels", for_="run-labels"),
        element("input", id="run-labels", name="labels", placeholder="team=data, reason=backfill", autocomplete="off"),
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
    rows = [_version_row(call, one, old, new) for one in listed.workflows]
    head = ("From", "To", "Version", "Published", "By", "Note", "")
    form = element(
        "form",
        element("input", type="hidden", name="tab", value="versions"),
        table(head, rows, label="Versions"),
        element("p", element("button", "Compare", type="submit"), class_="buttons"),
        action=path_to("workflows", found.name),
        method="get",
    )
    more = ""
    if listed.next:
        here = path_to("workflows", found.name)
        more = element("p", element("a", "Earlier versions", href=f"{here}?tab=versions&before={listed.next}"))
    return join_html([panel("Versions", form, more, name="versions"), _comparison(call, found.name, old, new)])


def _version_row(call: Call, one: PublishedWorkflow, old: int, new: int) -> Html:
    here = path_to("workflows", one.name)

    def choice(name: str, chosen: int) -> Html:
        return element(
            "input",
            type="radio",
            name=name,
            value=one.version,
            checked=one.version == chosen,
            aria_label=f"{'from' if name == 'old' else 'to'} version {one.version}",
        )

    links = [element("a", "Text", href=f"{here}?tab=text&version={one.version}")]
    if may(call, "write"):
        links.append(element("a", "Edit from here", href=f"{here}/edit?version={one.version}"))
    return element(
        "tr",
        element("td", choice("old", old)),
        element("td", choice("new", new)),
        element("td", element("a", one.version, href=f"{here}?version={one.version}")),
        element("td", time_element(one.published_at)),
        element("td", one.published_by),
        element("td", one.note, class_="what"),
        element("td", join_html(links, " · "), class_="n"),
        id=f"version-{one.version}",
    )


def _comparison(call: Call, name: str, old: int, new: int) -> Html:
    if old == new:
        return join_html([])
    catalogue = call.service.catalogue
    before, after = catalogue.workflow(name, old), catalogue.workflow(name, new)
    lines = diff_texts(before.text or "", after.text or "")
    title = f"Version {old} → {new}"
    if not lines:
        return panel(title, element("p", "The texts are the same.", class_="muted"), name="diff")
    added, removed = (sum(line.kind == kind for line in lines) for kind in ("added", "removed"))
    counts = element("span", f"{added} added, {removed} removed", class_="muted")
    rows = join_html(map(_diff_row, lines))
    body = element("table", element("tbody", rows), class_="diff", aria_label=title)
    return panel(title, element("div", body, class_="scroll", tabindex="0"), name="diff", beside=counts)


_SIGNS = {"added": "+", "removed": "-", "same": " ", "gap": "⋯"}


def _diff_row(line: DiffLine) -> Html:
    return element(
        "tr",
        element("td", line.old or "", class_="n"),
        element("td", line.new or "", class_="n"),
        element("td", _SIGNS[line.kind], class_="sign"),
        element("td", line.text, class_="line"),
        class_=line.kind,
    )


ROUTES = (
    page_route("/workflows", show_workflows, "The published workflows.", query=ListQuery),
    page_route("/workflows/{name}", show_workflow, "One workflow.", query=WorkflowQuery, is_slow=True),
)

"""The editor of a workflow: its text on the left, its graph on the right. `assets/editor.js` does the rest."""

from __future__ import annotations

from typing import Annotated

import msgspec

from mulligan.api.http.routing import Answer, Call, Query
from mulligan.dashboard.assets import url_of
from mulligan.dashboard.components.shell import heading, may, page, page_route
from mulligan.errors import NotFound
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.server.catalogue.catalogue import refuse_files


class EditorQuery(Query, frozen=True):
    """`version`: the version to begin with, instead of the draft."""

    version: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None


def show_editor(call: Call) -> Answer:
    name = call.path["name"]
    has_draft = _has_draft(call, name)
    if not has_draft or call.query.version is not None:
        refuse_files(call.service.catalogue.workflow(name, call.query.version))
    over = join_html([ui.link("Workflows", "workflows"), " · ", ui.link(name, "workflows", name)])
    return _editor(call, f"Edit {name}", heading(name, *_buttons(call), over=over), name, has_draft=has_draft)


def show_new(call: Call) -> Answer:
    words = {"placeholder": "name of the workflow", "aria_label": "Name of the workflow"}
    about = {"autocomplete": "off", "spellcheck": "false", "maxlength": 100, "autofocus": True}
    box = element("input", id="workflow-name", **words, **about)
    return _editor(call, "New workflow", heading(box, *_buttons(call), over=ui.link("Workflows", "workflows")), "")


def _has_draft(call: Call, name: str) -> bool:
    try:
        call.service.catalogue.draft(name)
    except NotFound:
        return False
    return True


def _buttons(call: Call) -> list[Html]:
    if not may(call, "write"):
        return []
    return [
        element("span", id="draft-state", class_="draft-state", role="status"),
        element("button", "Open a file", type="button", id="open-file", title="of ours, or of another system"),
        element("button", "Discard the draft", type="button", id="discard", disabled=True),
        element("button", "Publish", type="button", id="publish", class_="primary"),
    ]


def _editor(call: Call, title: str, head: Html, name: str, *, has_draft: bool = False) -> Answer:
    is_writer = may(call, "write")
    text = element(
        "section",
        element("div", id="editor-text", class_="cm-editor editor-text", data_keep=True),
        element("ol", id="problems", class_="problems", data_keep=True, aria_label="Problems in the text"),
        class_="editor-left",
        aria_label="Text",
    )
    buttons = (
        element("button", "Add a step", type="button", id="add-step"),
        element("button", "Connect steps", type="button", id="add-edge"),
    )
    step = element("span", id="graph-step", class_="graph-step")
    tools = element("div", step, *(buttons if is_writer else ()), class_="graph-tools")
    graph = element(
        "section",
        element("p", id="foreign", class_="foreign", hidden=True),
        tools,
        element("figure", id="graph", class_="editor-graph", tabindex="0", aria_label="Graph of the workflow"),
        element("p", id="graph-note", class_="note"),
        element("pre", id="converted", class_="source", hidden=True, tabindex="0", aria_label="The converted text"),
        class_="editor-right",
        aria_label="Graph",
    )
    about = {
        "data_name": name,
        "data_version": getattr(call.query, "version", None),
        "data_draft": has_draft,
        "data_codemirror": url_of("vendor/codemirror.js"),
        "data_readonly": not is_writer,
    }
    body = element("div", text, graph, id="editor", class_="editor", data_keep=True, **about)
    file = element("input", type="file", id="file", hidden=True)
    return page(call, title, head, body, file, section="workflows", modules=("editor.js",))


ROUTES = (
    page_route("/workflows/new", show_new, "The editor, with nothing in it.", scope="write"),
    page_route("/workflows/{name}/edit", show_editor, "The editor of a workflow.", query=EditorQuery),
)

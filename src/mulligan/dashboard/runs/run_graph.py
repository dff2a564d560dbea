"""The tab Graph of a run: its steps and edges, what was taken, and for large runs the surroundings of one step."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

from mulligan.dashboard.components.shell import path_to
from mulligan.dashboard.runs.run_actions import step_buttons
from mulligan.dashboard.runs.run_tab import RunOnPage, Tab
from mulligan.service.rendering.drawing.picture import Node
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import status_label, status_tone
from mulligan.service.runs.views.run_graph import RunGraph

# A graph with more steps has no button that draws each of them.
_EXPANDED_MAX = 300


def render_graph(run: RunOnPage) -> Tab:
    """The whole graph, or what is around the step in the address."""
    is_around = bool(run.query.step)

    def href(node: Node) -> str:
        if node.members:
            return _tab(run, tab="grid", text=node.name.rstrip("…"))
        if is_around and node.title != run.query.step:
            return _tab(run, tab="graph", step=node.title)
        return path_to("runs", run.run_id, "steps", node.title)

    found = run.call.service.details.graph(run.run_id, href, step=run.query.step, is_expanded=run.query.expand)
    figure = element(
        "figure", Html(found.svg), class_="flow-figure", tabindex="0", role="region", aria_label="Graph of the run"
    )
    head = _around(run, found) if found.kind == "around" else _whole(run, found)
    return Tab(
        element("section", head, figure, _legend(found), class_="graph-tab"),
        modules=("run_tabs.js",),
        styles=("run_tabs.css",),
        live="" if run.has_ended else f"run:{run.run_id}",
    )


def _tab(run: RunOnPage, **query: str) -> str:
    return f"{path_to('runs', run.run_id)}?{urlencode(query)}"


def _whole(run: RunOnPage, found: RunGraph) -> Html:
    words = f"{found.step_count:,} step{'' if found.step_count == 1 else 's'}"
    parts: list[object] = [element("span", words, class_="muted")]
    if found.kind == "stacked":
        parts.append(element("span", "similar steps are one card", class_="muted"))
        if found.step_count <= _EXPANDED_MAX:
            parts.append(element("a", "Draw each step", href=_tab(run, tab="graph", expand="true")))
    elif run.query.expand:
        parts.append(element("a", "Draw similar steps as one card", href=_tab(run, tab="graph")))
    return element("div", _step_search(run), *parts, class_="filters")


def _step_search(run: RunOnPage) -> Html:
    """Show the surroundings of a step by its name."""
    box = element(
        "input",
        type="search",
        name="step",
        value=run.query.step,
        placeholder="Around a step",
        aria_label="Show what is around this step",
        autocomplete="off",
        list="step-names",
        data_step_names=run.run_id,
    )
    names = element("datalist", id="step-names", data_keep=True)
    return element("form", element("input", type="hidden", name="tab", value="graph"), box, names, method="get")


def _around(run: RunOnPage, found: RunGraph) -> Html:
    status = element("span", status_label(found.status), class_=f"status {status_tone(found.status)}")
    name = element("a", element("strong", found.step), href=path_to("runs", run.run_id, "steps", found.step))
    whole = element("a", "Whole graph", href=_tab(run, tab="graph")) if run.query.step else ""
    note = f"of {found.step_count:,} steps"
    top = element(
        "div", _step_search(run), name, status, element("span", note, class_="muted"), whole, class_="filters"
    )
    rows = [
        _neighbours(run, "Before it", found.before.names, found.before.count),
        _neighbours(run, "After it", found.after.names, found.after.count),
    ]
    buttons = step_buttons(run, found.step, found.status, is_paused=found.is_paused)
    actions = element("div", buttons, class_="actions step-actions") if buttons else ""
    return element("div", top, actions, element("dl", *rows, class_="neighbours"))


def _neighbours(run: RunOnPage, title: str, names: tuple[str, ...], count: int) -> Html:
    links: list[object] = [element("a", name, href=_tab(run, tab="graph", step=name)) for name in names]
    if count > len(names):
        links.append(element("span", f"and {count - len(names):,} more", class_="muted"))
    inside = join_html(links, " ") if links else element("span", "nothing", class_="muted")
    return join_html([element("dt", title), element("dd", inside)])


def _legend(found: RunGraph) -> Html:
    return element("ul", *_legend_lines(found), class_="legend flow-legend")


def _legend_lines(found: RunGraph) -> Iterator[Html]:
    for kind, words in (
        ("taken", "taken"),
        ("open", "not taken"),
        ("failure taken", "failure edge, taken"),
        ("failure open", "failure edge"),
        ("loop taken", "loop"),
    ):
        yield element("li", element("i", class_=f"line-sample {kind}"), words)
    if found.left_out:
        yield element("li", f"{found.left_out:,} more steps nearby are not drawn")

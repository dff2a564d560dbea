"""The tab Graph of a run: its steps and edges, what was taken, and for large runs the surroundings of one step."""

from __future__ import annotations

from collections.abc import Iterator

from mulligan.dashboard.components.parts import step_search
from mulligan.dashboard.runs.run_actions import step_buttons
from mulligan.dashboard.runs.run_tab import RunOnPage, Tab
from mulligan.service.rendering.drawing.picture import Node
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.runs.views.run_graph import RunGraph

# A graph with more steps has no button that draws each of them.
_EXPANDED_MAX = 300


def render_graph(run: RunOnPage) -> Tab:
    """The whole graph, or what is around the step in the address."""
    is_around = bool(run.query.step)

    def href(node: Node) -> str:
        if node.members:
            return run.path(tab="grid", text=node.name.rstrip("…"))
        if is_around and node.title != run.query.step:
            return run.path(tab="graph", step=node.title)
        return ui.path_to("runs", run.run_id, "steps", node.title)

    found = run.call.service.details.graph(run.run_id, href, step=run.query.step, is_expanded=run.query.expand)
    figure = element(
        "figure", Html(found.svg), class_="flow-figure", tabindex="0", role="region", aria_label="Graph of the run"
    )
    head = _around(run, found) if found.kind == "around" else _whole(run, found)
    legend = element("ul", *_legend_lines(found), class_="legend flow-legend")
    content = element("section", head, figure, legend, class_="graph-tab")
    return Tab(content, modules=("run_tabs.js",), live=run.live)


def _whole(run: RunOnPage, found: RunGraph) -> Html:
    words = f"{found.step_count:,} step{'' if found.step_count == 1 else 's'}"
    parts = [ui.muted(words)]
    if found.kind == "stacked":
        parts.append(ui.muted("similar steps are one card"))
        if found.step_count <= _EXPANDED_MAX:
            parts.append(element("a", "Draw each step", href=run.path(tab="graph", expand="true")))
    elif run.query.expand:
        parts.append(element("a", "Draw similar steps as one card", href=run.path(tab="graph")))
    return element("div", _step_search(run), *parts, class_="filters")


def _step_search(run: RunOnPage) -> Html:
    """Show the surroundings of a step by its name."""
    return step_search(run.run_id, run.query.step, "Around a step", "Show what is around this step", tab="graph")


def _around(run: RunOnPage, found: RunGraph) -> Html:
    name = ui.step_link(run.run_id, found.step, element("strong", found.step))
    whole = element("a", "Whole graph", href=run.path(tab="graph")) if run.query.step else ""
    count = ui.muted(f"of {found.step_count:,} steps")
    top = element("div", _step_search(run), name, ui.status(found.status), count, whole, class_="filters")
    around = (
        ("Before it", _neighbours(run, found.before.names, found.before.count)),
        ("After it", _neighbours(run, found.after.names, found.after.count)),
    )
    buttons = step_buttons(run, found.step, found.status, is_paused=found.is_paused)
    actions = element("div", buttons, class_="actions step-actions") if buttons else ""
    return element("div", top, actions, ui.pairs(around, "neighbours"))


def _neighbours(run: RunOnPage, names: tuple[str, ...], count: int) -> Html:
    links = [element("a", name, href=run.path(tab="graph", step=name)) for name in names]
    if count > len(names):
        links.append(ui.muted(f"and {count - len(names):,} more"))
    return join_html(links, " ") if links else ui.muted("nothing")


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

"""The whole page: its sections in reading order, and its style sheet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.failures import render_failures
from mulligan.service.rendering.page.groups import draw_mosaic
from mulligan.service.rendering.page.headline import render_headline, render_summary
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.plots import cpu_plot, memory_plot
from mulligan.service.rendering.page.styles import time_element, whole_page
from mulligan.service.rendering.page.tables import (
    artifacts_table,
    attempts_table,
    children_table,
    events_table,
    render_values,
    steps_table,
)
from mulligan.service.rendering.page.timeline import render_timeline
from mulligan.service.runs.views.report import Report

_SIZE = re.compile(r'<svg[^>]* width="(\d+)" height="(\d+)"')
# The largest drawing that the style sheet shows without scaling.
_GRAPH_WIDTH, _GRAPH_HEIGHT = 1_000, 680
_GRAPH_STEPS_MAX = 150


def render_page(report: Report, graph: str = "", *, folder: str | None = None, home_option: str = "") -> str:
    """The report as HTML. `graph`: the drawing of its workflow, as our own SVG; "" if there is none.

    `folder`: the folder of the page, for links to logs; `home_option`: the `--home` option to append to each command.
    """
    title = f"{report.workflow}, run {report.run_id}: {report.status}"
    sections = _sections(report, Html(graph), folder, home_option)
    main = element("main", render_headline(report), *sections, _footer(report))
    return whole_page(title, ("charts.css", "page.css"), main)


def _sections(report: Report, graph: Html, folder: str | None, home_option: str) -> Iterator[Html]:
    yield render_summary(report, home_option)
    yield render_failures(report, folder)
    yield ui.section("Graph", "graph", _graph(report, graph))
    yield ui.section("Timeline", "timeline", _timeline(report))
    yield ui.section("Resources", "resources", _resources(report))
    yield ui.section("Steps", "steps", steps_table(report))
    if report.children:
        yield ui.section("Child runs", "children", children_table(report))
    if report.artifacts:
        yield ui.section("Artifacts", "artifacts", artifacts_table(report))
    yield ui.section("Data", "data", _data(report))
    yield ui.section("Events", "events", events_table(report))


def _graph(report: Report, graph: Html) -> Html:
    """The drawing; with many steps a mosaic first, since the drawing does not fit on a screen."""
    figure = element("figure", graph, tabindex="0", aria_label="the graph of the workflow")
    if not graph:
        return join_html([draw_mosaic(report.steps), ui.note("Too many steps to draw.")])
    if graph.count('<g class="node ') > _GRAPH_STEPS_MAX:
        poster = element("div", figure, class_="graph poster")
        return join_html([draw_mosaic(report.steps), ui.details("The graph in full size", poster)])
    if _fits(graph):
        return element("div", figure, class_="graph")
    box = element("input", type="checkbox", id="full")
    return element("div", box, element("label", "full size", for_="full"), figure, class_="graph")


def _fits(graph: Html) -> bool:
    """Whether a drawing fits without scaling."""
    size = _SIZE.search(graph)
    return size is not None and int(size[1]) <= _GRAPH_WIDTH and int(size[2]) <= _GRAPH_HEIGHT


def _timeline(report: Report) -> Html:
    chart = render_timeline(report)
    return join_html([chart, attempts_table(report)]) if chart else ui.note("Nothing has run yet.")


def _resources(report: Report) -> Html:
    memory, cpu = memory_plot(report), cpu_plot(report)
    if not memory and not cpu:
        return ui.note("Nothing was measured.")
    words = "Each dot is an attempt. The shaded area is the limit that the workflow sets, if it sets one."
    used = [element("h3", "Peak memory"), memory] if memory else []
    cpus = (element("h3", "CPUs in use"), cpu or ui.note("Every attempt was too short to measure."))
    return join_html([ui.note(words), *used, *cpus])


def _data(report: Report) -> Html:
    if not report.inputs and not report.outputs:
        return ui.note("No inputs and no outputs.")
    return join_html([render_values("Inputs", report.inputs), render_values("Outputs", report.outputs)])


def _footer(report: Report) -> Html:
    file = f"{PurePath(report.file).name}, " if report.file else ""
    hosts = sorted({one.host for one in report.attempts if one.host})
    where = f" on {', '.join(hosts[:5])}{' and others' if len(hosts) > 5 else ''}" if hosts else ""
    source = f"{report.workflow} ({file}version {report.version}), run {report.run_id}{where}."
    return element("footer", element("p", f"{source} Written by {report.made_by} at ", time_element(report.as_of), "."))

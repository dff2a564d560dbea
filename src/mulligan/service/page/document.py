"""The whole page: its sections in the order in which one wants to read them, its style, and nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import PurePath

from mulligan.service.page.colours import variables
from mulligan.service.page.failures import failures
from mulligan.service.page.headline import headline, summary
from mulligan.service.page.markup import Html, element, joined
from mulligan.service.page.mosaic import mosaic
from mulligan.service.page.plots import cpu_plot, memory_plot
from mulligan.service.page.tables import attempts_table, children_table, events_table, folded, steps_table, values
from mulligan.service.page.timeline import timeline
from mulligan.service.page.words import when
from mulligan.service.report import Report

_SIZE = re.compile(r'<svg[^>]* width="(\d+)" height="(\d+)"')
# What the style sheet has room for.
_GRAPH_WIDTH, _GRAPH_HEIGHT = 1_000, 680
_GRAPH_STEPS_MAX = 150


def page(report: Report, graph: str = "", *, folder: str | None = None, home_option: str = "") -> str:
    """The report as HTML. `graph`: the drawing of its workflow, as our own SVG; "" where there is none.

    `folder`: where the page will be, so that it can link to logs; `home_option`: what each command needs behind it.
    """
    title = f"{report.workflow}, run {report.run_id}: {report.status}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        # Whatever got in after all could load nothing and run nothing.
        element("meta", http_equiv="Content-Security-Policy", content="default-src 'none'; style-src 'unsafe-inline'"),
        element("title", title),
        element("style", _style()),
    )
    body = element(
        "body",
        element("main", headline(report), *_sections(report, Html(graph), folder, home_option), _colophon(report)),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _style() -> Html:
    return Html(variables() + (files(__package__) / "page.css").read_text(encoding="utf-8"))


def _sections(report: Report, graph: Html, folder: str | None, home_option: str) -> Iterator[Html]:
    yield summary(report, home_option)
    yield failures(report, folder)
    yield _section("Graph", "graph", _graph(report, graph))
    yield _section("Timeline", "timeline", _timeline(report))
    yield _section("Resources", "resources", _resources(report))
    yield _section("Steps", "steps", steps_table(report))
    if report.children:
        yield _section("Runs that it called", "children", children_table(report))
    yield _section("Data", "data", _data(report))
    yield _section("Events", "events", events_table(report))


def _section(title: str, name: str, *inside: object) -> Html:
    return element("section", element("h2", title, id=name), *inside)


def _graph(report: Report, graph: Html) -> Html:
    """The drawing; of many steps first their mosaic, since of a poster one sees a corner at a time."""
    figure = element("figure", graph, tabindex="0", aria_label="the graph of the workflow")
    if not graph:
        return joined([mosaic(report.steps), element("p", "Too many steps for a drawing.", class_="note")])
    if graph.count('<g class="node ') > _GRAPH_STEPS_MAX:
        poster = element("div", figure, class_="graph poster")
        return joined([mosaic(report.steps), folded("The drawing, in full size", poster)])
    if _fits(graph):
        return element("div", figure, class_="graph")
    box = element("input", type="checkbox", id="full")
    return element("div", box, element("label", "full size", for_="full"), figure, class_="graph")


def _fits(graph: Html) -> bool:
    """Whether a drawing is shown as large as it is."""
    found = _SIZE.search(graph)
    return found is not None and int(found[1]) <= _GRAPH_WIDTH and int(found[2]) <= _GRAPH_HEIGHT


def _timeline(report: Report) -> Html:
    chart = timeline(report)
    if not chart:
        return element("p", "Nothing has run yet.", class_="note")
    return joined([chart, attempts_table(report)])


def _resources(report: Report) -> Html:
    memory, cpu = memory_plot(report), cpu_plot(report)
    if not memory and not cpu:
        return element("p", "Nothing was measured.", class_="note")
    note = "A dot is an attempt. The shaded part is what it might use, where the workflow says so."
    parts = [element("p", note, class_="note")]
    parts += [element("h3", "Peak memory"), memory] if memory else []
    parts += [
        element("h3", "Processors kept busy"),
        cpu or element("p", "Every attempt was too short to say.", class_="note"),
    ]
    return joined(parts)


def _data(report: Report) -> Html:
    if not report.inputs and not report.outputs:
        return element("p", "It has no inputs and no outputs.", class_="note")
    return joined([values("Inputs", report.inputs), values("Outputs", report.outputs)])


def _colophon(report: Report) -> Html:
    file = f"{PurePath(report.file).name}, " if report.file else ""
    hosts = sorted({one.host for one in report.attempts if one.host})
    where = f" on {', '.join(hosts[:5])}{' and others' if len(hosts) > 5 else ''}" if hosts else ""
    said = (
        f"{report.workflow} ({file}version {report.version}), run {report.run_id}{where}. Written by {report.made_by} "
    )
    return element("footer", element("p", said, when(report.as_of), "."))

"""Two runs beside each other: what differs comes first."""

from __future__ import annotations

from collections.abc import Iterator

from mulligan.api.http.routing import Answer, Call, Query
from mulligan.dashboard.components.parts import diff, hidden_fields
from mulligan.dashboard.components.shell import empty, heading, page, page_route, panel
from mulligan.dashboard.components.value_tree import value_tree
from mulligan.service.rendering.formatting import pluralize
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import format_elapsed, status_label, time_element
from mulligan.service.runs.views.run_comparison import ComparedRun, ComparedStep, RunComparison, ValuePair
from mulligan.service.runs.views.run_list import RunQuery
from mulligan.service.runs.views.run_pages import StepLine

# How many runs of the same workflow are offered.
OFFERED = 30
_WORDS = {
    "only_a": "only in the first",
    "only_b": "only in the second",
    "outcome": "outcome",
    "failure": "failure",
    "attempts": "attempts",
    "duration": "duration",
}


class CompareQuery(Query, frozen=True):
    """The two runs; without the second one, it is asked for."""

    a: int
    b: int | None = None
    # Also what is the same in both.
    all: bool = False


def show_comparison(call: Call) -> Answer:
    """The differences, or the runs that could be compared with the first one."""
    asked: CompareQuery = call.query
    if asked.b is None:
        return _choose(call, asked.a)
    found = call.service.details.compare(asked.a, asked.b)
    title = f"Run {asked.a} and run {asked.b}"
    swap = ui.button_link("Swap", f"/compare?a={asked.b}&b={asked.a}")
    other = ui.button_link("Another run", f"/compare?a={asked.a}")
    content = [
        heading(title, swap, other, over=ui.link("Runs", "runs")),
        _summary(found),
        _steps(found, shows_all=asked.all),
        _inputs(found, shows_all=asked.all),
        _text(found),
    ]
    return page(call, title, element("div", *content, class_="compare"), section="runs", styles=("run_tabs.css",))


# -- choosing --------------------------------------------------------------------------------------------------------


def _choose(call: Call, a: int) -> Answer:
    record = call.service.runs.record(a)
    found = call.service.runs.page(RunQuery(workflows=(record.workflow,), limit=OFFERED + 1))
    others = [one for one in found.runs if one.run_id != a][:OFFERED]
    rows = [
        ui.row(
            ui.name_cell(element("a", f"Run {one.run_id}", href=f"/compare?a={a}&b={one.run_id}")),
            ui.status(one.status),
            one.failure.text if one.failure else one.reason,
            time_element(one.created_at),
            format_elapsed(one.seconds),
            id=f"run-{one.run_id}",
        )
        for one in others
    ]
    about = {"min": 1, "required": True, "placeholder": "Number of a run", "aria_label": "Other run"}
    fields = (
        hidden_fields(a=a),
        element("input", type="number", name="b", **about),
        element("button", "Compare", type="submit", class_="primary"),
    )
    form = element("form", *fields, method="get", action="/compare", class_="filters")
    titles = ("Run", "Status", ui.Column("Why", "muted"), ui.Column("Started", "time"), ui.figure("Took"))
    shown: Html = empty("There is no other run of this workflow.")
    if rows:
        shown = ui.table(titles, rows, label=f"Other runs of {record.workflow}", keyed=True)
    return page(
        call,
        f"Compare run {a}",
        heading(f"Compare run {a} with", over=ui.link(record.workflow, "runs", a)),
        form,
        shown,
        section="runs",
        styles=("run_tabs.css",),
    )


# -- the two runs ----------------------------------------------------------------------------------------------------


def _summary(found: RunComparison) -> Html:
    inputs = sum(1 for one in found.inputs if one.differs)
    said = [
        f"{pluralize(found.differing, 'step')} of {found.step_total:,} went differently"
        if found.differing
        else "all steps went the same way",
        f"{pluralize(inputs, 'input')} differ{'s' if inputs == 1 else ''}" if inputs else "the inputs are the same",
        "the definition differs" if found.text_kind else "the definition is the same",
    ]
    sentence = element("p", "; ".join(said) + ".", class_="sentence", id="differences")
    return element("div", sentence, element("div", _run(found.a), _run(found.b), class_="two-runs"))


def _run(run: ComparedRun) -> Html:
    name = ui.link(f"Run {run.run_id}", "runs", run.run_id)
    which = f"version {run.published}" if run.published else f"definition {run.version[:8]}"
    words = ui.muted(f"{run.workflow}, {which}, {pluralize(run.step_count, 'step')}")
    return element("p", element("strong", name), ui.status(run.status), words)


def _steps(found: RunComparison, *, shows_all: bool) -> Html:
    chosen = [one for one in found.steps if shows_all or one.differences or one.is_changed]
    rows = [_step_row(found, one) for one in chosen]
    time, differs = ui.Column("Time", "nowrap"), ui.Column("Differs in", "muted")
    titles = ("Step", f"Run {found.a.run_id}", f"Run {found.b.run_id}", time, differs)
    body = ui.table(titles, rows, label="Steps", keyed=True) if rows else empty("No step went differently.")
    parts: list[object] = [body]
    if found.step_total > len(found.steps) and shows_all:
        parts.append(ui.note(f"the first {len(found.steps):,} of {found.step_total:,} steps"))
    if found.unmeasured:
        runs = " and ".join(f"run {one}" for one in found.unmeasured)
        parts.append(ui.note(f"Durations are left out: the log of {runs} is too long to add them up."))
    toggle = element(
        "a",
        "Show only what differs" if shows_all else "Show everything",
        href=f"/compare?a={found.a.run_id}&b={found.b.run_id}{'' if shows_all else '&all=true'}",
    )
    return panel("Steps", *parts, name="steps", beside=toggle)


def _step_row(found: RunComparison, one: ComparedStep) -> ui.Row:
    words = [_WORDS[name] for name in one.differences] + (["definition"] if one.is_changed else [])
    outcomes = (join_html(_outcome(run.run_id, line)) for run, line in ((found.a, one.a), (found.b, one.b)))
    times = _times(one.seconds_a, one.seconds_b)
    return ui.row(ui.name_cell(one.name), *outcomes, times, ", ".join(words), id=f"step-{one.name}")


def _outcome(run_id: int, line: StepLine | None) -> Iterator[Html]:
    if line is None:
        yield ui.muted("not there")
        return
    yield ui.status(line.status, ui.step_link(run_id, line.name, status_label(line.status)))
    if line.attempts > 1:
        yield element("small", f" {line.attempts} attempts")
    if line.failure:
        yield element("p", line.failure, class_="grid-failure", title=line.failure)


def _times(a: float | None, b: float | None) -> Html:
    if a is None and b is None:
        return Html("")
    one, other = ("none" if value is None else format_elapsed(value) for value in (a, b))
    change = ""
    if a and b and max(a, b) >= 0.1:
        percent = round((b - a) / a * 100)
        change = f" {percent:+,}%" if percent else ""
    return join_html([f"{one} → {other}", element("small", change)])


def _inputs(found: RunComparison, *, shows_all: bool) -> Html:
    if not found.inputs:
        return Html("")
    chosen = [one for one in found.inputs if shows_all or one.differs]
    rows = [_input_row(one) for one in chosen]
    titles = ("Input", f"Run {found.a.run_id}", f"Run {found.b.run_id}")
    body = ui.table(titles, rows, label="Inputs") if rows else empty("All inputs are the same.")
    return panel("Inputs", body, name="inputs")


def _input_row(one: ValuePair) -> ui.Row:
    given = ((one.a, one.in_a), (one.b, one.in_b))
    values = (value_tree(value) if is_there else ui.muted("not given") for value, is_there in given)
    return ui.row(ui.name_cell(one.name), *values, class_="differs" if one.differs else None)


def _text(found: RunComparison) -> Html:
    if not found.text_kind:
        return Html("")
    compared = (
        f"version {found.a.published} → version {found.b.published}"
        if found.text_kind == "published"
        else "as it was read; comments and layout of the file are not known"
    )
    more = ui.note("There is more; only the beginning is shown.") if found.has_more_text else ""
    same = element("p", "The texts differ in nothing that is read.", class_="muted")
    shown = diff(found.text, "Difference of the definitions") if found.text else same
    return panel("Definition", shown, more, name="definition", beside=element("small", compared))


ROUTES = (page_route("/compare", show_comparison, "What differs between two runs.", query=CompareQuery, is_slow=True),)

"""Usage: what steps ask for and use, and what agents cost."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec

from mulligan.api.http.routing import Answer, Call, Query
from mulligan.dashboard.components.parts import chips
from mulligan.dashboard.components.shell import empty, heading, page, page_route, panel
from mulligan.errors import InputInvalid
from mulligan.service.rendering.descriptions import describe_spending
from mulligan.service.rendering.formatting import format_duration, format_size, pluralize
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.runs.statistics.trends import Spending
from mulligan.service.runs.statistics.usage import StepUsage

# The page without a choice looks at so many workflows, and reads so many events of each.
_OVERVIEW_MAX, _OVERVIEW_EVENTS, _OVERVIEW_RUNS = 8, 4_000, 5
_DAYS = ((7, "7 days"), (30, "30 days"), (90, "90 days"))
_WIDTH = 90


class UsageQuery(Query, frozen=True):
    """Of a run, or of the newest runs of a workflow; and of how many days the cost is."""

    run: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None = None
    workflow: str = ""
    days: Annotated[int, msgspec.Meta(ge=1, le=366)] = 30


def show_usage(call: Call) -> Answer:
    asked: UsageQuery = call.query
    if asked.run is not None and asked.workflow:
        raise InputInvalid("'workflow' cannot be combined with 'run'", hint="leave one of them out", parameter="run")
    if asked.run is not None:
        return _of_run(call, asked.run)
    if asked.workflow:
        return _of_workflow(call, asked.workflow)
    return _overview(call, asked)


def _overview(call: Call, asked: UsageQuery) -> Answer:
    names = call.service.trends.workflows()
    choices = [(name, ui.link_with("/usage", workflow=name), False) for name in names[:60]]
    return page(
        call,
        "Usage",
        heading("Usage"),
        panel("Steps that ask for too much or too little", _advice(call, names), name="advice"),
        _cost(call.service.trends.spending(datetime.now(UTC), days=asked.days), asked),
        panel("Each workflow", chips("Workflow", choices), name="workflows") if names else "",
        section="usage",
    )


def _advice(call: Call, names: list[str]) -> Html:
    """The steps of the workflows with most runs for which there is something better to write."""
    rows = []
    for name in names[:_OVERVIEW_MAX]:
        found = call.service.trends.usage(name, runs=_OVERVIEW_RUNS, events_max=_OVERVIEW_EVENTS)
        workflow = element("a", name, href=ui.link_with("/usage", workflow=name))
        rows += [
            ui.row(workflow, element("strong", one.step), _why(one), _better(one))
            for one in found.usage
            if one.proposals
        ]
    if not rows:
        return empty("Nothing to change: what was measured fits what was asked for." if names else "No runs yet.")
    seen = f"Of the newest runs of {pluralize(min(len(names), _OVERVIEW_MAX), 'workflow')}."
    head = ("Workflow", "Step", "Why", "Better in the file")
    return join_html([ui.table(head, rows, label="Steps to change", keyed=True), ui.note(seen)])


# -- of a run, of a workflow -----------------------------------------------------------------------------------------


def _of_run(call: Call, run_id: int) -> Answer:
    found = call.service.runs.usage(run_id)
    over = join_html([ui.link("Usage", "usage"), " / ", ui.run_link(run_id)])
    return page(
        call,
        f"Usage of run {run_id}",
        heading(f"What run {run_id} used", over=over),
        _steps(found),
        section="usage",
        live=f"run:{run_id}",
    )


def _of_workflow(call: Call, workflow: str) -> Answer:
    found = call.service.trends.usage(workflow)
    notes = []
    if found.run_ids:
        runs = join_html([element("a", one, href=ui.link_with("/usage", run=one)) for one in found.run_ids], ", ")
        notes = ["The newest ", pluralize(len(found.run_ids), "run"), " together: ", runs, "."]
    if found.left_out:
        notes.append(f" {pluralize(found.left_out, 'large run')} left out: look at them one by one.")
    return page(
        call,
        f"Usage of {workflow}",
        heading(
            join_html(["What ", ui.link(workflow, "workflows", workflow), " uses"]), over=ui.link("Usage", "usage")
        ),
        element("p", *notes, class_="sentence lead") if notes else "",
        _steps(found.usage),
        section="usage",
    )


def _steps(found: list[StepUsage]) -> Html:
    if not found:
        return empty("Nothing was measured: no step has ended yet.")
    rows = [
        ui.row(
            join_html([element("strong", one.step), _parts(one)]),
            _memory(one),
            _cpus(one),
            _time(one),
            _why(one) if one.proposals else ui.muted("fits"),
            _better(one),
        )
        for one in found
    ]
    head = ("Step", "Memory", "CPUs", "Longest", "What to change", "Better in the file")
    return ui.table(head, rows, label="Asked for and used, by step", keyed=True)


def _parts(one: StepUsage) -> Html:
    words = [pluralize(one.attempts, "attempt")]
    if one.parts > 1:
        words.append(f"{one.parts:,} parts")
    if one.used.tokens:
        words.append(f"{one.used.tokens:,} tokens")
    return join_html([element("br"), element("small", ", ".join(words))])


def _memory(one: StepUsage) -> Html:
    used, asked = one.used.memory, one.asked.memory
    trouble = f"{pluralize(one.used.out_of_memory, 'attempt')} ran out" if one.used.out_of_memory else ""
    return _compare(used, asked, format_size(used) if used else "", format_size(asked) if asked else "", trouble)


def _cpus(one: StepUsage) -> Html:
    used, asked = one.used.cpus, one.asked.cpus
    return _compare(used, asked, f"{used:.1f}" if used else "", f"{asked:g}" if asked else "", "")


def _time(one: StepUsage) -> Html:
    used, asked = one.used.longest_seconds, one.asked.timeout
    counts = ((one.used.timed_out, "timed out"), (one.used.hung, "hung"), (one.used.killed, "killed"))
    trouble = ", ".join(f"{count:,} {what}" for count, what in counts if count)
    return _compare(
        used, asked, format_duration(used) if used else "", format_duration(asked) if asked else "", trouble
    )


def _compare(used: float | None, asked: float | None, used_text: str, asked_text: str, trouble: str) -> Html:
    """What was used as a bar in the room that was asked for, with the figures below."""
    words = f"{used_text or 'not measured'}{f' of {asked_text}' if asked_text else ''}"
    parts: list[object] = []
    if used and asked:
        share = used / asked
        tone = "bad" if share > 1 or trouble else "try" if share > 0.9 else "good" if share >= 0.5 else "idle"
        parts += [ui.gauge(share, tone, width=_WIDTH), element("br")]
    parts.append(element("small", words, class_="nowrap"))
    if trouble:
        parts += [element("br"), ui.status("failed", trouble)]
    return join_html(parts)


_TONES = {"ran_out": "bad", "close": "try", "too_much": "idle", "not_asked": "idle"}
_WORDS = {"ran_out": "too little", "close": "close to the limit", "too_much": "too much", "not_asked": "not asked for"}


def _why(one: StepUsage) -> Html:
    return join_html(
        element(
            "div",
            ui.status("", f"{each.what}: {_WORDS.get(each.why, each.why)}", tone=_TONES.get(each.why, "idle")),
            element("small", f" {each.text}"),
        )
        for each in one.proposals
    )


def _better(one: StepUsage) -> Html:
    lines = [f"{name}: {text}" for name, text in one.write.items()]
    if not lines:
        return join_html([])
    copy = element("button", "Copy", type="button", class_="quiet", data_copy="\n".join(lines))
    return element("span", *(element("code", line) for line in lines), copy, class_="written")


# -- agents ----------------------------------------------------------------------------------------------------------


def _cost(found: Spending, asked: UsageQuery) -> Html:
    days = chips("Time", [(text, ui.link_with("/usage", days=number), number == asked.days) for number, text in _DAYS])
    if not found.workflows:
        return panel("What agents cost", days, empty("No agent has spent anything in this time."), name="cost")
    rows = [
        ui.row(
            ui.link(one.workflow, "workflows", one.workflow),
            f"{one.runs:,}",
            describe_spending(one.spent),
            join_html([ui.run_link(one.largest_run_id), " ", element("small", describe_spending(one.largest))]),
        )
        for one in found.workflows
    ]
    total = element("p", "Together: ", element("strong", describe_spending(found.total)), class_="sentence")
    cut = ui.note(f"Of the newest {found.runs:,} runs.") if found.is_cut else ""
    head = ("Workflow", ui.figure("Runs"), "Spent", "Most in one run")
    return panel("What agents cost", days, total, ui.table(head, rows, label="What agents cost"), cut, name="cost")


ROUTES = (
    page_route(
        "/usage", show_usage, "What steps ask for and use, and what agents cost.", query=UsageQuery, is_sum=True
    ),
)

"""What fails now, who waits, what is due, and how the last days went."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC

from mulligan.api.http.routing import Answer, Call
from mulligan.dashboard.components.cookies import seen_cookie, seen_until, seen_value, zone_of
from mulligan.dashboard.components.shell import empty, heading, page, page_route, panel, path_to_entry
from mulligan.dashboard.runs.runs import runs_path
from mulligan.service.driving.workers import WorkerLine
from mulligan.service.host.breakers import Breaker
from mulligan.service.rendering.formatting import pluralize
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import time_element
from mulligan.service.runs.statistics.recent_runs import Day, Failing, FailingGroup, WaitingRuns, WorkflowDays
from mulligan.service.runs.views.run_list import RunLine
from mulligan.service.server.schedules.schedules import ScheduleView

# How much of each list is shown; the rest has a page of its own.
WAITING_MAX, SCHEDULES_MAX, WORKERS_MAX, WORKFLOWS_MAX = 6, 6, 8, 15
# Outcomes of runs from the bottom of a bar to its top, and their tones.
OUTCOMES = {
    "completed": ("completed", "good"),
    "degraded": ("completed, with failures that were handled", "try"),
    "cancelled": ("cancelled", "idle"),
    "running": ("running", "now"),
    "paused": ("paused", "ask"),
    "failed": ("failed", "bad"),
}
BAR_WIDTH, BAR_GAP, BAR_HEIGHT = 16, 4, 30
# A bar is full from so many runs on: a single run on a quiet day is no tower.
LOW_BAR = 4


def show_home(call: Call) -> Answer:
    service = call.service
    recent = service.recent_runs
    failing, waiting = recent.failing(seen_until(call)), recent.waiting(WAITING_MAX)
    history = recent.history(zone_of(call))
    breakers = [one for one in service.machine.list_breakers() if one.status != "closed"]
    workers = [one for one in service.machine.list_workers() if one.runs_tasks]
    schedules = service.schedules.all()
    content: list[object] = [heading(_headline(failing, waiting, breakers, is_idle=_is_idle(workers, history)))]
    if not history and not failing.groups and not waiting.runs:
        content.append(_welcome())
    content += [
        _failing(call, failing) if failing.groups else "",
        element("div", _waiting(waiting), _breakers(breakers), class_="columns") if waiting.runs or breakers else "",
        _history(history) if history else "",
        element("div", _workers(workers), _schedules(schedules), class_="columns"),
    ]
    return page(call, "Home", *content, section="home", live="runs,pending", modules=("home.js",), styles=("home.css",))


def _is_idle(workers: list[WorkerLine], history: list[WorkflowDays]) -> bool:
    """Whether runs wait, and nobody works."""
    return not any(one.is_alive for one in workers) and any("running" in one.outcomes for one in history)


def _headline(failing: Failing, waiting: WaitingRuns, breakers: list[Breaker], *, is_idle: bool) -> str:
    """What needs somebody, in one sentence."""
    failed = len({one.workflow for one in failing.groups if one.completed is None})
    parts = []
    if failed:
        parts.append("1 workflow fails" if failed == 1 else f"{failed} workflows fail")
    if over := sum(one.recent_count for one in failing.groups if one.completed is not None):
        later = "a later one" if over == 1 else "later ones"
        parts.append(f"{pluralize(over, 'run')} failed and {later} completed")
    if waiting.run_count:
        verb = "waits" if waiting.run_count == 1 else "wait"
        parts.append(f"{pluralize(waiting.run_count, 'run')} {verb} for a person")
    if breakers:
        parts.append(f"{pluralize(len(breakers), 'circuit breaker')} open")
    if is_idle:
        parts.append("no worker is here")
    sentence = ", ".join(parts) if parts else "nothing needs you"
    return sentence[0].upper() + sentence[1:]


def _welcome() -> Html:
    button = ui.button_link("Publish a workflow and start it", "/workflows", "primary")
    command = element("code", "mulligan run FILE")
    return empty("No run in the last 14 days.", element("p", button), ui.note("or in a terminal: ", command))


# -- what fails ------------------------------------------------------------------------------------------------------


def _failing(call: Call, failing: Failing) -> Html:
    now = [one for one in failing.groups if one.completed is None]
    recent = [one for one in failing.groups if one.completed is not None and one.recent_count]
    over = [one for one in failing.groups if one.completed is not None and not one.recent_count]
    parts: list[object] = []
    if now:
        parts.append(_failing_table(now, "Failing workflows"))
    if recent:
        parts += _recent(call, recent)
    if not now and not recent:
        parts.append(element("p", "Every workflow that failed has completed since.", class_="muted"))
    if over:
        words = "failure" if len(over) == 1 else "failures"
        title = f"{len(over):,} {'older ' if recent else ''}{words} of workflows that have completed since"
        parts.append(ui.details(title, _failing_table(over, "Completed since"), kind="over-now", id="over"))
    if failing.is_cut:
        more = element("a", "all failed runs", href=runs_path(status="failed"))
        parts.append(ui.note("The newest are shown; see ", more, "."))
    all_failed = element("a", "All failed runs", href=runs_path(status="failed", since="14d"))
    return panel("Failing now" if now else "Failures", *parts, name="failing", beside=all_failed)


def _recent(call: Call, groups: list[FailingGroup]) -> list[object]:
    """What failed in the night, or over the weekend, though the next run completed: nobody has run it again."""
    newest = max(one.run.updated_at for one in groups)
    button = element(
        "button",
        "Mark as seen",
        type="button",
        data_seen=seen_value(newest),
        data_cookie=seen_cookie(call),
        title="Fold them away in this browser, until something else fails",
    )
    words = "Later runs have completed. What these had to do may still be missing: open one to retry it."
    title = "Failed in the last 3 days"
    head = element("div", element("h3", title), button, class_="panel-head")
    return [element("div", head, ui.note(words), _failing_table(groups, title), class_="recent", id="recent")]


def _failing_table(groups: list[FailingGroup], label: str) -> Html:
    kinds = ("workflow", "nowrap", "what", "runs", "newest")
    head = map(ui.Column, ("Workflow", "Failure", "What happened", "Runs", "Newest"), kinds)
    return ui.table(head, map(_failing_row, groups), label=label, keyed=True)


def _failing_row(group: FailingGroup) -> ui.Row:
    run, failure = group.run, group.run.failure
    what: object = run.reason
    if failure is not None:
        what = join_html([ui.step_link(run.run_id, failure.step), ": ", failure.text])
    # Of what has completed since, those count that nobody may have seen.
    is_recent = group.completed is not None and group.recent_count > 0
    count = group.recent_count if is_recent else group.count
    span = "3d" if is_recent else "14d"
    runs = runs_path(workflow=group.workflow, failure=group.code, status="failed", since=span)
    since = ""
    if group.completed is not None:
        done = ui.link(f"run {group.completed.run_id}", "runs", group.completed.run_id)
        since = element("small", "completed since: ", done, " ", time_element(group.completed.updated_at))
    elif group.count > 1:
        since = element("small", "since ", time_element(group.first_at))
    return ui.row(
        ui.link(group.workflow, "runs", run.run_id),
        ui.status("failed", group.code or "failed"),
        what,
        element("a", f"{count:,}", href=runs, aria_label=pluralize(count, "failed run")),
        join_html([time_element(run.updated_at), element("small", f" run {run.run_id}"), since]),
        id=f"failing-{group.workflow}-{group.code}",
    )


# -- who waits -------------------------------------------------------------------------------------------------------


def _waiting(waiting: WaitingRuns) -> Html | str:
    if not waiting.runs:
        return ""
    lines = [element("li", *_waiting_line(run), id=f"waiting-{run.run_id}") for run in waiting.runs]
    more = waiting.run_count - len(waiting.runs)
    return panel(
        "Waiting for a person",
        element("ul", *lines, class_="plain-list", data_rows=True),
        ui.note(f"and {pluralize(more, 'run')} more") if more > 0 else "",
        name="waiting",
        beside=ui.button_link("Open the inbox", "/inbox", "primary"),
    )


def _waiting_line(run: RunLine) -> Iterator[object]:
    asked = [one for one in run.waiting_for if one.kind in ("triage", "approval", "step_pause", "pause")]
    first = asked[0] if asked else None
    path = ui.path_to("runs", run.run_id)
    if first and first.kind in ("triage", "approval"):
        path = path_to_entry(first.run_id, first.place.partition(".")[0])
    yield element("span", element("a", run.workflow, href=path, class_="strong"), element("small", f" {run.run_id}"))
    yield element("span", first.text if first else run.status, class_="words")
    yield element("small", "started ", time_element(run.created_at))


def _breakers(breakers: list[Breaker]) -> Html | str:
    if not breakers:
        return ""
    lines = []
    for one in breakers:
        held = f"{pluralize(one.waiting, 'task')} {'waits' if one.waiting == 1 else 'wait'}"
        again = element("small", "tries again ", time_element(one.retry_at)) if one.retry_at else ""
        why = f"{one.status.replace('_', ' ')} after {pluralize(one.failures, 'failure')}; {held}"
        name = ui.status("failed", one.name, tone="bad strong")
        lines.append(element("li", name, element("span", why, class_="words"), again, id=f"breaker-{one.name}"))
    recovery = ui.link("Recovery", "recovery")
    return panel("Circuit breakers open", element("ul", *lines, class_="plain-list"), name="breakers", beside=recovery)


# -- who works, and what is due --------------------------------------------------------------------------------------


def _workers(workers: list[WorkerLine]) -> Html:
    all_workers = ui.link("All workers", "workers")
    if not workers:
        words = ("No worker is here, so nothing runs. Start one: ", element("code", "mulligan worker"))
        return panel("Workers", element("p", *words, class_="problem"), name="workers", beside=all_workers)
    shown = sorted(workers, key=lambda one: (one.is_alive, -one.in_use.cpus, one.name))[:WORKERS_MAX]
    lines = [_worker_line(one) for one in shown]
    if len(workers) > len(shown):
        lines.append(element("li", ui.link(f"and {len(workers) - len(shown)} more", "workers")))
    return panel("Workers", element("ul", *lines, class_="plain-list loads"), name="workers", beside=all_workers)


def _worker_line(worker: WorkerLine) -> Html:
    used, all_ = worker.in_use.cpus, worker.capacity.cpus
    bar = ui.gauge(used / all_ if all_ else 0.0, "now" if worker.is_alive else "bad", width=100, height=6)
    said = f"{used:g} of {all_:g} cpus" if worker.is_alive else "does not answer"
    return element(
        "li",
        element("span", worker.host, " ", element("small", worker.name), class_="words"),
        bar,
        element("span", said, class_="took" if worker.is_alive else "problem"),
        element("small", pluralize(len(worker.tasks), "task")),
        id=f"worker-{worker.name}",
    )


def _schedules(schedules: list[ScheduleView]) -> Html:
    all_schedules = ui.link("All schedules", "schedules")
    paused = [one for one in schedules if one.is_paused]
    due = sorted((one for one in schedules if one.next), key=lambda one: one.next[0])[:SCHEDULES_MAX]
    if not schedules:
        nothing = element("p", "There is no schedule.", class_="muted")
        return panel("Due next", nothing, name="due", beside=all_schedules)
    lines = [
        element(
            "li",
            ui.link(one.name, "schedules", one.name, class_="strong"),
            element("span", one.workflow, class_="words muted") if one.workflow != one.name else element("span"),
            element("span", time_element(one.next[0]), class_="took"),
            element("small", f"failed {one.failures} times in a row", class_="problem") if one.failures > 1 else "",
            id=f"due-{one.name}",
        )
        for one in due
    ]
    if paused:
        names = join_html([ui.link(one.name, "schedules", one.name) for one in paused[:5]], ", ")
        lines.append(element("li", element("span", "paused: ", names, class_="status ask"), id="paused-schedules"))
    return panel("Due next", element("ul", *lines, class_="plain-list due"), name="due", beside=all_schedules)


# -- the last days ---------------------------------------------------------------------------------------------------


def _history(history: list[WorkflowDays]) -> Html:
    shown = history[:WORKFLOWS_MAX]
    days = shown[0].days
    axis = element(
        "div",
        element("span"),
        element("span", _day_name(days[0]), element("span", "today"), class_="ends"),
        element("span"),
        class_="strip head",
        aria_hidden="true",
    )
    used = {name for one in shown for name in one.outcomes}
    more = len(history) - len(shown)
    return panel(
        "Last 14 days",
        ui.legend((tone, title) for name, (title, tone) in OUTCOMES.items() if name in used),
        axis,
        *(_strip(one) for one in shown),
        ui.note("and ", ui.link(f"{more:,} more", "workflows")) if more > 0 else "",
        name="days",
    )


def _day_name(day: Day) -> Html:
    return element("time", f"{day.begin:%a %d %b}", datetime=day.begin.astimezone(UTC).isoformat(), data_show="day")


def _strip(one: WorkflowDays) -> Html:
    """A workflow: a bar for each day, by outcome."""
    counts = one.outcomes
    highest = max(LOW_BAR, *(day.total for day in one.days))
    width = len(one.days) * (BAR_WIDTH + BAR_GAP) - BAR_GAP
    bars = [_bar(one.workflow, day, number, highest) for number, day in enumerate(one.days)]
    failed, total = counts.get("failed", 0), sum(counts.values())
    since = one.days[0].begin.astimezone(UTC).isoformat()
    words: list[object] = [element("a", pluralize(total, "run"), href=runs_path(workflow=one.workflow, since=since))]
    if failed:
        path = runs_path(workflow=one.workflow, status="failed", since=since)
        words += [", ", element("a", f"{failed:,} failed", href=path, class_="failed")]
    about = {"preserveAspectRatio": "none", "role": "group", "aria_label": f"{one.workflow}, by day"}
    return element(
        "div",
        ui.link(one.workflow, "workflows", one.workflow, class_="name"),
        element("svg", *bars, class_="days", viewBox=f"0 0 {width} {BAR_HEIGHT}", **about),
        element("span", *words, class_="took"),
        class_="strip",
        id=f"days-{one.workflow}",
    )


def _bar(workflow: str, day: Day, number: int, highest: int) -> Html:
    left = number * (BAR_WIDTH + BAR_GAP)
    ground = element("rect", x=left, y=BAR_HEIGHT - 1, width=BAR_WIDTH, height=1, class_="ground")
    if not day.total:
        return ground
    parts, top = [], float(BAR_HEIGHT)
    for name, (_, tone) in OUTCOMES.items():
        if count := day.outcomes.get(name, 0):
            # What happened once among many must be seen, too.
            height = max(2.5, BAR_HEIGHT * count / highest)
            top = max(0.0, top - height)
            parts.append(element("rect", x=left, y=f"{top:.1f}", width=BAR_WIDTH, height=f"{height:.1f}", class_=tone))
    said = ", ".join(f"{day.outcomes[name]:,} {name}" for name in OUTCOMES if name in day.outcomes)
    label = f"{day.begin:%A %d %B}: {said}"
    begin, end = (at.astimezone(UTC).isoformat() for at in (day.begin, day.end))
    return element(
        "a",
        element("title", label),
        element("rect", x=left, y=0, width=BAR_WIDTH, height=BAR_HEIGHT, class_="hit"),
        *parts,
        href=runs_path(workflow=workflow, since=begin, until=end),
        aria_label=label,
        # Fourteen stops for each workflow would be too many: those with failures are reached with the keyboard.
        tabindex=None if day.outcomes.get("failed") else "-1",
    )


ROUTES = (page_route("/", show_home, "What fails now, who waits, what is due, and how the last days went."),)

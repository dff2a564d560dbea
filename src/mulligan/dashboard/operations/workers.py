"""Workers: how busy each is and what it runs; and whether the machine of the server is well."""

from __future__ import annotations

from dataclasses import replace

from mulligan.api.http.routing import Answer, Call, Route
from mulligan.dashboard.components.parts import figure, moment, run_link
from mulligan.dashboard.components.shell import HTML, empty, heading, may, page, page_route, panel, path_to, table
from mulligan.service.driving.workers import WorkerLine, WorkerTask
from mulligan.service.host.doctor import Check, Diagnosis
from mulligan.service.rendering.formatting import format_size, pluralize
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import format_elapsed

_SECTION, _STYLES = "workers", ("operations.css",)
_TASKS_MAX = 50
_WIDTH = 120
_TASK_HEAD = ("Run", "Step", *(figure(one) for one in ("Attempt", "CPUs", "Memory", "For")))


def show_workers(call: Call) -> Answer:
    found = call.service.machine.list_workers()
    working = sorted((one for one in found if one.runs_tasks), key=lambda one: (one.is_alive, one.name))
    others = [one for one in found if not one.runs_tasks]
    doctor = element("a", "Examine the server", href="/workers/doctor", class_="button") if _may_examine(call) else ""
    hint = element(
        "p", "Start one on any machine that reaches the store: ", element("code", "mulligan worker"), class_="note"
    )
    return page(
        call,
        "Workers",
        heading("Workers", doctor),
        element("p", _sentence(working), class_="sentence lead")
        if working
        else empty("No worker runs tasks now.", hint),
        *(_worker(one) for one in working),
        _others(others),
        section=_SECTION,
        live="runs",
        styles=_STYLES,
    )


def _may_examine(call: Call) -> bool:
    return may(call, "admin") and not call.token.project


def _sentence(working: list[WorkerLine]) -> str:
    alive = [one for one in working if one.is_alive]
    used, most = sum(one.in_use.cpus for one in alive), sum(one.capacity.cpus for one in alive)
    tasks = pluralize(sum(len(one.tasks) for one in alive), "task")
    silent = len(working) - len(alive)
    words = f"{pluralize(len(alive), 'worker')} with {most:g} cpus, {used:g} in use; {tasks} running."
    return words + (f" {silent} silent: another worker takes over what it had." if silent else "")


def _worker(one: WorkerLine) -> Html:
    state = (
        element("span", "working" if one.tasks else "free", class_=f"status {'now' if one.tasks else 'good'}")
        if one.is_alive
        else element("span", "silent", class_="status bad")
    )
    beside = join_html([state, " ", _seen(one)])
    loads = [_load("cpus", one.in_use.cpus, one.capacity.cpus, f"{one.in_use.cpus:g} of {one.capacity.cpus:g}")]
    if one.capacity.memory:
        words = f"{format_size(one.in_use.memory)} of {format_size(one.capacity.memory)}"
        loads.append(_load("memory", one.in_use.memory, one.capacity.memory, words))
    if one.capacity.gpus:
        loads.append(_load("gpus", one.in_use.gpus, one.capacity.gpus, f"{one.in_use.gpus} of {one.capacity.gpus}"))
    facts = [f"{one.host}, process {one.pid}"]
    if one.job_text:
        facts.append(one.job_text)
    if one.labels:
        facts.append(f"labels {', '.join(one.labels)}")
    if one.runs:
        facts.append(f"drives {pluralize(one.runs, 'run')}")
    return element(
        "section",
        element("div", element("h2", one.name), element("span", beside, class_="muted"), class_="panel-head"),
        element("p", ", ".join(facts), class_="note"),
        element("dl", *loads, class_="loads"),
        _tasks(one.tasks),
        class_=f"panel{'' if one.is_alive else ' bad'}",
        id=f"worker-{one.name}",
        aria_label=one.name,
    )


def _seen(one: WorkerLine) -> Html:
    seen = ["heartbeat ", moment(one.last_contact)] if one.last_contact else []
    since = [", started ", moment(one.started_at)] if one.started_at else []
    return join_html([*seen, *since])


def _load(what: str, used: float, most: float, words: str) -> Html:
    share = min(used / most, 1.0) if most else 0.0
    bar = element(
        "svg",
        element("rect", x=0, y=0, width=_WIDTH, height=8, rx=2, class_="room"),
        element("rect", x=0, y=0, width=round(_WIDTH * share, 1), height=8, rx=2, class_="now") if share else "",
        class_="share",
        viewBox=f"0 0 {_WIDTH} 8",
        width=_WIDTH,
        height=8,
        aria_hidden="true",
    )
    return element("div", element("dt", what), element("dd", bar, " ", words))


def _tasks(tasks: list[WorkerTask]) -> Html | str:
    if not tasks:
        return ""
    rows = [
        element(
            "tr",
            element(
                "td", element("a", one.workflow, href=path_to("workflows", one.workflow)), " ", run_link(one.run_id)
            ),
            element(
                "td", element("a", one.name, href=path_to("runs", one.run_id, "steps", one.step.partition("[")[0]))
            ),
            element("td", one.attempt, class_="n"),
            element("td", f"{one.cpus:g}", class_="n"),
            element("td", format_size(one.memory) if one.memory else "-", class_="n"),
            element("td", "-" if one.seconds is None else format_elapsed(one.seconds), class_="n"),
        )
        for one in tasks[:_TASKS_MAX]
    ]
    more = element("p", f"and {len(tasks) - _TASKS_MAX:,} more", class_="note") if len(tasks) > _TASKS_MAX else ""
    return join_html([table(_TASK_HEAD, rows, label="What it runs now"), more])


def _others(others: list[WorkerLine]) -> Html | str:
    if not others:
        return ""
    rows = [
        element(
            "tr",
            element("td", one.name),
            element("td", one.host),
            element("td", "alive" if one.is_alive else "silent"),
            element("td", _seen(one)),
        )
        for one in others
    ]
    return panel(
        "Processes that run no tasks",
        table(("Name", "Host", "State", "Seen"), rows, label="Other processes"),
        name="others",
    )


# -- doctor ----------------------------------------------------------------------------------------------------------


def show_doctor(call: Call) -> Answer:
    if not _may_examine(call):
        words = "A token of one project may not examine the server. Ask who runs it."
        top = heading("Doctor", over=element("a", "Workers", href="/workers"))
        return replace(page(call, "Doctor", top, empty(words), section=_SECTION, styles=_STYLES), status=403)
    found: Diagnosis = call.service.machine.examine_machine()
    ordered = sorted(found.checks, key=lambda one: ("problem", "warning", "ok").index(one.health))
    problems = sum(one.health == "problem" for one in found.checks)
    warnings = sum(one.health == "warning" for one in found.checks)
    words = (
        f"{pluralize(problems, 'problem')}, {pluralize(warnings, 'warning')}" if problems or warnings else "all is well"
    )
    tone = "bad" if problems else "try" if warnings else "good"
    return page(
        call,
        "Doctor",
        heading(
            join_html(["Doctor", element("span", words, class_=f"badge {tone}")]),
            element("a", "Examine again", href="/workers/doctor", class_="button"),
            over=element("a", "Workers", href="/workers"),
        ),
        element("p", "The machine of the server, and its store, checked just now.", class_="sentence lead"),
        table(("Check", "Result", "What was found, and what to do"), [_check(one) for one in ordered], label="Checks"),
        section=_SECTION,
        styles=_STYLES,
    )


def _check(one: Check) -> Html:
    tone = {"problem": "bad", "warning": "try"}.get(one.health, "good")
    advice = element("p", one.advice, class_="note") if one.advice else ""
    return element(
        "tr",
        element("td", element("strong", one.name)),
        element("td", element("span", one.health, class_=f"status {tone}")),
        element("td", one.found, advice),
    )


ROUTES = (
    page_route("/workers", show_workers, "The workers: how busy each is, and what it runs."),
    # It runs a step of its own, which takes a second.
    Route(
        "GET", "/workers/doctor", show_doctor, "admin", "Checks of the server.", media=HTML, is_page=True, is_slow=True
    ),
)

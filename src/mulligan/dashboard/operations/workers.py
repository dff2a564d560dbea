"""Workers: how busy each is and what it runs; and whether the machine of the server is well."""

from __future__ import annotations

from dataclasses import replace

from mulligan.api.http.routing import Answer, Call, Route
from mulligan.dashboard.components.shell import HTML, empty, heading, may, page, page_route, panel
from mulligan.service.driving.workers import WorkerLine, WorkerTask
from mulligan.service.host.doctor import Check, Diagnosis
from mulligan.service.rendering.formatting import format_size, pluralize
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import format_elapsed

_SECTION = "workers"
_TASKS_MAX = 50
_WIDTH = 120
_TASK_HEAD = ("Run", "Step", *(ui.figure(one) for one in ("Attempt", "CPUs", "Memory", "For")))


def show_workers(call: Call) -> Answer:
    found = call.service.machine.list_workers()
    working = sorted((one for one in found if one.runs_tasks), key=lambda one: (one.is_alive, one.name))
    others = [one for one in found if not one.runs_tasks]
    doctor = ui.button_link("Examine the server", "/workers/doctor") if _may_examine(call) else ""
    hint = ui.note("Start one on any machine that reaches the store: ", element("code", "mulligan worker"))
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
    name, tone = ("working", "now") if one.tasks else ("free", "good")
    state = ui.status(name, tone=tone) if one.is_alive else ui.status("silent", tone="bad")
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
        element("div", element("h2", one.name), ui.muted(beside), class_="panel-head"),
        ui.note(", ".join(facts)),
        element("dl", *loads, class_="loads"),
        _tasks(one.tasks),
        class_=f"panel{'' if one.is_alive else ' bad'}",
        id=f"worker-{one.name}",
        aria_label=one.name,
    )


def _seen(one: WorkerLine) -> Html:
    seen = ["heartbeat ", ui.moment(one.last_contact)] if one.last_contact else []
    since = [", started ", ui.moment(one.started_at)] if one.started_at else []
    return join_html([*seen, *since])


def _load(what: str, used: float, most: float, words: str) -> Html:
    bar = ui.gauge(used / most if most else 0.0, "now", width=_WIDTH)
    return element("div", element("dt", what), element("dd", bar, " ", words))


def _tasks(tasks: list[WorkerTask]) -> Html | str:
    if not tasks:
        return ""
    rows = [
        ui.row(
            join_html([ui.link(one.workflow, "workflows", one.workflow), " ", ui.run_link(one.run_id)]),
            ui.step_link(one.run_id, one.step, one.name),
            one.attempt,
            f"{one.cpus:g}",
            format_size(one.memory) if one.memory else "-",
            "-" if one.seconds is None else format_elapsed(one.seconds),
        )
        for one in tasks[:_TASKS_MAX]
    ]
    return join_html([ui.table(_TASK_HEAD, rows, label="What it runs now"), ui.left_out(len(tasks) - _TASKS_MAX)])


def _others(others: list[WorkerLine]) -> Html | str:
    if not others:
        return ""
    rows = (ui.row(one.name, one.host, "alive" if one.is_alive else "silent", _seen(one)) for one in others)
    listed = ui.table(("Name", "Host", "State", "Seen"), rows, label="Other processes")
    return panel("Processes that run no tasks", listed, name="others")


# -- doctor ----------------------------------------------------------------------------------------------------------


def show_doctor(call: Call) -> Answer:
    if not _may_examine(call):
        words = "A token of one project may not examine the server. Ask who runs it."
        top = heading("Doctor", over=ui.link("Workers", "workers"))
        return replace(page(call, "Doctor", top, empty(words), section=_SECTION), status=403)
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
            ui.button_link("Examine again", "/workers/doctor"),
            over=ui.link("Workers", "workers"),
        ),
        element("p", "The machine of the server, and its store, checked just now.", class_="sentence lead"),
        ui.table(
            ("Check", "Result", "What was found, and what to do"), [_check(one) for one in ordered], label="Checks"
        ),
        section=_SECTION,
    )


def _check(one: Check) -> ui.Row:
    state = ui.status(one.health, tone={"problem": "bad", "warning": "try"}.get(one.health, "good"))
    return ui.row(element("strong", one.name), state, join_html([one.found, ui.note(one.advice) if one.advice else ""]))


ROUTES = (
    page_route("/workers", show_workers, "The workers: how busy each is, and what it runs."),
    # It runs a step of its own, which takes a second.
    Route(
        "GET", "/workers/doctor", show_doctor, "admin", "Checks of the server.", media=HTML, is_page=True, is_slow=True
    ),
)

"""`mulligan workers`: the workers of a store, and what each runs now."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from mulligan.cli.output.tables import age, length, show_table
from mulligan.cli.output.terminal import complain, show_result
from mulligan.cli.words.options import AsJson, HomeFolder, service_at
from mulligan.service.driving.workers import WorkerLine, WorkerTask
from mulligan.service.rendering.formatting import format_size, pluralize
from mulligan.service.service import Service

HEADS = ("WORKER", "STATUS", "UP", "SEEN", "CPUS", "MEMORY", "GPUS", "")


def list_workers(home: HomeFolder = None, as_json: AsJson = False) -> None:
    """List the workers of a store, and what each of them is running.

    CPUS, MEMORY and GPUS show what is in use and what there is. UP is the time since its start; SEEN is the time since
    its last heartbeat.
    """
    with service_at(home) as service:
        found = service.machine.list_workers()
        if as_json:
            show_result(found)
            return
        _show(service, found)


def _show(service: Service, found: list[WorkerLine]) -> None:
    if not found:
        complain(f"no worker is running in {service.home.place}; to start one: mulligan worker")
    now = service.now()
    has_gpus = any(line.capacity.gpus for line in found)
    rows = [row if has_gpus else (*row[:6], row[7]) for line in found for row in _rows(line, now)]
    show_table(HEADS if has_gpus else (*HEADS[:6], HEADS[7]), rows)
    if any(not line.is_alive for line in found):
        complain("another worker takes over the tasks of a dead one: mulligan worker, or mulligan resume")


def _rows(line: WorkerLine, now: datetime) -> Iterator[tuple[str, ...]]:
    has, used = line.capacity, line.in_use
    yield (
        line.name,
        "alive" if line.is_alive else "dead",
        age(line.started_at, now) if line.started_at else "",
        age(line.last_contact, now) if line.last_contact else "",
        f"{used.cpus:g} of {has.cpus:g}" if line.runs_tasks else "",
        f"{format_size(used.memory) if used.memory else '0'} of {format_size(has.memory)}" if line.runs_tasks else "",
        f"{used.gpus} of {has.gpus}" if has.gpus else "",
        "; ".join(_remarks(line, now)),
    )
    yield from (_task_row(task) for task in line.tasks)


def _remarks(line: WorkerLine, now: datetime) -> Iterator[str]:
    if line.trouble:
        yield f"takes no tasks: {line.trouble}"
    if line.job_text:
        yield line.job_text
    if line.ends_at is not None:
        yield f"ends in {length(max(0.0, (line.ends_at - now).total_seconds()))}"
    if line.labels:
        yield f"{'label' if len(line.labels) == 1 else 'labels'} {', '.join(line.labels)}"
    if line.runs:
        yield f"drives run {line.first_run_id}" if line.runs == 1 else f"drives {pluralize(line.runs, 'run')}"
    if line.runs_tasks and not line.tasks:
        yield "idle"


def _task_row(task: WorkerTask) -> tuple[str, ...]:
    return (
        f"  run {task.run_id}: {task.name}",
        "running",
        length(task.seconds) if task.seconds is not None else "",
        "",
        f"{task.cpus:g}",
        format_size(task.memory) if task.memory else "",
        str(task.gpus) if task.gpus else "",
        task.workflow + (f", attempt {task.attempt}" if task.attempt > 1 else ""),
    )

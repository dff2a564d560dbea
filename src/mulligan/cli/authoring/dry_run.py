"""`mulligan run --dry-run`: what would run, in which order, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mulligan.cli.output.tables import show_table
from mulligan.cli.output.terminal import complain, show_result
from mulligan.cli.words.options import service_at
from mulligan.core.model.workflow import Workflow
from mulligan.service.driving.driver import Capacity
from mulligan.service.rendering.formatting import (
    format_duration,
    format_input,
    format_size,
    group_title,
    pluralize,
    quote_names,
)
from mulligan.service.runs.changes.preview import Preview, StepPreview

REFUSED = 2


def show_preview(
    workflow: Workflow, given: dict[str, str], *, capacity: Capacity, as_json: bool, home: str | None
) -> int:
    """Show what a run would do. The exit code is 2 if something that it needs is missing."""
    with service_at(home) as service:
        found = service.starts.preview(workflow, dict(given), Path.cwd(), capacity)
    if as_json:
        show_result(found)
    else:
        _show(found)
    return REFUSED if found.problems else 0


def _show(found: Preview) -> None:
    most = f", at most {pluralize(found.max_parallel, 'step')} at a time" if found.max_parallel else ""
    limit = f", within {format_duration(found.timeout)}" if found.timeout else ""
    size = f"{pluralize(found.steps, 'step')} in {pluralize(len(found.waves), 'wave')}"
    complain(f"a run of '{found.workflow}' would have {size}{most}{limit}; nothing was started")
    if found.inputs:
        complain(f"inputs: {', '.join(f'{name}={format_input(value)}' for name, value in found.inputs.items())}")
    rows = [
        (
            str(number),
            group_title(step.step, step.count) if step.count > 1 else step.step,
            step.action,
            _asked(step),
            format_duration(step.timeout) if step.timeout else "",
            "; ".join(_notes(step)),
        )
        for number, wave in enumerate(found.waves, start=1)
        for step in wave
    ]
    show_table(("WAVE", "STEP", "RUNS", "ASKS FOR", "TIMEOUT", "NOTE"), rows)
    for problem in found.problems:
        complain(f"problem: {problem.text}")


def _asked(step: StepPreview) -> str:
    words = [f"{step.cpus:g} cpu{'s' if step.cpus != 1 else ''}"] if step.cpus else []
    words += [format_size(step.memory)] if step.memory else []
    words += [pluralize(step.gpus, "gpu")] if step.gpus else []
    words += [pluralize(step.nodes, "node")] if step.nodes else []
    words += list(step.labels)
    most = "up to " if step.is_varying and words else ""
    return most + ", ".join(words)


def _notes(step: StepPreview) -> Iterator[str]:
    if step.items is not None:
        yield f"{'at most ' if step.is_items_most else ''}{pluralize(step.items, 'item')}"
    elif step.action == "map":
        yield "its items are known when it runs"
    if step.if_failed:
        yield f"only if {quote_names(step.if_failed)} fail{'s' if len(step.if_failed) == 1 else ''}"
    if step.when and step.holds is None:
        yield f"if {step.when}"
    elif step.when:
        yield f"since {step.when}" if step.holds else f"skipped: condition not met: {step.when}"
    if step.requirements:
        yield f"requires {', '.join(step.requirements)}"
    if step.retries:
        yield f"up to {pluralize(step.retries, 'retry').replace('retrys', 'retries')}"
    if step.deadline:
        yield f"deadline {format_duration(step.deadline)}"

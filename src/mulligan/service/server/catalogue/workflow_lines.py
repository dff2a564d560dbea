"""The published workflows as a list: the newest version, how the last run ended, when the next one starts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from mulligan.service.runs.views.run_list import RunLine, RunQuery
from mulligan.service.server.catalogue.catalogue import Draft, PublishedWorkflow

if TYPE_CHECKING:
    from mulligan.service.service import Service

# The newest runs of all listed workflows are read at once; who is not among them is asked for alone.
_RUNS_AT_ONCE = 200


class WorkflowLine(msgspec.Struct, frozen=True):
    """A workflow in the list. One that was never published has only a draft."""

    name: str
    published: PublishedWorkflow | None
    draft: Draft | None
    last_run: RunLine | None
    # The next instant of its schedules, and the schedule.
    next_at: datetime | None = None
    next_schedule: str = ""


class WorkflowLines(msgspec.Struct, frozen=True):
    """A page of the list. `next` is what the next page begins behind."""

    lines: tuple[WorkflowLine, ...]
    next: str | None = None


def list_workflow_lines(service: Service, *, after: str = "", limit: int = 100) -> WorkflowLines:
    """The workflows and drafts behind a name, by name."""
    found = service.catalogue.workflows(after=after, limit=limit)
    published = {one.name: one for one in found.workflows}
    last = found.next
    drafts = {
        one.name: one for one in service.catalogue.drafts() if one.name > after and (not last or one.name <= last)
    }
    names = sorted(published.keys() | drafts.keys())
    runs = last_runs(service, tuple(published))
    starts = next_starts(service)
    lines = tuple(
        WorkflowLine(
            name=name,
            published=published.get(name),
            draft=drafts.get(name),
            last_run=runs.get(name),
            next_at=starts[name][0] if name in starts else None,
            next_schedule=starts[name][1] if name in starts else "",
        )
        for name in names
    )
    return WorkflowLines(lines, last)


def last_runs(service: Service, names: Sequence[str]) -> dict[str, RunLine]:
    """The newest run of each workflow that has one."""
    if not names:
        return {}
    page = service.runs.page(RunQuery(workflows=tuple(names), limit=_RUNS_AT_ONCE))
    found: dict[str, RunLine] = {}
    for run in page.runs:
        found.setdefault(run.workflow, run)
    for name in names if page.next is not None else ():
        if name not in found and (runs := service.runs.page(RunQuery(workflows=(name,), limit=1)).runs):
            found[name] = runs[0]
    return found


def next_starts(service: Service) -> dict[str, tuple[datetime, str]]:
    """When a schedule starts each workflow next, and which one."""
    found: dict[str, tuple[datetime, str]] = {}
    for schedule in service.schedules.all():
        if schedule.next and (schedule.workflow not in found or schedule.next[0] < found[schedule.workflow][0]):
            found[schedule.workflow] = (schedule.next[0], schedule.name)
    return found

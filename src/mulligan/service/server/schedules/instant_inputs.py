"""The inputs of the run of an instant: what the schedule says, with its placeholders filled in for that instant."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from mulligan.core.model.schedule import Schedule
from mulligan.core.model.workflow import Workflow
from mulligan.core.schedules.instant_names import instant_names
from mulligan.errors import InputInvalid
from mulligan.language.input_values import check_inputs
from mulligan.language.readers.schedule_inputs import check_schedule_inputs, fill_schedule_inputs, has_placeholders
from mulligan.service.server.schedules.cron import zone_of
from mulligan.service.server.schedules.forms import instants


def inputs_at(name: str, schedule: Schedule, instant: datetime) -> dict[str, Any]:
    """The inputs of the run of this instant, which depend on nothing else. `InputInvalid` if they cannot be made."""
    if not schedule.reads_instant:
        return schedule.inputs
    return _fill(name, schedule, _before(schedule, instant), instant, _after(schedule, instant))


def inputs_by_instant(name: str, schedule: Schedule, found: Sequence[datetime]) -> tuple[dict[str, Any], ...]:
    """For each of these instants, which follow each other, the inputs that depend on it; nothing if none do.

    Empty for an instant at which they cannot be made: its run will not be started, and `skips` will say why.
    """
    if not schedule.reads_instant or not found:
        return ()
    changing = [key for key, value in schedule.inputs.items() if has_placeholders(value)]
    line = [_before(schedule, found[0]), *found, _after(schedule, found[-1])]
    filled = []
    for before, instant, after in zip(line, found, line[2:], strict=False):
        try:
            made = _fill(name, schedule, before, instant, after)
            filled.append({key: made[key] for key in changing})
        except InputInvalid:
            filled.append({})
    return tuple(filled)


def _fill(
    name: str, schedule: Schedule, previous: datetime | None, instant: datetime, following: datetime | None
) -> dict[str, Any]:
    names = instant_names(
        name,
        zone_of(schedule.timezone) if schedule.cron else UTC,
        schedule.timezone if schedule.cron else "UTC",
        previous=previous,
        instant=instant,
        following=following,
    )
    return fill_schedule_inputs(schedule.inputs, names)


def _before(schedule: Schedule, instant: datetime) -> datetime | None:
    return next(instants(schedule, instant - timedelta(microseconds=1), backwards=True), None)


def _after(schedule: Schedule, instant: datetime) -> datetime | None:
    return next(instants(schedule, instant), None)


def check_inputs_of_next(name: str, schedule: Schedule, workflow: Workflow, now: datetime) -> None:
    """Refuse inputs with which the workflow would not start at the next instant."""
    if not schedule.reads_instant:
        check_inputs(workflow, schedule.inputs)
        return
    check_schedule_inputs(schedule.inputs)
    instant = next(instants(schedule, now), None)
    if instant is None:
        return
    made = inputs_at(name, schedule, instant)
    try:
        check_inputs(workflow, made)
    except InputInvalid as error:
        written = schedule.inputs.get(str(error.data.get("input", "")))
        if not has_placeholders(written):
            raise
        hint = error.hint or f"the schedule says {written!r}"
        raise InputInvalid(error.message, hint=hint, **error.data) from None

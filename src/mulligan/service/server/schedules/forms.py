"""A schedule as people and programs write it, checked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from mulligan.core.model.schedule import (
    CATCH_UP_MAX,
    EPOCH,
    EVERY_SECONDS_MIN,
    PAUSE_AFTER_MAX,
    Overlap,
    Schedule,
    parse_catch_up,
)
from mulligan.core.model.text.durations import DURATION_SECONDS_MAX, parse_duration, parse_time
from mulligan.core.schedules.intervals import interval_instants
from mulligan.errors import InputInvalid
from mulligan.language.readers.schedule_inputs import has_placeholders
from mulligan.service.runs.changes.preflight import check_labels
from mulligan.service.server.combined_structs import combine
from mulligan.service.server.schedules.cron import check_cron, cron_instants

CRON_CHARS_MAX = 200
# What a column of a database holds.
VERSION_MAX = 2**31 - 1


class ScheduleForm(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """When a workflow is started: `cron` with a time zone, or `every` with an anchor."""

    workflow: str
    cron: str | None = None
    timezone: str | None = None
    # Such as `6h`, or seconds.
    every: str | float | None = None
    anchor: str | None = None
    version: int | None = None
    inputs: dict[str, Any] = {}
    labels: dict[str, str] = {}
    # `none`, `last`, `all` or `all(20)`.
    catch_up: str = "last"
    overlap: Overlap = "skip"
    pause_after: int | None = None


def read_schedule(form: ScheduleForm, now: datetime) -> Schedule:
    """The schedule that a form describes. `InputInvalid` says what is wrong with it."""
    if (form.cron is None) == (form.every is None):
        what = "neither 'cron' nor 'every'" if form.cron is None else "both 'cron' and 'every'"
        raise InputInvalid(f"the schedule has {what}", hint="give one: cron '30 2 * * *', or every 6h")
    if form.every is not None and form.timezone is not None:
        raise InputInvalid("'timezone' is for 'cron'; an interval has none", hint="leave it out, or use 'cron'")
    if form.cron is not None and form.anchor is not None:
        raise InputInvalid("'anchor' is for 'every'; cron has none", hint="leave it out, or use 'every'")
    if form.version is not None and not 1 <= form.version <= VERSION_MAX:
        raise InputInvalid(f"version {form.version} does not exist", hint="versions count from 1")
    if form.cron is not None and len(form.cron) > CRON_CHARS_MAX:
        raise InputInvalid(f"the cron expression has more than {CRON_CHARS_MAX} characters")
    if form.pause_after is not None and not 1 <= form.pause_after <= PAUSE_AFTER_MAX:
        raise InputInvalid(f"pause_after {form.pause_after} is not between 1 and {PAUSE_AFTER_MAX:,}")
    try:
        catch_up, catch_up_max = parse_catch_up(form.catch_up)
        anchor = parse_time(form.anchor) if form.anchor is not None else None
    except ValueError as error:
        raise InputInvalid(str(error)) from None
    schedule = combine(
        Schedule,
        form,
        cron=form.cron or "",
        timezone=form.timezone or "UTC",
        every=_seconds(form.every) if form.every is not None else None,
        anchor=anchor,
        labels=check_labels(form.labels),
        catch_up=catch_up,
        catch_up_max=catch_up_max,
        reads_instant=has_placeholders(form.inputs),
    )
    check_timing(schedule, now)
    return schedule


def check_sent_schedule(schedule: Schedule) -> None:
    """Refuse what no form or file could say, in a schedule that somebody has sent as it is stored."""
    if (schedule.every is None) == (not schedule.cron) or len(schedule.cron) > CRON_CHARS_MAX:
        raise InputInvalid("the schedule has not exactly one of 'cron' and 'every'", hint="publish it again")
    if schedule.every is not None and not EVERY_SECONDS_MIN <= schedule.every <= DURATION_SECONDS_MAX:
        raise InputInvalid(f"every {schedule.every:g}s cannot be followed", hint=f"at least {EVERY_SECONDS_MIN:g}s")
    is_pause = schedule.pause_after is None or 1 <= schedule.pause_after <= PAUSE_AFTER_MAX
    if not (1 <= schedule.catch_up_max <= CATCH_UP_MAX and is_pause):
        raise InputInvalid("the schedule has a number that is out of range", hint="publish it again")
    if schedule.anchor is not None and schedule.anchor.tzinfo is None:
        raise InputInvalid("the instant from which the schedule counts has no time zone", hint="publish it again")
    if schedule.version is not None or schedule.reads_instant != has_placeholders(schedule.inputs):
        raise InputInvalid("the schedule is not one of a file", hint="publish it again")
    check_labels(schedule.labels)


def check_timing(schedule: Schedule, now: datetime) -> None:
    """Refuse a cron expression or a zone that cannot be read."""
    if schedule.every is None:
        check_cron(schedule.cron, schedule.timezone, now)


def instants(schedule: Schedule, at: datetime, *, backwards: bool = False) -> Iterator[datetime]:
    """The instants of a schedule after `at`, or backwards from it: then `at` itself counts."""
    if schedule.every is not None:
        return interval_instants(schedule.every, schedule.anchor or EPOCH, at, backwards=backwards)
    return cron_instants(schedule.cron, schedule.timezone, at, backwards=backwards)


def instant_text(instant: datetime) -> str:
    """An instant as keys and people have it: `2026-11-16T02:00:00Z`."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _seconds(text: str | float) -> float:
    try:
        is_plain = isinstance(text, str) and text.replace(".", "", 1).isdigit()
        seconds = parse_duration(float(text) if is_plain else text)
    except ValueError:
        raise InputInvalid(f"every '{text}' is not a duration", hint="write it like 30s, 15m or 6h") from None
    if seconds < EVERY_SECONDS_MIN:
        raise InputInvalid(f"every '{text}' is too short", hint=f"at least {EVERY_SECONDS_MIN:g}s")
    return seconds

"""What came of the past instants of a schedule: the run of each, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

from mulligan.core.effects.run_lists import RunFilter
from mulligan.core.model.text.durations import parse_time
from mulligan.core.schedules.deciding import ScheduleState
from mulligan.ports import RunRecord, Store
from mulligan.service.server.schedules.forms import instant_text

# The labels of the runs of a schedule: its name, and the instant that a run is of.
SCHEDULE_LABEL, INSTANT_LABEL = "schedule", "schedule_instant"
PAST_MAX = 1000
_UNKNOWN = "nothing was started, or its run was removed since"

InstantOutcome = Literal["started", "skipped", "missed", "waiting"]


class PastInstant(msgspec.Struct, frozen=True):
    """A past instant: what came of it, with the status of its run, or why it has none."""

    instant: datetime
    outcome: InstantOutcome
    run_id: int | None = None
    status: str = ""
    reason: str = ""


class PastInstants(msgspec.Struct, frozen=True):
    """The past instants of a schedule, the newest first. `is_cut`: there are older ones."""

    name: str
    # Of its days; UTC for a schedule with an interval.
    timezone: str
    instants: list[PastInstant]
    is_cut: bool


def instant_labels(name: str, instant: datetime) -> dict[str, str]:
    """The labels of the run of an instant."""
    return {SCHEDULE_LABEL: name, INSTANT_LABEL: instant_text(instant)}


def match_runs(
    expected: Sequence[datetime], runs: Sequence[RunRecord], labels: Mapping[int, str]
) -> dict[datetime, RunRecord]:
    """The runs by their instants. `expected`: the newest first. `labels`: the instant of a run, as its label says it.

    A run of an older version does not say its instant: it is of the newest one before its start that has no run.
    """
    found: dict[datetime, RunRecord] = {}
    for run in runs:
        if (instant := _read_instant(labels.get(run.run_id, ""))) is not None:
            found.setdefault(instant, run)
    for run in runs:
        if run.run_id not in labels:
            instant = next((one for one in expected if one <= run.created_at and one not in found), None)
            if instant is not None:
                found[instant] = run
    return found


def judge_instants(
    expected: Sequence[datetime], found: Mapping[datetime, RunRecord], state: ScheduleState
) -> list[PastInstant]:
    """Each instant with what came of it, the newest first: those of the schedule, and others that a backfill starts."""
    known = {*expected, *found, *state.waiting, *state.starting}
    return [_judge(one, found.get(one), state) for one in sorted(known, reverse=True)]


def _judge(instant: datetime, run: RunRecord | None, state: ScheduleState) -> PastInstant:
    if run is not None:
        return PastInstant(instant, "started", run.run_id, "running" if run.status == "new" else run.status)
    if instant in state.waiting or instant in state.starting:
        return PastInstant(instant, "waiting", reason="it is started when those before it have ended")
    for skip in reversed(state.skips):
        if skip.instant <= instant <= (skip.until or skip.instant):
            is_missed = skip.reason.startswith("no server")
            return PastInstant(instant, "missed" if is_missed else "skipped", reason=skip.reason)
    if state.pause is not None and state.pause.at <= instant:
        return PastInstant(instant, "skipped", reason="the schedule is paused")
    if state.decided_until is None or state.decided_until < instant:
        return PastInstant(instant, "waiting", reason="no server has handled it yet: is one running?")
    return PastInstant(instant, "missed", reason=_UNKNOWN)


def read_runs(
    store: Store, name: str, project: str, limit: int, since: datetime | None = None
) -> tuple[list[RunRecord], dict[int, str]]:
    """The newest runs of a schedule that were created since then, and what their labels say about their instants."""
    wanted = RunFilter(attributes=(("label", SCHEDULE_LABEL, name),), project=project, since=since)
    runs = store.lists.find(wanted, limit=limit)
    named = store.lists.attributes([run.run_id for run in runs]) if runs else []
    return runs, {run_id: value for run_id, (kind, key, value) in named if (kind, key) == ("label", INSTANT_LABEL)}


def instants_of(labels: Mapping[int, str]) -> set[datetime]:
    """The instants that the labels of runs say."""
    return {instant for text in labels.values() if (instant := _read_instant(text)) is not None}


def _read_instant(text: str) -> datetime | None:
    try:
        return parse_time(text).astimezone(UTC) if text else None
    except ValueError:
        # A label that somebody gave the run by hand.
        return None

"""`schedules`: when a server starts runs of a published workflow."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from mulligan.core.model.schedule import CATCH_UP_MAX, EVERY_SECONDS_MIN, PAUSE_AFTER_MAX, Schedule, parse_catch_up
from mulligan.core.model.text.durations import parse_time
from mulligan.language.keys.value_schemas import (
    LIMIT,
    Choice,
    Fields,
    Json,
    Key,
    MapOf,
    Record,
    Value,
    text_that,
    whole,
)
from mulligan.language.readers.schedule_inputs import check_schedule_nodes, has_placeholders
from mulligan.language.text.nodes import Source

_NAMES = r"[A-Za-z0-9][A-Za-z0-9_-]{0,49}"
NAMES_IN_WORDS = "letters, digits, '_' and '-', at most 50"
_EXAMPLE = "2026-01-31T09:00:00Z"


def _is_cron(text: str) -> bool:
    """Only its form: the server that takes the file over reads the fields."""
    return len(text.split()) == 5 or text.startswith("@")


def _is_zone(text: str) -> bool:
    # Loaded here, since few files have schedules.
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(text) is not None
    except (KeyError, OSError):
        return False


SCHEDULE = Record(
    "schedule",
    {
        "cron": Key(
            Value(
                "five fields such as '30 2 * * MON-FRI', or @daily",
                text_that(_is_cron),
                {"type": "string", "pattern": r"\S"},
            ),
            "when it starts: minute, hour, day, month, weekday",
        ),
        "timezone": Key(
            Value("a time zone such as Europe/Berlin", text_that(_is_zone), {"type": "string", "pattern": r"\S"}),
            "in which 'cron' is meant (default UTC)",
        ),
        "every": Key(LIMIT, "in place of 'cron': the time between two starts"),
        "anchor": Key(
            Value(
                "a time such as 2026-01-31T09:00:00Z", text_that(parse_time), {"type": "string", "format": "date-time"}
            ),
            "from when 'every' is counted (default 1970-01-01T00:00:00Z)",
        ),
        "inputs": Key(MapOf(Json()), "the inputs of its runs; ${schedule.date} is the date of the instant"),
        "catch_up": Key(
            Value(
                f"none, last, all or all(N) with N up to {CATCH_UP_MAX}",
                text_that(parse_catch_up),
                {"type": "string", "pattern": r"^(none|last|all(\([0-9]+\))?)$"},
            ),
            "which missed starts are made up for when a server is back (default last)",
        ),
        "overlap": Key(
            Choice(("skip", "queue", "cancel", "allow")),
            "what happens while an earlier run has not ended (default skip)",
        ),
        "pause_after": Key(whole(1, PAUSE_AFTER_MAX), "it pauses itself after so many failed runs in a row"),
    },
    one_of=(("cron",), ("every",)),
)
SCHEDULES = MapOf(SCHEDULE, _NAMES, names=NAMES_IN_WORDS)


def is_schedule_name(name: str) -> bool:
    """Whether a schedule of a file may have this name."""
    return re.fullmatch(_NAMES, name) is not None


def read_schedules(forms: Mapping[str, Fields], source: Source) -> dict[str, Schedule]:
    """The schedules of a file. They are of the workflow of the file, which gets its name when it is published."""
    return {name: _read(form, source) for name, form in forms.items()}


def _read(form: Fields, source: Source) -> Schedule:
    if ("cron" in form) == ("every" in form):
        what = "both 'cron' and 'every'" if "cron" in form else "neither 'cron' nor 'every'"
        hint = "write one of them: cron: '30 2 * * *', or every: 6h"
        source.note(source.refuse("schedules", f"the schedule has {what}", form.node, hint=hint))
    for key, needed in (("timezone", "cron"), ("anchor", "every")):
        if key in form and needed not in form:
            message = f"'{key}' has no effect without '{needed}'"
            source.note(source.refuse("schedules", message, form.key(key), hint="remove it"))
    if (every := form.get("every")) is not None and every < EVERY_SECONDS_MIN:
        hint = f"at least {EVERY_SECONDS_MIN:g}s"
        source.note(source.refuse("schedules", "'every' is too short", form.at("every"), hint=hint))
    schedule = Schedule("", **form.pick("cron", "timezone", "every", "inputs", "overlap", "pause_after"))
    if has_placeholders(schedule.inputs):
        check_schedule_nodes(form.at("inputs"), source)
        schedule = msgspec.structs.replace(schedule, reads_instant=True)
    if "anchor" in form:
        schedule = msgspec.structs.replace(schedule, anchor=parse_time(form["anchor"]))
    if "catch_up" in form:
        kind, number = parse_catch_up(form["catch_up"])
        schedule = msgspec.structs.replace(schedule, catch_up=kind, catch_up_max=number)
    return schedule

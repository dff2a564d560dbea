"""The instants of a cron expression in a time zone. cronsim walks the fields; we place them on the clock.

As Debian's cron does: an expression whose minute and hour are given runs once a day also when the clock changes. A time
that the clock leaves out counts as the end of the gap, and of a time that comes twice the first counts. An expression
with `*` in the minute or the hour follows the real time: what the clock leaves out is left out, what comes twice runs
twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import Any
from zoneinfo import ZoneInfo

from mulligan.core.model.text.formatting import pluralize
from mulligan.errors import InputInvalid, MulliganError

try:
    from cronsim import CronSim, CronSimError
except ImportError:  # the extra is not installed
    CronSim, CronSimError = None, Exception  # type: ignore[assignment,misc]

_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_HINT = "five fields: minute hour day month weekday, such as '30 2 * * MON-FRI'; or @daily, @hourly"
# More than any clock is moved at once, apart from countries that changed the side of the date line.
_CHANGE_MAX = timedelta(hours=3)


class CronMissing(MulliganError):
    """The library that reads cron expressions is not installed."""

    code = "schedule.library_missing"
    exit_code = 2


def zone_of(name: str) -> ZoneInfo:
    """The time zone of this name."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        hint = "a name such as Europe/Berlin or UTC"
        raise InputInvalid(f"'{name[:100]}' is not a time zone of this machine", hint=hint) from None


def check_cron(cron: str, zone: str, now: datetime) -> None:
    """Refuse an expression that cannot be read, or that has no instant."""
    if next(cron_instants(cron, zone, now), None) is None:
        raise InputInvalid(f"cron '{cron}' has no instant", hint="no year has that day; " + _HINT)


def cron_instants(cron: str, zone: str, at: datetime, *, backwards: bool = False) -> Iterator[datetime]:
    """The instants after `at`, or backwards from it, the newest first: then `at` itself counts. In UTC, each once."""
    fields = _fields(cron)
    place = zone_of(zone)
    keeps_the_day = not any(field.startswith("*") for field in fields.split()[:2])
    # Backwards times count downwards, so both directions are one loop.
    sign = -1 if backwards else 1
    begin = at.astimezone(place).replace(tzinfo=None) - sign * _CHANGE_MAX
    last = at.timestamp() * sign - (0.000_001 if backwards else 0)
    found: list[float] = []
    for wall in _walls(fields, begin, backwards=backwards):
        for instant in _on_the_clock(wall, place, keeps_the_day=keeps_the_day):
            heappush(found, sign * instant.timestamp())
        # What comes later in this loop lies behind this.
        bound = sign * wall.replace(tzinfo=place, fold=1 if backwards else 0).timestamp()
        while found and found[0] <= bound:
            stamp = heappop(found)
            if stamp > last:
                last = stamp
                yield datetime.fromtimestamp(sign * stamp, UTC)


def _walls(fields: str, begin: datetime, *, backwards: bool) -> Iterator[datetime]:
    """The times of day and year that match, as a clock on the wall shows them."""
    try:
        yield from CronSim(fields, begin, reverse=backwards)
    except OverflowError:
        return  # the last year that can be written


def _fields(cron: str) -> str:
    if CronSim is None:
        raise CronMissing(
            "cron expressions need 'cronsim', which is not installed",
            hint="pip install 'mulligan[server]'; or use 'every:'",
        )
    text = _MACROS.get(cron.strip().lower(), cron)
    if len(text.split()) != 5:
        raise InputInvalid(f"cron '{cron[:100]}' has {pluralize(len(text.split()), 'field')}, not five", hint=_HINT)
    try:
        CronSim(text, datetime(2024, 1, 1))
    except (CronSimError, ValueError, AssertionError, IndexError) as error:
        raise InputInvalid(f"cron '{cron[:100]}': {_words(error)}", hint=_HINT) from None
    return text


def _words(error: Any) -> str:
    text = str(error)
    return text[:1].lower() + text[1:] if text else "it cannot be read"


def _on_the_clock(wall: datetime, place: ZoneInfo, *, keeps_the_day: bool) -> list[datetime]:
    """When the clock in this zone shows the time: once, twice, or never."""
    first, second = (wall.replace(tzinfo=place, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first.astimezone(place).replace(tzinfo=None) != wall:
        return [_end_of_gap(second, first, place)] if keeps_the_day else []
    return [first] if keeps_the_day or first == second else [first, second]


def _end_of_gap(before: datetime, after: datetime, place: ZoneInfo) -> datetime:
    """The moment between the two at which the clock was set forward."""
    offset = before.astimezone(place).utcoffset()
    low, high = int(before.timestamp()), int(after.timestamp())
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, place).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return datetime.fromtimestamp(high, UTC)

"""What a schedule says: when a published workflow is started, and what happens if something is in the way."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

CatchUp = Literal["none", "last", "all"]
Overlap = Literal["skip", "queue", "cancel", "allow"]

# How many missed instants `catch_up: all` starts, unless it says how many.
CATCH_UP_MAX_DEFAULT, CATCH_UP_MAX = 100, 1000
EVERY_SECONDS_MIN = 1.0
PAUSE_AFTER_MAX = 1000
# From here intervals are counted, unless the schedule has an anchor: `every: 6h` is at 0, 6, 12 and 18 o'clock UTC.
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """When a workflow is started. It has either `cron` or `every`."""

    workflow: str
    cron: str = ""
    # In which zone the fields of `cron` are meant.
    timezone: str = "UTC"
    # Seconds between two instants, counted from `anchor`.
    every: float | None = None
    anchor: datetime | None = None
    # None: the newest version at the moment of each start.
    version: int | None = None
    inputs: dict[str, Any] = {}
    labels: dict[str, str] = {}
    # Which of the instants are made up for that passed while no server was there.
    catch_up: CatchUp = "last"
    catch_up_max: int = CATCH_UP_MAX_DEFAULT
    # What happens at an instant while a run of an earlier one has not ended.
    overlap: Overlap = "skip"
    # It pauses itself after so many failed runs in a row.
    pause_after: int | None = None
    # Texts in `inputs` have placeholders, which each start fills in for its instant. A server of an older version
    # does not know this field, and refuses the schedule instead of starting runs with the placeholders as text.
    reads_instant: bool = False

    @property
    def timing(self) -> tuple[Any, ...]:
        """What decides its instants."""
        return (self.cron, self.timezone if self.cron else "", self.every, self.anchor)


def parse_catch_up(text: str) -> tuple[CatchUp, int]:
    """`none`, `last`, `all` or `all(20)` as the kind and how many. ValueError for anything else."""
    kind, bracket, rest = text.strip().partition("(")
    if kind in ("none", "last", "all") and not bracket:
        return kind, CATCH_UP_MAX_DEFAULT  # type: ignore[return-value]
    number = rest.removesuffix(")").strip()
    if kind != "all" or not rest.endswith(")") or not (number.isascii() and number.isdigit()) or len(number) > 9:
        raise ValueError(f"'{text[:50]}' is not one of none, last, all, all(20)")
    if not 1 <= int(number) <= CATCH_UP_MAX:
        raise ValueError(f"all({number}) is not between all(1) and all({CATCH_UP_MAX})")
    return "all", int(number)


def catch_up_text(schedule: Schedule) -> str:
    """As it is written."""
    return f"all({schedule.catch_up_max})" if schedule.catch_up == "all" else schedule.catch_up

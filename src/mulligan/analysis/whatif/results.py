"""What a changed definition would have made of recorded runs."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec


class Estimate(msgspec.Struct, frozen=True):
    """Something that never happened, and what recorded runs say about it."""

    # The step or a command of it, without numbers; what is tried: `first`, `again`, `repaired`, `decision`.
    place: str
    kind: str
    # The failure before it: `exit code 11`, `TIMEOUT`; "" for any.
    failure: str
    # How often it worked (for a decision: how often people said retry), of how many; and the interval of that share.
    worked: int
    tried: int
    low: float
    high: float
    # How often an outcome was drawn from it.
    used: int


class RunWhatIf(msgspec.Struct, frozen=True):
    """One run, as it was and as it would have been."""

    run_id: int
    created_at: datetime
    # `completed`, `failed`, `cancelled`, `waiting` for a person, `paused`, `running`.
    was: str
    would_be: str
    was_degraded: bool
    would_be_degraded: bool
    # Where it goes another way: the step, what is done, what was done. "" if it goes the same way.
    step: str = ""
    why: str = ""
    # What that rests on. `fact`: recorded outcomes alone. `assumed`: also recorded outcomes under other conditions.
    # `estimate`: also outcomes that were drawn from what other runs say.
    by: Literal["fact", "assumed", "estimate"] = "fact"
    # Why it is not a fact: `sooner`, `other_action`, `never_happened` …
    doubts: tuple[str, ...] = ()
    # How much more than then, negative for less; None if one of the two has not ended.
    attempts: int = 0
    decisions: int = 0
    seconds: float | None = None

    @property
    def ends_otherwise(self) -> bool:
        return (self.was, self.was_degraded) != (self.would_be, self.would_be_degraded)

    @property
    def goes_another_way(self) -> bool:
        return bool(self.why)


class UndecidedRun(msgspec.Struct, frozen=True):
    """A run that cannot be decided again, and why: a code and a sentence."""

    run_id: int
    created_at: datetime
    was: str
    code: str
    reason: str


class WhatIf(msgspec.Struct, frozen=True):
    """What a definition would have made of the recorded runs of its workflow."""

    workflow: str
    seed: int
    since: datetime | None
    step: str
    # How many runs were looked at; decided again; of these by facts alone; that would go exactly as they went.
    runs: int
    decided: int
    facts: int
    unchanged: int
    # How many would end otherwise: by what that rests on; and how many fewer or more would complete, with the interval
    # that comes from the estimates.
    ends_otherwise: int
    ends_otherwise_by: dict[str, int]
    completed_before: int
    completed_now: int
    completed_low: int
    completed_high: int
    # Decisions of people: how many there were, how many would not have been needed, how many more would have been.
    decisions: int
    decisions_saved: int
    decisions_added: int
    # More (or, negative, fewer) attempts and seconds, over the runs that end both ways.
    attempts: int
    seconds: float
    # The outcomes that the runs that go another way rest on: as recorded; as recorded under other conditions, and drawn
    # ones, each by why they are not facts.
    outcomes_recorded: int
    outcomes_assumed: dict[str, int]
    outcomes_estimated: dict[str, int]
    # The runs that go another way, the ones that end otherwise first; at most as many as were asked for.
    changed: tuple[RunWhatIf, ...]
    changed_total: int
    undecided: tuple[UndecidedRun, ...]
    undecided_total: int
    estimates: tuple[Estimate, ...]
    # The selection was cut: there are more runs than were looked at.
    is_cut: bool = False

"""What attempts used, and what later ones should get: more memory after OUT_OF_MEMORY, more time after TIMEOUT."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from mulligan.core.deciding.classify import exceeded_limit, lacks_memory
from mulligan.core.model.event_types import Adjusted
from mulligan.core.model.events import AttemptFailed, AttemptSucceeded, Entry
from mulligan.core.model.failure import Failure, number_or_zero
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.text.formatting import format_size
from mulligan.core.model.workflow import Command, Step
from mulligan.core.state.state import Place, State

MIB = 1024 * 1024
MEMORY_FACTOR, TIMEOUT_FACTOR = 1.5, 2.0
NO_MEMORY, NO_TIME = "OUT_OF_MEMORY", "TIMEOUT"


def ran_short(failure: Failure) -> bool:
    """Whether more memory, or more of the step's own timeout, may help after this failure."""
    return lacks_memory(failure) or exceeded_limit(failure) == "timeout"


class Proposal(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the attempts of a step should get more of, and why. Memory in bytes, time in seconds."""

    step: str
    what: Literal["memory", "timeout"]
    given: int
    # The limit of the attempt that ran out; None without a limit.
    asked: float | None = None
    # The peak memory that was measured.
    used: int | None = None

    @property
    def text(self) -> str:
        """`memory 512MiB -> 768MiB, because it ran out at 510MiB`."""
        if self.what == "timeout":
            return f"timeout {self.asked:g}s -> {self.given}s, because it timed out"
        before = f" {format_size(self.asked)} ->" if self.asked else ""
        at = f" at {format_size(self.used)}" if self.used else ""
        return f"memory{before} {format_size(self.given)}, because it ran out{at}"


# -- what was used ---------------------------------------------------------------------------------------------------


def peak_memory_by_step(entries: Iterable[Entry]) -> dict[str, int]:
    """The peak memory of each step, over its attempts and those of its items' commands."""
    found: dict[str, int] = {}
    for entry in entries:
        fact = entry.fact
        if isinstance(fact, AttemptSucceeded | AttemptFailed) and "@" not in fact.place:
            step = step_name(fact.place)
            found[step] = max(found.get(step, 0), int(number_or_zero(fact.usage.get("peak_memory"))))
    return {step: peak for step, peak in found.items() if peak}


def attempt_limits(place: Place) -> Adjusted:
    """The limits of the current attempt: what it was granted, or what the workflow declares."""
    given, resources = place.climb.adjusted or Adjusted(), place.spec.resources
    memory = given.memory or (resources.memory if resources else None)
    return Adjusted(memory=memory, timeout=given.timeout or place.spec.timeout)


# -- what is proposed ------------------------------------------------------------------------------------------------


def proposals(state: State, steps: Iterable[str], peaks: Mapping[str, int]) -> tuple[Proposal, ...]:
    """What these steps should get more of, in order: those whose last failure was a lack of memory or time."""
    return tuple(found for step in steps for found in _step_proposals(state, state.places[step], peaks.get(step, 0)))


def adjustments_of(found: Iterable[Proposal]) -> dict[str, Adjusted]:
    """The proposals by step, as the fact that opens a round holds them."""
    given: dict[str, Adjusted] = {}
    for one in found:
        before = given.get(one.step, Adjusted())
        value: Any = one.given if one.what == "memory" else float(one.given)
        given[one.step] = msgspec.structs.replace(before, **{one.what: value})
    return given


def _step_proposals(state: State, place: Place, peak: int) -> Iterator[Proposal]:
    failures = list(_failures(state, place))
    step = state.step(place.key)
    short = [failure for failure in failures if lacks_memory(failure)]
    if short:
        yield from _more_memory(step, short, peak)
    late = [failure for failure in failures if exceeded_limit(failure) == "timeout"]
    if late:
        yield from _more_time(step, late)


def _failures(state: State, place: Place) -> Iterator[Failure]:
    """The last failure of a step that did not complete; of a map the failures of its items."""
    own = [place] if place.items is None else state.items_of(place)
    return (one.failure for one in own if one and one.failure and one.status in ("failed", "cancelled"))


def _more_memory(step: Step, short: list[Failure], peak: int) -> Iterator[Proposal]:
    asked = _largest_limit(step, short, "memory")
    used = max(peak, *(int(number_or_zero(failure.details.get("peak_memory"))) for failure in short))
    start = max(asked, used)
    if start:
        given = math.ceil(start * MEMORY_FACTOR / MIB) * MIB
        yield Proposal(step.name, "memory", given=given, asked=asked or None, used=used or None)


def _more_time(step: Step, late: list[Failure]) -> Iterator[Proposal]:
    """A longer timeout, if the timeout of the step itself was exceeded and not another limit."""
    asked = _largest_limit(step, late, "timeout")
    if asked:
        yield Proposal(step.name, "timeout", math.ceil(asked * TIMEOUT_FACTOR), asked)


def _largest_limit(step: Step, failures: Iterable[Failure], what: str) -> float:
    """The largest limit of the failed attempts: as the failures record it, or as the workflow declares it."""
    recorded = (number_or_zero(failure.details.get(what)) for failure in failures)
    return max(limit or _declared_limit(step, what) for limit in recorded)


def _declared_limit(step: Step, what: str) -> float:
    commands: tuple[Command, ...] = (step, *step.do)
    if what == "timeout":
        return max(command.timeout or 0.0 for command in commands)
    return max(float(command.resources.memory or 0) if command.resources else 0.0 for command in commands)

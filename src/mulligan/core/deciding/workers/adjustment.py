"""What `adjust` of a rule gives the next attempt, and which of its caps is reached."""

from __future__ import annotations

from mulligan.core.deciding.classify import LIMIT_SECONDS, WORKER_LIFE, exceeded_limit, is_own_shortage
from mulligan.core.model.event_types import Adjusted
from mulligan.core.model.failure import Failure, number_or_zero
from mulligan.core.model.workflow import Adjust, Resources
from mulligan.core.state.state import Place

# The caps that keep a rule from granting a retry. The name of a reached cap is also a detail of the failure.
CAPS = ("max_memory", "max_timeout", "max_cpus")
CAP = "cap"
# What helps, by what ran out: more processors also save time.
_HELPS = {"memory": ("memory",), "timeout": ("timeout", "cpus")}


def adjust(rule: Adjust | None, place: Place, failure: Failure) -> Adjusted | None:
    """What the next attempt gets: memory from the larger of limit and peak, timeout and cpus from their limits.

    A task that takes longer than its workers live gets a timeout, so that a worker with as much time takes it.
    """
    before = place.climb.adjusted or Adjusted()
    if rule is None:
        return place.climb.adjusted
    resources = place.spec.resources or Resources()
    asked = before.memory or resources.memory
    # A step that raises MemoryError may have used next to nothing: its peak must not become a limit that it never had.
    peak = 0.0 if is_own_shortage(failure) and not asked else number_or_zero(failure.details.get("peak_memory"))
    life = _worker_life(failure)
    memory = _raise(asked, rule.memory, rule.max_memory, peak)
    return Adjusted(
        memory=before.memory if memory is None else int(memory),
        cpus=_raise(before.cpus or resources.cpus, rule.cpus, rule.max_cpus) or before.cpus,
        timeout=_raise(before.timeout or place.spec.timeout, rule.timeout, rule.max_timeout, life) or before.timeout,
    )


def decided_adjustment(place: Place, memory: int | None, timeout: float | None) -> Adjusted | None:
    """What a decision about a parked step gives the next attempt, over what rules gave it before."""
    if memory is None and timeout is None:
        return None
    before = place.climb.adjusted or Adjusted()
    return Adjusted(memory or before.memory, before.cpus, timeout or before.timeout)


def _raise(asked: float | None, factor: float | None, cap: float | None, used: float = 0.0) -> float | None:
    """The larger of asked and used, times the factor, at most the cap; never less than what was asked."""
    least = asked or 0.0
    start = max(least, used)
    if factor is None or not start:
        return None
    return max(least, start * factor if cap is None else min(start * factor, cap))


def reached_cap(rule: Adjust | None, place: Place, failure: Failure) -> str:
    """The cap that keeps `rule` from giving more of what ran out: `max_memory`, `max_timeout` or `max_cpus`.

    Empty if a retry gets more, if nothing ran out, or if the rule raises nothing that would help.
    """
    short = "memory" if failure.code == "OUT_OF_MEMORY" else exceeded_limit(failure)
    short = "timeout" if short == WORKER_LIFE else short
    if rule is None or short not in _HELPS:
        return ""
    capped = [_capped(rule, what, place, failure) for what in _HELPS[short] if getattr(rule, what) is not None]
    return capped[0] if capped and all(capped) else ""


def _capped(rule: Adjust, what: str, place: Place, failure: Failure) -> str:
    """`max_memory` etc. if the attempt had (or, without a limit, used) all that the rule may give; otherwise empty."""
    cap: float | None = getattr(rule, f"max_{what}")
    is_measured = what == "memory" and not is_own_shortage(failure)
    used = number_or_zero(failure.details.get("peak_memory")) if is_measured else 0.0
    used = _worker_life(failure) if what == "timeout" else used
    return f"max_{what}" if cap is not None and (_granted(what, place) or used) >= cap else ""


def _worker_life(failure: Failure) -> float:
    """How long the workers live that were too short-lived for it; 0 if that is not what it failed for."""
    is_it = exceeded_limit(failure) == WORKER_LIFE
    return number_or_zero(failure.details.get(LIMIT_SECONDS)) if is_it else 0.0


def _granted(what: str, place: Place) -> float:
    """How much of this the current attempt was given; 0 without a limit."""
    given = getattr(place.climb.adjusted or Adjusted(), what)
    asked = place.spec.timeout if what == "timeout" else getattr(place.spec.resources or Resources(), what)
    return float(given or asked or 0.0)

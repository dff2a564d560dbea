"""What `adjust` of a rule gives the next attempt, and where it has nothing more to give."""

from __future__ import annotations

from mulligan.core.deciding.classify import limit_struck
from mulligan.core.model.events import Adjusted
from mulligan.core.model.failure import Failure, figure
from mulligan.core.model.workflow import Adjust, Resources
from mulligan.core.state.state import Place

# Why a rule grants no retry: the cap of what the attempt ran out of is reached. Also a detail of the failure.
CAPS = ("max_memory", "max_timeout", "max_cpus")
CAP = "cap"
# By what ran out, what would help: more processors also take less time.
_HELPS = {"memory": ("memory",), "timeout": ("timeout", "cpus")}


def adjust(rule: Adjust | None, place: Place, failure: Failure) -> Adjusted | None:
    """What the next attempt gets: memory from the larger of asked and peak, time and cpus from what was asked."""
    before = place.climb.adjusted or Adjusted()
    if rule is None:
        return place.climb.adjusted
    resources = place.spec.resources or Resources()
    peak = figure(failure.details.get("peak_memory"))
    memory = _raised(before.memory or resources.memory, rule.memory, rule.max_memory, peak)
    return Adjusted(
        memory=before.memory if memory is None else int(memory),
        cpus=_raised(before.cpus or resources.cpus, rule.cpus, rule.max_cpus) or before.cpus,
        timeout=_raised(before.timeout or place.spec.timeout, rule.timeout, rule.max_timeout) or before.timeout,
    )


def _raised(asked: float | None, factor: float | None, cap: float | None, used: float = 0.0) -> float | None:
    """The larger of asked and used, times the factor. The cap bounds the rise, and never takes away what was asked."""
    start = max(asked or 0.0, used)
    if factor is None or not start:
        return None
    return max(asked or 0.0, start * factor if cap is None else min(start * factor, cap))


def reached_cap(rule: Adjust | None, place: Place, failure: Failure) -> str:
    """The cap because of which `rule` gives no more of what ran out: `max_memory`, `max_timeout` or `max_cpus`.

    Empty where a retry gets more, where nothing ran out, or where the rule raises nothing that would help.
    """
    short = "memory" if failure.code == "OUT_OF_MEMORY" else limit_struck(failure)
    if rule is None or short not in _HELPS:
        return ""
    capped = [_capped(rule, what, place, failure) for what in _HELPS[short] if getattr(rule, what) is not None]
    return capped[0] if capped and all(capped) else ""


def _capped(rule: Adjust, what: str, place: Place, failure: Failure) -> str:
    """`max_memory` and the like, if the attempt had all that the rule may give; without a limit, if it used that."""
    cap: float | None = getattr(rule, f"max_{what}")
    used = figure(failure.details.get("peak_memory")) if what == "memory" else 0.0
    return f"max_{what}" if cap is not None and (_had(what, place) or used) >= cap else ""


def _had(what: str, place: Place) -> float:
    """How much of this the present attempt was given; 0 where nobody said."""
    given = getattr(place.climb.adjusted or Adjusted(), what)
    asked = place.spec.timeout if what == "timeout" else getattr(place.spec.resources or Resources(), what)
    return float(given or asked or 0.0)

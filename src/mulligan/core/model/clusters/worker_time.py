"""Tasks that the end of a worker's time interrupts: how often they run again for free, and how much time they need.

A worker that ends at a given time, such as one in a job of a scheduler, interrupts what it runs then. A task that came
late to its worker is not at fault, so it runs again and spends nothing. A task that takes longer than its workers live
must fail at last. So each interruption raises the time that the next worker must have left:

    the first    as much as the attempt had, so that the next one gets further;
    the second   the life of a worker of this kind from its beginning on.

An attempt that had all of that, and was interrupted as well, has failed. If longer-lived workers come and go, none of
which gives it a whole life, it fails after a few free reruns all the same.
"""

from __future__ import annotations

# How often a task runs again after the end of a worker's time, at most, in one visit.
RERUNS_AFTER_TIME_MAX = 3
# A worker has its life before it as long as this share of it is left.
_FRESH_SHARE = 0.9
# An attempt had the whole life of its worker if it ran for this share. The rest is what a start may take: a process, an
# environment, a secret.
_WHOLE_SHARE = 0.85


def had_whole_life(ran_seconds: float | None, life_seconds: float) -> bool:
    """Whether an attempt that ran so long had the worker almost from its first to its last moment."""
    return ran_seconds is not None and ran_seconds >= life_seconds * _WHOLE_SHARE


def is_too_long(times: int, ran_seconds: float | None, life_seconds: float | None) -> bool:
    """Whether it has failed when the end of a worker's time has interrupted it so many times, this time included."""
    if times > RERUNS_AFTER_TIME_MAX:
        return True
    return times > 1 and life_seconds is not None and had_whole_life(ran_seconds, life_seconds)


def seconds_needed(times: int, ran_seconds: float | None, life_seconds: float | None, before: float) -> float:
    """How many seconds a worker must have left to get the task after this interruption. Never less than before."""
    fresh = life_seconds * _FRESH_SHARE if life_seconds is not None else ran_seconds or 0.0
    shown = min(fresh, ran_seconds or 0.0) if times == 1 else fresh
    return max(before, shown)

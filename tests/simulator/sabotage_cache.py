"""Deliberate defects in what decides about results of earlier runs."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from mulligan.core.deciding import admit
from mulligan.core.effects import reuse, snapshot, tasks
from mulligan.core.model import events as e
from mulligan.worker.outputs import result_cache

from .sabotage import DEFECTS, defect

_BEFORE = set(DEFECTS)


@defect(snapshot, "_tag")
def _(real: Any) -> Any:
    """what was undone is found by later runs"""
    return lambda place: place.fingerprint if place.is_undone else real(place)


@defect(snapshot, "_tag")
def _(real: Any) -> Any:
    """a result is found before its step has completed"""
    return lambda place: place.fingerprint or real(place)


@defect(result_cache, "result_of")
def _(real: Any) -> Any:
    """a result is taken over that its run may still undo"""

    def result_of(run_id: int, status: str, key: str, data: bytes, task: Any) -> Any:
        return real(run_id, "completed", key, data, task)

    return result_of


@defect(result_cache, "fingerprint")
def _(real: Any) -> Any:
    """steps with other values have one fingerprint"""
    return lambda task, *more: real(replace(task, params={}, env={}, bound={}, reuse=_without_key(task)), *more)


def _without_key(task: Any) -> Any:
    return replace(task.reuse, key=None)


@defect(reuse, "_is_forced")
def _(real: Any) -> Any:
    """a step that is forced to run takes an earlier result"""
    return lambda state, step: False


@defect(tasks, "reuse_of")
def _(real: Any) -> Any:
    """a step that runs again on purpose takes an earlier result"""

    def reuse_of(state: Any, place: Any) -> Any:
        found = real(state, place)
        is_wanted = found is not None and place.role == "step" and place.spec.cache
        return replace(found, looks=True) if is_wanted and not reuse._is_forced(state, place) else found

    return reuse_of


@defect(admit, "_attempt_ended")
def _(real: Any) -> Any:
    """a result that has set data of the run is found by later runs"""

    def attempt_ended(now: Any, report: Any) -> Any:
        fact = real(now, report)
        return replace(fact, fingerprint=report.fingerprint) if isinstance(fact, e.AttemptSucceeded) else fact

    return attempt_ended


# Those of this module: all of them show only where results are reused.
SENTENCES = tuple(sentence for sentence in DEFECTS if sentence not in _BEFORE)

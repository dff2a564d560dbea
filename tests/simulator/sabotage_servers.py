"""Deliberate defects in what servers do beside the runs: schedules and notices."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from mulligan.core.schedules import deciding
from mulligan.ports import SettledNotice
from mulligan.service.server.notices import sender
from mulligan.service.server.notices.sender import Sender
from mulligan.service.server.schedules import schedules
from mulligan.service.server.schedules.schedules import Schedules
from mulligan.store.sql.sql_server_records import SqlServerRecords

from .sabotage import DEFECTS, defect

_BEFORE = set(DEFECTS)


@defect(schedules, "schedule_key")
def _(real: Any) -> Any:
    """the run of an instant has a key that no other server finds"""
    return lambda project, name, instant: f"{real(project, name, instant)} {len(_KEYS.append(0) or _KEYS)}"


_KEYS: list[int] = []


@defect(SqlServerRecords, "put_document")
def _(real: Any) -> Any:
    """a server writes over what another server has decided meanwhile"""
    return lambda self, document, *, expected=None: real(self, document, expected=None)


@defect(Schedules, "_carry_out")
def _(real: Any) -> Any:
    """what a schedule has decided to start is taken for done"""
    return lambda self, document, schedule, state, now: replace(state, starting=(), cancelling=())


@defect(schedules, "decide")
def _(real: Any) -> Any:
    """an instant starts a run though the one before has not ended"""
    return lambda schedule, *rest: real(replace(schedule, overlap="allow"), *rest)


@defect(deciding, "_missed")
def _(real: Any) -> Any:
    """instants that were missed are not written down"""
    return lambda newest, older, reason: []


@defect(deciding, "_queue")
def _(real: Any) -> Any:
    """instants that would have to wait are dropped"""
    return lambda state, instants: state


@defect(schedules, "inputs_at")
def _(real: Any) -> Any:
    """the inputs of a run are of an instant after its own"""
    return lambda name, schedule, instant: real(name, schedule, instant + timedelta(seconds=schedule.every))


@defect(Schedules, "_results")
def _(real: Any) -> Any:
    """a schedule takes every run for one that has ended"""
    return lambda self, document, state: {one.run_id: "succeeded" for one in state.active}


@defect(schedules, "instants")
def _(real: Any) -> Any:
    """a schedule misses an instant at which a server looks a second late"""

    def instants(schedule: Any, at: Any, *, backwards: bool = False) -> Any:
        found = real(schedule, at, backwards=backwards)
        return (one for one in found if not backwards or at - one > timedelta(seconds=30)) if backwards else found

    return instants


@defect(Sender, "_settled")
def _(real: Any) -> Any:
    """a notice that a target has refused counts as sent"""
    return lambda self, message, delivery, now: real(self, message, sender.Delivery(), now)


@defect(SqlServerRecords, "settle_notices")
def _(real: Any) -> Any:
    """what came of sending notices is not written"""
    return lambda self, settled: None


@defect(SqlServerRecords, "release_notices")
def _(real: Any) -> Any:
    """a notice that was claimed and not tried counts as sent"""
    return lambda self, ids: self.settle_notices([SettledNotice(id_, "sent", 0) for id_ in ids])


# Those of this module: all of them show only where there are servers.
SENTENCES = tuple(sentence for sentence in DEFECTS if sentence not in _BEFORE)

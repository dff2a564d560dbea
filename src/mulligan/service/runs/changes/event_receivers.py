"""Which runs an event is for: the run that was started under a key, or all open runs with labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from mulligan.core.effects.run_lists import RunFilter
from mulligan.errors import InputInvalid, MulliganError, Refused, StoreUnavailable, UnknownRun
from mulligan.service.runs.stored.run_reader import RunReader

# One event is sent to so many runs at most.
RECEIVERS_MAX = 1_000
_OPEN = ("new", "running", "paused")


class RefusedEvent(msgspec.Struct, frozen=True):
    """A run that did not get the event, and why."""

    run_id: int
    message: str
    code: str


class SentEvents(msgspec.Struct, frozen=True):
    """The runs that have got an event, and those that have refused it."""

    run_ids: list[int]
    refused: list[RefusedEvent]


def find_receivers(reader: RunReader, *, key: str = "", labels: Mapping[str, str] | None = None) -> list[int]:
    """The run that was started under the key, or the open runs with these labels, the oldest first."""
    if bool(key) == bool(labels):
        raise InputInvalid("an event is for the run with a key, or for all runs with labels", hint="name one of them")
    if key:
        return [_run_with(reader, key)]
    wanted = _with_labels(reader, labels or {}, _OPEN)
    found = reader.store.lists.find(wanted, limit=RECEIVERS_MAX + 1) if reader.home.is_there else []
    named = ", ".join(f"{name}={value}" for name, value in sorted((labels or {}).items()))
    if not found:
        raise UnknownRun(f"no open run has the label {named}", hint="list the open runs: mulligan list --status open")
    if len(found) > RECEIVERS_MAX:
        message = f"more than {RECEIVERS_MAX:,} open runs have the label {named}"
        raise Refused(message, hint="name another label as well")
    return sorted(record.run_id for record in found)


def had_receivers(reader: RunReader, labels: Mapping[str, str]) -> bool:
    """Whether there is a run with these labels, open or not."""
    return bool(labels) and bool(reader.store.lists.find(_with_labels(reader, labels), limit=1))


def _with_labels(reader: RunReader, labels: Mapping[str, str], statuses: tuple[str, ...] = ()) -> RunFilter:
    attributes = tuple(("label", name, value) for name, value in sorted(labels.items()))
    return RunFilter(statuses=statuses, attributes=attributes, project=reader.project)


def _run_with(reader: RunReader, key: str) -> int:
    """The run that was started with the key: by a request, by a command, or under exactly these words."""
    if reader.home.is_there:
        for stored in (f"request: {key}", key):
            if (run_id := reader.store.run_under(stored)) is not None:
                return run_id
        # A key of a command is one of its workflow.
        is_open = RunFilter(statuses=_OPEN, project=reader.project)
        workflows = dict.fromkeys(one.workflow for one in reader.store.lists.find(is_open, limit=RECEIVERS_MAX))
        keys = {f"{workflow}: {key}": reader.store.run_under(f"{workflow}: {key}") for workflow in workflows}
        found = {stored: run_id for stored, run_id in keys.items() if run_id is not None}
        if len(found) > 1:
            shown = ", ".join(f"run {run_id} '{stored}'" for stored, run_id in list(found.items())[:10])
            raise Refused(f"runs of several workflows have the key '{key}': {shown}", hint="name the workflow as well")
        if found:
            return next(iter(found.values()))
    raise UnknownRun(f"no run was started under the key '{key}'", hint="list the runs: mulligan list")


def send_to_all(run_ids: Iterable[int], send: Callable[[int], object]) -> SentEvents:
    """Send an event to each of these runs. One that refuses it, such as one that has ended, stops no other."""
    sent = SentEvents([], [])
    for run_id in run_ids:
        try:
            send(run_id)
        except StoreUnavailable:
            raise
        except MulliganError as error:
            sent.refused.append(RefusedEvent(run_id, error.message, error.code))
        else:
            sent.run_ids.append(run_id)
    return sent

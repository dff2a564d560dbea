"""Which runs an event is for: the run that was started under a key, or all open runs with labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from mulligan.core.effects.run_lists import RunFilter
from mulligan.errors import (
    CodecError,
    EventUnusable,
    InputInvalid,
    MulliganError,
    Refused,
    RunFinished,
    ScopeMissing,
    StoreUnavailable,
    UnknownRun,
)
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
        return [_run_of_key(reader, key)]
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
    return RunFilter(
        statuses=statuses,
        attributes=tuple(("label", name, value) for name, value in sorted(labels.items())),
        project=reader.project,
    )


def _run_of_key(reader: RunReader, key: str) -> int:
    """The run that was started under this key, by whichever door."""
    found = reader.store.runs_under(f": {key}") if reader.home.is_there else []
    runs = [run_id for stored, run_id in found if stored in (f"request: {key}", f"{_workflow(reader, run_id)}: {key}")]
    if not runs:
        raise UnknownRun(f"no run was started under the key '{key}'", hint="list the runs: mulligan list")
    if len(runs) > 1:
        named = ", ".join(map(str, runs[:10]))
        raise Refused(f"{len(runs)} runs of several workflows were started under the key '{key}'", hint=f"runs {named}")
    return runs[0]


def _workflow(reader: RunReader, run_id: int) -> str:
    return reader.record(run_id).workflow


def refusal_for_sender(error: MulliganError) -> MulliganError:
    """A refusal without what it says of the run, for those who may send it events and not look at it."""
    if isinstance(error, EventUnusable):
        return InputInvalid("what waits for this event cannot use its value")
    if isinstance(error, RunFinished):
        return RunFinished("the run has ended, and takes no events")
    if isinstance(error, CodecError):
        return Refused("the run takes no events now", hint="whoever runs the server finds the reason")
    return error


def not_for_this_run() -> ScopeMissing:
    """The token is for other workflows; of which one the run is, who may not look at it does not learn."""
    return ScopeMissing("this token may not send events to this run", hint="use a token that is for its workflow")


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

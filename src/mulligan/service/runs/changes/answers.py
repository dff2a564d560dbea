"""What a change of a run answers: what follows from it, or with `dry_run` would follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class ChangeResult(msgspec.Struct, frozen=True):
    """What follows from a change of a run, or with `dry_run` would follow."""

    run_id: int
    dry_run: bool
    # Of the run, after the change. A run that is stopping is still running.
    status: str
    # What follows at once, in sentences.
    follows: list[str]
    # The attempts that could start, that are asked to stop, and that run on and may end: place and number.
    starts: list[str]
    stops: list[str]
    still_running: list[str]
    # How many more of each there are, if there are too many to list.
    left_out: int = 0


class StartedRun(msgspec.Struct, frozen=True):
    """A run that was started, or that an earlier request with the same key has started."""

    run_id: int
    workflow: str
    # Of the definition.
    version: str
    status: str
    is_new: bool


class Given(msgspec.Struct, frozen=True):
    """What was given for a run of a published workflow, whichever version it is of."""

    inputs: Mapping[str, Any]
    labels: Mapping[str, str]


def shown_status(status: str) -> str:
    """A new run counts as running, also before a worker has taken it."""
    return "running" if status == "new" else status

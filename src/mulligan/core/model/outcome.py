"""What a worker observed of an attempt that ended."""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.core.model.failure import Failure


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker observed of an attempt that ended. What it means is decided by `core.deciding.classify`."""

    exit_code: int | None = 0
    signal: int | None = None
    is_timed_out: bool = False
    is_out_of_memory: bool = False
    # A code that the worker or the engine found, never the step itself: CONNECTION, HTTP_5XX, CIRCUIT_OPEN …
    code: str = ""
    message: str = ""
    stderr_tail: str = ""
    # What it printed last, where it wrote nothing to stderr.
    stdout_tail: str = ""
    trace: str = ""
    details: dict[str, Any] = {}
    # What the step wrote to $MULLIGAN_ERROR, and why that could not be read.
    reported: tuple[Any, ...] = ()
    report_error: str = ""
    missing_outputs: tuple[str, ...] = ()
    output_error: str = ""
    # It was made to end, by a signal: whatever it says then, it has not done what it was there for.
    is_stopped: bool = False
    # The failure itself, as somebody wants it who tries what follows from it: believed, whatever its code.
    said: Failure | None = None
    # Of one that is timed out: it was the time of the whole visit that was up.
    is_past_deadline: bool = False
    # It ended well, and has no output all the same: why.
    output_warning: str = ""
    # Why a path that the step asked for does not lead to its log.
    log_warning: str = ""

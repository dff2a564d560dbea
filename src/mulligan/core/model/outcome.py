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
    # A code found by the worker or the engine, not by the step: CONNECTION, HTTP_5XX, CIRCUIT_OPEN …
    code: str = ""
    message: str = ""
    stderr_tail: str = ""
    # The tail of stdout, if it wrote nothing to stderr.
    stdout_tail: str = ""
    trace: str = ""
    details: dict[str, Any] = {}
    # What the step wrote to $MULLIGAN_ERROR, or why that could not be read.
    reported: tuple[Any, ...] = ()
    report_error: str = ""
    missing_outputs: tuple[str, ...] = ()
    output_error: str = ""
    # It was stopped by a signal: whatever it reports, it did not complete.
    is_stopped: bool = False
    # The failure itself, for tests of what follows from it: accepted with any code.
    said: Failure | None = None
    # If timed out: it was the deadline of the whole visit.
    is_past_deadline: bool = False
    # Why its output was not kept although it succeeded: it is too large.
    output_warning: str = ""
    # Why a requested path does not lead to its log.
    log_warning: str = ""
    # If stderr is longer than its tail: its beginning, and how many bytes between the two are in neither.
    stderr_head: str = ""
    stderr_left_out: int = 0
    # The size of an output that was not kept.
    output_bytes: int = 0
    # What is wrong with the machine on which it failed: a full disk, no more processes.
    machine: str = ""
    # Whether that would fail any task there: it is not the fault of the step.
    is_machine_broken: bool = False
    # The folder of its run, if the host of the worker does not have it: nothing was started.
    lacks_folder: str = ""
    # The class of the exception that a Python step raised, and its bases: see `Failure.exceptions`.
    exceptions: tuple[str, ...] = ()
    # The frames of its traceback: see `Failure.traceback`.
    traceback: tuple[dict[str, Any], ...] = ()

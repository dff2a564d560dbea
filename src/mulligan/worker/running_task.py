"""What the hands know of a task that they have taken."""

from __future__ import annotations

import msgspec

from mulligan.core.model.reports import Report
from mulligan.ports import Lease
from mulligan.worker.folders import ScratchFiles
from mulligan.worker.redacted_logs import RedactedLogs


class RunningTask(msgspec.Struct):
    """A task that was taken and has not been told as ended."""

    lease: Lease
    # The same with the values that the task is run with: what was looked up for it is told to nobody else.
    resolved: Lease
    scratch: ScratchFiles
    # The child that works at it, or 0: then it is a process of its own, known by its token.
    child: int = 0
    # What is told of it as soon as nothing of it is left.
    pending_report: Report | None = None
    # When its logs get their names if it still runs then; None while it waits, or when they have them.
    name_logs_at: float | None = None
    has_named_logs: bool = False
    # Somebody has removed them while it ran: what it writes is lost.
    has_lost_files: bool = False
    # When somebody looks how large they are; None as long as they have no names.
    check_logs_at: float | None = None
    # What it writes goes through there, where it may know a secret; then its logs have their names from the start.
    pipes: RedactedLogs | None = None
    # The files of the artifacts that its arguments refer to, by name; and those of them that were made for it alone.
    artifact_files: dict[str, str] = {}
    spooled_files: list[str] = []
    # A child has written its large values into its side files.
    is_prepared: bool = False
    # Started without the shell that it was written for.
    is_direct: bool = False
    # Why a path does not lead to its logs as it was asked for; "" where all do, or none was.
    log_warning: str = ""
    # What its result may be found by in later runs; "" where it is not to be found.
    fingerprint: str = ""
    # What was in the files that it reads before it started: hashes by path, "" where there was none.
    input_hashes: dict[str, str] = {}

"""What keeps a machine from running any task, whatever the task is: a full disk, no more processes or descriptors."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable

from msgspec.structs import replace

from mulligan.core.deciding.workers.worker_health import HEALTHY
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded

# A disk with less than this is full: a program that writes gets no further.
FULL_BYTES = 64 * 1024
# It ended before it had read what to do.
BROKEN_PYTHON = "the Python of the worker does not start"
_TROUBLES = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota of the disk is used up",
    errno.EROFS: "the disk has become read-only",
    errno.EIO: "the disk fails",
    errno.EMFILE: "the worker has too many open files",
    errno.ENFILE: "the machine has too many open files",
    errno.ENOMEM: "the machine has no memory left for a process",
    errno.EAGAIN: "the machine starts no more processes",
}


def trouble_of(error_number: int | None) -> str:
    """Return what is wrong with the machine if the system answers with this error; "" if nothing is."""
    return _TROUBLES.get(error_number or 0, "")


def full_disk(folders: Iterable[str]) -> str:
    """Return the trouble if the disk of one of these folders is full."""
    for folder in folders:
        try:
            found = os.statvfs(folder)
        except OSError:
            continue
        if not found.f_blocks:
            continue  # not a disk
        # Some file systems have no fixed number of files: they say 0 of 0.
        if found.f_bavail * found.f_frsize < FULL_BYTES or (found.f_files and not found.f_favail):
            return f"the disk of '{folder}' is full"
    return ""


def with_machine_trouble(report: TaskEnded, home: str, folder: str, *, broken_program: str = "") -> TaskEnded:
    """Return the report of a failed task with what is wrong with the machine, if a look at it shows something.

    A full disk of the worker, or of temporary files, fails any task; so does `broken_program`, what is wrong with our
    own program that should have run it. A full disk of the folder of the run fails its own tasks.
    """
    outcome = report.outcome
    if outcome.machine or not _has_failed(outcome):
        return report
    # It loads what packs archives.
    import tempfile

    ours = full_disk((home, tempfile.gettempdir())) or broken_program
    trouble = ours or full_disk((folder,))
    if not trouble:
        return report
    return replace(report, outcome=replace(outcome, machine=trouble, is_machine_broken=bool(ours)))


class MachineHealth:
    """What a worker knows of its machine: after a failure that was not of the task it starts fewer, or none."""

    def __init__(self, home: str) -> None:
        self._home = home
        self.known = HEALTHY

    def tasks_allowed(self, tasks_reserved: int) -> int | None:
        """How many tasks may be started on this machine now; None for any number: it is well."""
        if not self.known.cause:
            return None
        now = time.monotonic()
        allowed = self.known.tasks_max(now, tasks_reserved)
        if allowed and (trouble := full_disk((self._home,))):
            # No task has to try what a look shows.
            self.known = self.known.after_check(trouble, now)
            return 0
        return allowed

    def judge(self, report: TaskEnded, folder: str) -> TaskEnded:
        """Blame the machine for a failure if it is to blame, and remember it: see `WorkerHealth`."""
        report = with_machine_trouble(report, self._home, folder)
        cause = report.outcome.machine if report.outcome.is_machine_broken else ""
        self.known = self.known.after_attempt(cause, time.monotonic())
        return report


def _has_failed(outcome: Outcome) -> bool:
    """Whether it failed by itself: not because it was stopped, took too long or too much, or could not be valid."""
    if outcome.is_stopped or outcome.is_timed_out or outcome.is_out_of_memory:
        return False
    has_code = outcome.code in ("EXCEPTION", "INTERNAL", "REQUIREMENTS_FAILED")
    is_short = bool(outcome.output_error or outcome.report_error or outcome.missing_outputs)
    return has_code or is_short or (not outcome.code and (outcome.signal is not None or bool(outcome.exit_code)))

"""Asks Slurm how the jobs of workers that are gone have ended: all at once, within a bounded time.

Whoever expires a worker asks, in the loop of its engine. So it waits little: see ADR 73. Without the commands of Slurm,
or without an answer in time, nothing is known, and the tasks are lost as those of any other worker.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from mulligan.core.model.clusters.scheduler_job import JobEnd, WorkerJob
from mulligan.service.host.slurm.states import is_open, job_end

# How long an answer may take, all questions together. Far below two thirds of a lease, after which supervisors kill.
ANSWER_SECONDS_MAX = 2.0
# After no answer in time the controller is left alone for so long: each question would take as long again.
SILENT_SECONDS = 60.0
# A job that is ending is asked about again after this time.
AGAIN_SECONDS = 0.25
# `Reason` is not among them: it says things such as JobLaunchFailure of a plain `kill -9`.
_QUEUE = ("squeue", "--noheader", "--states=all", "--Format=JobID:20,State:30,RestartCnt:12,NodeList:1000")
_TIME_LEFT = ("squeue", "--noheader", "--Format=JobID:20,TimeLeft:30")
_ACCOUNTS = ("sacct", "--noheader", "--parsable2", "--allocations", "--format=JobIDRaw,State,NodeList")
# Variables of users that change what the commands print.
_PREFERENCES = ("SQUEUE_", "SACCT_", "SLURM_TIME_FORMAT")
_JOB_ID = re.compile(r"\d{1,20}")
_DURATION = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", re.ASCII)

# Runs a command for at most so many seconds. What it prints; None if it did not end in time.
RunCommand = Callable[[Sequence[str], float], str | None]


def run_command(command: Sequence[str], seconds: float) -> str | None:
    """What the command prints; "" if it is not there or fails, None if it does not end in time."""
    if shutil.which(command[0]) is None:
        return ""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(_PREFERENCES)}
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, env=environ, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    except OSError:
        return ""
    return done.stdout.decode(errors="replace")


def job_seconds_left(
    job: WorkerJob, environ: Mapping[str, str], run: RunCommand = run_command, now: Callable[[], float] = time.time
) -> float | None:
    """How long the job still runs, by a variable that newer versions of Slurm set, or by the queue; None for no end."""
    ends = environ.get("SLURM_JOB_END_TIME", "")
    if ends.isdecimal():
        return max(0.0, int(ends) - now())
    if not _JOB_ID.fullmatch(job.id):
        return None
    printed = run([*_TIME_LEFT, f"--jobs={job.id}"], ANSWER_SECONDS_MAX) or ""
    # The number of an array names all of its jobs.
    rows = (line.split() for line in printed.splitlines())
    return next((_seconds(row[1]) for row in rows if len(row) == 2 and row[0] == job.id), None)


def _seconds(text: str) -> float | None:
    """The seconds of `1-02:03:04`, `02:03:04` or `3:04`; None of `UNLIMITED` and the like."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


class JobEnds:
    """Asks one Slurm. A controller that does not answer in time is left alone for a while."""

    def __init__(
        self,
        run: RunCommand = run_command,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        seconds_max: float = ANSWER_SECONDS_MAX,
    ) -> None:
        self._run = run
        self._monotonic = monotonic
        self._sleep = sleep
        self._seconds_max = seconds_max
        self._silent_until = -float("inf")

    def ask(self, jobs: Mapping[WorkerJob, bool]) -> dict[WorkerJob, JobEnd]:
        """How each job ended, as far as Slurm says it. `jobs`: whether its worker is known to be dead."""
        found = {job: JobEnd(job) for job in jobs}
        due = self._monotonic() + self._seconds_max
        asked = {job: is_dead for job, is_dead in jobs.items() if _JOB_ID.fullmatch(job.id)}
        while asked and self._monotonic() >= self._silent_until:
            seconds = due - self._monotonic()
            if seconds <= 0:
                break
            answer = self._states(asked, seconds)
            if answer is None:
                self._silent_until = self._monotonic() + SILENT_SECONDS
                break
            found |= answer
            # Only those that are about to end differently.
            asked = {job: dead for job, dead in asked.items() if is_open(found[job].state, is_dead=dead)}
            if asked and due - self._monotonic() > AGAIN_SECONDS:
                self._sleep(AGAIN_SECONDS)
            else:
                break
        return found

    def _states(self, jobs: Mapping[WorkerJob, bool], seconds: float) -> dict[WorkerJob, JobEnd] | None:
        """What the queue says and, for jobs that it has forgotten, the accounts. None without an answer in time."""
        due = self._monotonic() + seconds
        printed = self._run([*_QUEUE, f"--jobs={_ids(jobs)}"], seconds)
        if printed is None:
            return None
        found = _ends(jobs, (_queue_row(line) for line in printed.splitlines()))
        forgotten = {job: is_dead for job, is_dead in jobs.items() if job not in found}
        if forgotten and (left := due - self._monotonic()) > 0:
            printed = self._run([*_ACCOUNTS, f"--jobs={_ids(forgotten)}"], left)
            if printed is None:
                return None
            found |= _ends(forgotten, (_account_row(line) for line in printed.splitlines()))
        return found


# The job, its state, how often it was started again, and its nodes.
_Row = tuple[str, str, int, str]


def _queue_row(line: str) -> _Row | None:
    # A job that waits has no nodes.
    match [*line.split(), ""]:
        case [job_id, state, restarts, nodes, *_] if restarts.isdecimal():
            return job_id, state, int(restarts), nodes
    return None


def _account_row(line: str) -> _Row | None:
    match line.split("|"):
        case [job_id, state, nodes]:
            # "CANCELLED by 1000"
            return job_id, state.partition(" ")[0], 0, nodes
    return None


def _ends(jobs: Iterable[WorkerJob], rows: Iterable[_Row | None]) -> dict[WorkerJob, JobEnd]:
    """The ends of those jobs that have a row. A row of other nodes is that of another job: one of another cluster."""
    by_id = {row[0]: row[1:] for row in rows if row is not None}
    found = {}
    for job in jobs:
        if job.id not in by_id:
            continue
        state, restarts, nodes = by_id[job.id]
        if restarts > job.restarts or not job.node or not _names_nodes(nodes) or has_node(nodes, job.node):
            found[job] = job_end(job, state, restarts)
    return found


def _names_nodes(nodes: str) -> bool:
    return nodes.lower() not in ("", "(null)", "n/a", "none assigned", "unknown")


def has_node(nodes: str, node: str) -> bool:
    """Whether a list of nodes as Slurm writes it, such as `n[1-3,07],login1`, contains the node."""
    return any(_matches(one, node) for one in _ENTRY.findall(nodes))


# A name, with numbers in brackets in it.
_ENTRY = re.compile(r"(?:[^,\[\]]|\[[^\]]*\])+")
_BRACKETS = re.compile(r"\[([^\]]*)\]")


def _matches(entry: str, node: str) -> bool:
    parts = _BRACKETS.split(entry)
    pattern = "".join(re.escape(part) if place % 2 == 0 else r"(\d+)" for place, part in enumerate(parts))
    found = re.fullmatch(pattern, node, re.ASCII)
    return found is not None and all(
        any(_is_in_range(digits, one) for one in numbers.split(","))
        for digits, numbers in zip(found.groups(), parts[1::2], strict=True)
    )


def _is_in_range(digits: str, numbers: str) -> bool:
    """Whether `07` is in `05-12`: numbers of one range have the same width, unless they have no leading zeros."""
    low, _, high = numbers.partition("-")
    if not low.isdecimal() or not (high or low).isdecimal():
        return False
    is_padded = low.startswith("0") and len(low) > 1
    has_width = len(digits) == len(low) if is_padded else not digits.startswith("0") or digits == "0"
    return has_width and int(low) <= int(digits) <= int(high or low)


def _ids(jobs: Iterable[WorkerJob]) -> str:
    return ",".join(sorted({job.id for job in jobs}))

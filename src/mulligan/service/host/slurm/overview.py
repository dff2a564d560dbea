"""What there is in Slurm for a store: its pilots, and the workers in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path

import msgspec

from mulligan.core.effects.run_lists import QueuedShape
from mulligan.service.driving.workers import WorkerLine
from mulligan.service.host.breakers import Breaker
from mulligan.service.host.slurm.pilot_ends import FailedPilot, failed_pilot, joining_of
from mulligan.service.host.slurm.pilots import Pilot
from mulligan.service.host.slurm.planning import Unmet


class PilotLine(msgspec.Struct, frozen=True):
    """A pilot in the list."""

    # As Slurm writes it: `17_3`.
    job_id: str
    profile: str
    number: int
    # As Slurm says it.
    state: str
    is_active: bool
    node: str
    cpus: int | None
    # In bytes.
    memory: int | None
    gpus: int
    nodes: int
    submitted_at: datetime | None
    started_at: datetime | None
    ends_at: datetime | None
    seconds_left: float | None
    # The worker in it: "" if none is registered, so that it has not joined yet, or has ended.
    worker: str
    # How many tasks the worker runs now.
    tasks: int


class SlurmStatus(msgspec.Struct, frozen=True):
    """The pilots of a store. Those that have ended are there as long as Slurm remembers them."""

    store: str
    pilots: list[PilotLine]
    # What the queue asks for, by what equal tasks ask for. Memory in bytes.
    demand: list[QueuedShape] = []
    # The part of it that no profile has pilots for, and why.
    unmet: list[Unmet] = []
    # The circuit breakers of profiles that are not closed: pilots in a row have failed.
    breakers: list[Breaker] = []
    # The newest pilots that ended before their workers joined.
    failed: list[FailedPilot] = []


def pilot_lines(pilots: Sequence[Pilot], workers: Sequence[WorkerLine], now: datetime) -> list[PilotLine]:
    """The pilots, each with the worker in it."""
    by_job: dict[str, list[WorkerLine]] = defaultdict(list)
    for worker in workers:
        if worker.is_alive and worker.runs_tasks and worker.job is not None:
            by_job[worker.job.id].append(worker)
    return [_line(one, by_job[one.job.job_id] if one.job.is_active else [], now) for one in pilots]


def failed_pilots(pilots: Sequence[Pilot], home: Path, limit: int = 3) -> list[FailedPilot]:
    """The newest pilots that ended before their workers joined."""
    newest = sorted((one for one in pilots if not one.job.is_active), key=lambda one: -int(one.job.job_id))
    failed = (one for one in newest if joining_of(one, home, has_worker=False) == "failed")
    return [failed_pilot(one, home) for one in islice(failed, limit)]


def _line(one: Pilot, workers: Sequence[WorkerLine], now: datetime) -> PilotLine:
    job, size = one.job, one.name.size
    is_running = job.is_active and not job.is_pending
    return PilotLine(
        job_id=job.shown_id,
        profile=one.name.profile,
        number=one.number,
        state=job.state,
        is_active=job.is_active,
        node=job.node,
        cpus=size.cpus,
        memory=None if size.memory is None else size.memory << 20,
        gpus=size.gpus,
        nodes=size.nodes,
        submitted_at=job.submitted_at,
        started_at=job.started_at if not job.is_pending else None,
        ends_at=job.ends_at if not job.is_pending else None,
        seconds_left=max(0.0, (job.ends_at - now).total_seconds()) if is_running and job.ends_at else None,
        worker=workers[0].name if workers else "",
        tasks=sum(len(worker.tasks) for worker in workers),
    )

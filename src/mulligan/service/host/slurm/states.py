"""What a state of a Slurm job means for the tasks of its worker, if the worker is gone and has not said why."""

from __future__ import annotations

from mulligan.core.model.clusters.scheduler_job import JobEnd, JobEnding, WorkerJob

# What is shown for a job that was started again: its state is that of its next start.
REQUEUED = "REQUEUED"

# Every state that Slurm documents. A state that is not here means as little as RUNNING.
_MEANINGS: dict[str, JobEnding] = {
    # Somebody ended it, took its node for another job, or put it back into the queue.
    "CANCELLED": "free",
    "COMPLETED": "free",
    "PREEMPTED": "free",
    "REQUEUED": "free",
    "REQUEUE_FED": "free",
    "REQUEUE_HOLD": "free",
    "RESV_DEL_HOLD": "free",
    "REVOKED": "free",
    "SPECIAL_EXIT": "free",
    # It had started, so it waits for its next start.
    "PENDING": "free",
    "CONFIGURING": "free",
    "EXPEDITING": "free",
    "POWER_UP_NODE": "free",
    # It cannot send heartbeats, and is not at fault.
    "STOPPED": "free",
    "SUSPENDED": "free",
    # Its time was over.
    "DEADLINE": "time",
    "TIMEOUT": "time",
    "OUT_OF_MEMORY": "memory",
    # The worker or its node is gone: perhaps because of the task.
    "BOOT_FAIL": "",
    "FAILED": "",
    "LAUNCH_FAILED": "",
    "NODE_FAIL": "",
    "RECONFIG_FAIL": "",
    # Slurm has not noticed yet, or is not done.
    "COMPLETING": "",
    "RESIZING": "",
    "RUNNING": "",
    "SIGNALING": "",
    "STAGE_OUT": "",
    "UPDATE_DB": "",
}
# It says soon how the job ended.
_ENDING = frozenset({"COMPLETING", "SIGNALING"})
# So it does if the worker is known to be dead.
_UNNOTICED = frozenset({"RUNNING"})


def job_end(job: WorkerJob, state: str, restarts: int = 0) -> JobEnd:
    """How the job of a worker ended. `restarts`: how often Slurm has started it again by now."""
    if restarts > job.restarts:
        state = REQUEUED
    return JobEnd(job, state, _MEANINGS.get(state, ""))


def is_open(state: str, *, is_dead: bool) -> bool:
    """Whether Slurm is about to say another state of a job whose worker is silent, or known to be dead."""
    return state in _ENDING or (is_dead and state in _UNNOTICED)

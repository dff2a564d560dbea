"""What a scheduler has given to this process: read from the variables that it sets."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mulligan.core.model.clusters.scheduler_job import WorkerJob

MIB = 1 << 20
# The variable by which the script of a pilot job says which profile it was submitted with.
PROFILE_VARIABLE = "MULLIGAN_SLURM_PROFILE"
# Variables are what somebody has set: a record holds no more of one than this.
_CHARS_MAX = 256


class Allocation(msgspec.Struct, frozen=True):
    """Processors, bytes of memory and GPUs; None for what the scheduler does not say."""

    cpus: int | None = None
    memory: int | None = None
    gpus: int | None = None
    # All nodes of the job, for one task that uses them together.
    nodes: int | None = None


def slurm_allocation(environ: Mapping[str, str]) -> Allocation:
    """What Slurm has given to this process on this node. Empty outside of a job."""
    if not environ.get("SLURM_JOB_ID"):
        return Allocation()
    per_task, on_node = _number(environ, "SLURM_CPUS_PER_TASK"), _number(environ, "SLURM_CPUS_ON_NODE")
    # A process that srun has started is one task of several; the script of a job has the whole node of the job.
    is_one_task = bool(environ.get("SLURM_STEP_ID"))
    cpus = (per_task or on_node) if is_one_task else (on_node or per_task)
    gpus = _number(environ, "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "SLURM_GPUS")
    per_node = _number(environ, "SLURM_MEM_PER_NODE")
    per_cpu, per_gpu = _number(environ, "SLURM_MEM_PER_CPU"), _number(environ, "SLURM_MEM_PER_GPU")
    # The sizes are in MiB. 0 stands for all memory of the node.
    memory = (
        per_node or (per_cpu * cpus if per_cpu and cpus else None) or (per_gpu * gpus if per_gpu and gpus else None)
    )
    nodes = None if is_one_task else _number(environ, "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
    return Allocation(cpus, memory * MIB if memory else None, gpus, nodes)


def slurm_job(
    environ: Mapping[str, str], *, tasks_max: int | None = None, life_seconds: float | None = None
) -> WorkerJob | None:
    """The Slurm job in which this process is a worker with these limits; None outside of a job."""
    job_id = environ.get("SLURM_JOB_ID", "")[:_CHARS_MAX]
    if not job_id:
        return None
    return WorkerJob(
        id=job_id,
        node=(environ.get("SLURMD_NODENAME") or environ.get("SLURM_NODELIST") or "")[:_CHARS_MAX],
        array_id=environ.get("SLURM_ARRAY_JOB_ID", "")[:_CHARS_MAX],
        array_task=_number(environ, "SLURM_ARRAY_TASK_ID"),
        profile=environ.get(PROFILE_VARIABLE, "")[:_CHARS_MAX],
        is_one_task=tasks_max == 1,
        life_seconds=life_seconds,
        restarts=_number(environ, "SLURM_RESTART_COUNT") or 0,
    )


def _number(environ: Mapping[str, str], *names: str) -> int | None:
    """The first of these variables that is a number. `SLURM_GPUS` may have a type: `a100:2`."""
    for name in names:
        text = environ.get(name, "").rpartition(":")[2]
        if text.isdecimal():
            return int(text)
    return None

"""What a scheduler has given to this process: read from the variables that it sets."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

MIB = 1 << 20


class Allocation(msgspec.Struct, frozen=True):
    """Processors, bytes of memory and GPUs; None for what the scheduler does not say."""

    cpus: int | None = None
    memory: int | None = None
    gpus: int | None = None


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
    return Allocation(cpus, memory * MIB if memory else None, gpus)


def _number(environ: Mapping[str, str], *names: str) -> int | None:
    """The first of these variables that is a number. `SLURM_GPUS` may have a type: `a100:2`."""
    for name in names:
        text = environ.get(name, "").rpartition(":")[2]
        if text.isdecimal():
            return int(text)
    return None

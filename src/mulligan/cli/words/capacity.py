"""Options that replace what this machine has: processors, memory, GPUs, or a whole cluster."""

from __future__ import annotations

import os
from typing import Annotated

from mulligan.cli.output.terminal import UsageRefused
from mulligan.cli.words.parameters import Option
from mulligan.core.model.event_types import HostCapacity
from mulligan.dask_executor.address import read_cluster_address
from mulligan.service.authoring.values import parse_size
from mulligan.service.driving.driver import GPUS_VARIABLE, machine

_PARALLEL_HELP = "How many steps run at once (default: one per processor, and more that wait)."
Parallel = Annotated[int | None, Option("N", _PARALLEL_HELP, "--parallel", "-p")]
# For commands that drive a run of a shared store.
ParallelOrNone = Annotated[
    int | None, Option("N", f"{_PARALLEL_HELP} With 0, only workers run them.", "--parallel", "-p")
]
Memory = Annotated[str | None, Option("SIZE", "Memory for steps (default: all of this machine).")]
Gpus = Annotated[int | None, Option("N", "GPUs for steps (default: all).")]

On = Annotated[str | None, Option("ADDRESS", "Run the steps on the workers of a Dask cluster: dask://HOST:PORT.")]


def asked_capacity(
    parallel: int | None, memory: str | None, gpus: int | None, on: str | None = None, *, may_be_none: bool = False
) -> HostCapacity | None:
    """What the options say; None if none is given. `may_be_none`: with 0 the process runs no step, and only decides."""
    least = 0 if may_be_none and on is None else 1
    if parallel is not None and parallel < least:
        raise UsageRefused(f"--parallel must be at least {least}, not {parallel}")
    if parallel is None and memory is None and gpus is None and on is None:
        return None
    if on is not None:
        read_cluster_address(on)
        if memory is not None or gpus is not None:
            raise UsageRefused(
                f"{'--memory' if memory is not None else '--gpus'} is about this machine, and --on names a cluster",
                hint="leave it out: the Dask workers say what they have",
            )
        return HostCapacity(parallel, on=on)
    if gpus is not None and gpus < 0:
        raise UsageRefused(f"--gpus must be at least 0, not {gpus}")
    if gpus is not None and GPUS_VARIABLE in os.environ and gpus > (named := machine().gpus):
        raise UsageRefused(f"--gpus says {gpus}, and {GPUS_VARIABLE} names {named}", hint="leave one of them out")
    return HostCapacity(parallel, parse_size(memory) if memory is not None else None, gpus)

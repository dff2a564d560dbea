"""Options that replace what this machine has: processors, memory, GPUs."""

from __future__ import annotations

import os
from typing import Annotated

from mulligan.cli.parameters import Option
from mulligan.cli.terminal import UsageRefused
from mulligan.service import GPUS_VARIABLE, HostCapacity, machine, parse_size

Parallel = Annotated[
    int | None,
    Option(
        "--parallel",
        "-p",
        metavar="N",
        help="How many steps run at once (default: one per processor, and more that wait).",
    ),
]
Memory = Annotated[
    str | None, Option("--memory", metavar="SIZE", help="Memory for steps (default: all of this machine).")
]
Gpus = Annotated[int | None, Option("--gpus", metavar="N", help="GPUs for steps (default: all).")]


def checked_parallel(number: int | None) -> int | None:
    if number is not None and number < 1:
        raise UsageRefused(f"--parallel must be at least 1, not {number}")
    return number


def asked_capacity(parallel: int | None, memory: str | None, gpus: int | None) -> HostCapacity | None:
    """What the options say; None if none is given."""
    checked_parallel(parallel)
    if parallel is None and memory is None and gpus is None:
        return None
    if gpus is not None and gpus < 0:
        raise UsageRefused(f"--gpus must be at least 0, not {gpus}")
    if gpus is not None and GPUS_VARIABLE in os.environ and gpus > (named := machine().gpus):
        raise UsageRefused(f"--gpus says {gpus}, and {GPUS_VARIABLE} names {named}", hint="leave one of them out")
    return HostCapacity(parallel, parse_size(memory) if memory is not None else None, gpus)

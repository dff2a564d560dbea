"""What a Slurm profile says: how the jobs are submitted in which workers run, the *pilots*."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from mulligan.core.model.text.durations import parse_duration

DEFAULT_PROFILE = "default"
# Slurm's own spelling: 04:00:00 or 2-12:00:00. Its shorter forms are ambiguous, and are not taken.
SLURM_TIME = r"(?:(\d{1,4})-)?(\d{1,4}):([0-5]\d):([0-5]\d)"
WALLTIME_SECONDS_MIN = 60.0
TASKS_MAX = 1_000_000


class SlurmProfile(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How the pilots of a profile are submitted. What is not set, the cluster decides."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    # Seconds, whole minutes in practice: Slurm counts them so.
    walltime: float | None = None
    # How many nodes one pilot has. Its worker runs on the first of them.
    nodes: int = 1
    # What a pilot has on each node. Memory in bytes.
    cpus: int | None = None
    memory: int | None = None
    gpus: int = 0
    # A pilot ends after so many tasks.
    tasks: int | None = None
    # What its worker offers to steps that ask for labels.
    labels: tuple[str, ...] = ()
    # Lines of shell that run before the worker.
    setup: tuple[str, ...] = ()
    # Further options of sbatch. They count more than the other keys.
    options: tuple[str, ...] = ()
    # How many are submitted if nobody says a number.
    pilots: int | None = None


def profile_labels(profiles: Mapping[str, SlurmProfile]) -> tuple[str, ...]:
    """The labels that pilots of these profiles offer."""
    return tuple(dict.fromkeys(label for profile in profiles.values() for label in profile.labels))


def parse_walltime(value: Any) -> float:
    """Seconds of `4h`, or of Slurm's `04:00:00` and `2-12:00:00`. ValueError for anything else."""
    found = re.fullmatch(SLURM_TIME, value) if isinstance(value, str) else None
    if found is None:
        return parse_duration(value)
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return parse_duration(days * 86400 + hours * 3600 + minutes * 60 + seconds)

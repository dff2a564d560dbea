"""The job of a cluster's scheduler in which a worker runs, and what is known about the end of such a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from mulligan.core.model.text.formatting import escape_unprintable, single_line, strip_control_characters

# What the end of a worker's job says about the tasks that it had:
#   ""       nothing: the worker is lost, and its tasks run again, a few times;
#   "free"   somebody ended the job, so that its tasks run again and nothing is spent;
#   "time"   its time was over;
#   "memory" it needed more memory than it was given.
JobEnding = Literal["", "free", "time", "memory"]
# The key of a failure's details under which the job is.
SLURM = "slurm"
_SHOWN_CHARS_MAX = 64


class WorkerJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """The job in which a worker runs, as the scheduler tells it."""

    id: str
    node: str = ""
    # For a job of an array: the number of the array, and its own in it.
    array_id: str = ""
    array_task: int | None = None
    # The profile that it was submitted with; "" if it was not submitted by us.
    profile: str = ""
    # The worker takes one task in its whole life.
    is_one_task: bool = False
    # How long the worker has for tasks; None if it has no end.
    life_seconds: float | None = None
    # How much memory the worker offers, in bytes; 0 if that is not known.
    memory: int = 0
    # How often the scheduler had started the job again before.
    restarts: int = 0
    scheduler: Literal["slurm"] = "slurm"

    @property
    def details(self) -> dict[str, Any]:
        """What the details of a failure say about it."""
        known = {"job_id": self.id, "array_id": self.array_id, "array_task": self.array_task}
        known |= {"node": self.node, "profile": self.profile}
        return {name: value for name, value in known.items() if value not in ("", None)}

    def __str__(self) -> str:
        """`Slurm job 17 on node n3`."""
        return f"Slurm job {self.number}{f' on node {self.node}' if self.node else ''}"

    @property
    def number(self) -> str:
        """`17`, or `17_3` for a job of an array: what `squeue` shows."""
        return f"{self.array_id}_{self.array_task}" if self.array_id and self.array_task is not None else self.id


class JobEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """The job of a worker that is gone: what the scheduler said about it ("" if it was not asked), what that means."""

    job: WorkerJob
    state: str = ""
    ending: JobEnding = ""

    @property
    def details(self) -> dict[str, Any]:
        return {**self.job.details, "state": self.state} if self.state else self.job.details


def describe_job(details: Mapping[str, Any]) -> str:
    """`node n3, Slurm job 17`, from the details of a failure; "" if they name no job."""
    found = details.get(SLURM)
    if not isinstance(found, dict) or "job_id" not in found:
        return ""
    node = f"node {_shown(found['node'])}, " if "node" in found else ""
    is_in_array = "array_id" in found and "array_task" in found
    number = f"{found['array_id']}_{found['array_task']}" if is_in_array else found["job_id"]
    state = f", state {_shown(found['state'])}" if "state" in found else ""
    return f"{node}Slurm job {_shown(number)}{state}"


def _shown(value: Any) -> str:
    """The value as text. Details may come from a step."""
    return escape_unprintable(single_line(strip_control_characters(str(value))))[:_SHOWN_CHARS_MAX]

"""Tasks on a Dask cluster: Python steps that use it themselves (`on: {dask: true}`), and lost Dask workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The parameter of their function that gets the client.
CLIENT = "client"
# The label of every worker that has a Dask cluster: no other worker may take such a step.
LABEL = "dask"
# The parameter of a task that a worker with a Dask cluster adds: the address of its scheduler.
SCHEDULER = "dask_scheduler"
_WORKER = "the Dask worker "


def wants_client(params: Mapping[str, Any]) -> bool:
    """Whether an action asks for a client, by its parameters."""
    return bool(params.get("on", {}).get("dask"))


def name_dask_worker(address: str, host: str) -> str:
    """The name under which a lost Dask worker is recorded."""
    return f"{_WORKER}{address} on {host}"


def is_dask_worker(worker: str) -> bool:
    """Whether a worker that is recorded as lost was a Dask worker."""
    return worker.startswith(_WORKER)


def loss_details(worker: str) -> dict[str, Any]:
    """The details of a failure whose worker was lost: `{"dask": {"worker": ADDRESS, "host": HOST}}`, or none."""
    if not is_dask_worker(worker):
        return {}
    address, _, host = worker.removeprefix(_WORKER).partition(" on ")
    return {"dask": {"worker": address, "host": host}}

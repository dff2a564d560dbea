"""The executor of a driver whose tasks run on the workers of a Dask cluster. Imported when one is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mulligan.dask_executor.address import read_cluster_address
from mulligan.errors import ClusterRefused
from mulligan.ports import Clock, Executor, Store
from mulligan.service.driving.driver import Capacity, WorkerIdentity
from mulligan.service.home import Home
from mulligan.worker.slots.task_limits import TaskLimits

if TYPE_CHECKING:
    from mulligan.ports.bundles import ReadContent
    from mulligan.worker.program_turns import ReadHistory


def dask_executor(
    worker: WorkerIdentity,
    home: Home,
    store: Store,
    capacity: Capacity,
    *,
    clock: Clock,
    lease_seconds: float,
    log_bytes_max: int,
    read_history: ReadHistory,
    read_content: ReadContent,
    limits: TaskLimits,
    say: Callable[[str], None] | None,
) -> Executor:
    """Connect to the cluster that the capacity names, and make an executor of it."""
    address = read_cluster_address(capacity.on)
    executors = _load("mulligan.dask_executor.executor")
    answers = _load("mulligan.dask_executor.store_answers")
    if store.is_shared:
        logs = answers.StoredLogs(lambda chunks: store.server_records.append_log(chunks))
    else:
        logs = answers.LogFiles(home.folders)
    read_log = store.server_records.read_log if store.is_shared else logs.read
    made: Executor = executors.DaskExecutor(
        name=worker.name,
        host=worker.host,
        home=home.folder,
        address=address,
        lock=os.path.join(home.locks, f"{worker.name}.lock"),
        clock=clock,
        answers=answers.StoreAnswers(store.artifacts, store.tagged_rows, read_history, read_log, read_content),
        logs=logs,
        lease_seconds=lease_seconds,
        is_shared=store.is_shared,
        cpus_max=capacity.cpus if capacity.counts_waiting else None,
        memory=capacity.memory,
        log_bytes_max=log_bytes_max,
        limits=limits,
        say=say or (lambda _: None),
    )
    return made


def _load(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("mulligan"):
            raise
        raise ClusterRefused(
            f"'--on dask://…' needs '{error.name}', which is not installed", hint="pip install 'mulligan[dask]'"
        ) from None

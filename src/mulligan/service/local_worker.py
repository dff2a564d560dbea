"""Composes a worker of this host: a driver, its clock, and an executor that runs tasks as local processes.

The one place that names an implementation of `mulligan.ports.Executor`. An executor that submits tasks elsewhere gets
another factory beside this one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from mulligan.core.model.workflow import CANCEL_GRACE_SECONDS
from mulligan.engine.observers import Observer
from mulligan.errors import InputInvalid
from mulligan.language.quantities import size
from mulligan.ports import Executor, Store
from mulligan.service.driver import LEASE_SECONDS, Capacity, Driver, WorkerIdentity, WorkerLimits
from mulligan.service.home import Home, this_host
from mulligan.store.clock import PROCESS_CLOCK, ProcessClock
from mulligan.worker.local_executor import LocalExecutor
from mulligan.worker.log_limit import LOG_BYTES_MAX
from mulligan.worker.task_limits import TaskLimits


def local_worker(
    home: Home,
    store: Store,
    capacity: Capacity | None = None,
    *,
    observer: Observer | None = None,
    lease_seconds: float = LEASE_SECONDS,
    host: str = "",
) -> Driver:
    """A driver with a local executor of that capacity. Without a capacity it takes turns and runs no tasks."""
    # The driver sets its clock by that of a shared store. Otherwise all drivers of the process share one clock.
    clock = ProcessClock() if store.is_shared else PROCESS_CLOCK
    given = capacity.limits if capacity is not None else WorkerLimits()
    # Counted on when the worker starts again under another name.
    limits = TaskLimits(given.tasks_max, _last_moment(given.until))

    def make_executor(worker: WorkerIdentity) -> Executor | None:
        if capacity is None:
            return None
        return LocalExecutor(
            name=worker.name,
            host=worker.host,
            home=home.folder,
            cpus=capacity.cpus,
            memory=capacity.memory,
            gpus=capacity.gpus,
            labels=capacity.labels,
            artifacts=store.artifacts,
            results=store.tagged_rows,
            clock=clock,
            lock_fd=worker.lock_fd,
            lease_seconds=lease_seconds if store.is_shared else None,
            log_bytes_max=log_bytes_max(os.environ),
            counts_waiting=capacity.counts_waiting,
            # Opened when the first log is shipped. Who reads a store that is not shared has the files.
            shipped_logs=(lambda: store.server_records) if store.is_shared else None,
            was_signalled=worker.was_signalled,
            limits=limits,
            # What waits for a slot would lose time that a worker with an end does not have.
            prefetch=0 if limits.is_set else None,
        )

    return Driver(
        home=home,
        store=store,
        clock=clock,
        make_executor=make_executor,
        observer=observer,
        lease_seconds=lease_seconds,
        host=host or this_host(),
        idle_seconds=given.idle_seconds,
        limits=limits,
    )


def _last_moment(until: datetime | None) -> float | None:
    """When, by `time.monotonic`, tasks that still run have to be asked to end."""
    if until is None:
        return None
    return time.monotonic() + (until - datetime.now(UTC)).total_seconds() - CANCEL_GRACE_SECONDS


def log_bytes_max(environ: Mapping[str, str]) -> int:
    """How much one attempt may write to its logs: `$MULLIGAN_LOG_MAX`, by default 1 GiB."""
    text = environ.get("MULLIGAN_LOG_MAX")
    if not text:
        return LOG_BYTES_MAX
    try:
        return size(text)
    except ValueError:
        raise InputInvalid(f"MULLIGAN_LOG_MAX: '{text}' is not a size", hint="write it like 512MiB or 4GB") from None

"""Composes a worker of this host: a driver, its clock, and an executor that runs tasks as local processes.

The one place that names `LocalExecutor`. If the capacity is that of a cluster, `dask_worker` makes the executor.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial

from mulligan.core.effects.program_history import ProgramHistory, program_history
from mulligan.core.effects.snapshot import restore
from mulligan.core.model.workflow import CANCEL_GRACE_SECONDS, decode
from mulligan.engine.observers import Observer
from mulligan.errors import InputInvalid
from mulligan.language.text.quantities import size
from mulligan.ports import Executor, Store
from mulligan.service.driving.debugging import LOCALS, debugged, is_asked
from mulligan.service.driving.driver import LEASE_SECONDS, Capacity, Driver, WorkerIdentity, WorkerLimits
from mulligan.service.home import Home, this_host
from mulligan.service.host.object_places import object_storage
from mulligan.service.runs.changes.capacity_checks import refuse_no_processors
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.store.clock import PROCESS_CLOCK, ProcessClock
from mulligan.worker.local_executor import LocalExecutor
from mulligan.worker.logs.log_limit import LOG_BYTES_MAX
from mulligan.worker.slots.allocation import slurm_job
from mulligan.worker.slots.task_limits import TaskLimits


def open_driver(
    reader: RunReader,
    capacity: Capacity | None = None,
    observer: Observer | None = None,
    lease_seconds: float | None = None,
    *,
    serves: bool = False,
) -> Driver:
    """A worker in this process, alive while its context lasts. Without capacity or processors it runs no tasks."""
    home = reader.home
    if capacity is not None:
        # Before a store is made for it.
        refuse_no_processors(capacity, is_shared=bool(home.store_url))
    seconds = home.lease_seconds if lease_seconds is None else lease_seconds
    return local_worker(home, reader.store, capacity, observer=observer, lease_seconds=seconds, serves=serves)


def local_worker(
    home: Home,
    store: Store,
    capacity: Capacity | None = None,
    *,
    observer: Observer | None = None,
    lease_seconds: float = LEASE_SECONDS,
    host: str = "",
    serves: bool = False,
) -> Driver:
    """A driver with a local executor of that capacity. Without processors it takes turns and runs no tasks.

    `serves`: it is going to take up runs that nothing drives.
    """
    # The driver sets its clock by that of a shared store. Otherwise all drivers of the process share one clock.
    clock = ProcessClock() if store.is_shared else PROCESS_CLOCK
    if capacity is not None and not capacity.on and os.environ.get(LOCALS):
        capacity = debugged(capacity, has_locals=is_asked(LOCALS, os.environ))
    given = capacity.limits if capacity is not None else WorkerLimits()
    # Counted on when the worker starts again under another name.
    runs_tasks = capacity is not None and capacity.cpus > 0
    limits = TaskLimits(
        given.tasks_max,
        _last_moment(given.until),
        job_until=_end_of_job(os.environ) if runs_tasks and given.until is None else None,
    )
    job = slurm_job(os.environ, tasks_max=given.tasks_max, life_seconds=limits.life_seconds)

    read_history = partial(read_program_history, store)

    def make_executor(worker: WorkerIdentity) -> Executor | None:
        if capacity is None or not capacity.cpus:
            return None
        if capacity.on:
            from mulligan.service.driving import dask_worker

            made: Executor = dask_worker.dask_executor(
                worker,
                home,
                store,
                capacity,
                clock=clock,
                lease_seconds=lease_seconds,
                log_bytes_max=log_bytes_max(os.environ),
                read_history=read_history,
                limits=limits,
                say=observer.trouble if observer is not None else None,
            )
            return made
        return LocalExecutor(
            name=worker.name,
            host=worker.host,
            home=home.folder,
            cpus=capacity.cpus,
            memory=capacity.memory,
            gpus=capacity.gpus,
            nodes=capacity.nodes,
            nodes_min=capacity.nodes_min,
            debugging=capacity.debugging,
            labels=capacity.labels,
            artifacts=store.artifacts,
            objects=object_storage(store, os.environ, is_remote=home.is_remote),
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
            job=job,
            read_history=read_history,
            # What waits for a slot would lose time that a worker with an end does not have.
            prefetch=0 if limits.is_set or _is_interactive(capacity) else None,
            # A server leases for its remote workers, and has its own way to give them enough.
            leases_ahead=store.is_shared and not (home.is_remote or limits.is_set or _is_interactive(capacity)),
            # A store of one machine has no pilots: what a workflow leaves to those of its profiles runs here.
            more_labels=tuple if store.is_shared else profile_labels,
        )

    def profile_labels() -> tuple[str, ...]:
        return driver.profile_labels

    driver = Driver(
        home=home,
        store=store,
        clock=clock,
        make_executor=make_executor,
        observer=observer,
        lease_seconds=lease_seconds,
        host=host or this_host(),
        idle_seconds=given.idle_seconds,
        limits=limits,
        job=job if capacity is not None and capacity.cpus else None,
        # A worker of a server runs tasks; the server takes the turns.
        serves=serves and not home.is_remote,
    )
    return driver


def read_program_history(store: Store, run_id: int, delivered: int) -> ProgramHistory:
    """The calls of a program as the store has them, with the ends that it knows."""
    if (ask := getattr(store, "program_history", None)) is not None:
        found: ProgramHistory = ask(run_id, delivered)
        return found
    loaded = store.load(run_id)
    return program_history(restore(decode(loaded.workflow), loaded.rows), delivered)


def _is_interactive(capacity: Capacity) -> bool:
    return capacity.debugging is not None and capacity.debugging.is_interactive


def _last_moment(until: datetime | None) -> float | None:
    """When, by `time.monotonic`, tasks that still run have to be asked to end."""
    if until is None:
        return None
    return time.monotonic() + (until - datetime.now(UTC)).total_seconds() - CANCEL_GRACE_SECONDS


def _end_of_job(environ: Mapping[str, str]) -> float | None:
    """When, by `time.monotonic`, Slurm ends the job of this process; None outside of a job, or if it has no end."""
    job = slurm_job(environ)
    if job is None:
        return None
    from mulligan.service.host.slurm import job_ends

    seconds = job_ends.job_seconds_left(job, environ)
    return None if seconds is None else time.monotonic() + seconds


def log_bytes_max(environ: Mapping[str, str]) -> int:
    """How much one attempt may write to its logs: `$MULLIGAN_LOG_MAX`, by default 1 GiB."""
    text = environ.get("MULLIGAN_LOG_MAX")
    if not text:
        return LOG_BYTES_MAX
    try:
        return size(text)
    except ValueError:
        raise InputInvalid(f"MULLIGAN_LOG_MAX: '{text}' is not a size", hint="write it like 512MiB or 4GB") from None

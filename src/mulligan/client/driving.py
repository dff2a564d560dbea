"""Driving a run in this process until it ends, waits for a person, or is interrupted."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from mulligan.client.notebook import find_notebook_display
from mulligan.client.session import Session
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import InputInvalid, MulliganError

if TYPE_CHECKING:
    from mulligan.core.model.event_types import HostCapacity
    from mulligan.service.driving.driver import Capacity, Driver
    from mulligan.service.driving.shown_runs import RunDisplay
    from mulligan.service.service import Service

# How long to wait for a timer of a run that otherwise waits for a person.
WAIT = "10m"


class DrivingOptions(NamedTuple):
    """How a run is driven here, and shown."""

    # What replaces the capacity of this machine, and what the run was started with.
    capacity: HostCapacity | None = None
    wait_seconds: float = 600.0
    show: bool | None = None


DEFAULT_OPTIONS = DrivingOptions()


def read_options(
    parallel: int | None = None,
    memory: str | int | None = None,
    gpus: int | None = None,
    wait: str | float | timedelta = WAIT,
    show: bool | None = None,
    *,
    on: str | None = None,
) -> DrivingOptions:
    """The options as a program gives them, checked."""
    if show not in (None, True, False):
        raise InputInvalid(f"show must be True, False or None, not {show!r}", hint=_as_input("show"))
    return DrivingOptions(_read_capacity(parallel, memory, gpus, on), read_seconds(wait), show)


def _read_capacity(
    parallel: int | None, memory: str | int | None, gpus: int | None, on: str | None
) -> HostCapacity | None:
    """What replaces the capacity of this machine; None if nothing does."""
    if (parallel, memory, gpus, on) == (None, None, None, None):
        return None
    if on is not None:
        if not isinstance(on, str):
            raise InputInvalid(f"on must be the address of a cluster, not {on!r}", hint=_as_input("on"))
        from mulligan.dask_executor.address import read_cluster_address

        read_cluster_address(on)
        if memory is not None or gpus is not None:
            raise InputInvalid("memory and gpus are about this machine, and on names a cluster", hint="leave them out")
    for name, number, least in (("parallel", parallel, 1), ("gpus", gpus, 0)):
        if number is not None and not _is_whole(number, least):
            raise InputInvalid(f"{name} must be a whole number, at least {least}, not {number!r}", hint=_as_input(name))
    if memory is not None and not isinstance(memory, str) and not _is_whole(memory, 1):
        raise InputInvalid(f"memory must be a size, not {memory!r}", hint="write it like '4GiB', or in bytes")
    from mulligan.service.authoring.values import parse_size

    size = parse_size(memory) if isinstance(memory, str) else memory
    from mulligan.core.model.event_types import HostCapacity

    return HostCapacity(parallel, size, gpus, on=on or "")


def _is_whole(number: object, least: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= least


def read_seconds(value: str | float | timedelta) -> float:
    """A duration in seconds: `"1h30m"`, a number of seconds, or a `timedelta`."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputInvalid(f"{value!r} is not a duration", hint="give it like '30s', '1h30m', 90 or a timedelta")
    if isinstance(value, int | float) and value < 0:
        raise InputInvalid(f"{value!r} is not a duration: it is negative")
    from mulligan.service.authoring.values import parse_duration

    return parse_duration(str(value))


def _as_input(name: str) -> str:
    return f"if '{name}' is an input of the workflow, give it as inputs={{'{name}': …}}"


def drive(
    session: Session,
    begin: Callable[[Service, Driver | None], int],
    options: DrivingOptions,
    *,
    like_run: int | None = None,
) -> int:
    """Drive the run that `begin` starts or finds, and return its number.

    It has the capacity of the options, otherwise that with which `like_run` was started.

    A signal that interrupts it is passed on to the program after the run is left in order: Ctrl-C raises
    `KeyboardInterrupt` here, as it would have without us, and the run can be resumed.
    """
    run_id = 0

    def begin_noted(service: Service, driver: Driver | None) -> int:
        nonlocal run_id
        run_id = begin(service, driver)
        return run_id

    try:
        with session.service() as service:
            from mulligan.service.driving.driver import capacity_for

            capacity = (
                capacity_for(options.capacity)
                if like_run is None
                else service.starts.capacity_of(like_run, options.capacity)
            )
            interrupted_by = _drive(session, service, begin_noted, capacity, options)
        if interrupted_by:
            signal.raise_signal(interrupted_by)
    except KeyboardInterrupt as interrupt:
        if run_id and not _has_ended(session, run_id):
            interrupt.add_note(_how_to_continue(session, run_id))
        raise
    return run_id


def _drive(
    session: Session,
    service: Service,
    begin: Callable[[Service, Driver | None], int],
    capacity: Capacity,
    options: DrivingOptions,
) -> int:
    """Drive the run; return the signal that arrived meanwhile, or 0."""
    display = _choose_display(options.show, service, session, capacity.cpus)
    if display is not None:
        begin_here = partial(begin, service)
        shown = service.driving.drive_shown(begin_here, display, capacity=capacity, wait_seconds=options.wait_seconds)
        return shown.interrupted_by
    if session.is_remote:
        return service.driving.follow_quietly(partial(begin, service), wait_seconds=options.wait_seconds)
    with service.driving.driver(capacity) as driver:
        driver.drive(begin(service, driver), options.wait_seconds)
        return driver.interrupted_by


def _choose_display(show: bool | None, service: Service, session: Session, slots: float) -> RunDisplay | None:
    """What shows the run: what was asked for; by default something if a person looks: in a notebook, on a terminal."""
    if show is not False and (in_notebook := find_notebook_display(session, service)) is not None:
        return in_notebook
    if not (sys.stderr.isatty() if show is None else show):
        return None
    # Loaded only if something is shown.
    from mulligan.client.terminal_display import open_display

    return open_display(service, session, slots)


def _has_ended(session: Session, run_id: int) -> bool:
    try:
        with session.service() as service:
            return service.runs.record(run_id).status in RUN_ENDED
    except MulliganError:
        return False


def _how_to_continue(session: Session, run_id: int) -> str:
    if session.is_remote:
        return f"run {run_id} goes on at {session.place}: mulligan.connect(URL).get({run_id}).wait() waits for it"
    where = "" if session.given is None else repr(session.given)
    return (
        f"run {run_id} is kept in '{os.path.relpath(session.folder)}'; to continue it: "
        f"mulligan.open({where}).get({run_id}).resume(), "
        f"or on the command line: mulligan resume {run_id}{session.option}"
    )

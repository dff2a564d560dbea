"""After a command has changed a run: drive it here, or leave it to the process that drives it."""

from __future__ import annotations

import os
import shlex
import sys

from mulligan.cli.drive_run import drive_run
from mulligan.cli.options import where
from mulligan.cli.terminal import complain, show_json
from mulligan.service import RUN_ENDED, HostCapacity, Service

CANCELLED = 3


def is_following(asked: bool | None) -> bool:
    """What was asked for; by default whether stdout is a terminal."""
    return sys.stdout.isatty() if asked is None else asked


def mention_changed_file(service: Service, run_id: int, home: str | None, *, is_retry: bool = False) -> None:
    """Note that the file of the run has changed, since a run keeps the workflow that it was started with."""
    file = service.changed_file(run_id)
    if file:
        shown = os.path.relpath(file)
        complain(
            f"note: '{shown}' has changed since run {run_id} was started; the run keeps the old version\n"
            f"  {_with_new(run_id, is_retry=is_retry)} --file {shlex.quote(shown)}{where(home)}"
        )


def _with_new(run_id: int, *, is_retry: bool) -> str:
    if is_retry:
        return f"to continue with the new version: mulligan retry {run_id}"
    return f"to run the new version: mulligan fork {run_id} --from STEP"


def continue_run(
    service: Service,
    run_id: int,
    *,
    is_wanted: bool,
    as_json: bool,
    home: str | None,
    asked: HostCapacity | None = None,
) -> int:
    """Drive the run and show it, if wanted and no other process does. The exit code is that of `run`.

    It has the capacity that it was started with, unless another is asked for.
    """
    record = service.record(run_id)
    driver, root = service.driver_of(record), record.root_run_id or run_id
    if driver is None and is_wanted:
        capacity = service.capacity_of(root, asked)
        return drive_run(service, lambda _: root, capacity=capacity, as_json=as_json, home=home)
    if driver is not None:
        complain(f"process {driver.pid} on {driver.host} continues it")
    elif service.home.is_remote:
        complain("the workers of the server continue it")
    elif service.record(root).status not in RUN_ENDED:
        complain(f"no process drives it: mulligan resume {root}{where(home)}")
    if as_json:
        show_json(service.show(run_id))
    return 0


def finish_run(service: Service, run_id: int, *, as_json: bool, home: str | None) -> int:
    """Drive a stopping run to its end, unless another process does: cleanup, undo and `end` must run."""
    record = service.record(run_id)
    driver = service.driver_of(record)
    if record.status not in RUN_ENDED and driver is None and record.parent_run_id is None:
        runs_here = "" if service.home.is_remote else ": its cleanup and its end run here"
        complain(f"run {run_id} is stopping and no process drives it{runs_here}")
        capacity = service.capacity_of(run_id)
        code = drive_run(service, lambda _: run_id, capacity=capacity, as_json=as_json, home=home)
        return 0 if code == CANCELLED else code
    if record.status in RUN_ENDED:
        complain(f"run {run_id} is {record.status}")
    elif driver is not None:
        complain(f"run {run_id} is stopping: process {driver.pid} on {driver.host} drives it")
    else:
        complain(f"run {run_id} will stop when its parent continues: mulligan resume {record.root_run_id}{where(home)}")
    if as_json:
        show_json(service.show(run_id))
    return 0

"""After a verb has changed a run: driving it on, or leaving it to whoever drives it already."""

from __future__ import annotations

import os
import shlex
import sys

from mulligan.cli.drive_run import conduct
from mulligan.cli.options import where
from mulligan.cli.terminal import complain, show_json
from mulligan.service import Service

ENDED = ("completed", "failed", "cancelled")
CANCELLED = 3


def is_following(asked: bool | None) -> bool:
    """What was asked for; else whether somebody looks on."""
    return sys.stdout.isatty() if asked is None else asked


def mention_changed_file(service: Service, run_id: int, home: str | None, *, is_retry: bool = False) -> None:
    """Say so where the run's file is another one today: a run goes on with what it was started with."""
    file = service.changed_file(run_id)
    if file:
        shown = os.path.relpath(file)
        complain(
            f"note: '{shown}' has changed since run {run_id} was started, and is run as it was then\n"
            f"  {_with_new(run_id, is_retry=is_retry)} --file {shlex.quote(shown)}{where(home)}"
        )


def _with_new(run_id: int, *, is_retry: bool) -> str:
    if is_retry:
        return f"to go on with the new one: mulligan retry {run_id}"
    return f"to run the new one: mulligan fork {run_id} --from STEP"


def go_on(service: Service, run_id: int, *, is_wanted: bool, as_json: bool, home: str | None) -> int:
    """Drive the run on and show it, where that is wanted and nobody else does. The exit code is that of `run`."""
    record = service.record(run_id)
    driver, root = service.driver_of(record), record.root_run_id or run_id
    if driver is None and is_wanted:
        return conduct(service, lambda _: root, as_json=as_json, home=home)
    if driver is not None:
        complain(f"process {driver.pid} on {driver.host} goes on with it")
    elif service.record(root).status not in ENDED:
        complain(f"nobody drives it: mulligan resume {root}{where(home)}")
    if as_json:
        show_json(service.show(run_id))
    return 0


def see_to_the_end(service: Service, run_id: int, *, as_json: bool, home: str | None) -> int:
    """See a stopping run to its end, unless somebody else does: cleanup, undo and `end` must run."""
    record = service.record(run_id)
    driver = service.driver_of(record)
    if record.status not in ENDED and driver is None and record.parent_run_id is None:
        complain(f"run {run_id} is stopping and nobody drives it: its cleanup and its end run here")
        code = conduct(service, lambda _: run_id, as_json=as_json, home=home)
        return 0 if code == CANCELLED else code
    if record.status in ENDED:
        complain(f"run {run_id} is {record.status}")
    elif driver is not None:
        complain(f"run {run_id} is stopping: process {driver.pid} on {driver.host} sees to it")
    else:
        complain(f"run {run_id} is stopping when its parent goes on: mulligan resume {record.root_run_id}{where(home)}")
    if as_json:
        show_json(service.show(run_id))
    return 0

"""`mulligan run --key` and `--detach`: a run that is there once, and one that goes on in the background."""

from __future__ import annotations

import time
from typing import Annotated

from mulligan.cli.drive_run import conduct
from mulligan.cli.options import where
from mulligan.cli.parameters import Option
from mulligan.cli.terminal import complain, show, show_json
from mulligan.errors import KeyUsed
from mulligan.service import DetachedRun, ExistingRun, Prepared, Service, check_key, exit_code, to_json

Key = Annotated[
    str, Option("--key", metavar="KEY", help="Start it once: the same key again gives the same run of this workflow.")
]
Detach = Annotated[bool, Option("--detach", "-d", help="Start it in the background, print its number, and return.")]

ENDED = ("completed", "failed", "cancelled")
WAITING = 4
# How often a run that another process drives is looked at.
LOOK_SECONDS = 0.2


def start(
    service: Service,
    prepared: Prepared,
    *,
    key: str,
    is_detached: bool,
    parallel: int | None,
    wait: str,
    wait_seconds: float,
    as_json: bool,
    home: str | None,
) -> int:
    """Start a run and drive it here, or leave it to the background. Under a key, the run that has it already."""
    key = check_key(key) if key else ""
    try:
        if is_detached:
            found = service.start_detached(prepared, key=key, parallel=parallel, wait=wait)
            return _tell_detached(found, as_json=as_json, home=home)
        return conduct(
            service,
            lambda driver: service.start(prepared, driver, key=key)[0],
            parallel=parallel,
            wait_seconds=wait_seconds,
            as_json=as_json,
            home=home,
        )
    except KeyUsed as used:
        before = service.find_existing_run(prepared, key, used)
    _tell_existing(before, key)
    if is_detached:
        found = _in_the_background(service, before.run_id, parallel, wait)
        return _tell_detached(found, as_json=as_json, home=home)
    return _follow(service, before.run_id, parallel=parallel, wait_seconds=wait_seconds, as_json=as_json, home=home)


def _in_the_background(service: Service, run_id: int, parallel: int | None, wait: str) -> DetachedRun:
    record = service.record(run_id)
    if record.status in ENDED or record.status == "paused":
        return DetachedRun(run_id, record.status)
    driver = service.driver_of(record)
    if driver is None:
        return service.detach(run_id, parallel=parallel, wait=wait)
    return DetachedRun(run_id, record.status, driver.pid, driver.host)


def _tell_existing(found: ExistingRun, key: str) -> None:
    complain(f"run {found.run_id} was started under the key '{key}' already: it is {found.status}")
    if found.is_other_definition:
        complain("  note: the file has changed since, and the run goes by what it was started with")


def _tell_detached(found: DetachedRun, *, as_json: bool, home: str | None) -> int:
    """The number on stdout, for whoever calls this in a script; what to do with it on stderr."""
    run_id, here = found.run_id, where(home)
    if as_json:
        show_json(to_json(found))
        return 0
    if found.status == "running":
        driver = f": process {found.pid} on {found.host} drives it" if found.host else ""
        complain(f"run {run_id} goes on in the background{driver}")
    else:
        complain(f"run {run_id} is {found.status}")
    commands = {
        f"mulligan show {run_id}{here}": "how it stands",
        f"mulligan logs {run_id} -f{here}": "what its steps write",
        f"mulligan wait {run_id}{here}": "until it has ended",
        f"mulligan cancel {run_id}{here}": "stop it",
    }
    width = max(map(len, commands))
    for command, what in commands.items():
        complain(f"  {command:<{width}}  # {what}")
    show(str(run_id))
    return 0


def _follow(
    service: Service, run_id: int, *, parallel: int | None, wait_seconds: float, as_json: bool, home: str | None
) -> int:
    """Wait for a run that somebody else drives; drive it where nobody does. Its result is what ours would have been."""
    has_waited = False
    while (record := service.record(run_id)).status not in ENDED:
        has_waited = True
        if service.driver_of(record) is None:
            if record.status == "paused":
                complain(f"it is paused; to let it go on: mulligan resume {run_id}{where(home)}")
                return WAITING
            return conduct(
                service, lambda _: run_id, parallel=parallel, wait_seconds=wait_seconds, as_json=as_json, home=home
            )
        try:
            time.sleep(LOOK_SECONDS)
        except KeyboardInterrupt:
            complain(f"run {run_id} goes on without you; to stop it: mulligan cancel {run_id}{where(home)}")
            raise
    shown = service.show(run_id)
    if has_waited:
        complain(f"run {run_id} {'was cancelled' if record.status == 'cancelled' else record.status}")
    if as_json or shown["outputs"]:
        show_json(shown if as_json else shown["outputs"])
    return exit_code("ended", record.status)

"""`mulligan run --key` and `--detach`: starting a run only once, and starting it in the background."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

from mulligan.cli.output.terminal import complain, show_json
from mulligan.cli.running.continue_run import detach_run, show_detached
from mulligan.cli.running.drive_run import drive_run
from mulligan.cli.words.options import read_notify, service_at, where
from mulligan.cli.words.parameters import Option
from mulligan.core.model.event_types import HostCapacity
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import KeyUsed
from mulligan.service.driving.driver import capacity_for
from mulligan.service.driving.outcome import exit_code
from mulligan.service.runs.changes.run_control import Prepared
from mulligan.service.runs.changes.starting import ExistingRun, check_key
from mulligan.service.service import Service

Key = Annotated[str, Option("KEY", "Start the run only once: the same key gives the same run.")]
WAITING = 4


def start(
    service: Service,
    prepared: Prepared,
    *,
    key: str,
    is_detached: bool,
    asked: HostCapacity | None,
    wait: str,
    wait_seconds: float,
    as_json: bool,
    home: str | None,
) -> int:
    """Start a run and drive it here or in the background; with a key that was used, continue with that run."""
    key = check_key(key) if key else ""
    try:
        if is_detached:
            found = service.starts.start_detached(prepared, key=key, wait=wait)
            return show_detached(found, as_json=as_json, home=home)
        return drive_run(
            service,
            lambda driver: service.control.start(prepared, driver, key=key)[0],
            capacity=capacity_for(asked),
            wait_seconds=wait_seconds,
            as_json=as_json,
            home=home,
        )
    except KeyUsed as used:
        before = service.starts.find_existing_run(prepared, key, used)
    _show_existing(before, key)
    if is_detached:
        found = detach_run(service, before.run_id, asked, wait)
        return show_detached(found, as_json=as_json, home=home)
    return _follow(service, before.run_id, asked=asked, wait_seconds=wait_seconds, as_json=as_json, home=home)


def start_published(
    name: str,
    version: int | None,
    inputs: Mapping[str, str],
    labels: Mapping[str, str],
    *,
    notify: Sequence[str],
    key: str,
    is_detached: bool,
    wait_seconds: float,
    as_json: bool,
    home: str | None,
) -> int:
    """Start a workflow that is published on the server, and show it or leave it to itself."""
    key = check_key(key) if key else ""
    rules = read_notify(notify)
    with service_at(home) as service:
        from mulligan.service.server.server_client import start_published

        begin = partial(start_published, service.home, name, version, inputs, labels, key=key, notify=rules)
        if is_detached:
            return show_detached(service.starts.detach(begin()), as_json=as_json, home=home)
        return drive_run(service, lambda _: begin(), wait_seconds=wait_seconds, as_json=as_json, home=home)


def _show_existing(found: ExistingRun, key: str) -> None:
    complain(f"run {found.run_id} was already started with the key '{key}': it is {found.status}")
    if found.is_other_definition:
        complain("  note: the file has changed since then; the run keeps the workflow that it was started with")


def _follow(
    service: Service, run_id: int, *, asked: HostCapacity | None, wait_seconds: float, as_json: bool, home: str | None
) -> int:
    """Wait for a run that another process drives, or drive it if none does; print its result."""
    has_waited = service.runs.record(run_id).status not in RUN_ENDED
    try:
        record = service.runs.record(run_id) if service.home.is_remote else service.driving.wait_for_driver(run_id)
    except KeyboardInterrupt:
        complain(f"run {run_id} continues in the background; to stop it: mulligan cancel {run_id}{where(home)}")
        raise
    if record.status == "paused":
        complain(f"it is paused; to continue it: mulligan resume {run_id}{where(home)}")
        return WAITING
    if record.status not in RUN_ENDED:
        return drive_run(
            service,
            lambda _: run_id,
            capacity=service.starts.capacity_of(run_id, asked),
            wait_seconds=wait_seconds,
            as_json=as_json,
            home=home,
        )
    shown = service.runs.show(run_id)
    if has_waited:
        complain(f"run {run_id} {'was cancelled' if record.status == 'cancelled' else record.status}")
    if as_json or shown["outputs"]:
        show_json(shown if as_json else shown["outputs"])
    return exit_code("ended", record.status)

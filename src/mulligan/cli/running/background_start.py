"""`mulligan run --key` and `--detach`: starting a run only once, and starting it in the background."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

from mulligan.cli.output.terminal import complain, show_json
from mulligan.cli.running.continue_run import detach_run, show_detached
from mulligan.cli.running.drive_run import CommandContext, drive_run
from mulligan.cli.words.options import read_notify, service_at
from mulligan.cli.words.parameters import Option
from mulligan.core.model.event_types import HostCapacity
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import KeyUsed
from mulligan.service.driving.driver import capacity_for
from mulligan.service.driving.outcome import exit_code
from mulligan.service.runs.changes.prepared_runs import Prepared
from mulligan.service.runs.changes.starting import check_key

Key = Annotated[str, Option("KEY", "Start the run only once: the same key gives the same run.")]
WAITING = 4


def start(
    context: CommandContext,
    prepared: Prepared,
    *,
    key: str,
    is_detached: bool,
    asked: HostCapacity | None,
    wait: str,
    wait_seconds: float,
) -> int:
    """Start a run and drive it here or in the background; with a key that was used, continue with that run."""
    key, service = check_key(key) if key else "", context.service
    try:
        if is_detached:
            return show_detached(context, service.changes.start_detached(prepared, key=key, wait=wait))
        return drive_run(
            context,
            lambda driver: service.changes.create(prepared, driver, key=key)[0],
            capacity=capacity_for(asked),
            wait_seconds=wait_seconds,
        )
    except KeyUsed as used:
        before = service.starts.find_existing_run(prepared, key, used)
    complain(f"run {before.run_id} was already started with the key '{key}': it is {before.status}")
    if before.is_other_definition:
        complain("  note: the file has changed since then; the run keeps the workflow that it was started with")
    if is_detached:
        return show_detached(context, detach_run(service, before.run_id, asked, wait))
    return _follow(context, before.run_id, asked, wait_seconds)


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
        context = CommandContext(service, home, as_json)
        from mulligan.service.server.server_client import start_published

        begin = partial(start_published, service.home, name, version, inputs, labels, key=key, notify=rules)
        if is_detached:
            return show_detached(context, service.starts.detach(begin().run_id))
        return drive_run(context, lambda _: begin().run_id, wait_seconds=wait_seconds)


def _follow(context: CommandContext, run_id: int, asked: HostCapacity | None, wait_seconds: float) -> int:
    """Wait for a run that another process drives, or drive it if none does; print its result."""
    service, here = context.service, context.home_option
    has_waited = service.runs.record(run_id).status not in RUN_ENDED
    try:
        record = service.runs.record(run_id) if service.home.is_remote else service.driving.wait_for_driver(run_id)
    except KeyboardInterrupt:
        complain(f"run {run_id} continues in the background; to stop it: mulligan cancel {run_id}{here}")
        raise
    if record.status == "paused":
        complain(f"it is paused; to continue it: mulligan resume {run_id}{here}")
        return WAITING
    if record.status not in RUN_ENDED:
        capacity = service.starts.capacity_of(run_id, asked)
        return drive_run(context, lambda _: run_id, capacity=capacity, wait_seconds=wait_seconds)
    shown = service.runs.show(run_id)
    if has_waited:
        complain(f"run {run_id} {'was cancelled' if record.status == 'cancelled' else record.status}")
    if context.as_json or shown["outputs"]:
        show_json(shown if context.as_json else shown["outputs"])
    return exit_code("ended", record.status)

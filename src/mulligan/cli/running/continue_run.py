"""After a command has changed a run: who continues it. One rule for every such command.

The command drives the run on, as `mulligan resume` does and with the exit codes of `mulligan run`, unless something
else does: a process that drives the run, a worker that takes up runs of this store, a server. Then it names that and
returns 0. `--follow` drives the run although there are workers, and shows the progress of one that a process drives
already; `--detach` leaves it to a process in the background, `--no-follow` leaves it as it is.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec

from mulligan.cli.output.terminal import UsageRefused, complain, show, show_json, show_result
from mulligan.cli.running.drive_run import WAIT_SECONDS, CommandContext, drive_run
from mulligan.cli.words.parameters import Flag
from mulligan.core.model.event_types import HostCapacity
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.service.driving.driver import Driver
from mulligan.service.rendering.next_commands import DETACHED, suggest_commands
from mulligan.service.runs.changes.starting import DetachedRun
from mulligan.service.service import Service

if TYPE_CHECKING:
    from mulligan.service.runs.changes.fork_at import EventFork
    from mulligan.service.runs.changes.round_plans import ForkResult

CANCELLED = 3

Follow = Annotated[
    bool | None,
    Flag(
        "Drive the run here, or only record the change (default: drive it if nothing else does).",
        "--follow/--no-follow",
    ),
]
Detach = Annotated[bool, Flag("Run it in the background, print the number of the run, and return.", "--detach", "-d")]


class Continuation(msgspec.Struct, frozen=True):
    """What was asked for: to drive the run here, not to, or None for the rule; and to drive it in the background."""

    follows: bool | None = None
    is_detached: bool = False


def read_continuation(follows: bool | None, is_detached: bool) -> Continuation:
    """What the two options ask for."""
    if follows is not None and is_detached:
        option = "--follow" if follows else "--no-follow"
        raise UsageRefused(f"{option} and --detach cannot be combined", hint="give one of them")
    return Continuation(follows, is_detached)


def mention_changed_file(context: CommandContext, run_id: int, *, is_retry: bool = False) -> None:
    """Note that the file of the run has changed, since a run keeps the workflow that it was started with."""
    file = context.service.starts.changed_file(run_id)
    if file:
        shown = os.path.relpath(file)
        how = f"to run the new version: mulligan fork {run_id} --from STEP"
        if is_retry:
            how = f"to continue with the new version: mulligan retry {run_id}"
        complain(
            f"note: '{shown}' has changed since run {run_id} was started; the run keeps the old version\n"
            f"  {how} --file {shlex.quote(shown)}{context.home_option}"
        )


# -- the rule --------------------------------------------------------------------------------------------------------


def drives_here(service: Service, chosen: Continuation, run_id: int | None = None) -> bool:
    """Whether this process drives the run on; without a run, one that is about to be started."""
    if chosen.is_detached or chosen.follows is False:
        return False
    record = None if run_id is None else service.runs.record(run_id)
    if record is not None and record.status in RUN_ENDED:
        # Its last turn was the change: there is nothing left but to show how it ended.
        return True
    if chosen.follows:
        return record is None or service.home.is_remote or service.runs.driver_of(record) is None
    return not service.home.is_remote and service.driving.who_continues(run_id) is None


def continue_run(
    context: CommandContext, run_id: int, chosen: Continuation, *, asked: HostCapacity | None = None
) -> int:
    """Drive the run that was changed, or the run above it; or name what does. The exit code is that of `run`, or 0.

    It has the capacity that it was started with, unless another is asked for.
    """
    service = context.service
    root = service.runs.record(run_id).root_run_id or run_id
    if drives_here(service, chosen, root):
        return drive_run(context, lambda _: root, capacity=service.starts.capacity_of(root, asked))
    if chosen.is_detached:
        return show_detached(context, detach_run(service, root, asked))
    is_open = name_driver(context, root, "" if context.prints else f"run {root}: ")
    if chosen.follows or (chosen.follows is None and not is_open):
        # A worker may have been faster than we are: then there is nothing left but to show how it ended.
        return drive_run(context, lambda _: root, is_driven=True)
    if context.as_json and context.prints:
        show_json(service.runs.show(run_id))
    return 0


def name_driver(context: CommandContext, run_id: int, prefix: str = "") -> bool:
    """Say what continues an unfinished run, or how to. False, and nothing is said, if the run has ended."""
    service = context.service
    record = service.runs.record(run_id)
    if record.status in RUN_ENDED:
        return False
    if (driver := service.runs.driver_of(record)) is not None:
        complain(f"{prefix}process {driver.pid} on {driver.host} drives it")
    elif service.home.is_remote:
        complain(f"{prefix}the workers of the server continue it")
    elif (worker := service.driving.who_continues()) is not None:
        complain(f"{prefix}process {worker.pid} on {worker.host}, a worker of this store, takes it up")
    else:
        complain(f"{prefix}nothing is running it; to run it here: mulligan resume {run_id}{context.home_option}")
    return True


def start_and_continue(
    context: CommandContext,
    begin: Callable[[Driver | None], ForkResult | EventFork],
    chosen: Continuation,
    *,
    like_run: int,
    describe: Callable[[int | None], None],
) -> int:
    """Start a run that continues `like_run`, by the same rule: driven here, it is never without a driver."""

    def started(driver: Driver | None) -> int:
        run_id = begin(driver).fork_run_id
        assert run_id is not None
        return run_id

    if drives_here(context.service, chosen):
        describe(None)
        return drive_run(context, started, capacity=context.service.starts.capacity_of(like_run))
    new = started(None)
    describe(new)
    return continue_run(context, new, Continuation(False, chosen.is_detached))


def finish_run(context: CommandContext, run_id: int, chosen: Continuation) -> int:
    """Drive a stopping run to its end, by the same rule: cleanup, undo and `end` must run. Cancelled is a success.

    A child run stops when its parent continues, which may start steps: that is for `resume`.
    """
    service = context.service
    record = service.runs.record(run_id)
    if record.status in RUN_ENDED:
        complain(f"run {run_id} is {record.status}")
    elif record.parent_run_id is not None and service.runs.driver_of(record) is None:
        typed = f"mulligan resume {record.root_run_id}{context.home_option}"
        complain(f"run {run_id} will stop when its parent continues: {typed}")
    elif drives_here(service, chosen, run_id):
        runs_here = "" if service.home.is_remote else ": its cleanup and its end run here"
        complain(f"run {run_id} is stopping and nothing is running it{runs_here}")
        code = drive_run(context, lambda _: run_id, capacity=service.starts.capacity_of(run_id))
        return 0 if code == CANCELLED else code
    elif chosen.is_detached:
        return show_detached(context, detach_run(service, run_id))
    else:
        name_driver(context, run_id, f"run {run_id} is stopping: ")
        if chosen.follows:
            code = drive_run(context, lambda _: run_id, is_driven=True)
            return 0 if code == CANCELLED else code
    if context.as_json:
        show_json(service.runs.show(run_id))
    return 0


# -- in the background -----------------------------------------------------------------------------------------------


def detach_run(
    service: Service, run_id: int, asked: HostCapacity | None = None, wait: str = f"{WAIT_SECONDS:g}s"
) -> DetachedRun:
    """See that a process in the background drives the run, unless it has ended, is paused, or is driven."""
    record = service.runs.record(run_id)
    if record.status in RUN_ENDED or record.status == "paused":
        return DetachedRun(run_id, record.status)
    driver = service.runs.driver_of(record)
    if driver is None:
        return service.starts.detach(run_id, asked=asked, wait=wait)
    return DetachedRun(run_id, record.status, driver.pid, driver.host)


def show_detached(context: CommandContext, found: DetachedRun) -> int:
    """Print the number on stdout, for scripts; and what to do with it on stderr."""
    run_id = found.run_id
    if context.as_json:
        if context.prints:
            show_result(found)
        return 0
    if found.status == "running":
        driver = f": process {found.pid} on {found.host} drives it" if found.host else ""
        complain(f"run {run_id} runs in the background{driver}")
    else:
        complain(f"run {run_id} is {found.status}")
    commands = [(f"{one.text}{context.home_option}", one.why) for one in suggest_commands(run_id, DETACHED)]
    width = max(len(command) for command, _ in commands)
    for command, why in commands:
        complain(f"  {command:<{width}}  # {why}")
    if context.prints:
        show(str(run_id))
    return 0

"""`mulligan debug`: a recorded attempt again, in a debugger."""

from __future__ import annotations

import sys
from typing import Annotated

from mulligan.cli.output.terminal import UsageRefused, complain, show_json
from mulligan.cli.words.options import AsJson, HomeFolder, RunName, StepName, service_at
from mulligan.cli.words.parameters import Flag, Option
from mulligan.service.driving.debugged_attempt import RecordedAttempt
from mulligan.service.rendering.descriptions import summarize_failure

PORTS = range(1, 1 << 16)
REFUSED = 2


def debug(
    run: RunName,
    step: StepName,
    item: Annotated[str | None, Option("I", "The item of a map step, by index or name.")] = None,
    attempt: Annotated[int | None, Option("N", "The number of the attempt (default: the last).")] = None,
    listen: Annotated[
        int | None, Option("PORT", "Wait on this port of this machine for the debugger of an editor (debugpy).")
    ] = None,
    has_locals: Annotated[bool, Flag("Print the local variables of a failure.", "--locals")] = False,
    yes: Annotated[bool, Flag("Do not ask whether its side effects may happen again.", "--yes", "-y")] = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Run a recorded attempt of a step in Python again, in a debugger.

    It gets the same arguments, files and secrets, and works in the folder of the run; it has no time limit. It stops at
    its first line, at each breakpoint() and where it fails; with --listen where the editor says. Nothing is recorded:
    the run stays as it is, but what the step does to the world is real. The exit code is 1 if it fails.
    """
    if listen is not None and listen not in PORTS:
        raise UsageRefused(f"--listen takes a port from 1 to {PORTS[-1]}, not {listen}", hint="--listen 5678")
    with service_at(home) as service:
        run_id = service.runs.find(run)
        place = service.runs.find_place(run_id, step)
        if item is not None:
            (index,) = service.runs.find_items(run_id, step, [item])
            place = f"{step}[{index}]"
        recorded = service.driving.recorded_attempt(run_id, place, attempt)
        complain(f"attempt {recorded.attempt} of '{step}' in run {run_id} again; nothing of it is recorded")
        if recorded.danger and not yes and not _may_run(recorded):
            complain("nothing was run")
            return REFUSED
        if listen is not None:
            complain(f"a debugger can connect to 127.0.0.1:{listen}; the step begins when one has")
        end = service.driving.debug_attempt(recorded, port=listen or 0, has_locals=has_locals)
    if as_json:
        found = {"run_id": run_id, "place": recorded.place, "attempt": recorded.attempt}
        show_json({**found, "failure": end.failure, "output": end.output})
        return 0 if end.failure is None else 1
    if end.failure is None:
        complain("it completed")
        show_json(end.output)
        return 0
    complain(f"it failed with {summarize_failure(end.failure)}")
    for frame in end.failure["traceback"] if has_locals else ():
        complain(f"  {frame['file']}:{frame['line']} in {frame['function']}")
        for name, value in frame.get("locals", {}).items():
            complain(f"    {name} = {value}")
    return 1


def _may_run(recorded: RecordedAttempt) -> bool:
    """Ask a person; refused where nobody can answer."""
    warning = f"what it does to the world is real, and {recorded.danger}"
    if not sys.stdin.isatty():
        raise UsageRefused(warning, hint="if it may happen again: --yes")
    complain(f"{warning}\nrun it again? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")

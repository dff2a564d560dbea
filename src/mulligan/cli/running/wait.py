"""`mulligan wait`: wait for runs that other processes drive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, get_args

from mulligan.cli.output.tables import length
from mulligan.cli.output.terminal import INTERRUPTED, UsageRefused, complain, show_result
from mulligan.cli.reading.list_command import answering_command, first_failure
from mulligan.cli.running.drive_run import worst_code
from mulligan.cli.words.options import LATEST, AsJson, HomeFolder, service_at, where
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.service.authoring.values import parse_duration
from mulligan.service.driving.waiting import Until, WaitEvent
from mulligan.service.runs.views.run_list import RunLine
from mulligan.service.service import Service

# The exit code of the `timeout` command; no run ends with it.
TIMED_OUT = 124


def wait(
    runs: Annotated[list[str] | None, Argument("RUN", "The numbers of runs (default: 'latest').")] = None,
    until: Annotated[str, Option("ended|person", "Wait until the runs end, or until one needs a person.")] = "ended",
    timeout: Annotated[
        str | None, Option("TIME", "The longest time to wait, such as 10m; then the exit code is 124.")
    ] = None,
    forever: Annotated[bool, Flag("Also wait for a run that nothing drives, until a process takes it up.")] = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Wait until runs that another process drives have ended.

    The exit codes are those of `mulligan run`; for several runs the worst. If nothing drives a run, it cannot end: then
    the exit code is 5, or 4 if it waits for a person. Ctrl-C and --timeout do not stop the runs.
    """
    if until not in get_args(Until):
        raise UsageRefused(f"--until does not know '{until}'", hint=f"give {' or '.join(get_args(Until))}")
    seconds = None if timeout is None else parse_duration(timeout)
    with service_at(home) as service:
        run_ids = list(dict.fromkeys(service.runs.find(run) for run in runs or [LATEST]))
        try:
            code = _watch(service, run_ids, until, seconds, where(home), is_forever=forever)
        except KeyboardInterrupt:
            complain("interrupted; the runs continue")
            code = INTERRUPTED
        if as_json:
            show_result(service.runs.summarize(run_ids))
    return code


def _watch(
    service: Service, run_ids: Sequence[int], until: str, seconds: float | None, place: str, *, is_forever: bool
) -> int:
    """Show what happens; return the exit code."""
    codes: list[int] = []
    waits: Until = "person" if until == "person" else "ended"
    for event in service.driving.wait_for_runs(run_ids, until=waits, timeout_seconds=seconds, is_forever=is_forever):
        if event.kind == "timeout":
            verb = "has" if len(event.run_ids) == 1 else "have"
            complain(f"{_runs(event.run_ids)} {verb} not ended after {length(seconds or 0.0)}, and may continue")
            return TIMED_OUT
        if event.kind in ("ended", "person", "undriven"):
            codes.append(event.exit_code)
        complain(_DESCRIPTIONS[event.kind](event, place))
    return worst_code(codes)


def _runs(run_ids: Sequence[int]) -> str:
    return f"run{'' if len(run_ids) == 1 else 's'} {', '.join(map(str, run_ids))}"


def _ended(event: WaitEvent, place: str) -> str:
    assert event.line is not None
    line = event.line
    words = "was cancelled" if line.status == "cancelled" else line.status
    return f"run {line.run_id} {words} in {length(line.seconds)}{_why(line)}"


def _why(line: RunLine) -> str:
    if line.failure is not None and line.status == "failed":
        return f": {first_failure(line.failure)}"
    return f": {line.reason}" if line.reason else ""


def _held_up(event: WaitEvent, place: str) -> str:
    assert event.line is not None
    assert event.hold_up is not None
    if event.text:
        return f"run {event.line.run_id}: {event.text}"
    command = answering_command(event.line, event.hold_up)
    if event.hold_up.kind == "driver":
        command = f"mulligan resume {event.line.run_id}"
    elif event.hold_up.kind == "step_pause":
        hold_up = event.hold_up
        command = f"mulligan resume {hold_up.run_id} {hold_up.place}" if hold_up.count == 1 else "mulligan pending"
    return f"run {event.line.run_id}: {event.hold_up.text}" + (f": {command}{place}" if command else "")


def _trouble(event: WaitEvent, place: str) -> str:
    return event.text


_DESCRIPTIONS: dict[str, Callable[[WaitEvent, str], str]] = {
    "ended": _ended,
    "person": _held_up,
    "undriven": _held_up,
    "held_up": _held_up,
    "trouble": _trouble,
}

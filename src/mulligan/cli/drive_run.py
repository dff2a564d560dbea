"""Driving a run from the command line: it is shown as it goes, summed up when it rests, and becomes an exit code."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mulligan.cli.console_style import paper
from mulligan.cli.display import Display
from mulligan.cli.options import where
from mulligan.cli.summary import tell_outcome
from mulligan.cli.terminal import show_json
from mulligan.service import Driver, Outcome, Service, machine

# How long a run that waits for a person is stayed with, where a timer may move it.
WAIT_SECONDS = 600.0


def conduct(
    service: Service,
    begin: Callable[[Driver], int],
    *,
    parallel: int | None = None,
    wait_seconds: float = WAIT_SECONDS,
    as_json: bool = False,
    home: str | None = None,
    is_kept: bool = True,
) -> int:
    """Drive the run that `begin` gives until it rests, and say how it went. The exit code says the same.

    Of a run that is not kept no command is proposed: it could find nothing.
    """
    sheet = paper()
    capacity = machine(parallel)
    display = Display(sheet, where(home), service.forecast(capacity.cpus) if sheet.is_live else None)
    begun_at = time.monotonic()
    try:
        with service.driver(capacity, display) as driver:
            run_id = begin(driver)
            sheet.say(sheet.tinted(f"run {run_id}: {service.record(run_id).workflow}", "bold"))
            is_taken_up = service.recall(run_id, display.following)
            ending = driver.drive(run_id, wait_seconds)
            seconds = time.monotonic() - begun_at
            found = service.outcome(driver, run_id, ending, display.following, seconds, is_taken_up=is_taken_up)
    finally:
        display.close()
    tell_outcome(sheet, found, home, is_kept=is_kept)
    _show(service, found, as_json)
    return found.exit_code


def _show(service: Service, found: Outcome, as_json: bool) -> None:
    """Data for programs: the whole run where it was asked for, else what the workflow puts out."""
    data: Any = service.show(found.run_id) if as_json else found.outputs
    if as_json or data:
        show_json(data)

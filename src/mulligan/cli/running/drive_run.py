"""Driving a run from the command line: its progress, its summary, and the exit code."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from mulligan.cli.output.terminal import show_json, show_json_parts
from mulligan.cli.words.options import where
from mulligan.service.driving.driver import Capacity, Driver, machine
from mulligan.service.rendering.console.display import Display
from mulligan.service.rendering.console.printer import printer
from mulligan.service.rendering.console.summary import show_outcome
from mulligan.service.service import Service

# How long to wait for a timer of a run that otherwise waits for a person.
WAIT_SECONDS = 600.0
# The exit code for several runs is the first of these that any of them has.
_WORST_FIRST = (130, 1, 3, 5, 4, 0)


class CommandContext(msgspec.Struct, frozen=True):
    """The service that a command works with, and how it answers: which home its hints name, whether as JSON."""

    service: Service
    home: str | None
    as_json: bool
    # Whether it writes on stdout: not about each of several runs.
    prints: bool = True
    # Whether its steps in Python have the terminal, and whether failures keep local variables.
    is_debugged: bool = False
    has_locals: bool = False

    @property
    def home_option(self) -> str:
        """What a suggested command needs to find the same runs."""
        return where(self.home)


def drive_run(
    context: CommandContext,
    begin: Callable[[Driver | None], int],
    *,
    capacity: Capacity | None = None,
    wait_seconds: float = WAIT_SECONDS,
    is_kept: bool = True,
    is_driven: bool = False,
) -> int:
    """Drive the run that `begin` returns until it ends or waits, show a summary, and return the exit code.

    `capacity`: by default all that this machine has. No commands are suggested for a run that is not kept. If another
    process drives the run (`is_driven`), its progress is shown.
    """
    sheet, service = printer(), context.service
    capacity = capacity or machine()
    if context.is_debugged or context.has_locals:
        capacity = service.driving.debugged(capacity, is_debugged=context.is_debugged, has_locals=context.has_locals)
    forecast = service.driving.forecast(capacity.cpus) if sheet.is_live else None
    display = Display(sheet, context.home_option, forecast, read_progress=service.runs.attempt_progress)
    if is_driven:
        found = service.driving.follow_shown(begin, display, wait_seconds=wait_seconds).outcome
    else:
        found = service.driving.drive_shown(begin, display, capacity=capacity, wait_seconds=wait_seconds).outcome
    show_outcome(sheet, found, context.home, is_kept=is_kept)
    if not context.prints:
        return found.exit_code
    if context.as_json:
        show_json_parts(service.runs.show_in_parts(found.run_id, display.progress))
    elif found.outputs:
        show_json(found.outputs)
    return found.exit_code


def worst_code(codes: Collection[int]) -> int:
    """The exit code for several runs, given that of each."""
    return next(code for code in _WORST_FIRST if code in codes)

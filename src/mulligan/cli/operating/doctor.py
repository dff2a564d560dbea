"""`mulligan doctor`: check this machine and the store."""

from __future__ import annotations

from mulligan.cli.output.tables import show_table
from mulligan.cli.output.terminal import complain, show_result
from mulligan.cli.words.options import AsJson, HomeFolder, service_at, with_home
from mulligan.service.host.doctor import Check


def doctor(home: HomeFolder = None, as_json: AsJson = False) -> int:
    """Check this machine and the store, and suggest what to fix.

    The exit code is 1 if there is a problem; a warning is not a problem.
    """
    with service_at(home) as service:
        found = service.machine.examine_machine()
    if as_json:
        show_result(found)
    else:
        show_table(("", "", ""), [(check.health, check.name, check.found) for check in found.checks])
        for check in found.checks:
            _advise(check, home)
    return 0 if found.ok else 1


def _advise(check: Check, home: str | None) -> None:
    if check.advice:
        complain(f"{check.health} with {check.name}: {with_home(check.advice, home)}")

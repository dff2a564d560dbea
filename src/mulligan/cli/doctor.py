"""`mulligan doctor`: what is right and wrong with this machine, and what to do."""

from __future__ import annotations

import msgspec

from mulligan.cli.options import AsJson, HomeFolder, with_home
from mulligan.cli.tables import show_table
from mulligan.cli.terminal import complain, show_json
from mulligan.service.doctor import Check, examine_machine
from mulligan.service.home import find_home


def doctor(home: HomeFolder = None, as_json: AsJson = False) -> int:
    """Check this machine and the store, and suggest what to fix.

    The exit code is 1 if there is a problem; a warning is none.
    """
    checks = list(examine_machine(find_home(home)))
    has_problem = any(check.health == "problem" for check in checks)
    if as_json:
        show_json({"ok": not has_problem, "checks": [msgspec.to_builtins(check) for check in checks]})
    else:
        show_table(("", "", ""), [(check.health, check.name, check.found) for check in checks])
        for check in checks:
            _advise(check, home)
    return 1 if has_problem else 0


def _advise(check: Check, home: str | None) -> None:
    if check.advice:
        complain(f"{check.health} with {check.name}: {with_home(check.advice, home)}")

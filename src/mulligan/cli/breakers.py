"""`mulligan breakers`: how the circuit breakers of a store are, and closing one by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from mulligan.cli.options import AsJson, HomeFolder, service_at
from mulligan.cli.parameters import Option
from mulligan.cli.tables import length, show_table
from mulligan.cli.terminal import complain, show_json
from mulligan.service import Breaker, Service, to_json
from mulligan.service.formatting import pluralize

HEADS = ("BREAKER", "STATUS", "FAILURES", "WAITING", "")


def show_breakers(
    name: Annotated[str | None, Option("--reset", metavar="NAME", help="Close this one: who waits goes on.")] = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show the circuit breakers of a store, or close one.

    They are no part of a run: one that is open keeps the tasks of all runs waiting.
    """
    with service_at(home) as service:
        if name is not None:
            complain(_reset(service, name))
        found = service.list_breakers()
    if as_json:
        show_json(to_json([one for one in found if name in (None, one.name)]))
    elif name is None:
        _show(found, datetime.now(UTC))


def _show(found: list[Breaker], now: datetime) -> None:
    if not found:
        complain("no task has asked a breaker yet")
    show_table(HEADS, [_row(one, now) for one in found])


def _row(one: Breaker, now: datetime) -> tuple[str, ...]:
    failures, waiting = str(one.failures).rjust(len("FAILURES")), str(one.waiting).rjust(len("WAITING"))
    return one.name, one.status, failures, waiting, _note(one, now)


def _note(one: Breaker, now: datetime) -> str:
    """What happens next."""
    if one.status == "half_open":
        return "one task finds out whether it is well again"
    if one.status == "closed" or one.retry_at is None:
        return ""
    seconds = (one.retry_at - now).total_seconds()
    return f"a task may try in {length(seconds)}" if seconds > 0 else "the next task may try"


def _reset(service: Service, name: str) -> str:
    was = service.reset_breaker(name)
    if was.status == "closed" and not was.failures:
        return f"breaker '{name}' was closed, and is"
    before = f"it was {was.status.replace('_', ' ')} after {pluralize(was.failures, 'failure')} in a row"
    waited = f", and {pluralize(was.waiting, 'task')} waited" if was.waiting else ""
    return f"breaker '{name}' is closed; {before}{waited}"

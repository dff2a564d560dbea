"""`mulligan breakers`: the circuit breakers of a store, and closing one by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from mulligan.cli.output.tables import length, show_table
from mulligan.cli.output.terminal import complain, show_result
from mulligan.cli.words.options import AsJson, HomeFolder, service_at
from mulligan.cli.words.parameters import Option
from mulligan.service.host.breakers import Breaker
from mulligan.service.rendering.formatting import pluralize
from mulligan.service.service import Service

HEADS = ("BREAKER", "STATUS", "FAILURES", "RUNNING", "WAITING", "")


def show_breakers(
    name: Annotated[
        str | None, Option("NAME", "Close this breaker, so that waiting tasks continue.", "--reset")
    ] = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show the circuit breakers of a store, or close one.

    Breakers belong to the store: an open breaker holds back the tasks of all runs.
    """
    with service_at(home) as service:
        if name is not None:
            complain(_reset(service, name))
        found = service.machine.list_breakers()
    if as_json:
        show_result([one for one in found if name in (None, one.name)])
    elif name is None:
        _show(found, datetime.now(UTC))


def _show(found: list[Breaker], now: datetime) -> None:
    if not found:
        complain("no task has asked a breaker yet")
    show_table(HEADS, [_row(one, now) for one in found])


def _row(one: Breaker, now: datetime) -> tuple[str, ...]:
    counts = zip((one.failures, one.running, one.waiting), HEADS[2:5], strict=True)
    return one.name, one.status, *(str(count).rjust(len(head)) for count, head in counts), _note(one, now)


def _note(one: Breaker, now: datetime) -> str:
    """What happens next."""
    if one.status == "half_open":
        return "one task tests it"
    if one.max_running is not None and one.waiting:
        return f"{pluralize(one.max_running, 'task')} at once"
    if one.status == "closed" or one.retry_at is None:
        return ""
    seconds = (one.retry_at - now).total_seconds()
    return f"one task may test it in {length(seconds)}" if seconds > 0 else "the next task tests it"


def _reset(service: Service, name: str) -> str:
    was = service.machine.reset_breaker(name)
    if was.status == "closed" and not was.failures:
        return f"breaker '{name}' was already closed"
    before = f"it was {was.status.replace('_', ' ')} after {pluralize(was.failures, 'failure')} in a row"
    waited = f", and {pluralize(was.waiting, 'task')} waited" if was.waiting else ""
    return f"breaker '{name}' is closed; {before}{waited}"

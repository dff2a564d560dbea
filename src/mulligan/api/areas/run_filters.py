"""Which runs somebody asks for: the filters of the list, as the interface and the dashboard have them in an address."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from mulligan.api.http.routing import Query
from mulligan.errors import InputInvalid
from mulligan.service.authoring.values import parse_time
from mulligan.service.runs.views.run_list import RunQuery, parse_statuses


class RunFilters(Query, frozen=True):
    """A parameter that is given several times matches any of its values; labels and inputs all."""

    workflow: tuple[str, ...] = ()
    # running, paused, completed, failed, cancelled; open and ended stand for several.
    status: tuple[str, ...] = ()
    # Started since then, before then: 2026-11-01T08:00:00Z, or how long ago: 2h, 7d.
    since: str = ""
    until: str = ""
    # Who started them.
    who: tuple[str, ...] = ()
    # NAME=VALUE.
    label: tuple[str, ...] = ()
    input: tuple[str, ...] = ()
    # Words in their name, labels, inputs or failures.
    text: str = ""
    # The code of a failure that nothing handled: TIMEOUT.
    failure: tuple[str, ...] = ()


def run_query(asked: RunFilters, **others: Any) -> RunQuery:
    """The question to the service. `others`: its fields that are no filters. `InputInvalid`."""
    now = datetime.now(UTC)
    return RunQuery(
        statuses=parse_statuses(asked.status),
        workflows=asked.workflow,
        since=parse_time(asked.since, now) if asked.since else None,
        until=parse_time(asked.until, now) if asked.until else None,
        inputs=read_pairs(asked.input, "input"),
        labels=read_pairs(asked.label, "label"),
        starters=asked.who,
        failure_codes=asked.failure,
        text=asked.text,
        **others,
    )


def moment_of(text: str) -> datetime | None:
    """The moment that a text says, or how long ago it is; None for "". `InputInvalid`."""
    return parse_time(text, datetime.now(UTC)) if text else None


def read_pairs(given: Iterable[str], what: str) -> dict[str, str]:
    """Values by name, of texts such as `team=night`. `InputInvalid`."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputInvalid(f"'{text}' names no {what}", hint=f"write {what}=NAME=VALUE", parameter=what)
        found[name] = value
    return found

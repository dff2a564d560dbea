"""Circuit breakers, for people: how they are, closing one by hand, and which places wait for one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ..core.state import State
from ..errors import UnknownBreaker
from ..language.words import did_you_mean
from ..ports import BreakerRecord
from .verbs import Service


def breakers(service: Service) -> list[dict[str, Any]]:
    """Every breaker that a task of the store has asked, by name."""
    return [as_json(record) for record in _records(service)]


def reset(service: Service, name: str) -> BreakerRecord:
    """Close a breaker, whatever it was; what it was is given back. Tasks that wait for it go on at once."""
    found = {record.name: record for record in _records(service)}
    if name not in found or not service.store.reset_breaker(name):
        hint = did_you_mean(name, found) or "a breaker is known once a task has asked it: see `mulligan breakers`"
        raise UnknownBreaker(f"there is no breaker '{name}'", hint=hint, breaker=name)
    return found[name]


def waits(service: Service, state: State) -> dict[str, str]:
    """The places of a run that are ready and wait for a breaker, and what to say of each."""
    if not state.workflow.breakers:
        return {}
    told = {record.name: text for record in _records(service) if (text := describe(record, datetime.now(UTC)))}
    return {
        place.key: told[place.spec.breaker]
        for place in state.places.values()
        if place.status == "ready" and place.spec.breaker in told
    }


def describe(record: BreakerRecord, now: datetime) -> str:
    """What a task waits for that asks this breaker; nothing where it is closed."""
    if record.status == "open" and record.retry_at is not None and record.retry_at > now:
        return f"breaker '{record.name}' is open until {record.retry_at:%Y-%m-%d %H:%M:%S} UTC"
    if record.status == "half_open":
        return f"breaker '{record.name}' is half open: one task finds out whether it is well again"
    return f"breaker '{record.name}' lets one task try" if record.status == "open" else ""


def as_json(record: BreakerRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "status": record.status,
        "failures": record.failures,
        "retry_at": None if record.retry_at is None else record.retry_at.isoformat(),
        "waiting": record.waiting,
    }


def _records(service: Service) -> list[BreakerRecord]:
    return service.store.breakers() if service.home.is_there else []

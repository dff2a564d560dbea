"""Circuit breakers, for people: how they are, and closing one by hand."""

from __future__ import annotations

from typing import Any

from mulligan.errors import UnknownBreaker
from mulligan.language.suggestions import did_you_mean
from mulligan.ports import BreakerRecord
from mulligan.service.verbs import Service


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

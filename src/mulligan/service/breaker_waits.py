"""Which places of a run are held up by a circuit breaker: they wait for a time, or for a probe, and for no worker."""

from __future__ import annotations

from datetime import UTC, datetime

from mulligan.core.model.formatting import format_time
from mulligan.core.state.state import State
from mulligan.history.obstacles import Obstacle
from mulligan.ports import BreakerRecord, Breakers


def held_up(store: Breakers, state: State, now: datetime | None = None) -> dict[str, Obstacle]:
    """The places that are ready and wait for a breaker, and for which. Without breakers it costs nothing."""
    if not state.workflow.breakers:
        return {}
    now = now or datetime.now(UTC)
    closed = {record.name: found for record in store.breakers() if (found := _obstacle(record, now))}
    ready = (place for place in state.places.values() if place.status == "ready")
    return {place.key: closed[place.spec.breaker] for place in ready if place.spec.breaker in closed}


def _obstacle(record: BreakerRecord, now: datetime) -> Obstacle | None:
    text = describe(record, now)
    until = record.retry_at if record.status == "open" else None
    return Obstacle("breaker", text, breaker=record.name, until=until) if text else None


def describe(record: BreakerRecord, now: datetime) -> str:
    """What a task waits for that asks this breaker; nothing where it need not wait."""
    if record.status == "half_open":
        return f"breaker '{record.name}' is half open: one task finds out whether it is well again"
    if record.status == "closed" or record.retry_at is None or record.retry_at <= now:
        return ""
    return f"breaker '{record.name}' is open until {format_time(record.retry_at)}"

"""The places of a run that wait for a circuit breaker: for a time or a probe, not for a worker."""

from __future__ import annotations

from datetime import UTC, datetime

from mulligan.core.model.formatting import format_time
from mulligan.core.state.state import State
from mulligan.history.obstacles import Obstacle
from mulligan.ports import BreakerRecord, Store


def find_breaker_waits(store: Store, state: State, now: datetime | None = None) -> dict[str, Obstacle]:
    """The ready places that wait for a breaker, and for which. A workflow without breakers costs nothing."""
    if not state.workflow.breakers:
        return {}
    now = now or datetime.now(UTC)
    blocking = {record.name: obstacle for record in store.breakers() if (obstacle := _obstacle(record, now))}
    ready = (place for place in state.places.values() if place.status == "ready")
    return {place.key: blocking[place.spec.breaker] for place in ready if place.spec.breaker in blocking}


def _obstacle(record: BreakerRecord, now: datetime) -> Obstacle | None:
    text = describe(record, now)
    until = record.retry_at if record.status == "open" else None
    return Obstacle("breaker", text, breaker=record.name, until=until) if text else None


def describe(record: BreakerRecord, now: datetime) -> str:
    """What a task behind this breaker waits for; "" if it need not wait."""
    if record.status == "half_open":
        return f"breaker '{record.name}' is half open: one task probes whether the service works again"
    if record.status == "closed" or record.retry_at is None or record.retry_at <= now:
        return ""
    return f"breaker '{record.name}' is open until {format_time(record.retry_at)}"

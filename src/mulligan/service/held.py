"""Which places of a run are held up by a circuit breaker: they wait for a time, or for a probe, and for no worker."""

from __future__ import annotations

from datetime import UTC, datetime

from ..core.state import State
from ..core.words import moment
from ..ports import BreakerRecord, Store


def held_up(store: Store, state: State, now: datetime | None = None) -> dict[str, str]:
    """The places that are ready and wait for a breaker, and what to say of each. Without breakers it costs nothing."""
    if not state.workflow.breakers:
        return {}
    now = now or datetime.now(UTC)
    told = {record.name: text for record in store.breakers() if (text := describe(record, now))}
    ready = (place for place in state.places.values() if place.status == "ready")
    return {place.key: told[place.spec.breaker] for place in ready if place.spec.breaker in told}


def describe(record: BreakerRecord, now: datetime) -> str:
    """What a task waits for that asks this breaker; nothing where it need not wait."""
    if record.status == "half_open":
        return f"breaker '{record.name}' is half open: one task finds out whether it is well again"
    if record.status == "closed" or record.retry_at is None or record.retry_at <= now:
        return ""
    return f"breaker '{record.name}' is open until {moment(record.retry_at)}"

"""Circuit breakers: how they stand, closing one by hand, and which places of a run wait for one."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from mulligan.core.model.text.formatting import format_time
from mulligan.core.state.scope import breaker_of
from mulligan.core.state.state import State
from mulligan.errors import UnknownBreaker
from mulligan.history.obstacles import Obstacle, ObstacleKind
from mulligan.language.text.suggestions import did_you_mean
from mulligan.ports import BreakerRecord, Store
from mulligan.service.rendering.formatting import pluralize
from mulligan.service.runs.stored.run_reader import RunReader


class Breaker(msgspec.Struct, frozen=True):
    """A circuit breaker: `failures` in a row, and how many tasks wait for it and run behind it."""

    name: str
    status: str
    failures: int
    # From when an open breaker lets one task through.
    retry_at: datetime | None
    waiting: int
    running: int
    # How many may run at once now; None: any number, or it is not closed.
    max_running: int | None


def list_breakers(reader: RunReader) -> list[Breaker]:
    """Every breaker that a task of this store has asked, by name."""
    records = reader.store.breakers() if reader.home.is_there else []
    return [
        Breaker(one.name, one.status, one.failures, one.retry_at, one.waiting, one.running, one.max_running)
        for one in records
    ]


def reset_breaker(reader: RunReader, name: str, *, is_dry: bool = False) -> Breaker:
    """Close a breaker and return how it was before. Tasks that wait for it continue at once."""
    breakers = {breaker.name: breaker for breaker in list_breakers(reader)}
    if name not in breakers or (not is_dry and not reader.store.reset_breaker(name)):
        hint = did_you_mean(name, breakers) or "a breaker appears when a task first asks it: mulligan breakers"
        raise UnknownBreaker(f"there is no breaker '{name}'", hint=hint, breaker=name)
    return breakers[name]


def find_breaker_waits(store: Store, state: State, now: datetime | None = None) -> dict[str, Obstacle]:
    """The places that are ready and wait for a breaker, with that breaker. Without breakers nothing is read."""
    if not state.workflow.breakers:
        return {}
    now = now or datetime.now(UTC)
    closed = {record.name: found for record in store.breakers() if (found := _obstacle(record, now))}
    ready = (place for place in state.places.values() if place.status == "ready")
    guarded = ((place.key, breaker_of(state, place)) for place in ready if place.spec.breaker is not None)
    return {key: closed[name] for key, name in guarded if name in closed}


def _obstacle(record: BreakerRecord, now: datetime) -> Obstacle | None:
    text = describe_breaker_wait(record, now)
    until = record.retry_at if record.status == "open" else None
    kind: ObstacleKind = "parallel" if record.is_full else "breaker"
    return Obstacle(kind, text, breaker=record.name, until=until) if text else None


def describe_breaker_wait(record: BreakerRecord, now: datetime) -> str:
    """Why a task waits for this breaker; "" if it need not wait."""
    if record.status == "half_open":
        return f"breaker '{record.name}' is half open: one task probes whether the service works again"
    if record.is_full:
        running = f"{record.running} {'is' if record.running == 1 else 'are'} running"
        after = f", after {pluralize(record.failures, 'failure')} in a row" if record.failures else ""
        return f"breaker '{record.name}' lets no more tasks run at once: {running}{after}"
    if record.status == "closed" or record.retry_at is None or record.retry_at <= now:
        return ""
    return f"breaker '{record.name}' is open until {format_time(record.retry_at)}"

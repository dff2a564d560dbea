"""Somebody in a simulated world who sees what no store keeps: which tasks run where, whose word a store took, who
looked for the dead.

A promise that does not hold is noted in `complaints` and raised by the world: an engine would take an error that is
raised inside of it for one of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import msgspec

from ..core.reports import Report
from ..ports import Commit, Committed, Lease, Store
from .databases import Database
from .holdings import Holdings
from .puppets import Puppets


class Search(msgspec.Struct, frozen=True):
    """Somebody looks for the dead: whom there is to be found, and since when."""

    dead: frozenset[str]
    at: datetime


class Witness:
    """Sees every task that is started, every report about a lease, and every search for the dead that came to its end.

    `lease_seconds`: how old a heartbeat may be, in a store where heartbeats count.
    """

    def __init__(self, database: Database, lease_seconds: float | None) -> None:
        self.complaints: list[str] = []
        self.leased = database.leased
        self._lease = None if lease_seconds is None else timedelta(seconds=lease_seconds)
        # All that have ever run something, also those of processes that are dead: what they left runs on.
        self._hands: list[Puppets] = []
        self._started: set[tuple[int, int, str, int]] = set()
        self._known_dead: set[str] = set()
        self._searched_at: datetime | None = None

    # -- tasks that run ----------------------------------------------------------------------------------------------

    def watch(self, hands: Puppets) -> None:
        self._hands.append(hands)

    def starting(self, hands: Puppets, lease: Lease) -> None:
        """Hands are about to start a task."""
        self._promise_4_a_lease_is_started_once(lease)
        self._promise_4_attempts_never_overlap_on_one_host(hands, lease)
        self._started.add(_known_by(lease))

    def _promise_4_a_lease_is_started_once(self, lease: Lease) -> None:
        if _known_by(lease) in self._started:
            self.complaints.append(f"promise 4: {_told(lease)} was started twice with one lease")

    def _promise_4_attempts_never_overlap_on_one_host(self, hands: Puppets, lease: Lease) -> None:
        for other in self._hands:
            token = other.token_of(lease.task.run_id, lease.task.place) if other.host == hands.host else None
            if token is not None:
                self.complaints.append(f"promise 4: {_told(lease)} starts on {hands.host}, where {other.name} runs it")

    def end_leftovers(self, name: str) -> None:
        """What a worker left running on its host is ended."""
        for hands in self._hands:
            if hands.name == name:
                hands.lose_all()

    # -- whose word counts -------------------------------------------------------------------------------------------

    def beside(self, store: Store) -> Store:
        """The same store, with somebody who listens."""
        return cast(Store, _Overheard(store, self))

    def promise_2_a_void_lease_is_not_heard(self, tokens: Collection[int], leased: Collection[int]) -> None:
        """Asked when the store has taken a report about these leases, and there were those just before."""
        void = [token for token in tokens if token not in leased]
        if void:
            self.complaints.append(f"promise 2: a report about lease {void[0]} was taken, and there was no such lease")

    # -- the dead ----------------------------------------------------------------------------------------------------

    def has_searched(self, search: Search) -> None:
        """Somebody has looked for the dead, and nothing came in between."""
        self._known_dead |= search.dead
        self._searched_at = max(search.at, self._searched_at or search.at)

    def see(self, held: Holdings) -> None:
        self._promise_7_the_dead_are_buried_by_who_looks(held)

    def _promise_7_the_dead_are_buried_by_who_looks(self, held: Holdings) -> None:
        """Those whose locks are free, and where heartbeats count those whose last one is too old."""
        for name in sorted(held.workers.keys() & self._known_dead):
            self.complaints.append(f"promise 7: {name} is dead, somebody has looked, and it was not buried")
        if self._lease is None or self._searched_at is None:
            return
        for name, beat_at in held.workers.items():
            if beat_at < self._searched_at - self._lease:
                self.complaints.append(f"promise 7: {name} has not been heard of since {beat_at}, and was not buried")


class _Overheard:
    """Passes every call on. What is said about leases is held against those that there are."""

    def __init__(self, store: Store, witness: Witness) -> None:
        self._store = store
        self._witness = witness

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def report(self, token: int, report: Report, **named: Any) -> None:
        leased = self._witness.leased()
        self._store.report(token, report, **named)
        self._witness.promise_2_a_void_lease_is_not_heard([token], leased)

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        ended = [token for commit in commits for token in commit.ended]
        leased = self._witness.leased() if ended else set()
        written = self._store.commit(commits)
        self._witness.promise_2_a_void_lease_is_not_heard(ended, leased)
        return written


def _known_by(lease: Lease) -> tuple[int, int, str, int]:
    return lease.token, lease.task.run_id, lease.task.place, lease.task.attempt


def _told(lease: Lease) -> str:
    return f"attempt {lease.task.attempt} of '{lease.task.place}' in run {lease.task.run_id}"

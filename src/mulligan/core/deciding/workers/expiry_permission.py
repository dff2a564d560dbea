"""Which worker may declare another one dead: only a worker whose own heartbeats reached the store without a gap.

A worker whose last heartbeat is older than the lease may be dead. But after an outage of the store all heartbeats are
old although the workers are alive. The store cannot distinguish the two; a worker can, by its own heartbeats. After a
gap, or after its start, a worker gives the others a whole lease to report before it declares one of them dead.
"""

from __future__ import annotations

import msgspec

# Heartbeats are sent six times per lease. If two of ours are further apart than this share of it, there was a gap.
# A shorter gap expires no worker: the others' heartbeats are then at most two thirds of a lease old, and the last
# third remains to renew them.
_GAP_SHARE_MAX = 1 / 2


class HeartbeatSeries(msgspec.Struct, frozen=True):
    """A series of heartbeats without a gap: when the first was accepted, and when the last was sent.

    All times are `Clock.elapsed`: a suspended host sends no heartbeats, and setting the clock makes no gap.
    """

    began: float
    last_sent: float

    def after_heartbeat(self, sent: float, accepted: float, lease_seconds: float) -> HeartbeatSeries:
        """The series with one more heartbeat, or a new series if the last heartbeat was too long ago."""
        return HeartbeatSeries(self.began if self._is_unbroken(accepted, lease_seconds) else accepted, sent)

    def may_expire_others(self, now: float, lease_seconds: float) -> bool:
        """Whether the series covers a whole lease up to now, so that a missing heartbeat was not sent."""
        return now - self.began > lease_seconds and self._is_unbroken(now, lease_seconds)

    def _is_unbroken(self, now: float, lease_seconds: float) -> bool:
        return now - self.last_sent <= lease_seconds * _GAP_SHARE_MAX


def first_heartbeat(registered: float) -> HeartbeatSeries:
    """The series of a worker that has just registered."""
    return HeartbeatSeries(registered, registered)

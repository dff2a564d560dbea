"""Which worker may take another for dead: only one whose own heartbeats reached the store all the time.

A worker whose last heartbeat is older than the lease may be dead. But where the server was down, or nobody could reach
it, all heartbeats are old and all workers are alive. The store cannot tell the two apart; a worker can, by its own
heartbeats. One that was cut off gives everybody a whole lease to come back before it judges anybody again. So does one
that has just started: it does not know what was before. One that was never cut off judges the others by the lease.
"""

from __future__ import annotations

import msgspec

# Heartbeats are sent six times in a lease. Where two of ours lie further apart than this share of it, we were cut off.
# A shorter cut expires nobody: the others' heartbeats are then at most two thirds of a lease old, and they have the
# last third to come back.
_GAP_SHARE_MAX = 1 / 2


class HeartbeatSeries(msgspec.Struct, frozen=True):
    """Heartbeats without a gap: when the first one was accepted, and when the last one was sent.

    All moments are by `Clock.elapsed`: a suspended host sends no heartbeats, and a clock that is set makes no gap.
    """

    began: float
    last_sent: float

    def after_heartbeat(self, sent: float, accepted: float, lease_seconds: float) -> HeartbeatSeries:
        """The series with one more heartbeat, or a new one where the last heartbeat was too long ago."""
        return HeartbeatSeries(self.began if self._is_unbroken(accepted, lease_seconds) else accepted, sent)

    def may_expire_others(self, now: float, lease_seconds: float) -> bool:
        """Whether we have had contact for a whole lease until now, so that a heartbeat we do not see was not sent."""
        return now - self.began > lease_seconds and self._is_unbroken(now, lease_seconds)

    def _is_unbroken(self, now: float, lease_seconds: float) -> bool:
        return now - self.last_sent <= lease_seconds * _GAP_SHARE_MAX


def first_heartbeat(registered: float) -> HeartbeatSeries:
    """Of a worker that has just been registered."""
    return HeartbeatSeries(registered, registered)

"""Which worker may take another for dead: only one whose own heartbeats reached the store all the time.

A worker whose last heartbeat is older than the lease may be dead. But where the server was down, or nobody could reach
it, all heartbeats are old and all workers are alive. The store cannot tell the two apart; a worker can, by its own
heartbeats. One that was cut off gives everybody a whole lease to come back before it judges anybody again. So does one
that has just started: it does not know what was before. One that was never cut off judges the others by the lease.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

# Heartbeats are sent six times in a lease. Where two of ours lie further apart than this share of it, we were cut off.
# A shorter cut expires nobody: the others' heartbeats are then at most two thirds of a lease old, and they have the
# last third to come back.
_GAP_SHARE_MAX = 1 / 2


class Instant(msgspec.Struct, frozen=True):
    """A moment by the two clocks of a host. The monotonic one stands still while the host is suspended."""

    monotonic: float
    wall: datetime

    def seconds_since(self, earlier: Instant) -> float:
        """By the clock that shows more: too long a gap costs patience, too short a one costs work."""
        return max(self.monotonic - earlier.monotonic, (self.wall - earlier.wall).total_seconds())


class Contact(msgspec.Struct, frozen=True):
    """A series of heartbeats without a gap: when it began, and when its last one was sent."""

    began: float
    last_sent: Instant

    def after_heartbeat(self, sent: Instant, accepted: Instant, lease_seconds: float) -> Contact:
        """The series with one more heartbeat, or a new one where the last heartbeat was too long ago."""
        is_unbroken = accepted.seconds_since(self.last_sent) <= lease_seconds * _GAP_SHARE_MAX
        return Contact(self.began if is_unbroken else accepted.monotonic, sent)

    def may_expire_others(self, now: float, lease_seconds: float) -> bool:
        """Whether we had contact for a whole lease, so that a heartbeat we do not see was not sent."""
        return now - self.began > lease_seconds


def first_contact(registered: Instant) -> Contact:
    """Of a worker that has just been registered."""
    return Contact(registered.monotonic, registered)

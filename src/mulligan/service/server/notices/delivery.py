"""What came of sending a message once."""

from __future__ import annotations

import msgspec


class Delivery(msgspec.Struct, frozen=True):
    """Sent if `problem` is empty."""

    problem: str = ""
    # Other messages to this target would fail as well, so they are not tried now.
    is_target_down: bool = False
    # The trouble is the target's, and may have passed with the next message: some in a row mean that it is down.
    is_target_busy: bool = False
    # How long the receiver asked to wait, in seconds.
    retry_after: float = 0.0

"""Sending notices while a process drives runs without a server.

The process that drives a run has a loop that must not wait, so another process sends: it is started with the first
notice, and ends after the process that it follows. What it could not send waits for the next one, for a server, or for
`mulligan notices send`.

    python -m mulligan.service.server.notices.following HOME PID
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from mulligan.errors import MulliganError, StoreUnavailable
from mulligan.service.home import Home, find_home
from mulligan.service.service import Service
from mulligan.worker.supervisor.processes import is_running

LOOK_SECONDS = 0.5
# How long it goes on after the process that it follows.
AFTERWARDS_SECONDS = 60.0


def follow(home: Home, pid: int) -> None:
    """Send what is due until the process has ended, and a while longer if something still waits."""
    last = AFTERWARDS_SECONDS
    with Service(home) as service:
        while True:
            is_followed = is_running(pid)
            try:
                service.notices.send_due(datetime.now(UTC))
                due = service.notices.next_due(datetime.now(UTC))
            except StoreUnavailable:
                due = None
            is_soon = due is not None and (due - datetime.now(UTC)).total_seconds() < last
            if not is_followed and (not is_soon or last <= 0):
                break
            time.sleep(LOOK_SECONDS)
            last -= 0.0 if is_followed else LOOK_SECONDS
        service.notices.close()


def main(folder: str, pid: str) -> None:
    home = find_home(str(Path(folder)))
    try:
        follow(home, int(pid))
    except MulliganError as error:
        print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} notices are not sent: {error.message}")


if __name__ == "__main__":
    main(*sys.argv[1:])

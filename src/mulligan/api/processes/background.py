"""`python -m mulligan.api.processes.background HOME FORMAT`: fires the schedules of a server, sends its notices."""

from __future__ import annotations

import os
import select
import signal
import sys

from mulligan.api.processes.server_log import start_log
from mulligan.service.server.background_jobs import run_jobs
from mulligan.service.service import open_service


def main(home: str, log_format: str) -> None:
    """Run the jobs until SIGTERM or SIGINT."""
    log = start_log(log_format, "background")
    signals = _EndSignals()
    run_jobs(lambda: open_service(home), lambda: signals.have_come, log.error, sleep=signals.sleep)


class _EndSignals:
    """Whether SIGTERM or SIGINT has come.

    Without `threading.Event`: a handler that sets one waits for ever if its own thread is just beginning to wait for
    it, which has the lock.
    """

    def __init__(self) -> None:
        self.have_come = False
        self._reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def sleep(self, seconds: float) -> None:
        """Wait, or until a signal has come, also one that comes just before."""
        select.select([self._reader], [], [], seconds)

    def _note(self, *_: object) -> None:
        self.have_come = True


if __name__ == "__main__":
    main(*sys.argv[1:3])

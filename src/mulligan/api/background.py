"""`python -m mulligan.api.background HOME FORMAT`: fires the schedules of a server, sends its notices."""

from __future__ import annotations

import signal
import sys
import threading

from mulligan.api.server_log import start_log
from mulligan.service import open_service, run_jobs


def main(home: str, log_format: str) -> None:
    """Run the jobs until SIGTERM or SIGINT."""
    log = start_log(log_format, "background")
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())

    def sleep(seconds: float) -> None:
        ended.wait(seconds)

    run_jobs(lambda: open_service(home), ended.is_set, log.error, sleep=sleep)


if __name__ == "__main__":
    main(*sys.argv[1:3])

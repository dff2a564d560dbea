"""`python -m mulligan.api.background HOME FORMAT CONFIG`: fires the schedules of a server, sends its notices."""

from __future__ import annotations

import signal
import sys
import threading

from mulligan.api.server_log import start_log
from mulligan.service import Service, open_service, run_jobs


def main(home: str, log_format: str, config_file: str) -> None:
    """Run the jobs until SIGTERM or SIGINT. Without a file the configuration is `server.toml` in the home."""
    log = start_log(log_format, "background")
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())

    def sleep(seconds: float) -> None:
        ended.wait(seconds)

    def open_with_config() -> Service:
        service = open_service(home)
        service.notices.config_file = config_file or None
        return service

    run_jobs(open_with_config, ended.is_set, log.error, sleep=sleep)


if __name__ == "__main__":
    main(*sys.argv[1:4])

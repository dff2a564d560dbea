"""A worker like `mulligan worker`, with a configurable lease: `python -m proof.serving SECONDS`.

Says "serving" when it is ready: from then on SIGTERM ends it in order.
"""

from __future__ import annotations

import sys

from mulligan.cli.operating.worker import Log
from mulligan.service.driving.driver import Capacity
from mulligan.service.home import find_home
from mulligan.service.service import Service


def serve(lease_seconds: float) -> None:
    home = find_home()
    service = Service(home)
    service.reader.store = home.open(lease_seconds)
    with service.driving.driver(Capacity(2.0, 1 << 30), Log(), lease_seconds) as driver:
        driver.serve(until=Ready().is_never)
    service.close()


class Ready:
    """Asked before each round of the loop whether it is the last: the first time it says that there is one."""

    def __init__(self) -> None:
        self.is_told = False

    def is_never(self) -> bool:
        if not self.is_told:
            print("serving", flush=True)
        self.is_told = True
        return False


if __name__ == "__main__":
    serve(float(sys.argv[1]))

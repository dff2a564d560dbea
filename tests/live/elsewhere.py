"""A worker on a host of another name: elsewhere.py HOST LEASE_SECONDS LABEL. Serves until it is killed."""

from __future__ import annotations

import sys

from mulligan.service.driving.driver import Capacity
from mulligan.service.driving.local_worker import local_worker
from mulligan.service.home import find_home


def serve(host: str, lease_seconds: float, label: str) -> None:
    home = find_home()
    store = home.open(lease_seconds)
    room = Capacity(2.0, 1 << 30, labels=(label,))
    with local_worker(home, store, room, lease_seconds=lease_seconds, host=host) as driver:
        print("serving", flush=True)
        driver.serve()
    store.close()


if __name__ == "__main__":
    serve(sys.argv[1], float(sys.argv[2]), sys.argv[3])

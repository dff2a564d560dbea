"""Command lines as processes of their own, each of which may be told where to meet its fate: at a fault point.

Run as a program. Each line of stdin is one command line, as JSON; each line of stdout says how its process ended. A
process is forked from this one, which has everything loaded: a sweep takes hundreds of them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

# All that `run` and `resume` need, so that a forked process need not load it.
from mulligan.cli import main, resume, run  # noqa: F401
from mulligan.ports import fault_listeners
from mulligan.store import postgres, sqlite  # noqa: F401


def serve() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            become(order)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def become(order: dict[str, Any]) -> None:
    """This process is the command line from now on."""
    for fd, path, flags in ((0, os.devnull, os.O_RDONLY), (1, order["out"], WRITTEN), (2, order["err"], WRITTEN)):
        os.dup2(os.open(path, flags, 0o600), fd)
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    if order["point"]:
        fault_listeners.append(Fate(order["point"], order["nth"], FATES[order["fate"]]).passed)
    sys.argv = ["mulligan", *order["words"]]
    main.main()


WRITTEN = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class Fate:
    """Comes at the n-th pass of a fault point, without a word."""

    def __init__(self, point: str, nth: int, come: Callable[[], None]) -> None:
        self.point = point
        self.left = nth
        self.come = come

    def passed(self, name: str) -> None:
        if name == self.point:
            self.left -= 1
            if self.left == 0:
                self.come()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def lose_connections(url: str = "") -> None:
    """Every connection to the store that goes by the name in its URL is cut."""
    url = url or os.environ["MULLIGAN_STORE"]
    with psycopg.connect(url, application_name="scissors", autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = %s",
            [conninfo_to_dict(url)["application_name"]],
        )


FATES = {"die": die, "lose_connections": lose_connections}


if __name__ == "__main__":
    serve()

"""Run command lines in forked processes, each of which may have a fault injected.

Run as a program. Each line of stdin is one command line, as JSON; each line of stdout says how its process ended. A
process is forked from this one, which has everything loaded: a sweep takes hundreds of them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

# All that `run` and `resume` need, so that a forked process need not load it.
from mulligan.cli import main
from mulligan.ports import fault_listeners
from mulligan.worker.supervisor import processes
from proof.crashes import calls, short_writes
from proof.crashes.disk import FaultyDisk, die
from proof.crashes.moving import moved


def serve() -> None:
    # It is for this process and those that are forked from it, not for what they start.
    os.environ.pop("LD_PRELOAD", None)
    for line in sys.stdin:
        order = json.loads(line)
        print(os.waitstatus_to_exitcode(carried_out(order)), flush=True)


def carried_out(order: dict[str, Any]) -> int:
    """How the process of the command line ended."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        become(order, reader)
    counter = counted(order, pid) if order["kind"] == "call" else None
    # It starts when its calls are being counted.
    os.write(writer, b"!")
    if order["kind"] == "supervisor" and has_stopped(pid):
        counter = counted(order, children_of(pid)[0])
        os.kill(pid, signal.SIGCONT)
    _, status = os.waitpid(pid, 0)
    os.close(reader)
    os.close(writer)
    if counter is not None:
        counter.wait()
    return status


def counted(order: dict[str, Any], pid: int) -> subprocess.Popen[bytes]:
    return calls.attach(pid, order["what"], order["nth"], Path(order["met"]))


def has_stopped(pid: int) -> bool:
    """Wait until it has, or has ended."""
    told = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    return told is not None and told.si_code == os.CLD_STOPPED


def children_of(pid: int) -> list[int]:
    return [process.pid for process in processes.snapshot().values() if process.parent == pid]


def become(order: dict[str, Any], gate: int) -> None:
    """This process is the command line from now on."""
    for fd, path, flags in ((0, os.devnull, os.O_RDONLY), (1, order["out"], WRITTEN), (2, order["err"], WRITTEN)):
        os.dup2(os.open(path, flags, 0o600), fd)
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    if order["kind"]:
        expect(order["kind"], order["what"], order["nth"], Path(order["met"]))
    sys.argv = ["mulligan", *order["words"]]
    os.read(gate, 1)
    main.main()


WRITTEN = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def expect(kind: str, what: str, nth: int, met: Path) -> None:
    """Prepare the fault of this process. A file says whether it happened."""
    if kind == "disk":
        DISKS.append(FaultyDisk(what, nth, met.touch))
    elif kind == "short":
        short_writes.expect(what, nth, met)
    elif kind == "supervisor":
        fault_listeners.append(Halt().passed)
    elif kind in FATES:
        fault_listeners.append(Fate(what, nth, met, FATES[kind]).passed)


# Kept: SQLite knows it by its name alone.
DISKS: list[FaultyDisk] = []


class Fate:
    """Comes at the n-th pass of a fault point, without a word."""

    def __init__(self, point: str, nth: int, met: Path, come: Callable[[], object]) -> None:
        self.point = point
        self.left = nth
        self.met = met
        self.come = come

    def passed(self, name: str) -> None:
        if name == self.point:
            self.left -= 1
            if self.left == 0:
                self.met.touch()
                self.come()


class Halt:
    """Stop the process once it has a supervisor, until SIGCONT."""

    def __init__(self) -> None:
        self.is_over = False

    def passed(self, name: str) -> None:
        if not self.is_over and children_of(os.getpid()):
            self.is_over = True
            os.kill(os.getpid(), signal.SIGSTOP)


def lose_connections(url: str = "") -> None:
    """Every connection to the store that goes by the name in its URL is cut."""
    url = url or os.environ["MULLIGAN_STORE"]
    with psycopg.connect(url, application_name="scissors", autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = %s",
            [conninfo_to_dict(url)["application_name"]],
        )


def lose_server() -> None:
    """Stop the server at once, as in a crash; the parent has to start it again."""
    postmaster = int(Path(os.environ["POSTMASTER"]).read_text().split()[0])
    os.kill(postmaster, signal.SIGQUIT)
    while Path(os.environ["POSTMASTER"]).exists():
        time.sleep(0.005)


def move_home() -> None:
    """As `mv` on one file system does it."""
    home = Path(os.environ["MULLIGAN_HOME"])
    home.rename(moved(home))


FATES: dict[str, Callable[[], object]] = {
    "kill": die,
    "cut": lose_connections,
    "server": lose_server,
    "move": move_home,
}


if __name__ == "__main__":
    try:
        serve()
    except BrokenPipeError:
        pass  # the parent has gone

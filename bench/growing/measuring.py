"""Run one command in its own process, and measure it from outside: wall time, cpu time, peak memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peers import ours
from peers.environments import NotRun
from peers.processes import Command, Watch, end_group, last_words, start

from .figures import Point

SECONDS_MAX = 600.0
HELLO = "name: hello\nsteps: [{step: hello, shell: echo hello}]\n"
_SCRIPTS = Path(__file__).parent


class Place:
    """A home in a folder, and the store of its runs: SQLite there, or a database of a server."""

    def __init__(self, folder: Path, database: str = "") -> None:
        self.folder = folder
        self.database = database

    @property
    def store(self) -> str:
        return "PostgreSQL" if self.database else "SQLite"

    def verb(self, *arguments: str) -> Command:
        """`mulligan …`, as a person would type it."""
        return ours.verb(self.folder, *arguments, database=self.database)

    def script(self, name: str, *arguments: object) -> Command:
        """A program of the bench, with the same home and store."""
        told = [sys.executable, str(_SCRIPTS / f"{name}.py"), *map(str, arguments)]
        return Command(told, self.verb().environment)

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name

    def json(self, *arguments: str) -> Any:
        """What a verb prints with --json."""
        run(self.verb(*arguments, "--json"), self.folder)
        return json.loads((self.folder / "stdout.log").read_text())


class Spent(tuple[float, float, float]):
    """Wall seconds; processor seconds of the process and of those that it waited for; its own peak megabytes."""

    __slots__ = ()

    @property
    def seconds(self) -> float:
        return self[0]


def run(command: Command, folder: Path, codes: tuple[int, ...] = (0,)) -> Spent:
    """Run it to its end, which must be one of these exit codes. `NotRun` if it cannot be, with its last words."""
    began = time.perf_counter()
    process = start(command, folder)
    watch = Watch(process.pid, SECONDS_MAX)
    try:
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
    finally:
        watch.stop()
        end_group(process.pid)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in codes:
        raise NotRun(f"{' '.join(command.arguments[1:])}: exit code {process.returncode}: {last_words(folder)}")
    # Not the peak that the kernel tells with the end: what this process itself had when it forked counts there.
    return Spent((seconds, used.ru_utime + used.ru_stime, watch.megabytes))


def best(command: Command, folder: Path, rounds: int, codes: tuple[int, ...] = (0,)) -> Spent:
    """The best of a few: the machine may be shared, and noise only adds."""
    return min(run(command, folder, codes) for _ in range(rounds))


def startup(place: Place, rounds: int, *arguments: str) -> float:
    """Return the seconds of a command with almost nothing to do, in its own home: a run of one step, or after it."""
    apart = Place(place.folder / "startup")
    apart.folder.mkdir(exist_ok=True)
    command = apart.verb("run", apart.write("hello.yaml", HELLO), "--json")
    spent = best(command, apart.folder, rounds)
    return (best(apart.verb(*arguments), apart.folder, rounds) if arguments else spent).seconds


def point(
    group: str, series: str, place: Place, size: int, spent: Spent, amount: float | None = None, idle: float = 0.0
) -> Point:
    """Print a measurement to stderr as it grows; `amount` makes a rate of it, without the `idle` seconds."""
    seconds, cpu, megabytes = spent
    rate = None if amount is None else amount / max(seconds - idle, 0.001)
    found = Point(group, series, place.store, size, seconds, cpu, megabytes, rate)
    print(f"  {found}", file=sys.stderr, flush=True)
    return found


def wait_until(is_true: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> float:
    """The seconds until something is true. `NotRun` when its time is up, or the process that should do it ended."""
    began = time.perf_counter()
    while not is_true():
        if process is not None and process.poll() is not None:
            raise NotRun(f"it ended with exit code {process.returncode}")
        if time.perf_counter() - began > SECONDS_MAX:
            raise NotRun(f"not done after {SECONDS_MAX:.0f} s")
        time.sleep(0.01)
    return time.perf_counter() - began


@contextmanager
def beside(command: Command, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs for as long as this lasts, and is killed then, as by a crash: what it ran ends by itself."""
    folder.mkdir(exist_ok=True)
    process = start(command, folder)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def used_by(pid: int) -> tuple[float, float]:
    """The processor seconds of a live process so far, and its memory in megabytes now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

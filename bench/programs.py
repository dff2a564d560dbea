"""How long a program takes to come back: a replay of 10,000 calls, plain and asynchronous; and programs that wait.

    python bench/programs.py [CALLS]
    python bench/programs.py waiting [PROGRAMS ...]

Prints, for each kind of program, the processor time that one call takes below the engine (encoding, identity,
message), in µs, the seconds that reading its history and replaying it take, and the size of the history. The goal is
under 1 s for the replay of 10,000 calls.

`waiting` starts so many programs (1,000 and 10,000) beside one worker on SQLite. Each asks a person and waits. It
prints how long that takes, the processes and the memory of the worker when all wait, what it uses in a minute at rest,
and how long it takes until one of them that is approved has ended.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mulligan import gather, program, step
from mulligan.programs import messages as m
from mulligan.programs.program import Program
from mulligan.programs.rehearsing import RecordedRun, Rehearsal, rehearse, replay

CALLS_DEFAULT = 10_000
ROUNDS = 5
REPLAY_SECONDS_MAX = 1.0
FAKES = {"load": {"loaded": 1, "table": "facts"}}


@step
def load(rows: list[dict[str, Any]], table: str = "facts") -> dict[str, Any]:
    return {"loaded": len(rows), "table": table}


@program(calls=m.CALLS_MAX)
def chain(calls: int) -> int:
    total = 0
    for number in range(calls):
        total += load([{"number": number, "name": "chair"}])["loaded"]
    return total


@program(calls=m.CALLS_MAX)
def fan(calls: int) -> int:
    return len(gather(load.call([{"number": number, "name": "chair"}]) for number in range(calls)))


@program(calls=m.CALLS_MAX)
async def tasks(calls: int) -> int:
    found = await asyncio.gather(*(load.call([{"number": number, "name": "chair"}]) for number in range(calls)))
    return len(found)


class Recorded:
    """A run whose history is read as a new process reads it."""

    def __init__(self, found: Rehearsal) -> None:
        run = found.program_history()
        self.data = m.encode_history(run.history.calls, run.history.deliveries)
        self._inputs = run.inputs

    def program_history(self) -> RecordedRun:
        return RecordedRun(self._inputs, m.decode_history(self.data))


def seconds(run: Callable[[], Any]) -> float:
    """The least processor time of several rounds."""
    least = float("inf")
    for _ in range(ROUNDS):
        begin = time.process_time()
        run()
        least = min(least, time.process_time() - begin)
    return least


def measure(tested: Program[..., Any], calls: int) -> str:
    recorded = Recorded(rehearse(tested, calls, fakes=FAKES).check())
    first = seconds(lambda: rehearse(tested, calls, fakes=FAKES))
    again = seconds(lambda: replay(tested, recorded))
    size = len(recorded.data) / 1e6
    verdict = "met" if again / calls * CALLS_DEFAULT < REPLAY_SECONDS_MAX else "NOT MET"
    figures = f"a call {first / calls * 1e6:5.0f} µs  replay {again:.2f} s ({verdict})  history {size:.1f} MB"
    return f"{tested.name:6}  {figures}"


# -- programs that wait ------------------------------------------------------------------------------------------------

ASKS = """
from mulligan import approve, program


@program
def asks() -> bool:
    approve("go on?")
    return True
"""
WAITING_DEFAULT = (1_000, 10_000)
# Longer than the process of a program that waits is kept, and than the state of its run is.
SETTLED_SECONDS, REST_SECONDS, BROUGHT_BACK = 75.0, 20.0, 20


@contextmanager
def worker(home: Path) -> Iterator[int]:
    words = [sys.executable, "-m", "mulligan", "worker", "--home", str(home)]
    with (home.parent / "worker.log").open("ab") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def processes_of(pid: int) -> dict[int, int]:
    """The worker and all processes below it, each with its own memory (PSS) in bytes."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(") ")[2].split()[1])
            except OSError:
                continue
    found, left = {}, [pid]
    while left:
        one = left.pop()
        lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        found[one] = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
        left += [child for child, parent in parents.items() if parent == one]
    return found


def until(is_so: Callable[[], bool], seconds: float) -> None:
    while not is_so():
        time.sleep(seconds)


def waiting(count: int, folder: Path) -> str:
    from growing.measuring import used_by

    from mulligan.core.state.transitions import RUN_ENDED
    from mulligan.service.home import Home
    from mulligan.service.runs.changes.prepared_runs import prepare
    from mulligan.service.service import Service

    home = folder / "home"
    with Service(Home(home)) as service, worker(home) as pid:
        reader = service.reader
        until(lambda: reader.home.is_there and bool(reader.store.workers()), 0.05)
        (folder / "asks.py").write_text(ASKS)
        sys.path.insert(0, str(folder))
        workflow = importlib.import_module("asks").asks.__mulligan_workflow__().check()
        begin, before = time.monotonic(), used_by(pid)[0]
        runs = [service.changes.create(prepare(workflow, {}, folder))[0] for _ in range(count)]
        created = time.monotonic() - begin
        until(lambda: len(reader.store.waiting_places()) >= count, 0.5)
        started, cpu = time.monotonic() - begin, used_by(pid)[0] - before
        time.sleep(SETTLED_SECONDS)
        used, megabytes = used_by(pid)
        found = processes_of(pid)
        time.sleep(REST_SECONDS)
        rest = (used_by(pid)[0] - used) * 60 / REST_SECONDS
        back = []
        for run_id in runs[:: max(1, count // BROUGHT_BACK)]:
            asked = time.monotonic()
            service.changes.approve(run_id, "approve", is_approved=True, reason="go")
            until(lambda run_id=run_id: reader.record(run_id).status in RUN_ENDED, 0.001)
            back.append(time.monotonic() - asked)
            assert reader.record(run_id).status == "completed"
    pss = sum(found.values()) / 1e6
    return "  ".join(
        (
            f"{count:6,} programs",
            f"created in {created:.1f} s, all wait after {started:.1f} s",
            f"each {started / count * 1000:.1f} ms, of the worker {cpu / count * 1000:.1f} ms",
            f"processes {len(found)}, the worker {megabytes:.0f} MB, all {pss:.0f} MB (PSS)",
            f"a minute at rest {rest:.2f} s",
            f"one comes back in {statistics.median(back) * 1000:.0f} ms, at most {max(back) * 1000:.0f} ms",
        )
    )


def main() -> None:
    if sys.argv[1:2] == ["waiting"]:
        for count in [int(word) for word in sys.argv[2:]] or WAITING_DEFAULT:
            with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER", "/var/tmp")) as folder:
                print(waiting(count, Path(folder)), flush=True)
        return
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else CALLS_DEFAULT
    print(f"{calls} calls")
    for tested in (chain, fan, tasks):
        print(measure(tested, calls))


if __name__ == "__main__":
    main()

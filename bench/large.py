"""What large values cost the process that drives a run: time, memory, and how long its loop does not turn.

    python bench/large.py                     # every way that a large value takes, with 60 MB
    python bench/large.py args-2 stdin --mb 20
    python bench/large.py args-2 --signal     # how long SIGTERM is not heard, sent when the step that reads it starts

Each way is one run in a process of its own, in a fresh folder. "Loop" is the longest time between two waits of the
driver's loop: for so long nothing else is heard, neither a signal nor the end of another step.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import selectors
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

_MAKE = {
    "step": "make",
    "shell": "python3 -c 'import json, os, sys; n = int(sys.argv[1]);"
    ' json.dump(["0123456789abcdef" * 4] * (n // 67), open(os.environ["MULLIGAN_OUTPUT"], "w"))\' BYTES',
}
_PRINT = {"step": "make", "shell": "head -c BYTES /dev/zero | tr '\\0' x"}
_COUNT = "def main(**values):\n    return sum(map(len, values.values()))\n"
_GIVE = 'def main():\n    return ["0123456789abcdef" * 4] * (BYTES // 67)\n'
_SECRET = {"secrets": {"token": {"env": "BENCH_TOKEN"}}}
_ALL = "${steps.make.output}"


def _arguments(count: int) -> dict[str, Any]:
    return {"step": "use", "python": _COUNT, "args": {f"v{n}": _ALL for n in range(count)}, "needs": ["make"]}


def _used(**use: Any) -> list[dict[str, Any]]:
    return [_MAKE, {"step": "use", "needs": ["make"], **use}]


WAYS: dict[str, dict[str, Any]] = {
    "make-json": {"steps": [_MAKE]},
    "make-text": {"steps": [_PRINT]},
    "make-lines": {"steps": [{**_PRINT, "shell": "yes 0123456789abcdef | head -c BYTES", "capture": "lines"}]},
    "make-python": {"steps": [{"step": "make", "python": _GIVE}]},
    "args-1": {"steps": [_MAKE, _arguments(1)]},
    "args-2": {"steps": [_MAKE, _arguments(2)]},
    "args-12": {"steps": [_MAKE, _arguments(12)]},
    "steps-12": {"steps": [_MAKE, *({**_arguments(1), "step": f"use{n}"} for n in range(12))]},
    "stdin": {"steps": _used(shell="wc -c", stdin=_ALL)},
    "stdin-text": {"steps": [_PRINT, {"step": "use", "needs": ["make"], "shell": "wc -c", "stdin": _ALL}]},
    "text-around": {"steps": _used(shell="wc -c", stdin=f"all: {_ALL}")},
    "env": {"steps": _used(shell="echo $V", env={"V": _ALL}, on_failure="continue")},
    "when": {"steps": _used(shell="true", when="size(steps.make.output) > 1")},
    "map": {"steps": _used(map={"over": _ALL, "max_items": 2}, do=[{"shell": "true"}])},
    "secret-text": {**_SECRET, "steps": [_PRINT]},
    "secret-json": {**_SECRET, "steps": [_MAKE]},
    "secret-args": {**_SECRET, "steps": [_MAKE, _arguments(1)]},
    "secret-log": {**_SECRET, "steps": [{"step": "make", "shell": "head -c BYTES /dev/zero | tr '\\0' x >&2"}]},
}


class _Timed(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Notes the longest time between two waits."""

    longest = 0.0
    _since: float | None = None

    def select(self, timeout: float | None = None) -> Any:
        now = time.perf_counter()
        if _Timed._since is not None:
            _Timed.longest = max(_Timed.longest, now - _Timed._since)
        found = super().select(timeout)
        _Timed._since = time.perf_counter()
        return found


def run(folder: str) -> None:
    """One run in this process, which says on its standard output what it cost."""
    selectors.DefaultSelector = _Timed  # type: ignore[misc, assignment]
    from mulligan.cli.words.dispatch import exit_code

    os.chdir(folder)
    began = time.perf_counter()
    with open("out", "w") as out:
        kept, sys.stdout = sys.stdout, out
        try:
            status = exit_code(["run", "w.yaml"])
        finally:
            sys.stdout = kept
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"status": status, "seconds": seconds, "loop": _Timed.longest, "peak": peak}))


def _workflow(way: str) -> dict[str, Any]:
    """With a step at the end, for which the loop waits once more."""
    steps = WAYS[way]["steps"]
    last = {"step": "last", "shell": "true", "needs": [step["step"] for step in steps]}
    return {"name": "large", **WAYS[way], "steps": [*steps, last]}


@contextmanager
def _written(way: str, megabytes: float) -> Iterator[str]:
    """A folder on a real disk with the workflow in it."""
    folder = tempfile.mkdtemp(prefix="bench-large-", dir=os.environ.get("BENCH_FOLDER", "/var/tmp"))
    try:
        text = json.dumps(_workflow(way)).replace("BYTES", str(int(megabytes * 1_000_000)))
        Path(folder, "w.yaml").write_text(text)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _environment() -> dict[str, str]:
    return {**os.environ, "BENCH_TOKEN": "a secret of the bench"}


def measured(way: str, megabytes: float) -> dict[str, Any]:
    with _written(way, megabytes) as folder:
        command = [sys.executable, __file__, "--run", folder]
        done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
        if done.returncode:
            return {"status": done.stderr.strip().rpartition("\n")[2], "seconds": 0.0, "loop": 0.0, "peak": 0.0}
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found


def _has_started(database: Path) -> bool:
    """Whether the step that reads the large value has begun, as the log says."""
    if not database.exists():
        return False
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db, suppress(sqlite3.Error):
        query = "SELECT count(*) FROM events WHERE CAST(entry AS TEXT) LIKE '%attempt.started%\"use\"%'"
        return bool(db.execute(query).fetchone()[0])
    return False


def signalled(way: str, megabytes: float) -> float:
    """The seconds from SIGTERM until the driver says that it was interrupted."""
    with _written(way, megabytes) as folder:
        command = [sys.executable, "-m", "mulligan", "run", "w.yaml"]
        driver = subprocess.Popen(
            command, cwd=folder, env=_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert driver.stderr is not None
        while not _has_started(Path(folder, ".mulligan/mulligan.db")):
            if driver.poll() is not None:
                raise RuntimeError(driver.stderr.read().decode())
            time.sleep(0.01)
        sent = time.perf_counter()
        driver.terminate()
        while b"interrupted" not in driver.stderr.readline():
            pass
        heard = time.perf_counter() - sent
        driver.communicate()
        return heard


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", metavar="WAY", help=", ".join(WAYS))
    parser.add_argument("--mb", type=float, default=60.0)
    parser.add_argument("--signal", action="store_true", help="how long SIGTERM is not heard, and nothing else")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    said = parser.parse_args()
    if said.run:
        run(said.run)
        return
    if said.signal:
        print(f"| {said.mb:g} MB | SIGTERM heard after ms |\n|---|---:|")
        for way in said.ways or ["args-1", "args-2", "args-12", "stdin"]:
            print(f"| {way} | {signalled(way, said.mb) * 1000:.0f} |", flush=True)
        return
    print(f"| {said.mb:g} MB | run s | loop ms | driver's peak MB |\n|---|---:|---:|---:|")
    for way in said.ways or WAYS:
        found = measured(way, said.mb)
        failed = "" if found["status"] in (0, None) else f" ({found['status']})"
        print(
            f"| {way}{failed} | {found['seconds']:.2f} | {found['loop'] * 1000:.0f} | {found['peak']:.0f} |", flush=True
        )


if __name__ == "__main__":
    main()

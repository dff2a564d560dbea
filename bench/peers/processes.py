"""One process, measured from outside: wall time and peak memory, in a folder of its own, with nothing left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from peers.environments import NotRun, clean_environment

# Not the folder for short-lived files, which may be in memory, where a sync costs nothing.
SCRATCH = Path(os.environ.get("BENCH_FOLDER", "/var/tmp"))
_SECONDS_BETWEEN_SAMPLES = 0.02


@dataclass(frozen=True, slots=True)
class Command:
    """What is started: the arguments, and what is added to the environment."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measured:
    """Wall time of the process, and the peak memory of the process itself without its children."""

    seconds: float
    megabytes: float


@contextmanager
def fresh_folder() -> Iterator[Path]:
    """An empty folder on a real disk, gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=SCRATCH))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def start(command: Command, folder: Path) -> subprocess.Popen[bytes]:
    """Start it in the folder, which is also its home, so that nothing comes from an earlier run."""
    environment = clean_environment() | {"HOME": str(folder)} | dict(command.environment)
    with (folder / "stdout.log").open("wb") as out, (folder / "stderr.log").open("wb") as err:
        return subprocess.Popen(
            command.arguments,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )


def measure(command: Command, folder: Path, seconds_max: float) -> Measured:
    """Run it to its end. NotRun if it cannot be started, does not end in time, or ends badly."""
    began = time.perf_counter()
    try:
        process = start(command, folder)
    except OSError as problem:
        raise NotRun(f"cannot be started: {problem.strerror}: {command.arguments[0]}") from problem
    watch = Watch(process.pid, seconds_max)
    try:
        code = process.wait()
        seconds = time.perf_counter() - began
    finally:
        watch.stop()
        end_group(process.pid)
    if watch.is_over:
        raise NotRun(f"not done after {seconds_max:.0f} s")
    if code:
        raise NotRun(f"exit code {code}: {last_words(folder)}")
    return Measured(seconds, watch.megabytes)


def end_group(group: int) -> None:
    """Kill what is left of the session that the process led."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def last_words(folder: Path) -> str:
    """The last line that the process wrote to stderr."""
    lines = (folder / "stderr.log").read_text(errors="replace").split("\n")
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "no word on stderr")


class Watch:
    """A thread beside the process: notes its peak memory, and ends it when its time is up.

    Waiting with a timeout would poll, and the wall time would be as coarse as the polls.
    """

    def __init__(self, pid: int, seconds_max: float) -> None:
        self.megabytes = 0.0
        self.is_over = False
        self._pid = pid
        self._deadline = time.monotonic() + seconds_max
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self.megabytes = max(self.megabytes, _peak_megabytes(self._pid))
            if self._ended.wait(_SECONDS_BETWEEN_SAMPLES):
                return
            if time.monotonic() > self._deadline:
                self.is_over = True
                end_group(self._pid)
                return


def _peak_megabytes(pid: int) -> float:
    """The high-water mark of a live process as the kernel keeps it; 0 where there is none to read."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    marks = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(marks[0]) / 1024 if marks else 0.0

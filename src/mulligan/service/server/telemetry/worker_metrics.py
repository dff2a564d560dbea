"""The metrics of a worker: written to a file at most once a second, which Prometheus reads or a process serves.

The engine's loop has no thread beside it, and a slow scraper must not hold it up. So the worker only writes a file; its
port is served by a process of its own (`metrics_server`), which ends with the worker.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from mulligan.core.model.events import Entry
from mulligan.core.model.text.formatting import error_reason
from mulligan.core.state.state import State
from mulligan.engine.observers import Observer
from mulligan.errors import InputInvalid
from mulligan.service.driving.driver import Driver
from mulligan.service.server.telemetry.run_counts import RunCounts

WRITE_SECONDS = 1.0


class WorkerMetrics:
    """An observer that counts what its worker does, passes everything on, and writes the counts to a file."""

    def __init__(self, observer: Observer, file: Path) -> None:
        self._observer = observer
        self._file = file
        self._exposition = load_exposition()
        self._counts = RunCounts()
        self._written_at = float("-inf")
        self._is_in_trouble = False
        # Set when the worker is up.
        self.driver: Driver | None = None

    def committed(self, state: State, entries: Sequence[Entry], is_ordinary: bool = False) -> None:
        self._counts.committed(state, entries)
        self._observer.committed(state, entries, is_ordinary)

    def trouble(self, message: str) -> None:
        self._observer.trouble(message)

    def tick(self) -> None:
        self._observer.tick()
        if time.monotonic() - self._written_at >= WRITE_SECONDS:
            self.write()

    def write(self) -> None:
        """Write the file as a whole, so that nobody reads half of it. A disk without space is no reason to stop."""
        self._written_at = time.monotonic()
        if self.driver is None:
            return
        engine = self.driver.engine
        families = self._exposition.worker_families(
            self._counts, engine.timings, tasks=engine.tasks_running, runs=engine.runs_held
        )
        part = self._file.with_name(f"{self._file.name}.{os.getpid()}.part")
        try:
            # In a folder that others may read, such as that of an exporter, they may read this too.
            mode = 0o666 if part.parent.stat().st_mode & 0o077 else 0o600
            with open(part, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
                file.write(self._exposition.render(families))
            os.replace(part, self._file)
        except OSError as error:
            if not self._is_in_trouble:
                self.trouble(f"the metrics cannot be written to '{self._file}': {error_reason(error)}; trying again")
            self._is_in_trouble = True
        else:
            self._is_in_trouble = False


class MetricsServer:
    """A process that serves the file of a worker on a port of this machine, until the context ends or we die."""

    def __init__(self, file: Path, host: str, port: int) -> None:
        self._command = [
            sys.executable,
            "-m",
            "mulligan.service.server.telemetry.metrics_server",
            str(file),
            host,
            str(port),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> MetricsServer:
        # It ends when its standard input does: that is the death of this process.
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().decode().strip()
        if not answer.isdecimal():
            self._process.wait()
            reason = answer or "its process ended"
            raise InputInvalid(
                f"the metrics cannot be served: {reason}",
                hint="choose another port: --metrics PORT; 0 takes a free one",
            )
        self.port = int(answer)
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process is not None and process.stdin is not None and process.stdout is not None:
            process.stdin.close()
            process.wait()
            process.stdout.close()


def load_exposition() -> ModuleType:
    """The module that needs the library of Prometheus. InputInvalid if it is not installed."""
    with refuse_missing_library("metrics", "prometheus-client", extra="server"):
        from mulligan.service.server.telemetry import exposition

        return exposition


@contextmanager
def refuse_missing_library(what: str, library: str, *, extra: str) -> Iterator[None]:
    """`InputInvalid` for an import of a library that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("mulligan"):
            raise
        raise InputInvalid(
            f"{what} need a library that is not installed: {library}",
            hint=f"install it: pip install 'mulligan[{extra}]'",
        ) from None

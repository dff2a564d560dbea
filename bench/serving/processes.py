"""Server processes for the bench: started, killed, asked for their memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_SECONDS_MAX = 60.0


@dataclass
class ServerProcess:
    """`mulligan server` and how to reach it."""

    process: subprocess.Popen[bytes]
    host: str
    port: int
    token: str
    # From the start of the process to its first line.
    seconds: float

    def kill(self) -> None:
        """As a machine that loses its power would do it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()

    def memory(self) -> int:
        """Bytes of its memory that are not shared with other processes: those of its answers and connections."""
        text = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Private"))

    def processor_seconds(self) -> float:
        """Processor time of the process without its children."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start_server(
    home: Path, *, store: str = "", port: int = 0, worker: bool = True, python: str = sys.executable
) -> ServerProcess:
    """A server over a home, once it has said where it is."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "server.toml").write_text(
        f"[server]\nworker = {str(worker).lower()}\nrequests_per_second = 100000\nrequests_at_once = 100000\n"
    )
    environment = {**os.environ, **({"MULLIGAN_STORE": store} if store else {})}
    argv = [python, "-m", "mulligan", "server", "--home", str(home), "--port", str(port), "--json"]
    begun = time.perf_counter()
    with (home / "server.log").open("ab") as log:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, env=environment)
    assert process.stdout is not None
    line = process.stdout.readline()
    seconds = time.perf_counter() - begun
    if not line:
        raise SystemExit(f"the server did not start: {(home / 'server.log').read_text()[-2000:]}")
    said = json.loads(line)
    host, _, number = said["url"].partition("://")[2].rstrip("/").rpartition(":")
    return ServerProcess(process, host.strip("[]"), int(number), said["token"], seconds)


@contextmanager
def server(home: Path, *, store: str = "", worker: bool = True) -> Iterator[ServerProcess]:
    """A server that ends with the block."""
    running = start_server(home, store=store, worker=worker)
    try:
        yield running
    finally:
        running.stop()

"""How many statements a second PostgreSQL gets from servers and workers that have nothing to do, and who asks what.

`python bench/at_rest.py [--servers 2] [--workers 4] [--remote 2] [--seconds 20]`: it starts its own PostgreSQL and the
processes. With `PYTHONPATH=OTHER/src` it measures another version.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from mulligan.core.model.events import AttemptStarted
from mulligan.language import load_text
from mulligan.service.home import Home
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.service import Service
from mulligan.testing.postgres import own_server

SETTINGS = {"log_statement": "'all'", "log_min_messages": "log", "log_line_prefix": "'%p '"}
STATEMENT = re.compile(r"^(\d+) LOG:  (?:statement|execute [^:]*): (.*)")
STARTED = "name: started\nsteps: [{step: a, shell: 'true'}]\n"
MULLIGAN = [sys.executable, "-c", "from mulligan.cli.main import main; main()"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--remote", type=int, default=2, help="workers without a database, of the first server")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--starts", type=int, default=0, help="then start so many runs, and say how long they waited")
    parser.add_argument("--settle", type=float, default=20.0, help="how long the processes may take to start")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, own_server(SETTINGS) as postgres:
        started: list[subprocess.Popen[str]] = []
        environment = {**os.environ, "MULLIGAN_STORE": postgres.url}

        def start(*words: str, environment: dict[str, str] = environment) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [*MULLIGAN, *words, "--home", f"{folder}/{len(started)}"],
                env=environment,
                stdout=subprocess.PIPE if words[0] == "server" else subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            started.append(process)
            return process

        # The first creates the tables.
        subprocess.run([*MULLIGAN, "list", "--home", f"{folder}/first"], env=environment, check=True)
        token = subprocess.run(
            [*MULLIGAN, "token", "create", "--scope", "worker", "remote", "--home", f"{folder}/first"],
            env=environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout.strip()
        try:
            servers = [start("server", "--port", "0", "--json") for _ in range(asked.servers)]
            for _ in range(asked.workers):
                start("worker")
            urls = [json.loads(server.stdout.readline())["url"] for server in servers if server.stdout is not None]
            for _ in range(asked.remote if urls else 0):
                start("worker", "--server", urls[0], environment={**os.environ, "MULLIGAN_TOKEN": token})
            time.sleep(asked.settle)
            if ended := [process.args for process in started if process.poll() is not None]:
                sys.exit(f"these have ended: {ended}")
            log = postgres.folder / "log"
            begin = log.stat().st_size
            time.sleep(asked.seconds)
            _show(log, begin, asked.seconds)
            if asked.starts:
                _show_waits(Home(Path(folder) / "first", postgres.url), asked.starts)
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait()


def _show_waits(home: Home, count: int) -> None:
    """How long a run takes from the call that starts it to its first step, one run after the other."""
    waits = []
    with Service(home) as service:
        for number in range(count):
            time.sleep(0.1 + 0.037 * (number % 10))
            asked_at = datetime.now(UTC)
            (run_id,) = service.changes.create(prepare(load_text(STARTED), {}, home.folder.parent))
            while (status := service.reader.store.run(run_id).status) not in ("completed", "failed"):
                time.sleep(0.02)
            if status == "failed":
                sys.exit(f"run {run_id} has failed")
            facts = service.reader.store.log(run_id)
            began = next(entry.at for entry in facts if isinstance(entry.fact, AttemptStarted))
            waits.append((began - asked_at).total_seconds() * 1000)
    waits.sort()
    print(f"{count} runs waited for their first step: p50 {waits[count // 2]:.0f} ms, ", end="")
    print(f"p95 {waits[count * 95 // 100]:.0f} ms, longest {waits[-1]:.0f} ms")


def _show(log: Path, begin: int, seconds: float) -> None:
    found: Counter[str] = Counter()
    backends: Counter[str] = Counter()
    with log.open("rb") as file:
        file.seek(begin)
        for line in file:
            if match := STATEMENT.match(line.decode(errors="replace")):
                found[" ".join(match[2].split())[:90]] += 1
                backends[match[1]] += 1
    print(f"{sum(found.values()) / seconds:.1f} statements a second over {len(backends)} connections")
    for statement, count in found.most_common(25):
        print(f"{count / seconds:7.2f}  {statement}")


if __name__ == "__main__":
    main()

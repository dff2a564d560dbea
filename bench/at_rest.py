"""How many statements a second PostgreSQL gets from servers and workers that have nothing to do, and who asks what.

`python bench/at_rest.py [--servers 2] [--workers 4] [--seconds 20]`: it starts its own PostgreSQL and the processes.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from mulligan.testing.postgres import own_server

SETTINGS = {"log_statement": "'all'", "log_min_messages": "log", "log_line_prefix": "'%p '"}
STATEMENT = re.compile(r"^(\d+) LOG:  (?:statement|execute [^:]*): (.*)")
MULLIGAN = [sys.executable, "-c", "from mulligan.cli.main import main; main()"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--settle", type=float, default=15.0, help="how long the processes may take to start")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, own_server(SETTINGS) as postgres:
        environment = {**os.environ, "MULLIGAN_STORE": postgres.url}
        # The first creates the tables.
        subprocess.run([*MULLIGAN, "list", "--home", f"{folder}/first"], env=environment, check=True)
        kinds = [("server", ["server", "--port", "0"])] * asked.servers + [("worker", ["worker"])] * asked.workers
        started = [
            subprocess.Popen(
                [*MULLIGAN, *words, "--home", f"{folder}/{number}"],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for number, (_, words) in enumerate(kinds)
        ]
        try:
            time.sleep(asked.settle)
            log = postgres.folder / "log"
            begin = log.stat().st_size
            time.sleep(asked.seconds)
            _show(log, begin, asked.seconds)
        finally:
            for one in started:
                one.terminate()
            for one in started:
                one.wait()


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

"""How long sums over many ended runs take, and how long a list waits beside them; with --before, another checkout too.

    python bench/sums.py                          # 50,000 ended runs in an SQLite file; some minutes to make them
    python bench/sums.py --runs 2000              # a small one, to check that it works
    python bench/sums.py --before ../before       # the source of an earlier commit beside it, in the same rounds

The bar: `stats` of 50,000 runs in less than a second. Each checkout fills a home of its own, since their schemas may
differ, and each measurement is a process of its own, in turns; wall and processor time of the best of three.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
ROUNDS = 3
# What one process measures: each verb alone, then a list that is asked for in a server while it sums up.
MEASURE = """
import asyncio, json, sys, time
from datetime import UTC, datetime
from pathlib import Path
from mulligan.api.processes.service_threads import ServiceThreads
from mulligan.service.home import Home
from mulligan.service.service import Service

home = Home(Path(sys.argv[1]))
found = {}
with Service(home) as service:
    now = datetime.now(UTC)
    service.records((1,))
    verbs = {
        "stats": lambda: (service.stats(), service.agent_stats()),
        "recovery by week": lambda: service.trends.recovery(now),
        "spending": lambda: service.trends.spending(now),
        "status counts": service.status_counts,
    }
    for name, verb in verbs.items():
        wall, cpu = time.perf_counter(), time.process_time()
        verb()
        found[name] = time.perf_counter() - wall, time.process_time() - cpu
threads = ServiceThreads(home)

async def beside():
    await threads.read(lambda one: one.reader.runs(limit=20))
    ask = getattr(threads, "sum_up", threads.read)
    summing = asyncio.ensure_future(ask(lambda one: one.stats()))
    await asyncio.sleep(0.01)
    wall, cpu = time.perf_counter(), time.process_time()
    await threads.read(lambda one: one.reader.runs(limit=20))
    found["a list beside stats"] = time.perf_counter() - wall, time.process_time() - cpu
    await summing

asyncio.run(beside())
threads.close()
print(json.dumps(found))
"""


def run(source: Path, *words: str) -> str:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(source), str(HERE / "growing")))}
    return subprocess.run([sys.executable, *words], env=environ, check=True, capture_output=True, text=True).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50_000)
    parser.add_argument("--before", type=Path, help="another checkout")
    given = parser.parse_args()
    sources = {"now": HERE.parent / "src"} | ({"before": given.before / "src"} if given.before else {})
    best: dict[str, dict[str, tuple[Any, ...]]] = {name: {} for name in sources}
    with TemporaryDirectory(prefix="mulligan-bench-", dir=os.environ.get("BENCH_FOLDER")) as folder:
        homes = {name: Path(folder) / name for name in sources}
        for name, source in sources.items():
            os.environ["MULLIGAN_HOME"] = str(homes[name])
            run(source, str(HERE / "growing" / "filling.py"), str(given.runs), "0")
        for _ in range(ROUNDS):
            for name, source in sources.items():
                for what, (wall, cpu) in json.loads(run(source, "-c", MEASURE, str(homes[name]))).items():
                    best[name][what] = min(best[name].get(what, (wall, cpu)), (wall, cpu))
    for what in best["now"]:
        shown = (f"{name} {best[name][what][0]:7.3f} s (cpu {best[name][what][1]:6.3f})" for name in sources)
        print(f"{what:20} {'   '.join(shown)}")
    return 0 if best["now"]["stats"][0] < 1.0 else 1


if __name__ == "__main__":
    raise SystemExit(main())

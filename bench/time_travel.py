"""How long it takes to look at a run at one of its events, and at many of them one after the other.

    python bench/time_travel.py [--steps 20000] [--points 50] [--json FILE]

A run of chains of steps, of which some fail: five events for each step, so 100,000 with the defaults, written to SQLite
in a temporary folder. Measured are processor seconds: of the first look at any point in a new process
(what `mulligan replay RUN --at SEQ` costs), and of further looks at random points and at neighbours in the same one
(what the slider of the dashboard costs). The bar: any point within 2 seconds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from statistics import median

from serving.simulated_run import SimulatedRun

from mulligan.service.service import open_service

SECONDS_MAX = 2.0


def _first_look(home: Path, seq: int) -> float:
    """Processor seconds of a new process, with its start and its output."""
    words = [sys.executable, "-m", "mulligan", "replay", "1", "--at", str(seq), "--home", str(home)]
    code = "import resource,subprocess,sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True); "
    code += "used = resource.getrusage(resource.RUSAGE_CHILDREN); print(used.ru_utime + used.ru_stime)"
    return float(subprocess.run([sys.executable, "-c", code, *words], capture_output=True, check=True).stdout)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--points", type=int, default=50)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        with open_service(str(home)) as service:
            run = SimulatedRun(service.reader.store, asked.steps)
            while service.reader.record(run.run_id).status != "completed":
                run.advance(1_000)
            events = service.reader.record(run.run_id).seq
        points = [1, events // 2, events]
        found: dict[str, object] = {"events": events}
        found["first"] = {str(seq): round(_first_look(home, seq), 2) for seq in points}
        rng = Random(7)
        with open_service(str(home)) as service:
            service.past.moment(1, events, is_whole=False)
            times: dict[str, list[float]] = {"random": [], "next": [], "previous": []}
            at = events // 2
            looks = [("random", rng.randrange(1, events)) for _ in range(asked.points)]
            looks += [("next", at + number) for number in range(asked.points)]
            looks += [("previous", at - number) for number in range(asked.points)]
            for kind, seq in looks:
                began = time.process_time()
                service.past.moment(1, seq, is_whole=False)
                times[kind].append(time.process_time() - began)
        for kind, seconds in times.items():
            found[kind] = {"median": round(median(seconds), 3), "largest": round(max(seconds), 3)}
    print(json.dumps(found, indent=2))
    if asked.json:
        asked.json.write_text(json.dumps(found))
    return 0 if max(found["first"].values()) <= SECONDS_MAX else 1


if __name__ == "__main__":
    raise SystemExit(main())

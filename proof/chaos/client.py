"""Whoever starts runs: asks again under the same key until it is answered. `client SEED FIRST RUNS STEP PER_SECOND`.

Starts the runs FIRST, FIRST + STEP, … below RUNS. What was answered is a line each on stdout: number and run id.
"""

from __future__ import annotations

import sys
import time
from functools import cache
from pathlib import Path

from mulligan.core.model.workflow import Workflow
from mulligan.errors import StoreUnavailable
from mulligan.language.loading import load
from mulligan.service.home import find_home
from mulligan.service.runs.changes.prepared_runs import Prepared, prepare
from mulligan.service.service import Service
from proof.chaos.flows import choose_flow, labels_of

# A store that is away is asked again so soon.
AGAIN_SECONDS = 0.2


def start_all(seed: int, numbers: range, per_second: float) -> None:
    begun_at = time.monotonic()
    for done, n in enumerate(numbers):
        # Not all at once: there is something to do for as long as there is trouble.
        due = begun_at + done / per_second if per_second else 0.0
        time.sleep(max(0.0, due - time.monotonic()))
        print(n, start(_prepared(choose_flow(seed, n), n), f"request: run {n}"), flush=True)


def start(prepared: Prepared, key: str) -> int:
    """Retry until the run's id is known."""
    while True:
        service = Service(find_home())
        try:
            return service.changes.start_once(prepared, key)[0]
        except StoreUnavailable:
            time.sleep(AGAIN_SECONDS)
        finally:
            service.close()


def _prepared(flow: str, n: int) -> Prepared:
    return prepare(_workflow(flow), {"n": n}, Path.cwd(), labels=labels_of(n))


@cache
def _workflow(flow: str) -> Workflow:
    return load(Path(f"{flow}.yaml"))


if __name__ == "__main__":
    seed, first, runs, step = map(int, sys.argv[1:5])
    start_all(seed, range(first, runs, step), float(sys.argv[5]))

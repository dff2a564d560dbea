"""DBOS: COUNT workflows of three no-op steps on PostgreSQL, PARALLEL at a time. HOW is queue or threads."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from dbos import DBOS
from dbos_app import chain, launched

STEPS = 3
# Its default of a second would start no more than PARALLEL workflows in each second.
POLLING_SECONDS = 0.01


def through_a_queue(count: int, parallel: int) -> None:
    queue = DBOS.register_queue("runs", global_concurrency=parallel, polling_interval_sec=POLLING_SECONDS)
    handles = [queue.enqueue(chain, STEPS) for _ in range(count)]
    for handle in handles:
        assert handle.get_result(polling_interval_sec=POLLING_SECONDS) == STEPS


def through_threads(count: int, parallel: int) -> None:
    with ThreadPoolExecutor(parallel) as pool:
        assert list(pool.map(chain, [STEPS] * count)) == [STEPS] * count


count, parallel, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
with launched("postgres"):
    (through_a_queue if how == "queue" else through_threads)(count, parallel)

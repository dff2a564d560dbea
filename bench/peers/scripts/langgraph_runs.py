"""LangGraph: COUNT runs of three no-op steps on SQLite, checkpointed synchronously, PARALLEL threads."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import langgraph_graphs as graphs

STEPS = 3
count, parallel = int(sys.argv[1]), int(sys.argv[2])
with graphs.saver_on("sqlite") as saver, ThreadPoolExecutor(parallel) as pool:
    saver.setup()
    graph = graphs.chain(STEPS, saver)
    for future in [pool.submit(graphs.run, graph, STEPS, f"run-{i}") for i in range(count)]:
        future.result()

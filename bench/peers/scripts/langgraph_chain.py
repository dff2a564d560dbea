"""LangGraph: COUNT no-op steps, each checkpointed before the next. STORE is sqlite or postgres, SHAPE chain or loop."""

from __future__ import annotations

import sys

import langgraph_graphs as graphs

count, store, shape = int(sys.argv[1]), sys.argv[2], sys.argv[3]
build = graphs.chain if shape == "chain" else graphs.loop
with graphs.saver_on(store) as saver:
    graphs.run(build(count, saver), count, "chain")
    kept = sum(1 for _ in saver.conn.execute("SELECT checkpoint_id FROM checkpoints"))
assert kept > count, f"{kept} checkpoints for {count} steps: not every step was durable"

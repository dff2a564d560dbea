"""How much the loop of a worker reads, parses or writes at once. What is larger is done in another process.

The loop hears signals, heartbeats and the ends of all tasks: a megabyte costs it a few milliseconds.
"""

from __future__ import annotations

LOOP_BYTES_MAX = 1 << 20
# Where secrets have to be looked for: that takes ten times as long as everything else.
LOOP_BYTES_MAX_REDACTED = 1 << 16

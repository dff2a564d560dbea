"""How much a worker's loop may read, parse or write at once. Larger values are handled in another process.

The loop handles signals, heartbeats and the ends of all tasks: a megabyte blocks it for a few milliseconds.
"""

from __future__ import annotations

LOOP_BYTES_MAX = 1 << 20
# With a search for secrets, which takes ten times as long as everything else.
LOOP_BYTES_MAX_REDACTED = 1 << 16
# With a check against a schema, which takes a microsecond for each part of a value.
LOOP_BYTES_MAX_CHECKED = 1 << 18

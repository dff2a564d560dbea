"""The tables of a run as rows, and back: what a turn has changed, and the state that the rows hold."""

from __future__ import annotations

# kind of table, key, tag (what of it is looked for over all runs: "parked", "approval", else ""), data (None: it goes)
Row = tuple[str, str, str, bytes | None]

"""A disk that takes no more: a clear error, nothing lost, and it goes on when there is room."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from mulligan.store import open_store

SRC = Path(__file__).parents[2] / "src"

# A file that may not grow is as good as a full disk, and needs no disk of its own.
FILLED = """
import resource, signal, sys
from datetime import UTC, datetime
from mulligan.errors import StoreUnavailable
from mulligan.core.model.reports import RunRequested
from mulligan.ports import Commit, NewRun, WorkerRecord
from mulligan.store import open_store

at = datetime(2026, 1, 1, tzinfo=UTC)
store = open_store(sys.argv[1])
store.register(WorkerRecord("w", "here", 1))
turn, = store.create([NewRun(b"{}", "v1", "n", RunRequested(at, 0))], "w")

def write(number):
    rows = [("place", f"p{number}", "", b"x" * 20_000)]
    line = dict(status="running", round=1, at=at, reason=f"{number}")
    store.commit([Commit(turn=turn, after=0, entries=(), rows=rows, **line)])

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, hard))
number = 0
try:
    while True:
        write(number + 1)
        number += 1
except StoreUnavailable as error:
    print(error.render())
assert (store.run(turn.run_id).reason, len(store.load(turn.run_id).rows)) == (f"{number}", number)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
write(number + 1)
store.close()
print(number + 1)
"""


def test_a_file_that_cannot_grow_is_said_to_be_the_trouble_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    done = subprocess.run(
        [sys.executable, "-c", FILLED, str(path)],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr == ""
    said, hint, count = done.stdout.splitlines()
    assert said == f"error[store.unavailable]: '{path}' cannot be read or written: disk I/O error"
    assert hint == "  check its disk: it may be full"
    store = open_store(path)
    assert len(store.load(1).rows) == int(count)
    store.close()

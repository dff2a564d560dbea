"""A program that runs a workflow on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

SRC = Path(__file__).parent.parent.parent / "src"
PROGRAM = """
import mulligan

flow = mulligan.Workflow("nightly")
flow.step("load", shell='echo 3/10 rows > "$MULLIGAN_PROGRESS"; until test -e go; do sleep 0.05; done')
mulligan.run(flow)
"""
SECONDS_MAX = 30.0


def test_the_progress_that_a_step_reports_is_shown_while_it_runs(folder: Path):
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(SRC), "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stderr=theirs, env=environment) as program:
        os.close(theirs)

        shown = read_until(ours, b"3/10 rows")

        Path("go").touch()
        # To the end: a program whose terminal is closed before it has flushed its output fails.
        shown += read_until(ours, None)
    os.close(ours)
    assert (b"3/10 rows" in shown, b"run 1 completed in" in shown, program.returncode) == (True, True, 0)


def read_until(fd: int, wanted: bytes | None) -> bytes:
    """What appears on the terminal up to the wanted text, or up to the end."""
    found, until = b"", time.monotonic() + SECONDS_MAX
    while (wanted is None or wanted not in found) and time.monotonic() < until:
        try:
            found += os.read(fd, 4096)
        except OSError:  # the program has ended
            break
    return found

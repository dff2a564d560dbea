"""The crash: kill -9 in the middle of a chain, then `mulligan resume`: how soon it goes on, and what it did again."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from peers import ours
from peers.bars import Verdict
from peers.contestants import Task
from peers.environments import NotRun
from peers.processes import end_group, fresh_folder, last_words, start

_SECONDS_MAX = 120.0
_RUN = "1"


def resume(count: int) -> list[Verdict]:
    """Kill a chain of `count` steps in its middle and resume it. NotRun if that cannot be done."""
    with fresh_folder() as folder:
        _kill_in_the_middle(folder, count)
        before = _marks(folder)
        committed = _committed(folder)
        began = time.time()
        process = start(ours.verb(folder, "resume", _RUN, "--json"), folder)
        try:
            code = process.wait(timeout=_SECONDS_MAX)
        finally:
            end_group(process.pid)
        if code:
            raise NotRun(f"resume: exit code {code}: {last_words(folder)}")
        return list(_verdicts(began, before, _marks(folder), committed))


def _verdicts(
    began: float, before: list[tuple[str, float]], after: list[tuple[str, float]], committed: set[str]
) -> Iterator[Verdict]:
    first = next((at for _, at in after[len(before) :]), None)
    if first is None:
        raise NotRun("nothing was left to resume: the run had ended before it was killed")
    again = {step for step, times in Counter(step for step, _ in after).items() if times > 1}
    yield Verdict("next step starts after", " s", first - began, 0.5, 0.2, more_is_better=False)
    yield Verdict("committed steps that ran again", "", len(again & committed), 0, None, more_is_better=False)
    yield Verdict("steps in flight that ran again", "", len(again - committed), 1, None, more_is_better=False)


def _kill_in_the_middle(folder: Path, count: int) -> None:
    process = start(ours.marked_chain(Task(folder, count, 1, "")), folder)
    try:
        _wait_for_marks(process, folder, count // 2)
    finally:
        # The process alone, as a crash would have it: that its children end is its own duty.
        process.kill()
        process.wait()


def _wait_for_marks(process: subprocess.Popen[bytes], folder: Path, wanted: int) -> None:
    deadline = time.monotonic() + _SECONDS_MAX
    while len(_marks(folder)) < wanted:
        if process.poll() is not None:
            raise NotRun(f"run: exit code {process.returncode}: {last_words(folder)}")
        if time.monotonic() > deadline:
            raise NotRun(f"run: fewer than {wanted} steps after {_SECONDS_MAX:.0f} s")
        time.sleep(0.001)


def _committed(folder: Path) -> set[str]:
    """The numbers of the steps that the store calls completed after the crash."""
    command = ours.verb(folder, "show", _RUN, "--json")
    process = start(command, folder)
    if process.wait(timeout=_SECONDS_MAX):
        raise NotRun(f"show: exit code {process.returncode}: {last_words(folder)}")
    steps = json.loads((folder / "stdout.log").read_text())["steps"]
    return {name.removeprefix("s") for name, step in steps.items() if step["status"] == "completed"}


def _marks(folder: Path) -> list[tuple[str, float]]:
    """Which step ran when, as the steps themselves wrote it down; a line still being written is left out."""
    file = folder / "marks"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [(step, float(at)) for step, at in (line.split() for line in lines)]

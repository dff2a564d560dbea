"""Where the files of a run and of an attempt are, below the home folder. The one place that knows."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import NamedTuple

# A name in a folder has at most 255 bytes, and ours have endings.
_NAME_CHARS_MAX = 160
_PLAIN = re.compile(r"[A-Za-z0-9_@\[\]-][A-Za-z0-9_.@\[\]-]*", re.ASCII)


class Logs(NamedTuple):
    """What an attempt wrote to its standard output and error, as it comes. A python step may have none."""

    out: str
    err: str


class Sides(NamedTuple):
    """Files that a task may write, or that are written for it. They are gone when its end has been told.

    Not of an attempt but of a worker, used over and over: looking for a file that was never there is dear only for
    a new name, and most tasks write none.
    """

    # $MULLIGAN_OUTPUT: its result, as JSON.
    output: str
    # $MULLIGAN_ERROR: its errors, as JSON.
    error: str
    # $MULLIGAN_FAILURE_CONTEXT: the failure that led to it.
    context: str
    stdin: str


class Folders:
    """The files of all runs below one home folder."""

    def __init__(self, home: Path) -> None:
        self.home = str(home.absolute())
        self._made: set[str] = set()

    def logs(self, run_id: int, place: str, attempt: int) -> Logs:
        stem = f"{self.home}/runs/{run_id}/logs/{file_name(place)}#{attempt}"
        return Logs(stem + ".out", stem + ".err")

    def outputs(self, run_id: int) -> str:
        """$MULLIGAN_OUTPUT_DIR: what the steps of a run want to keep."""
        return f"{self.home}/runs/{run_id}/output"

    def worker(self, worker: str) -> str:
        """What a warm child writes stands here until it has the name of its attempt; and side files."""
        return f"{self.home}/workers/{file_name(worker)}"

    def sides(self, worker: str, number: int) -> Sides:
        stem = f"{self.worker(worker)}/{number}"
        return Sides(stem + ".output", stem + ".error", stem + ".context", stem + ".stdin")

    def make_run(self, run_id: int) -> None:
        """The folders of a run, once."""
        self._make(f"{self.home}/runs/{run_id}/logs")
        self._make(self.outputs(run_id))

    def make_worker(self, worker: str) -> None:
        self._make(self.worker(worker))

    def _make(self, folder: str) -> None:
        if folder not in self._made:
            os.makedirs(folder, exist_ok=True)
            self._made.add(folder)


def file_name(place: str) -> str:
    """A name for the place in any file system: itself where it can be, else with what cannot be in it spelled out."""
    if len(place) <= _NAME_CHARS_MAX and _PLAIN.fullmatch(place):
        return place
    spelled = "".join(_spelled(char) for char in place)
    if spelled.startswith("."):
        spelled = "%2E" + spelled[1:]
    if len(spelled) <= _NAME_CHARS_MAX:
        return spelled
    digest = hashlib.sha256(place.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{spelled[: _NAME_CHARS_MAX - 17]}%{digest}"


def _spelled(char: str) -> str:
    if _PLAIN.fullmatch(char) or char == ".":
        return char
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))

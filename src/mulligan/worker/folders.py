"""Where the files of a run and of an attempt are, below the home folder. The one place that knows."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

# A name in a folder has at most 255 bytes, and ours have endings.
_NAME_CHARS_MAX = 160
_PLAIN = re.compile(r"[A-Za-z0-9_@\[\]-][A-Za-z0-9_.@\[\]-]*", re.ASCII)


class Attempt:
    """The files of one attempt at a place. None of them need be there."""

    __slots__ = ("_folder", "_stem")

    def __init__(self, folder: str, place: str, attempt: int) -> None:
        self._folder = folder
        self._stem = f"{folder}/{file_name(place)}#{attempt}"

    @property
    def out(self) -> str:
        """What it wrote to its standard output, as it comes."""
        return self._stem + ".out"

    @property
    def err(self) -> str:
        return self._stem + ".err"

    # What follows is of one lease: a task that is given out again finds nothing of the lease before.

    def output(self, token: int) -> str:
        """$MULLIGAN_OUTPUT: it may write its result there, as JSON."""
        return f"{self._stem}.{token}.output"

    def error(self, token: int) -> str:
        """$MULLIGAN_ERROR: it may write its errors there, as JSON."""
        return f"{self._stem}.{token}.error"

    def context(self, token: int) -> str:
        """$MULLIGAN_FAILURE_CONTEXT: the failure that led to it."""
        return f"{self._stem}.{token}.context"

    def stdin(self, token: int) -> str:
        return f"{self._stem}.{token}.stdin"


class Folders:
    """The files of all runs below one home folder."""

    def __init__(self, home: Path) -> None:
        self.home = str(home.absolute())
        self._made: set[int] = set()

    def attempt(self, run_id: int, place: str, attempt: int) -> Attempt:
        return Attempt(self.logs(run_id), place, attempt)

    def logs(self, run_id: int) -> str:
        return f"{self.home}/runs/{run_id}/logs"

    def outputs(self, run_id: int) -> str:
        """$MULLIGAN_OUTPUT_DIR: what the steps of a run want to keep."""
        return f"{self.home}/runs/{run_id}/output"

    def slots(self, worker: str) -> str:
        """What a warm child writes stands here until it is known of which attempt it is."""
        return f"{self.home}/workers/{file_name(worker)}"

    def make(self, run_id: int) -> None:
        """The folders of a run, once."""
        if run_id not in self._made:
            os.makedirs(self.logs(run_id), exist_ok=True)
            os.makedirs(self.outputs(run_id), exist_ok=True)
            self._made.add(run_id)


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

"""The command line as a process would be: words in, exit code and two streams out. In this process, for speed."""

from __future__ import annotations

import atexit
import io
import json
import os
import re
import shutil
import subprocess
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.forked_process import start_mulligan

from mulligan.cli.words.dispatch import exit_code

SRC = Path(__file__).parent.parent.parent / "src"

# What differs from one time to the next: times of day, ages, durations, memory, processes.
_VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "THEN"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "THEN"),
    (re.compile(r"\d{4}-\d\d-\d\d at \d\d:\d\d"), "THEN"),
    (re.compile(r"\b\d+(\.\d+)?s\b"), "Ns"),
    (re.compile(r"\b\d+MiB\b"), "NMiB"),
    (re.compile(r"process \d+ on \S+"), "process N on HOST"),
    (re.compile(r"[ ]{2,}"), "  "),
)


class Said(NamedTuple):
    """What came of a command line."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def plain(self) -> tuple[int, str, str]:
        """All of it, without what differs from one time to the next."""
        return self.code, steady(self.out), steady(self.err)


def steady(text: str) -> str:
    """A text without what differs from one time to the next; columns stand two blanks apart."""
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return text


def mulligan(*words: object) -> Said:
    """The exit code, stdout and stderr of a command line."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        code = exit_code([str(word) for word in words])
    return Said(code, *(stream.buffer.getvalue().decode("utf-8", "surrogateescape") for stream in (out, err)))  # type: ignore[attr-defined]


def workflow(text: str, name: str = "flow.yaml") -> str:
    """A workflow file here; its name."""
    Path(name).write_text(text, encoding="utf-8")
    return name


def ran(text: str, *words: object) -> Said:
    """What came of running a workflow, which is not refused."""
    said = mulligan("run", workflow(text), *words)
    assert said.code != 2, said.err
    return said


def ran_before(*texts: str) -> None:
    """Runs for a test that only reads them or is refused: they were made once, elsewhere, and their home is copied."""
    shutil.copytree(_home_of_runs(*texts), ".mulligan")


@cache
def _home_of_runs(*texts: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="mulligan-runs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with chdir(folder):
        for text in texts:
            ran(text)
    return folder / ".mulligan"


def process(*words: object, **options: Any) -> subprocess.Popen[bytes]:
    """The same in a process of its own, as another terminal would have it."""
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return start_mulligan(words, environment, **pipes)

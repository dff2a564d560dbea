"""Questions asked on the command line of this process, or of another one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from mulligan_nl2sql.command_line import main

# The exit code and the JSON of a question.
Asked = tuple[int, dict[str, Any]]
COMMAND = (sys.executable, "-m", "mulligan_nl2sql.command_line")


class Said(NamedTuple):
    code: int
    out: str
    err: str


def asking(capsys: pytest.CaptureFixture[str]) -> Callable[..., Asked]:
    """A function that runs `nl2sql` here: its exit code and its JSON have to agree."""

    def ask(*arguments: str) -> Asked:
        said = text_of(capsys, *arguments, "--json")
        answer = json.loads(said.out)
        assert answer["exit_code"] == said.code
        return said.code, answer

    return ask


def text_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> Said:
    """What `nl2sql` prints here."""
    code = main(arguments)
    return Said(code, *capsys.readouterr())


def ask_elsewhere(*arguments: str) -> Asked:
    """`nl2sql` in a process of its own."""
    said = subprocess.run([*COMMAND, *arguments, "--json"], capture_output=True, text=True, check=False)
    assert said.stderr == ""
    return said.returncode, json.loads(said.stdout)

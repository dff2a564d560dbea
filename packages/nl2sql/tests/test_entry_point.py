"""The program before it has loaded anything, and its stdout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mulligan_nl2sql.command_line import main

from .shop import make_shop


def test_ctrl_c_while_the_program_is_loaded_shows_no_traceback() -> None:
    code = (
        "import os, signal, mulligan_nl2sql.__main__ as program\n"
        "program.import_module = lambda name: os.kill(os.getpid(), signal.SIGINT)\n"
        "program.main()"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (130, "interrupted before anything was started\n")


def test_a_closed_stdout_is_said_to_be_closed() -> None:
    command = ["sh", "-c", 'exec "$0" -m mulligan_nl2sql --help >&-', sys.executable]

    done = subprocess.run(command, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (1, "error: stdout cannot be written: it is closed\n")


@pytest.mark.parametrize("form", ["--json", ""])
def test_a_full_disk_behind_stdout_is_no_mistake_of_the_program(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = make_shop(tmp_path / "shop.db")
    with open("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stdout", full)
        code = main(["policy", "--db", f"sqlite:///{shop}", *filter(None, [form])])

    assert (code, capsys.readouterr().err) == (1, "error: stdout cannot be written: no space left on device\n")

"""A program that was asked to try nothing says so: it would prove nothing, and look as if it had."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("program", "words", "said"),
    [
        ("mulligan.testing.simulate", ["--histories", "abc"], "argument --histories: 'abc' is no whole number"),
        ("mulligan.testing.simulate", ["--histories", "0"], "argument --histories: 0 of them prove nothing"),
        ("proof.crashes", ["--every", "0"], "argument --every: 0 of them prove nothing"),
        ("proof.chaos", ["--minutes", "-1"], "argument --minutes: -1 of them prove nothing"),
        ("proof.chaos", ["--runs", "0"], "argument --runs: 0 of them prove nothing"),
        ("proof.fuzz", ["--minutes", "inf"], "argument --minutes: inf of them prove nothing"),
        ("proof.fuzz", ["--minutes", "long"], "argument --minutes: 'long' is no number"),
    ],
)
def test_a_number_that_would_prove_nothing_is_refused(program: str, words: list[str], said: str) -> None:
    answer = subprocess.run([sys.executable, "-m", program, *words], capture_output=True, text=True, cwd=PROJECT)

    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.splitlines()[-1] == f"python -m {program}: error: {said}"

"""A program that was asked to try nothing says so: it would prove nothing, and look as if it had."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mulligan.testing.arguments import positive_float, positive_int

PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("program", "words", "said"),
    [
        ("mulligan.testing.simulate", ["--histories", "0"], "argument --histories: 0 is less than 1"),
        ("proof.crashes", ["--every", "0"], "argument --every: 0 is less than 1"),
        ("proof.chaos", ["--minutes", "-1"], "argument --minutes: -1 is not greater than 0"),
        ("proof.soak", ["--runs", "0"], "argument --runs: 0 is less than 1"),
        ("proof.fuzz", ["--minutes", "long"], "argument --minutes: 'long' is not a number"),
    ],
)
def test_a_number_that_would_prove_nothing_is_refused(program: str, words: list[str], said: str) -> None:
    answer = subprocess.run([sys.executable, "-m", program, *words], capture_output=True, text=True, cwd=PROJECT)

    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.splitlines()[-1] == f"python -m {program}: error: {said}"


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((positive_int, text) for text in ("abc", "0", "-1", "1.5")),
        *((positive_float, text) for text in ("long", "0", "-1", "inf", "nan")),
    ],
)
def test_what_is_no_amount_of_work_is_refused(read: Callable[[str], float], text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        read(text)


def test_an_amount_of_work_is_read() -> None:
    assert (positive_int("3"), positive_float("0.5")) == (3, 0.5)

"""A program that was asked to try nothing says so: it would prove nothing, and look as if it had."""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Callable

import pytest

from proof.arguments import positive_float, positive_int


@pytest.mark.parametrize(
    ("program", "words", "said"),
    [
        ("proof.simulator", ["--histories", "0"], "argument --histories: 0 is less than 1"),
        ("proof.crashes", ["--every", "0"], "argument --every: 0 is less than 1"),
        ("proof.chaos", ["--minutes", "-1"], "argument --minutes: -1 is not greater than 0"),
        ("proof.soak", ["--runs", "0"], "argument --runs: 0 is less than 1"),
        ("proof.fuzz", ["--minutes", "long"], "argument --minutes: 'long' is not a number"),
    ],
)
def test_a_number_that_would_prove_nothing_is_refused(
    program: str, words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # As `python -m` runs it, but for the start of a process that would import what was imported here already.
    monkeypatch.setattr(sys, "argv", [program, *words])
    for module in (program, f"{program}.__main__"):
        if not hasattr(sys.modules.get(module), "__path__"):
            monkeypatch.delitem(sys.modules, module, raising=False)

    with pytest.raises(SystemExit) as ended:
        runpy.run_module(program, run_name="__main__")

    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert err.splitlines()[-1] == f"python -m {program}: error: {said}"


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

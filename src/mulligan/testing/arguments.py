"""Numbers on the command lines of programs that prove something: of nothing they would prove nothing, and say so."""

from __future__ import annotations

import argparse


def positive_int(text: str) -> int:
    """A whole number of things to try."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} of them prove nothing")
    return number


def positive_float(text: str) -> float:
    """An amount of time, to try for so long."""
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no number") from None
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} of them prove nothing")
    return number

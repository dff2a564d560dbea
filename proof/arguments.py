"""Positive numbers on the command lines of the programs in `proof`: zero would prove nothing."""

from __future__ import annotations

import argparse


def positive_int(text: str) -> int:
    """Parse a positive whole number."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def positive_float(text: str) -> float:
    """Parse a positive number."""
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number") from None
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not greater than 0")
    return number

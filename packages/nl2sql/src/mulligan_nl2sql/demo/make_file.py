"""The command line of the programs that make a database of the demo."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path


def make_file(name: str, make: Callable[[Path], object]) -> int:
    """Make the file that the command line names, and return the exit code."""
    if len(sys.argv) != 2:
        print(f"usage: python -m mulligan_nl2sql.demo.{name} FILE", file=sys.stderr)
        return 2
    try:
        make(Path(sys.argv[1]))
    except (OSError, sqlite3.Error) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0

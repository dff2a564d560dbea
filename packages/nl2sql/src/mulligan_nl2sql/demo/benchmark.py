"""Write the questions of the demo as the file of a benchmark: `python -m mulligan_nl2sql.demo.benchmark shop.toml`."""

from __future__ import annotations

import sys
from pathlib import Path

QUESTIONS = Path(__file__).with_name("shop_questions.toml")


def main(arguments: list[str]) -> int:
    """Copy the file. An existing one is kept."""
    if len(arguments) != 1:
        print("usage: python -m mulligan_nl2sql.demo.benchmark FILE", file=sys.stderr)
        return 2
    try:
        with open(arguments[0], "x", encoding="utf-8") as file:
            file.write(QUESTIONS.read_text(encoding="utf-8"))
    except OSError as error:
        print(f"error: '{arguments[0]}' cannot be written: {(error.strerror or str(error)).lower()}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

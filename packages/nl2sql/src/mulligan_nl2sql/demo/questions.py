"""Ask the shop some questions, each with the command that a user would type: `make nl2sql-demo`."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from mulligan_nl2sql.command_line import main as nl2sql
from mulligan_nl2sql.demo.shop import make_shop

# Each with more options. One is answered, one is only checked, and one is refused: nothing explains 'revenue'.
QUESTIONS = (
    ("which city has the most customers?",),
    ("which customers have no orders?", "--no-exec"),
    ("revenue in 2024",),
)


def play(questions: Iterable[tuple[str, ...]] = QUESTIONS) -> list[int]:
    """Make the shop in a folder that is removed afterwards, ask, and return the exit codes."""
    codes = []
    with tempfile.TemporaryDirectory(prefix="nl2sql-demo-") as folder:
        make_shop(Path(folder) / "shop.db")
        for question, *options in questions:
            command = ["ask", question, "--db", f"sqlite:///{folder}/shop.db", *options]
            print(f"$ nl2sql {shlex.join(command)}", flush=True)
            codes.append(nl2sql([*command, "--home", f"{folder}/runs"]))
            print(f"exit code {codes[-1]}\n", flush=True)
    return codes


if __name__ == "__main__":
    # Answered, checked, refused; anything else is a fault.
    sys.exit(play() != [0, 0, 3])

"""Ask the databases of the demo some questions, each with the command that a user would type: `make nl2sql-demo`."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from mulligan_nl2sql.command_line import main as nl2sql
from mulligan_nl2sql.demo.shop import make_shop
from mulligan_nl2sql.demo.support import make_support


class DemoQuestion(msgspec.Struct, frozen=True):
    """What is asked, the databases by the names of their files, and further options."""

    text: str
    exit_code: int
    databases: tuple[str, ...] = ("shop",)
    options: tuple[str, ...] = ()


QUESTIONS = (
    DemoQuestion("which city has the most customers?", 0),
    DemoQuestion("which customers have no orders?", 0, options=("--no-exec",)),
    # Nothing explains 'revenue'.
    DemoQuestion("revenue in 2024", 3),
    # Both know customers and cities: one table, with a column that says which database a row is from.
    DemoQuestion("how many customers are in each city?", 0, ("shop", "support")),
    # One knows orders, the other one tickets.
    DemoQuestion("how many orders are there, and how many tickets are there?", 0, ("shop", "support")),
    # There is no file `archive.db`: the others answer, and a warning says what is missing.
    DemoQuestion("how many tickets are there per priority?", 4, ("support", "archive")),
)


def play(questions: Iterable[DemoQuestion] = QUESTIONS) -> list[int]:
    """Make the databases in a folder that is removed afterwards, ask, and return the exit codes."""
    codes = []
    with tempfile.TemporaryDirectory(prefix="nl2sql-demo-") as folder:
        make_shop(Path(folder) / "shop.db")
        make_support(Path(folder) / "support.db")
        for question in questions:
            databases = [word for name in question.databases for word in ("--db", f"sqlite:///{folder}/{name}.db")]
            command = ["ask", question.text, *databases, *question.options]
            print(f"$ nl2sql {shlex.join(command)}", flush=True)
            codes.append(nl2sql([*command, "--home", f"{folder}/runs"]))
            print(f"exit code {codes[-1]}\n", flush=True)
    return codes


if __name__ == "__main__":
    sys.exit(play() != [question.exit_code for question in QUESTIONS])

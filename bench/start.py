"""How long commands take to start.

    python bench/start.py [--rounds 10]

The commands alternate, each in a process of its own, with what the first one wrote for the next; the least processor
time and wall time count.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from growing.measuring import Spent, run
from peers.processes import Command, fresh_folder

SOURCE = Path(__file__).resolve().parent.parent / "src"
HELLO = "name: hello\nsteps: [{step: hello, shell: echo hello}]\n"
COMMANDS = {
    "python -c pass": [],
    "mulligan --version": ["--version"],
    "mulligan validate hello.yaml": ["validate", "hello.yaml"],
    "mulligan run hello.yaml": ["run", "hello.yaml"],
    "mulligan show 1": ["show", "1"],
    "mulligan list": ["list"],
}


def starts(rounds: int) -> dict[str, list[Spent]]:
    times: dict[str, list[Spent]] = {name: [] for name in COMMANDS}
    with fresh_folder() as folder:
        (folder / "hello.yaml").write_text(HELLO)
        environment = {"PYTHONPATH": str(SOURCE), "MULLIGAN_HOME": str(folder / "home")}
        for _ in range(rounds):
            for name, words in COMMANDS.items():
                arguments = ["-m", "mulligan", *words] if words else ["-c", "pass"]
                times[name].append(run(Command([sys.executable, *arguments], environment), folder))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    print("| | wall ms | cpu ms |\n|---|---:|---:|")
    for name, spent in starts(rounds).items():
        wall, cpu = (min(one[at] for one in spent) * 1e3 for at in (0, 1))
        print(f"| `{name}` | {wall:.0f} | {cpu:.0f} |")


if __name__ == "__main__":
    main()

"""What somebody gets who installs Mulligan without extras: packages, size on disk, and how long commands take to start.

    python bench/bare_install.py [--rounds 10]

Sizes are those of the files that the packages brought, without compiled files of Python. The commands alternate, each
in a process of its own, with what the first one wrote for the next; the least processor time and wall time count.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from growing.measuring import Spent, run
from packaging.requirements import Requirement
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


def bare_packages() -> dict[str, Distribution]:
    """The packages that an installation without extras needs, by name, without Mulligan itself."""
    found: dict[str, Distribution] = {}
    wanted = list(distribution("mulligan").requires or [])
    while wanted:
        requirement = Requirement(wanted.pop())
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            package = distribution(requirement.name)
        except PackageNotFoundError:
            print(f"not installed here: {requirement}", file=sys.stderr)
            continue
        if package.name not in found:
            found[package.name] = package
            wanted += package.requires or []
    return found


def size_of(package: Distribution) -> int:
    paths = (Path(str(file.locate())) for file in package.files or [])
    return sum(path.stat().st_size for path in paths if path.suffix != ".pyc" and path.is_file())


def own_size() -> tuple[int, int]:
    """The number and the size of our own files."""
    files = [path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return len(files), sum(path.stat().st_size for path in files)


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
    print("| package | MB |\n|---|---:|")
    count, own = own_size()
    total = own
    print(f"| mulligan, {count:,} files | {own / 1e6:.1f} |")
    for name, package in sorted(bare_packages().items(), key=lambda item: -size_of(item[1])):
        total += size_of(package)
        print(f"| {name} {package.version} | {size_of(package) / 1e6:.1f} |")
    print(f"| all | {total / 1e6:.1f} |\n\n| | wall ms | cpu ms |\n|---|---:|---:|")
    for name, spent in starts(rounds).items():
        wall, cpu = (min(one[at] for one in spent) * 1e3 for at in (0, 1))
        print(f"| `{name}` | {wall:.0f} | {cpu:.0f} |")


if __name__ == "__main__":
    main()

"""Mulligan's own side: the workflow files of the workloads, and the command line that runs them."""

from __future__ import annotations

import compileall
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path

from peers.contestants import SCRIPTS, Task
from peers.processes import Command

HOME = "home"
_NO_OP = r"def main():\n    return None\n"
# A line for each step that ran, in the order of running: what a resumed run did again can be read from it.
_MARK = (
    r"import time\n"
    r"def main(step):\n"
    r"    with open('marks', 'a') as marks:\n"
    r"        print(step, time.time(), file=marks)\n"
)
_FAN = """\
name: fan
steps:
  - step: "s_{{i}}"
    matrix: {{i: 1..{count}}}
    shell: "{shell}"
  - {{step: join, needs: [{{matrix: s}}], shell: "{shell}"}}
"""

_PROGRAM = """\
from mulligan import program, step

@step(inline={is_inline})
def nothing() -> None:
    return None

@program(calls=10_000)
def chain(count: int) -> int:
    for _ in range(count):
        nothing()
    return count
"""


def chain(task: Task) -> Command:
    """Python steps that do nothing, one after the other."""
    steps = [f'{{step: s{i}, python: "{_NO_OP}"}}' for i in range(task.count)]
    return _run(task, _sequence("chain", steps))


def marked_chain(task: Task) -> Command:
    """The same, each step leaving a line with its number and the time in the file `marks`."""
    steps = [f'{{step: s{i}, python: "{_MARK}", args: {{step: {i}}}}}' for i in range(task.count)]
    return _run(task, _sequence("chain", steps))


def fan(shell: str) -> Callable[[Task], Command]:
    """Shell steps beside each other, then one that needs them all."""
    return lambda task: _run(task, _FAN.format(count=task.count, shell=shell))


def hello(task: Task) -> Command:
    """One step that says hello."""
    return _run(task, "name: hello\nsteps: [{step: hello, shell: echo hello}]\n")


def program(is_inline: bool) -> Callable[[Task], Command]:
    """A program that calls a step which does nothing, again and again: in a task of its own, or inline."""
    return lambda task: _start(task, "workflow.py", _PROGRAM.format(is_inline=is_inline), "-i", f"count={task.count}")


def mulligan_runs(task: Task) -> Command:
    """Many runs of three Python steps: `task.count` runs, `task.parallel` at a time, on `task.database` or SQLite."""
    command = verb(task.folder, database=task.database)
    script = str(SCRIPTS / "mulligan_runs.py")
    return Command([sys.executable, script, str(task.count), str(task.parallel)], command.environment)


def verb(folder: Path, *arguments: str, database: str = "") -> Command:
    """`mulligan …` as a person would type it, with its home in the folder."""
    script = Path(sys.executable).parent / "mulligan"
    start = [str(script)] if script.exists() else [sys.executable, "-m", "mulligan"]
    environment = {"MULLIGAN_HOME": str(folder / HOME)}
    if "PYTHONPATH" in os.environ:  # where it is measured without being installed
        places = os.environ["PYTHONPATH"].split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(place) for place in places)
    if database:
        environment["MULLIGAN_STORE"] = database
    return Command([*start, *arguments], environment)


def compile_bytecode() -> None:
    """Compile Mulligan and the peers' scripts, so that no measurement pays for it."""
    spec = importlib.util.find_spec("mulligan")
    if spec is not None and spec.origin is not None:
        compileall.compile_dir(Path(spec.origin).parent, quiet=1)
    compileall.compile_dir(SCRIPTS, quiet=1)


def _sequence(name: str, steps: list[str]) -> str:
    return f"name: {name}\norder: sequential\nsteps:\n" + "".join(f"  - {step}\n" for step in steps)


def _run(task: Task, workflow: str) -> Command:
    return _start(task, "workflow.yaml", workflow)


def _start(task: Task, name: str, text: str, *inputs: str) -> Command:
    file = task.folder / name
    file.write_text(text)
    options = ("--home", str(task.folder / HOME), "--parallel", str(task.parallel), "--json")
    return verb(task.folder, "run", str(file), *inputs, *options, database=task.database)

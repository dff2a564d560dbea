"""Ctrl-C and SIGTERM before a command has begun and after it is done: exit code 130, and no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.nightly import examples, sample

SRC = Path(__file__).parents[2] / "src"
# Sends the signal to itself when a module is about to be loaded, and then runs the command line.
AT_IMPORT = """
import os, sys
class Trap:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            os.kill(os.getpid(), NUMBER)
class Finders(list):
    "The trap stays the first of them: the command line has a finder of its own for its modules."
    def insert(self, index, finder):
        super().insert(index + 1, finder)
MODULE, NUMBER = sys.argv[1], int(sys.argv[2])
sys.meta_path = Finders([Trap(), *sys.meta_path])
from mulligan.cli.main import main
del sys.argv[1:3]
main()
"""
# Sends it when the command is done and the process is about to end.
AT_EXIT = """
import atexit, os, sys
atexit.register(os.kill, os.getpid(), int(sys.argv[1]))
from mulligan.cli.main import main
del sys.argv[1]
main()
"""
# Sends it at the n-th thing that the interpreter imports, opens or executes, from the moment at which it has our code.
AT_EVENT = """
import os, sys
class Countdown:
    left = int(sys.argv[1])
    def __call__(self, event, args):
        if event in ("import", "open", "exec"):
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), 2)
import mulligan.cli.main
del sys.argv[1]
sys.addaudithook(Countdown())
mulligan.cli.main.main()
"""
# Sends it when a function is called by another one, the first time at which it raises an exception.
AT_CALL = """
import os, signal, sys
CALLER, FUNCTION, NUMBER = *sys.argv[1].split(), int(sys.argv[2])
def trap(frame, event, argument):
    if event == "call" and frame.f_code.co_name == FUNCTION and frame.f_back.f_code.co_name == CALLER:
        if getattr(signal.getsignal(NUMBER), "__name__", "_end") != "_end":
            sys.setprofile(None)
            os.kill(os.getpid(), NUMBER)
from mulligan.cli.main import main
del sys.argv[1:3]
sys.setprofile(trap)
main()
"""
# What Python would drop, or replace by another exception: in a callback at the end of each import, while a module in C
# imports others, while a class is made.
LOST_IN = ["_find_and_load cb", "_call_with_frames_removed _lock_unlock_module", "<module> __set_name__"]
# In the order in which `mulligan run` loads them: before a command is known, while it is loaded, while it runs.
MODULES = [
    "mulligan.cli.module_archive",
    "mulligan.cli.words.dispatch",
    "msgspec",
    "mulligan.cli.output.terminal",
    "mulligan.cli.running.run",
    "apsw",
    "mulligan.service.driving.driver",
]


def ran(program: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    # A file that was checked before is not read again, and what reads it not loaded.
    environment = {**os.environ, "PYTHONPATH": str(SRC), "MULLIGAN_CACHE": str(cwd / "cache")}
    command = [sys.executable, "-c", program, *words]
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("module", "number"),
    [*((module, signal.SIGINT) for module in MODULES), *((module, signal.SIGTERM) for module in MODULES[1::3])],
)
def test_a_signal_while_the_program_is_loaded_ends_it_with_130(
    module: str, number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "flow.yaml").write_text("steps:\n  - {step: a, shell: echo}\n")

    done = ran(AT_IMPORT, module, str(int(number)), "run", "flow.yaml", cwd=tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("call", sample(LOST_IN, 2))
def test_a_signal_is_not_lost_where_python_drops_exceptions(call: str, number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text("steps:\n  - {step: a, shell: echo}\n")

    done = ran(AT_CALL, call, str(int(number)), "run", "flow.yaml", cwd=tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_a_second_signal_interrupts_an_import_that_hangs(tmp_path: Path) -> None:
    hanging = AT_IMPORT.replace("NUMBER)\n", "NUMBER); os.kill(os.getpid(), NUMBER); import time; time.sleep(600)\n", 1)
    (tmp_path / "flow.yaml").write_text("steps:\n  - {step: a, shell: echo}\n")

    done = ran(hanging, "mulligan.service.driving.driver", str(int(signal.SIGINT)), "run", "flow.yaml", cwd=tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_a_signal_when_the_command_is_done_ends_it_with_130(tmp_path: Path) -> None:
    done = ran(AT_EXIT, str(int(signal.SIGINT)), "list", cwd=tmp_path)

    assert (done.returncode, done.stderr.splitlines()[-1]) == (130, "interrupted")


def test_a_signal_that_the_caller_wants_ignored_stays_ignored(tmp_path: Path) -> None:
    ignoring = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{AT_IMPORT}"

    done = ran(ignoring, "msgspec", str(int(signal.SIGINT)), "--version", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")


# A sample, from what the entry point itself loads until the command is done.
MOMENTS = [("run flow.yaml", event) for event in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987, 1597)]
MOMENTS += [(command, event) for command in ("list", "show 1", "resume", "worker") for event in (1, 34, 233)]
MOMENTS = MOMENTS[:: examples(4, 1)]


@pytest.mark.parametrize(("command", "event"), MOMENTS)
def test_a_signal_at_any_moment_of_the_start_ends_it_with_130(command: str, event: int, tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text("steps:\n  - {step: a, shell: echo}\n")

    done = ran(AT_EVENT, str(event), *command.split(), cwd=tmp_path)

    assert "Traceback" not in done.stderr
    # A command that ends before the moment comes has not noticed anything.
    assert done.returncode == 130 or (event > 100 and "interrupted" not in done.stderr)


def test_the_entry_point_loads_nothing_before_it_handles_signals(tmp_path: Path) -> None:
    listed = "import sys; had = set(sys.modules); import mulligan.cli.main; print(*sorted(set(sys.modules) - had))"

    done = ran(listed, cwd=tmp_path)

    own = {"mulligan", "mulligan.cli", "mulligan.cli.main"}
    assert set(done.stdout.split()) <= own | {"__future__", "_signal", "atexit", "gc"}

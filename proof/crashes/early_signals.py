"""`python -m proof.crashes.early_signals`: SIGTERM at every moment of the start of a worker, and whether it ends.

A moment is the call of a function from a line of another. The process that starts forks there: its copy gets the
signal, and the original waits until the copy has ended, and goes on to the next moment. `--every 50` takes each 50th
moment, and all those of the import system, in which Python drops exceptions. `--defect` raises them there nevertheless.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from types import FrameType
from typing import Any, NoReturn

from mulligan.cli import main

# How long a copy may take to end. One that lost the signal has nothing to do, and ends soon with `--idle-exit`.
PATIENCE_SECONDS = 60.0
IDLE = "0.1s"
UP = b" is up: "


class Moments:
    """The function that Python calls for each call of a function."""

    def __init__(self, every: int, home: str) -> None:
        self._every = every
        self._said = os.path.join(home, "said")
        self._seen: set[tuple[str, str, str, int]] = set()
        self._tried = 0
        self._lost: list[str] = []

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or (name := getattr(signal.getsignal(signal.SIGTERM), "__name__", "_end")) == "_end":
            return  # signals end the process at once
        if name == "_note":
            self._finish()
        code, caller = frame.f_code, frame.f_back
        by = ("", 0) if caller is None else (caller.f_code.co_name, caller.f_lineno)
        moment = (code.co_filename, code.co_name, *by)
        if moment in self._seen:
            return
        self._seen.add(moment)
        if "importlib" in code.co_filename or code.co_name == "__set_name__" or len(self._seen) % self._every == 0:
            sys.setprofile(None)
            pid = os.fork()
            if pid == 0:
                os.dup2(os.open(self._said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
                os.kill(os.getpid(), signal.SIGTERM)
                return
            self._wait_for(pid, moment)
            sys.setprofile(self)

    def _wait_for(self, pid: int, moment: tuple[str, str, str, int]) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0) and time.monotonic() < until:
            time.sleep(0.001)
        if ended == (0, 0):
            os.kill(pid, signal.SIGKILL)
            ended = os.waitpid(pid, 0)
        with open(self._said, "rb") as file:
            said = file.read()
        self._tried += 1
        code = os.waitstatus_to_exitcode(ended[1])
        if code not in (0, main.INTERRUPTED) or UP in said or b"Traceback" in said:
            where = "{2}:{3} calls {1} ({0})".format(*moment)
            self._lost.append(f"{where}: {'it went on' if UP in said else f'exit code {code}'}")

    def _finish(self) -> NoReturn:
        sys.setprofile(None)
        lines = [f"SIGTERM at {self._tried} of {len(self._seen)} moments: {len(self._lost)} went wrong", *self._lost]
        os.write(1, "\n".join([*lines, ""]).encode())
        os._exit(bool(self._lost))


def run(arguments: list[str] | None = None) -> NoReturn:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--defect", action="store_true")
    asked = parser.parse_args(arguments)
    if asked.defect:
        vars(main)["raise_interrupt"] = signal.default_int_handler
    home = tempfile.mkdtemp(prefix="early-signals-")
    sys.argv = ["mulligan", "worker", "--home", os.path.join(home, "home"), "--idle-exit", IDLE]
    sys.setprofile(Moments(asked.every, home))
    main.main()


if __name__ == "__main__":
    run()

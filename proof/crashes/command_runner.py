"""Run command lines in processes that may have a fault injected."""

from __future__ import annotations

import json
import selectors
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from proof.crashes import calls
from proof.crashes.faults import Fault
from proof.stage import PIPE, Stage

_LOOK_SECONDS = 0.05


class CommandExit(NamedTuple):
    """How a process ended: -9 is kill -9. `has_happened` says whether what was to happen to it did happen."""

    code: int
    shown: dict[str, Any]
    said: str
    has_happened: bool


class CommandRunner:
    """Runs command lines, one at a time."""

    def __init__(self, process: subprocess.Popen[str], scratch: Path) -> None:
        self._process = process
        self._out, self._err, self._met = scratch / "out", scratch / "err", scratch / "met"

    def run(
        self,
        stage: Stage,
        *words: str,
        fault: Fault | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> CommandExit:
        """One command line, to its end. `meanwhile` is called again and again until then."""
        self._met.unlink(missing_ok=True)
        order = {
            "words": words,
            "folder": str(stage.folder),
            "environment": stage.environment,
            "out": str(self._out),
            "err": str(self._err),
            "met": str(self._met),
            **(fault._asdict() if fault else {"kind": ""}),
        }
        code = self._answer(json.dumps(order), meanwhile)
        return CommandExit(code, self._shown(), self._err.read_text(), self._has_happened(fault))

    def _answer(self, order: str, meanwhile: Callable[[], object]) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(order, file=self._process.stdin, flush=True)
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not selector.select(_LOOK_SECONDS):
                meanwhile()
        return int(self._process.stdout.readline())

    def _shown(self) -> dict[str, Any]:
        out = self._out.read_text()
        try:
            return json.loads(out) if out else {}
        except ValueError:
            return {}  # killed in the middle of it

    def _has_happened(self, fault: Fault | None) -> bool:
        if fault is not None and fault.kind in calls.KINDS:
            return calls.was_met(self._met)
        return self._met.exists()


@contextmanager
def command_runner(stage: Stage, scratch: Path, environment: Mapping[str, str] = {}) -> Iterator[CommandRunner]:
    # Ctrl-C is for the parent: this process ends when no more commands come.
    options = {"stdin": PIPE, "stderr": None, "start_new_session": True, "environment": environment}
    with stage.start_program("-m", "proof.crashes.command_server", **options) as process:
        yield CommandRunner(process, scratch)

"""A stage whose command lines are forked, and which finds those that still run as it finds all else."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from tests.support.forked_process import start_mulligan

from proof.stage import PIPE, Stage

# What was forked on the stage of a folder, and may still run.
FORKED: list[tuple[Path, subprocess.Popen[str]]] = []


class ForkedStage(Stage):
    """A stage on which `mulligan` starts at once."""

    def start(self, *words: object, **options: Any) -> subprocess.Popen[str]:
        environment = {**self.environment, **options.pop("environment", {})}
        pipes = {"stdin": subprocess.DEVNULL, "stdout": PIPE, "stderr": PIPE, "text": True, **options}
        started = start_mulligan(words, environment, cwd=self.folder, **pipes)
        FORKED.append((self.folder, started))
        return started

    def leftovers(self) -> list[str]:
        # The kernel does not know the environment of a forked process.
        running = [one.pid for folder, one in FORKED if folder == self.folder and one.poll() is None]
        return [f"{pid}: mulligan" for pid in running] + super().leftovers()


def end_forked() -> None:
    """End what a test has left running."""
    while FORKED:
        _, process = FORKED.pop()
        if process.poll() is None:
            process.kill()
            process.wait()

"""The peers' environments below bench/.envs: made when asked for, each at its pins, with bytecode compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from peers.versions import PINS

ENVIRONMENTS = Path(__file__).parents[1] / ".envs"
# What a shell may carry around must reach neither a peer nor us: each would start another Python than it seems.
_UNWANTED = ("PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX")


class NotRun(Exception):
    """A contestant that could not take part, with the reason in one line."""


def clean_environment() -> dict[str, str]:
    """This process's environment without what would change how a Python starts or where a run is kept."""
    kept = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
    return {name: value for name, value in kept.items() if not name.startswith("MULLIGAN_")}


def program(environment: str, name: str = "python") -> str:
    """The path of a program of a peer's environment, or NotRun if the environment is not there as pinned."""
    if _stamp(environment) != _pins(environment):
        problem = ENVIRONMENTS / environment / "problem"
        raise NotRun(problem.read_text() if problem.exists() else "not installed: run with --install")
    return str(ENVIRONMENTS / environment / "bin" / name)


def install(environment: str) -> None:
    """Make the environment of a peer, unless it is there with the same pins. NotRun if it cannot be had."""
    if _stamp(environment) == _pins(environment):
        return
    folder = ENVIRONMENTS / environment
    shutil.rmtree(folder, ignore_errors=True)
    try:
        for command in _commands(folder, PINS[environment]):
            _call(command)
    except NotRun as problem:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "problem").write_text(str(problem))  # for the tables of this run and of later ones
        raise
    (folder / "pins").write_text(_pins(environment))


def _commands(folder: Path, pins: tuple[str, ...]) -> tuple[list[str], ...]:
    python = str(folder / "bin" / "python")
    uv = shutil.which("uv")
    if uv:
        make = [uv, "venv", "--quiet", "--python", sys.executable, str(folder)]
        return make, [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python, *pins]
    make = [sys.executable, "-m", "venv", str(folder)]
    return make, [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pins]


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False)
    if done.returncode:
        raise NotRun(f"cannot be installed: {' '.join(done.stderr.split())[:300]}")


def _pins(environment: str) -> str:
    return "\n".join(PINS[environment])


def _stamp(environment: str) -> str:
    """The pins that the environment was made with; empty if it was never finished."""
    stamp = ENVIRONMENTS / environment / "pins"
    return stamp.read_text() if stamp.exists() else ""

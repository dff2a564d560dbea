"""Fuzzing guided by coverage: atheris (libFuzzer), in its own environment, where it can be built.

It comes as source and wants a clang with libFuzzer. Where that is not to be had, the reason is said and nothing is lost
but this second way to look.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from .seeds import PROJECT
from .session import Found, Went

PIN = "atheris==3.0.0"
ENVIRONMENT = Path(__file__).parent / ".env"
_PROGRESS = re.compile(r"#(\d+)\s+\S+\s+cov: (\d+)")
_RAISED = re.compile(r"Uncaught Python exception: ===\n(.*?)\n(?:Traceback|\n|==)", re.DOTALL)


class NotBuilt(Exception):
    """Atheris is not available; the text says why."""


def python() -> str:
    """Return the interpreter that has atheris, created on first use. NotBuilt if that fails."""
    found = ENVIRONMENT / "bin" / "python"
    problem = ENVIRONMENT / "problem"
    if problem.exists():
        raise NotBuilt(problem.read_text())
    if not (ENVIRONMENT / "built").exists():
        try:
            _build(str(found))
        except NotBuilt as reason:
            problem.write_text(f"{reason} (remove {ENVIRONMENT.relative_to(PROJECT)} to try again)")
            raise
        (ENVIRONMENT / "built").write_text(PIN)
    return str(found)


def _build(found: str) -> None:
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    clang = shutil.which("clang")
    if clang is None:
        raise NotBuilt("there is no clang on the PATH")
    environment = {**os.environ, "CLANG_BIN": clang, "CC": clang, "CXX": clang + "++"}
    done = subprocess.run(
        [found, "-m", "pip", "install", "-q", PIN], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NotBuilt(f"{PIN} cannot be built: {' '.join(done.stderr.split())[-200:]}")


def work(target: str, seconds: float, seed: int, folder: Path) -> tuple[Went, int]:
    """A session of one target; how it went, and how many branches of the code it has seen."""
    command = [
        python(),
        "-m",
        "proof.fuzz.guided_session",
        target,
        "--seconds",
        str(int(seconds)),
        "--seed",
        str(seed),
        "--folder",
        str(folder),
    ]
    # Its own environment has atheris alone; all else is where it is for us.
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(PROJECT), str(PROJECT / "src"), *filter(None, sys.path)]),
    }
    # libFuzzer tells how far it is on stderr, atheris what was raised on stdout.
    done = subprocess.run(
        command,
        cwd=PROJECT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return _told(done.stdout, done.returncode, seconds, folder)


def _told(text: str, code: int, seconds: float, folder: Path) -> tuple[Went, int]:
    progress = _PROGRESS.findall(text)
    inputs, coverage = (int(number) for number in progress[-1]) if progress else (0, 0)
    went = Went(inputs, seconds)
    broken = sorted(folder.glob("broken-*"))
    if broken:
        raised = _RAISED.search(text)
        words = raised[1].strip() if raised else f"the process ended with {code}"
        went.found = Found(broken[0].read_bytes(), words.partition(":")[0], words[:500])
    elif code and not inputs:
        raise NotBuilt(f"it does not start: {' '.join(text.split())[-200:]}")
    return went, coverage

"""`python -m proof.fuzz --minutes 10`: every target for its share of the time, and then what was found.

`--replay TARGET FILE` shows one input again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from proof.arguments import positive_float

from . import bombs, guided
from .seeds import PROJECT
from .session import Found, Went, noted
from .targets import TARGETS, Target
from .watching import Watch

# Beyond its time, a session may shrink what it has found; then it hangs.
PATIENCE_SECONDS = 150
# Below that, its start takes longer than its work.
GUIDED_SECONDS_MIN = 15
FOUND = PROJECT / "proof" / "fuzz" / "found"


class Tally(msgspec.Struct):
    """What was tried so far, and what was found: the file that shows it, by target."""

    inputs: int = 0
    seconds: float = 0.0
    found: dict[str, str] = {}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proof.fuzz")
    parser.add_argument("--minutes", type=positive_float, default=10.0)
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="the same seed tries the same, but for atheris"
    )
    parser.add_argument("--target", choices=TARGETS, action="append", help="only this one; may come again")
    parser.add_argument("--replay", nargs=2, metavar=("TARGET", "FILE"), help="show one input again")
    said = parser.parse_args()
    if said.replay:
        Watch(TARGETS[said.replay[0]])(Path(said.replay[1]).read_bytes())
        print("nothing is wrong with it")
        return 0
    return fuzz([TARGETS[name] for name in said.target or TARGETS], said.minutes * 60, said.seed)


def fuzz(targets: list[Target], seconds: float, seed: int) -> int:
    """Share the time among the targets; 1 where anything was found."""
    tally, has_bombs = Tally(), len(targets) == len(TARGETS)
    say(f"seed {seed}")
    try:
        if has_bombs:
            _set_off(tally)
        for target, share in _shares(targets, seconds, _is_guided()):
            for way, went, coverage in _stints(target, share, seed):
                _note(tally, target, way, went, coverage)
    except KeyboardInterrupt:
        say("interrupted")
    minutes = tally.seconds / 60
    print(f"{tally.inputs:,} inputs in {minutes:.1f} minutes; {len(tally.found) or 'nothing'} found")
    for target_name, command in tally.found.items():
        print(f"  {target_name}: {command}")
    return 1 if tally.found else 0


def _set_off(tally: Tally) -> None:
    started = time.monotonic()
    for bomb in bombs.BOMBS:
        tally.inputs += 1
        if problem := bombs.set_off(bomb):
            tally.found[f"bomb {bomb.name}"] = f"python -m proof.fuzz.bombs {bomb.name}: {problem}"
            say(f"bomb {bomb.name}: {problem}")
    tally.seconds += time.monotonic() - started
    say(f"{len(bombs.BOMBS)} bombs in {time.monotonic() - started:.0f}s")


def _is_guided() -> bool:
    try:
        guided.python()
    except guided.NotBuilt as reason:
        say(f"not guided by coverage: {reason}")
        return False
    return True


def _shares(targets: list[Target], seconds: float, is_guided: bool) -> Iterator[tuple[Target, tuple[float, float]]]:
    """Each target with its time: without guidance, and with."""
    whole = sum(target.share for target in targets)
    for target in targets:
        share = seconds * target.share / whole
        yield target, (share / 2, share / 2) if is_guided and share / 2 >= GUIDED_SECONDS_MIN else (share, 0.0)


def _stints(target: Target, share: tuple[float, float], seed: int) -> Iterator[tuple[str, Went, int]]:
    with tempfile.TemporaryDirectory(prefix="fuzz-session-") as folder:
        yield "hypothesis", session(target.name, share[0], seed, Path(folder)), 0
        if share[1]:
            try:
                yield ("atheris", *guided.work(target.name, share[1], seed, Path(folder)))
            except guided.NotBuilt as reason:
                say(f"{target.name}: not guided by coverage: {reason}")


def session(target: str, seconds: float, seed: int, folder: Path) -> Went:
    """How one process went. One that died, or never came back, has found what it had in hand."""
    command = [
        sys.executable,
        "-m",
        "proof.fuzz.session",
        target,
        f"--seconds={seconds}",
        f"--seed={seed}",
        f"--folder={folder}",
    ]
    try:
        done = subprocess.run(
            command, cwd=PROJECT, capture_output=True, timeout=seconds + PATIENCE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Went(0, seconds, Found(noted(folder / "current"), "hang", "it never comes back"))
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace").strip()[-300:] or f"the process ended with {done.returncode}"
        return Went(0, seconds, Found(noted(folder / "current"), "death", words))
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Went)


def _note(tally: Tally, target: Target, way: str, went: Went, coverage: int) -> None:
    tally.inputs += went.inputs
    tally.seconds += went.seconds
    seen = f", {coverage} branches seen" if coverage else ""
    say(f"{target.name}, {way}: {went.inputs:,} inputs, {went.inputs / max(went.seconds, 0.01):,.0f} a second{seen}")
    if went.found is not None:
        path = _kept(target, went.found)
        tally.found[f"{target.name} ({went.found.signature})"] = f"python -m proof.fuzz --replay {target.name} {path}"
        say(f"  found: {went.found.words}\n  {went.found.data[:200]!r}")


def _kept(target: Target, found: Found) -> Path:
    FOUND.mkdir(exist_ok=True)
    number = sum(1 for _ in FOUND.glob(f"{target.name}.*")) + 1
    path = FOUND / f"{target.name}.{number}"
    path.write_bytes(found.data)
    return path.relative_to(PROJECT)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

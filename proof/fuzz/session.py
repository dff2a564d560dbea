"""One target for a while: `python -m proof.fuzz.session TARGET --seconds S --seed N --folder F`.

The input at hand is in the file `current`: if this process dies of it, or never comes back, that is what is found. Else
the last line on stdout says how it went.
"""

from __future__ import annotations

import argparse
import mmap
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import hypothesis
import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from .mutation import mutated
from .shrinking import shrunk, signature
from .targets import TARGETS, Target
from .watching import Watch

BATCH = 200
MEMORY_BYTES_MAX = 4 << 30
INPUT_BYTES_MAX = 1 << 20


class Found(msgspec.Struct):
    """An input that shows something wrong, and what that is."""

    data: bytes
    signature: str
    words: str


class Went(msgspec.Struct):
    """How a session went."""

    inputs: int
    seconds: float
    found: Found | None = None


class Current:
    """The current input, where it can be found when this process has died."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(INPUT_BYTES_MAX + 4))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def note(self, data: bytes) -> None:
        data = data[:INPUT_BYTES_MAX]
        self._map[: 4 + len(data)] = len(data).to_bytes(4, "little") + data


def noted(path: Path) -> bytes:
    """What was at hand last."""
    data = path.read_bytes()
    return data[4 : 4 + int.from_bytes(data[:4], "little")]


def inputs(target: Target) -> st.SearchStrategy[bytes]:
    """Seeds with a few changes, and now and then bytes out of nowhere."""
    changed = st.integers(0, 2**64 - 1).map(lambda number: mutated(target.seeds, target.words, Random(number)))
    return st.one_of(changed, changed, changed, st.binary(max_size=200))


def generate(target: Target, take: Callable[[bytes], None], *, seed: int, count: int) -> None:
    """Hand over so many inputs. The same seed gives the same."""

    @hypothesis.seed(seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs(target))
    def one(data: bytes) -> None:
        take(data)

    one()


def work(target: Target, seconds: float, seed: int, note: Callable[[bytes], None]) -> Went:
    """Batch after batch until the time is up or something is found."""
    watch, started, tried = Watch(target), time.monotonic(), 0
    caught: list[tuple[bytes, Exception]] = []

    def take(data: bytes) -> None:
        nonlocal tried
        if caught or time.monotonic() - started > seconds:
            return
        tried += 1
        note(data)
        try:
            watch(data)
        except Exception as error:
            caught.append((data, error))

    while not caught and time.monotonic() - started < seconds:
        generate(target, take, seed=seed, count=BATCH)
        seed += 1
    spent = time.monotonic() - started
    return Went(tried, spent, _found(watch, *caught[0]) if caught else None)


def _found(watch: Watch, data: bytes, error: Exception) -> Found:
    mark = signature(error)

    def still_shows(shorter: bytes) -> bool:
        try:
            watch(shorter)
        except Exception as again:
            return signature(again) == mark
        return False

    return Found(shrunk(data, still_shows), mark, f"{type(error).__name__}: {error}"[:500])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proof.fuzz.session")
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    said = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    current = Current(said.folder / "current")
    try:
        went = work(TARGETS[said.target], said.seconds, said.seed, current.note)
    except KeyboardInterrupt:
        sys.exit(130)
    print(msgspec.json.encode(went).decode(), flush=True)


if __name__ == "__main__":
    main()

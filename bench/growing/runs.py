"""How cost grows with the runs in a store: all verbs, and a new run from its start to its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .figures import Point
from .measuring import HELLO, Place, best, point, run

GROUP = "runs"
# Runs that wait for a person, the oldest of all; from this many runs on there are no more of them.
WAITING_MAX = 100


def measure(place: Place, sizes: Sequence[int], rounds: int) -> Iterator[Point]:
    """Fill the store from size to size, and ask it at each."""
    hello = place.write("hello.yaml", HELLO)
    there = waiting = made = 0
    for size in sizes:
        more_waiting = min(size // 10, WAITING_MAX) - waiting
        run(place.script("filling", size - there - more_waiting, more_waiting), place.folder)
        there, waiting = size, waiting + more_waiting
        middle = str(max(1, (size + made) // 2))
        for series, arguments in _verbs(middle):
            yield point(GROUP, series, place, size, best(place.verb(*arguments), place.folder, rounds))
        spent = [run(place.verb("run", hello, "--json"), place.folder) for _ in range(rounds)]
        made += rounds
        yield point(GROUP, "run", place, size, min(spent))


def _verbs(middle: str) -> list[tuple[str, tuple[str, ...]]]:
    return [
        ("list", ("list",)),
        ("list --status running", ("list", "--status", "running")),
        ("show", ("show", middle)),
        ("usage", ("usage", middle)),
        ("pending", ("pending",)),
        ("stats", ("stats",)),
        ("gc --dry-run --keep 10", ("gc", "--dry-run", "--keep", "10")),
        ("doctor", ("doctor",)),
    ]

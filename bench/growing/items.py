"""How cost grows with the items of a map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .figures import Point
from .measuring import Place, best, point, run, startup

GROUP = "items"
_MAP = """\
name: map
steps:
  - step: each
    map: {{over: {{shell: seq {count}, capture: lines}}, as: item}}
    do: [{{shell: "true"}}]
"""


def measure(place: Place, sizes: Sequence[int], rounds: int) -> Iterator[Point]:
    """One run for each size, and its items listed."""
    idle = startup(place, rounds)
    for number, size in enumerate(sizes, 1):
        file = place.write("map.yaml", _MAP.format(count=size))
        spent = run(place.verb("run", file, "--json"), place.folder)
        yield point(GROUP, "run", place, size, spent, size, idle)
        run_id = str(number)
        looks = {
            "items": ("items", run_id, "each"),
            "items --item": ("items", run_id, "each", "--item", "50"),
            "show": ("show", run_id),
        }
        for series, arguments in looks.items():
            yield point(GROUP, series, place, size, best(place.verb(*arguments), place.folder, rounds))

"""How cost grows with child runs, and with the needs of one step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .figures import Point
from .measuring import Place, best, point, run, startup

GROUP = "children"
_CHILD = "name: child\nsteps: [{step: work, shell: 'true'}]\n"
_PARENT = """\
name: parent
steps:
  - step: each
    map: {{over: {{shell: seq {count}, capture: lines}}, as: item}}
    do: [{{workflow: {{file: child.yaml}}}}]
"""


def measure(place: Place, sizes: Sequence[int], rounds: int) -> Iterator[Point]:
    """A map that calls a workflow for each of its items; and a step that needs as many others, by name."""
    place.write("child.yaml", _CHILD)
    run_id, idle = 1, startup(place, rounds)
    for size in sizes:
        file = place.write("parent.yaml", _PARENT.format(count=size))
        spent = run(place.verb("run", file, "--json"), place.folder)
        yield point(GROUP, "child runs", place, size, spent, size, idle)
        yield point(GROUP, "show", place, size, best(place.verb("show", str(run_id)), place.folder, rounds))
        wide = place.write("wide.yaml", _wide(size))
        spent = run(place.verb("run", wide, "--json"), place.folder)
        yield point(GROUP, "needs", place, size, spent, size, idle)
        run_id += size + 2


def _wide(size: int) -> str:
    names = [f"s{number}" for number in range(size)]
    steps = "".join(f"  - {{step: {name}, shell: 'true'}}\n" for name in names)
    return f"name: wide\nsteps:\n{steps}  - {{step: join, needs: [{', '.join(names)}], shell: 'true'}}\n"

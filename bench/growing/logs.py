"""How cost grows with the log of one run: a step that is visited again and again, seven events a visit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mulligan.service.home import Home

from .figures import Point
from .measuring import Place, best, point, run, startup

GROUP = "log"


def measure(place: Place, sizes: Sequence[int], rounds: int) -> Iterator[Point]:
    """For each size a run with that many events and one visit to come, so that `resume` ends it."""
    idle = startup(place, rounds, "replay", "1", "--verify")
    for number, size in enumerate(sizes, 1):
        run_id = str(number)
        run(place.script("looping", size), place.folder)
        store = Home(place.folder / "home", place.database).open()
        events = store.run(number).seq
        store.close()
        for verb in ("show", "explain", "events"):
            yield point(GROUP, verb, place, size, best(place.verb(verb, run_id), place.folder, rounds))
        replay = place.verb("replay", run_id, "--verify")
        yield point(GROUP, "replay --verify", place, size, best(replay, place.folder, rounds), events, idle)
        yield point(GROUP, "resume", place, size, run(place.verb("resume", run_id, "--json"), place.folder))

"""How cost grows with runs that wait: for a worker, how soon it has them, what it costs to do nothing, its memory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from mulligan.service.home import Home

from .figures import Point
from .measuring import HELLO, Place, Spent, beside, best, point, run, used_by

GROUP = "waiting"
AT_REST = "a minute at rest, processor"
SECONDS_IDLE = 5.0
SECONDS_SETTLED = 2.0


def measure(place: Place, sizes: Sequence[int], rounds: int) -> Iterator[Point]:
    """Timers that are due tomorrow: a worker is started beside more and more of them."""
    there = 0
    hello = place.write("hello.yaml", HELLO)
    for size in sizes:
        run(place.script("filling", 0, size - there, "timer"), place.folder)
        there = size
        with beside(place.verb("worker", "--parallel", "2"), place.folder / "worker") as worker:
            used, megabytes = _settled(worker.pid)
            yield point(GROUP, "start of a worker, processor", place, size, Spent((used, used, megabytes)))
            time.sleep(SECONDS_IDLE)
            after, megabytes = used_by(worker.pid)
            a_minute = (after - used) * 60 / SECONDS_IDLE
            yield point(GROUP, AT_REST, place, size, Spent((a_minute, a_minute, megabytes)))
        _bury(place)
        for series, arguments in (("list", ("list",)), ("run", ("run", hello, "--json"))):
            yield point(GROUP, series, place, size, best(place.verb(*arguments), place.folder, rounds))


def _settled(pid: int) -> tuple[float, float]:
    """What the process has used when it has taken up what there is: when it uses next to nothing any more."""
    used, megabytes = used_by(pid)
    while True:
        time.sleep(SECONDS_SETTLED)
        after, megabytes = used_by(pid)
        if used > 0.1 and after - used < 0.02 * SECONDS_SETTLED + 0.005:
            return after, megabytes
        used = after


def _bury(place: Place) -> None:
    """Expire the killed worker, so that the next one does not have to wait."""
    store = Home(place.folder / "home", place.database).open()
    for worker in store.workers():
        store.expire(worker.name, is_dead=True)
    store.close()

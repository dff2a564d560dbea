"""How cost grows with the steps of a run: loading, the first task, the rate, and every look at it afterwards."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from datetime import datetime

from peers.processes import Command

from mulligan.service.home import Home

from .figures import Point
from .measuring import Place, Spent, beside, best, point, run, startup, wait_until

GROUP = "steps"
_FAN = """\
name: fan
steps:
  - step: "s_{{i}}"
    matrix: {{i: 1..{count}}}
    shell: "true"
  - {{step: join, needs: [{{matrix: s}}], shell: "true"}}
"""
# Of a step in the log: scheduled, started, ended, and what follows.
_EVENTS_PER_STEP = 4


def measure(place: Place, sizes: Sequence[int], rounds: int) -> Iterator[Point]:
    """For each size two runs: one to its end, one that is killed, resumed and cancelled."""
    idle = startup(place, rounds)
    for number, size in enumerate(sizes):
        file = place.write("fan.yaml", _FAN.format(count=size))
        yield point(GROUP, "validate", place, size, best(place.verb("validate", file), place.folder, rounds))
        began = time.time()
        spent = run(place.verb("run", file, "--json"), place.folder)
        yield point(GROUP, "run", place, size, spent, size, idle)
        ended, cut = str(2 * number + 1), str(2 * number + 2)
        yield point(GROUP, "first task", place, size, Spent((_first_start(place, ended) - began, 0.0, 0.0)))
        for series, command in _looks(place, ended):
            yield point(GROUP, series, place, size, best(command, place.folder, rounds))
        yield from _after_a_crash(place, size, file, cut)


def _looks(place: Place, run_id: str) -> Iterator[tuple[str, Command]]:
    for verb in ("show", "explain"):
        yield verb, place.verb(verb, run_id)
    for verb in ("show", "logs"):
        yield f"{verb} STEP", place.verb(verb, run_id, "s_500")
    yield "suggest", place.verb("suggest")
    events = place.verb("events", run_id)
    pipe = ["sh", "-c", '"$@" | head -20 >/dev/null', "events", *events.arguments]
    yield "events | head", Command(pipe, events.environment)


def _after_a_crash(place: Place, size: int, file: str, run_id: str) -> Iterator[Point]:
    """kill -9 after a tenth; how soon `resume` has a task again; then `cancel` of what is left."""
    folder = place.folder / "cut"
    store = Home(place.folder / "home", place.database).open()
    number = int(run_id)
    with beside(place.verb("run", str(place.folder / file), "--json"), folder) as process:
        wait_until(lambda: bool(store.runs(limit=1)) and store.runs(limit=1)[0].run_id == number, process)
        wait_until(lambda: store.run(number).seq > size // 10 * _EVENTS_PER_STEP, process)
    before = store.run(number).seq
    with beside(place.verb("resume", run_id, "--json"), folder) as process:
        # The first that it writes is that tasks were lost, or have started.
        seconds = wait_until(lambda: store.run(number).seq > before, process)
    yield point(GROUP, "resume", place, size, Spent((seconds, 0.0, 0.0)))
    store.close()
    yield point(GROUP, "cancel", place, size, run(place.verb("cancel", run_id), place.folder, (0, 3)))


def _first_start(place: Place, run_id: str) -> float:
    """When the first attempt of the run started, as seconds since 1970."""
    command = place.verb("events", run_id, "--json")
    pipe = ["sh", "-c", '"$@" | grep -m1 attempt.started', "events", *command.arguments]
    run(Command(pipe, command.environment), place.folder)
    return datetime.fromisoformat(json.loads((place.folder / "stdout.log").read_text())["at"]).timestamp()

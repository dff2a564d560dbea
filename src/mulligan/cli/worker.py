"""`mulligan worker`: a process that takes turns and tasks of all runs in a store, until it is told to end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, Any

from mulligan.cli.options import HomeFolder
from mulligan.cli.parameters import Option
from mulligan.cli.run import Parallel, checked_parallel
from mulligan.cli.terminal import UsageRefused, complain
from mulligan.service import GPUS_VARIABLE, Capacity, Sentences, machine, open_service, parse_size
from mulligan.service.formatting import format_size, pluralize


def worker(
    home: HomeFolder = None,
    parallel: Parallel = None,
    memory: Annotated[
        str | None, Option("--memory", metavar="SIZE", help="Memory that steps may ask for: else all there is.")
    ] = None,
    gpus: Annotated[int | None, Option("--gpus", metavar="N", help="GPUs that steps may ask for: else all.")] = None,
    labels: Annotated[
        str | None, Option("--labels", metavar="A,B", help="What steps may ask for by name, with commas between.")
    ] = None,
) -> int:
    """Run tasks for the runs of a store, until stopped.

    Any number of workers, on any hosts, may share the PostgreSQL store that $MULLIGAN_STORE names. SIGTERM or Ctrl-C
    ends a worker in order: what it runs has its grace. A second one ends it at once. A server that does not answer yet
    is waited for.
    """
    capacity = _capacity(checked_parallel(parallel), memory, gpus, labels)
    log = Log()
    with open_service(home).open_worker(capacity, log) as driver:
        if driver is None:
            complain("the worker has ended before the store answered")
            return 0
        log.greeting = f"worker {driver.name} is up: {_told(capacity)}"
        driver.serve()
    complain(f"worker {driver.name} has ended")
    return 0


class Log:
    """What a worker says of itself, a line each: who wants to see how a run goes looks at that run."""

    # Said when the loop has something to say for the first time: by then signals are heard.
    greeting = ""

    def __init__(self) -> None:
        self._sentences = Sentences()

    def committed(self, state: Any, entries: Sequence[Any]) -> None:
        self.tick()
        for told in self._sentences.of(state, entries):
            place = f" {told.line.place}" if told.line.place else ""
            complain(f"{told.line.at.astimezone():%H:%M:%S} run {told.run_id}{place}: {told.line.text}")

    def trouble(self, message: str) -> None:
        if message:
            complain(message)

    def tick(self) -> None:
        if self.greeting:
            complain(self.greeting)
            self.greeting = ""


def _capacity(parallel: int | None, memory: str | None, gpus: int | None, labels: str | None) -> Capacity:
    found = machine(parallel)
    names = tuple(name.strip() for name in labels.split(",")) if labels else ()
    if not all(names):
        raise UsageRefused(f"'{labels}' has a label without a name", hint="write them like --labels a,b")
    if gpus is not None and gpus < 0:
        raise UsageRefused(f"{gpus} is no number of GPUs")
    if gpus is not None and gpus > found.gpus and GPUS_VARIABLE in os.environ:
        raise UsageRefused(f"--gpus says {gpus}, and {GPUS_VARIABLE} names {found.gpus}", hint="leave one of them out")
    bytes_max = parse_size(memory) if memory else found.memory
    return Capacity(found.cpus, bytes_max, found.gpus if gpus is None else gpus, names)


def _told(capacity: Capacity) -> str:
    shown = [f"{capacity.cpus:g} at once", format_size(capacity.memory)]
    shown += [pluralize(capacity.gpus, "gpu")] if capacity.gpus else []
    return ", ".join([*shown, *(f"label '{label}'" for label in capacity.labels)])

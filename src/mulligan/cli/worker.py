"""`mulligan worker`: a process that drives runs and runs tasks of a store, until it is stopped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from mulligan.cli.capacity import Gpus, Memory, Parallel, asked_capacity
from mulligan.cli.options import HomeFolder
from mulligan.cli.parameters import Option
from mulligan.cli.terminal import UsageRefused, complain
from mulligan.service import (
    AnnouncementWriter,
    Capacity,
    HostCapacity,
    Service,
    capacity_for,
    open_remote_service,
    open_service,
)
from mulligan.service.formatting import format_size, pluralize


def worker(
    home: HomeFolder = None,
    parallel: Parallel = None,
    memory: Memory = None,
    gpus: Gpus = None,
    labels: Annotated[
        str | None, Option("--labels", metavar="A,B", help="Labels that steps may ask for, separated by commas.")
    ] = None,
    server: Annotated[
        str | None, Option("--server", metavar="URL", help="Run tasks of this server. Needs no database.")
    ] = None,
    token: Annotated[
        str | None, Option("--token", metavar="TOKEN", help="A token for workers (default: $MULLIGAN_TOKEN).")
    ] = None,
    token_file: Annotated[
        str | None, Option("--token-file", metavar="FILE", help="A file with the token in it, in place of --token.")
    ] = None,
) -> int:
    """Run tasks for the runs of a store, until stopped.

    Any number of workers, on any hosts, may share the PostgreSQL store that $MULLIGAN_STORE names. With --server the
    worker takes part over HTTP, in a store of any kind: the server drives the runs, the worker runs their tasks and
    uploads results, logs and artifacts. Secrets are looked up on the host of the worker. SIGTERM or Ctrl-C
    stops a worker in an orderly way: running tasks get their grace period. A second signal stops it at once. The worker
    waits for a server that does not answer yet.
    """
    capacity = _capacity(asked_capacity(parallel, memory, gpus), labels)
    log = Log()
    with _service(home, server, token, token_file).open_worker(capacity, log) as driver:
        if driver is None:
            complain("the worker was stopped before the store answered")
            return 0
        log.greeting = f"worker {driver.name} is up: {_describe(capacity)}"
        driver.serve()
    complain(f"worker {driver.name} has ended")
    return 0


def _service(home: str | None, server: str | None, token: str | None, token_file: str | None) -> Service:
    if server is None:
        if token or token_file:
            raise UsageRefused("--token is for a server", hint="name the server: --server URL")
        return open_service(home)
    if token and token_file:
        raise UsageRefused("--token and --token-file say the same", hint="leave one of them out")
    return open_remote_service(server, home, token=token or "", token_file=token_file or "")


class Log:
    """Writes what a worker does, one line per event."""

    # Printed with the first line of the loop: by then signals are handled.
    greeting = ""

    def __init__(self) -> None:
        self._writer = AnnouncementWriter()

    def committed(self, state: Any, entries: Sequence[Any]) -> None:
        self.tick()
        for one in self._writer.announce(state, entries):
            place = f" {one.line.place}" if one.line.place else ""
            complain(f"{one.line.at.astimezone():%H:%M:%S} run {one.run_id}{place}: {one.line.text}")

    def trouble(self, message: str) -> None:
        if message:
            complain(message)

    def tick(self) -> None:
        if self.greeting:
            complain(self.greeting)
            self.greeting = ""


def _capacity(asked: HostCapacity | None, labels: str | None) -> Capacity:
    names = tuple(name.strip() for name in labels.split(",")) if labels else ()
    if not all(names):
        raise UsageRefused(f"'{labels}' contains an empty label", hint="write them like --labels a,b")
    found = capacity_for(asked)
    return found.with_labels(names)


def _describe(capacity: Capacity) -> str:
    cpus = f"{capacity.cpus:g} at once" if capacity.counts_waiting else pluralize(int(capacity.cpus), "cpu")
    shown = [cpus, format_size(capacity.memory)]
    shown += [pluralize(capacity.gpus, "gpu")] if capacity.gpus else []
    return ", ".join([*shown, *(f"label '{label}'" for label in capacity.labels)])

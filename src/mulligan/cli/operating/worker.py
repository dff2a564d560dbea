"""`mulligan worker`: a process that drives runs and runs tasks of a store, until it is stopped."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from mulligan.cli.output.terminal import UsageRefused, complain
from mulligan.cli.words.capacity import Gpus, Memory, On, Parallel, asked_capacity
from mulligan.cli.words.options import HomeFolder, LogFormat, check_log_format
from mulligan.cli.words.parameters import Option
from mulligan.core.model.event_types import HostCapacity
from mulligan.service.authoring.values import parse_duration, parse_end
from mulligan.service.driving.driver import Capacity, WorkerLimits, capacity_for
from mulligan.service.driving.run_progress import AnnouncementWriter
from mulligan.service.rendering.formatting import format_size, pluralize
from mulligan.service.server.telemetry.log_lines import log_line
from mulligan.service.server.telemetry.worker_metrics import MetricsServer, WorkerMetrics
from mulligan.service.service import Service, open_worker_service


def worker(
    home: HomeFolder = None,
    parallel: Parallel = None,
    memory: Memory = None,
    gpus: Gpus = None,
    on: On = None,
    labels: Annotated[str | None, Option("A,B", "Labels that steps may ask for, separated by commas.")] = None,
    server: Annotated[str | None, Option("URL", "Run tasks of this server. Needs no database.")] = None,
    token: Annotated[str | None, Option("TOKEN", "A token for workers (default: $MULLIGAN_TOKEN).")] = None,
    token_file: Annotated[str | None, Option("FILE", "A file with the token in it, in place of --token.")] = None,
    until: Annotated[str | None, Option("TIME", "End by then (2h, 2026-11-01T08:00); no task may last longer.")] = None,
    idle_exit: Annotated[str | None, Option("DURATION", "End after so long without a task, like 90s.")] = None,
    tasks: Annotated[int | None, Option("N", "End after so many tasks.")] = None,
    nodes: Annotated[int | None, Option("N", "Take only steps that ask for 2 to N nodes, one at a time.")] = None,
    metrics: Annotated[str | None, Option("PORT", "Serve metrics for Prometheus at this port, or HOST:PORT.")] = None,
    metrics_file: Annotated[Path | None, Option("FILE", "Write metrics to this file, once a second.")] = None,
    log_format: LogFormat = "text",
) -> int:
    """Run tasks for the runs of a store, until stopped.

    Any number of workers, on any hosts, may share the PostgreSQL store that $MULLIGAN_STORE names. With --server the
    worker takes part over HTTP, in a store of any kind: the server drives the runs, the worker runs their tasks and
    uploads results, logs and artifacts. Secrets are looked up on the host of the worker. SIGTERM or Ctrl-C
    stops a worker in an orderly way: running tasks get their grace period. A second signal stops it at once. The worker
    waits for a server that does not answer yet. With --until, --idle-exit or --tasks it ends by itself: what it drives,
    others continue.
    """
    limits = _limits(until, idle_exit, tasks)
    capacity = _capacity(asked_capacity(parallel, memory, gpus, on), labels).with_limits(limits)
    if nodes is not None:
        if nodes < 2:
            raise UsageRefused(
                f"--nodes must be at least 2, not {nodes}", hint="leave it out: any step may ask for one"
            )
        capacity = capacity.only_for_nodes(nodes)
    log = Log(check_log_format(log_format))
    with ExitStack() as held:
        metered = _metered(log, metrics, metrics_file, held)
        driver = held.enter_context(
            _service(home, server, token, token_file).driving.open_worker(capacity, metered or log)
        )
        if driver is None:
            log.say("the worker was stopped before the store answered")
            return 0
        log.greeting = f"worker {driver.name} is up: {_describe(capacity)}"
        log.worker = driver.name
        if metered is not None:
            metered.driver = driver
        driver.serve()
        if metered is not None:
            metered.write()
    log.say(f"worker {driver.name} has ended{f': {driver.end_reason}' if driver.end_reason else ''}")
    return 0


def _service(home: str | None, server: str | None, token: str | None, token_file: str | None) -> Service:
    if server is None and (token or token_file):
        raise UsageRefused("--token is for a server", hint="name the server: --server URL")
    if token and token_file:
        raise UsageRefused("--token and --token-file cannot be combined", hint="leave one of them out")
    return open_worker_service(home, server=server or "", token=token or "", token_file=token_file or "")


def _metered(log: Log, address: str | None, file: Path | None, held: ExitStack) -> WorkerMetrics | None:
    """The observer that counts, if metrics are asked for."""
    if address is None and file is None:
        return None
    if file is None:
        file = Path(held.enter_context(TemporaryDirectory(prefix="mulligan-metrics-"))) / "worker.prom"
    metered = WorkerMetrics(log, file)
    if address is not None:
        host, port = _host_and_port(address)
        server = held.enter_context(MetricsServer(file, host, port))
        log.say(f"metrics: http://{host}:{server.port}/metrics")
    return metered


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise UsageRefused(f"--metrics: '{address}' is not a port", hint="write it like 9100, or 0.0.0.0:9100")
    return host or "127.0.0.1", int(port)


class Log:
    """Writes what a worker does, one line per event: for people, or as JSON for programs that collect logs."""

    # Printed with the first line of the loop: by then signals are handled.
    greeting = ""
    worker = ""

    def __init__(self, form: str = "text") -> None:
        self._writer = AnnouncementWriter()
        self._is_json = form == "json"

    def committed(self, state: Any, entries: Sequence[Any], is_ordinary: bool = False) -> None:
        self.tick()
        for one in self._writer.announce(state, entries):
            if self._is_json:
                level = "warning" if one.line.tone == "bad" else "info"
                self.say(one.line.text, level, one.line.at, run_id=one.run_id, place=one.line.place)
                continue
            place = f" {one.line.shown_place}" if one.line.place else ""
            complain(f"{one.line.at.astimezone():%H:%M:%S} run {one.run_id}{place}: {one.line.text}")

    def trouble(self, message: str) -> None:
        if message:
            self.say(message, "warning")

    def tick(self) -> None:
        if self.greeting:
            self.say(self.greeting)
            self.greeting = ""

    def say(self, message: str, level: str = "info", at: datetime | None = None, **about: Any) -> None:
        """Write a line."""
        complain(log_line(message, level, at, worker=self.worker, **about) if self._is_json else message)


def _capacity(asked: HostCapacity | None, labels: str | None) -> Capacity:
    names = tuple(name.strip() for name in labels.split(",")) if labels else ()
    if not all(names):
        raise UsageRefused(f"'{labels}' contains an empty label", hint="write them like --labels a,b")
    found = capacity_for(asked)
    return found.with_labels(names)


def _limits(until: str | None, idle_exit: str | None, tasks: int | None) -> WorkerLimits:
    if tasks is not None and tasks < 1:
        raise UsageRefused(f"--tasks must be at least 1, not {tasks}")
    return WorkerLimits(
        until=None if until is None else parse_end(until, datetime.now(UTC)),
        idle_seconds=None if idle_exit is None else parse_duration(idle_exit),
        tasks_max=tasks,
    )


def _describe(capacity: Capacity) -> str:
    if capacity.on:
        return f"its tasks run on {capacity.on}"
    cpus = f"{capacity.cpus:g} at once" if capacity.counts_waiting else pluralize(int(capacity.cpus), "cpu")
    shown = [cpus, format_size(capacity.memory)]
    shown += [pluralize(capacity.gpus, "gpu")] if capacity.gpus else []
    shown += [pluralize(capacity.nodes, "node")] if capacity.nodes > 1 else []
    return ", ".join([*shown, *(f"label '{label}'" for label in capacity.labels)])

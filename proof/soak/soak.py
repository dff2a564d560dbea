"""One soak: a database, a server, two workers, clients; samples of what they hold; and a verdict."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import msgspec
import psycopg

from mulligan.worker.supervisor.processes import kill_with_variable
from proof.chaos.api_server import BUGS
from proof.chaos.http_client import Address, last_address
from proof.soak.holdings import holdings, sample_tree
from proof.soak.load import Load, read_statuses
from proof.soak.machine import MachineTime, parent_of, sample_machine
from proof.soak.verdict import (
    HANDLES_AT_REST_MAX,
    Latency,
    Sample,
    Trend,
    judge_holdings,
    judge_latencies,
    judge_rest,
    judge_runs,
)
from proof.stage import Stage, wait_until

# So many samples of an hour; a shorter soak is sampled more often.
SAMPLES, SAMPLE_SECONDS_MAX = 360, 10.0
PROGRESS_SECONDS = 60.0
END_SECONDS = 60.0
# How long the server may take to notice that its clients are gone.
REST_SECONDS = 30.0
# No limit for the clients here, which all have one token.
CONFIG = "[server]\nworker = false\nrequests_per_second = 100000\nrequests_at_once = 100000\n"
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mulligan'"


class Settings(msgspec.Struct, frozen=True):
    runs: int = 50_000
    minutes: float = 60.0
    watchers: int = 100
    workers: int = 2
    seed: int = 1
    # Starts are spread over the time; or all are due at once.
    is_spread: bool = True

    @property
    def seconds(self) -> float:
        return self.minutes * 60


class Report(msgspec.Struct):
    """What was done, measured and found."""

    settings: Settings
    store: str
    # Of the machine, one minute each, at the samples.
    loads: list[float] = msgspec.field(default_factory=list)
    machine: list[MachineTime] = msgspec.field(default_factory=list)
    samples: list[Sample] = msgspec.field(default_factory=list)
    latencies: list[Latency] = msgspec.field(default_factory=list)
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    runs: int = 0
    seconds: float = 0.0
    trends: list[Trend] = msgspec.field(default_factory=list)
    findings: list[str] = msgspec.field(default_factory=list)
    is_interrupted: bool = False


class Soak:
    """One soak, in its own folder. Without a URL of PostgreSQL it is one on SQLite."""

    def __init__(self, settings: Settings, folder: Path, store_url: str = "") -> None:
        self.settings = settings
        self.url = store_url
        self.report = Report(settings, "PostgreSQL" if store_url else "SQLite")
        self.stage = Stage(folder, store_url)
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self._exits = ExitStack()
        self._database: psycopg.Connection[tuple[int]] | None = None
        # The first process of the database, if it runs on this machine.
        self._database_pid = 0

    def __enter__(self) -> Soak:
        with self.stage.service() as service:
            assert service.reader.store.runs() == []
        config = self.stage.folder / "server.toml"
        config.write_text(CONFIG)
        self._start("server", "server", "--port", "0", "--config", config, "--json")
        for number in range(1, self.settings.workers + 1):
            self._start(f"worker {number}", "worker", "--parallel", "2")
        address = wait_until(self._find_address, "the server does not start")
        assert address is not None
        self.address = address
        if self.url:
            self._database = self._exits.enter_context(psycopg.connect(self.url, autocommit=True))
            self._database_pid = parent_of(self._database.info.backend_pid)
        wait_until(lambda: all("is up" in self._said(name) for name in self.workers), "a worker does not start")
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        self._exits.close()
        kill_with_variable(b"STAGE", bytes(self.stage.folder), END_SECONDS)

    @property
    def workers(self) -> list[str]:
        return [name for name in self.processes if name != "server"]

    def _start(self, name: str, *words: object) -> None:
        with self._paper(name, "stdout").open("a") as lines, self._paper(name, "stderr").open("a") as said:
            self.processes[name] = self.stage.start(*words, stdout=lines, stderr=said)

    def _paper(self, name: str, kind: str) -> Path:
        return self.stage.folder / f"{name.replace(' ', '-')}.{kind}"

    def _said(self, name: str) -> str:
        return self._paper(name, "stderr").read_text()

    def _find_address(self) -> Address | None:
        if self.processes["server"].poll() is not None:
            raise AssertionError(f"the server did not start: {self._said('server')}")
        return last_address(self._paper("server", "stdout"))

    # -- the load

    def endure(self) -> None:
        """Let all clients do their work, and look at the processes meanwhile."""
        before = self._descriptors()
        settings = self.settings
        self.load = Load(
            self.address,
            runs=settings.runs,
            seconds=settings.seconds,
            per_second=settings.runs / settings.seconds if settings.is_spread else float("inf"),
            watchers=settings.watchers,
            seed=settings.seed,
        )
        begun = time.monotonic()
        try:
            asyncio.run(self.load.perform(self._look_on))
        finally:
            self.report.seconds = time.monotonic() - begun
            self.report.runs = len(self.load.submissions)
            self.report.latencies = self.load.latencies
            self.report.counts = dict(self.load.counts)
            self.report.findings += self.load.findings
        self.report.findings += self._judge_rest(before)

    async def _look_on(self) -> None:
        """Sample again and again, and say how far it is."""
        interval = min(SAMPLE_SECONDS_MAX, self.settings.seconds / SAMPLES)
        told = 0.0
        while True:
            if self.load.now < self.settings.seconds:
                self.sample(self.load.now)
            if self.load.now >= told:
                self._tell_progress()
                told += PROGRESS_SECONDS
            await asyncio.sleep(interval)

    def sample(self, at: float) -> None:
        report = self.report
        report.loads.append(os.getloadavg()[0])
        first = {os.getpid(), self._database_pid, *(process.pid for process in self.processes.values())} - {0}
        report.machine.append(sample_machine(at, first))
        for name, process in self.processes.items():
            report.samples += sample_tree(at, name, process.pid)
        if self._database is not None:
            ((count,),) = self._database.execute(CONNECTIONS).fetchall()
            report.samples.append(Sample(at, "database", 0, {"connections": count}))

    def _tell_progress(self) -> None:
        newest = {sample.name: sample.holdings.get("memory", 0) for sample in self.report.samples}
        held = ", ".join(f"{name} {newest[name] / 2**20:.1f}" for name in self.processes if name in newest)
        said = f"{len(self.load.submissions)} runs started, {len(self.load.ended)} ended; MiB: {held}"
        print(f"{time.strftime('%H:%M:%S')} {said}", file=sys.stderr, flush=True)

    def _descriptors(self) -> dict[str, int]:
        return {name: holdings(process.pid).get("files", 0) for name, process in self.processes.items()}

    def _judge_rest(self, before: dict[str, int]) -> list[str]:
        """All clients are gone: so are their descriptors, as soon as the server has noticed it."""
        most = before["server"] + HANDLES_AT_REST_MAX
        until = time.monotonic() + REST_SECONDS
        while self._descriptors()["server"] > most and time.monotonic() < until:
            time.sleep(0.1)
        return judge_rest(before, self._descriptors())

    # -- the end

    def check(self) -> None:
        """What became of every run; then everybody ends in order."""
        lines = Counter(map(int, self.stage.journal.read_text().split()))
        try:
            statuses = asyncio.run(read_statuses(self.address))
        except OSError as error:
            self.report.findings.append(f"the server does not list the runs: {error}")
        else:
            self.report.findings += judge_runs(self.load.submissions, statuses, lines)
        alive = {name: process for name, process in self.processes.items() if process.poll() is None}
        dead = self.processes.keys() - alive.keys()
        # What follows from a death is told behind it.
        self.report.findings[:0] = [f"{name} ended by itself with {self.processes[name].returncode}" for name in dead]
        for process in alive.values():
            process.send_signal(signal.SIGTERM)
        for name, process in alive.items():
            self._check_end(name, process)
        if left := self.stage.leftovers():
            self.report.findings.append(f"still running: {left}")

    def _check_end(self, name: str, process: subprocess.Popen[str]) -> None:
        try:
            code = process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.report.findings.append(f"{name} does not end when it gets SIGTERM")
        else:
            if code:
                self.report.findings.append(f"{name} ended with {code} after SIGTERM")
        written = self._said(name)
        self.report.findings += [f"{name} wrote '{bug}'" for bug in BUGS if bug in written]

    def judge(self) -> None:
        """The trends. A short soak proves nothing by them."""
        report = self.report
        report.trends = [
            *judge_holdings(report.samples, self.settings.seconds),
            *judge_latencies(report.latencies, self.settings.seconds, report.machine),
        ]
        report.findings += [f"{trend.name}: {trend.finding}" for trend in report.trends if trend.finding]

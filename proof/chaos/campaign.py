"""One chaos run: a server, workers, clients, operators, faults; and then a check of everything."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import psycopg

from mulligan.core.model.codec import encode
from mulligan.service import Service
from mulligan.testing.postgres import PostgresServer
from mulligan.worker.processes import kill_with_variable
from proof.chaos import flows
from proof.chaos.api_server import ApiServer
from proof.chaos.checker import TOLD_MAX, InvariantChecker, Totals, check_all, check_rest, read_store_contents
from proof.chaos.faults import FaultInjector
from proof.chaos.fleet import Fleet, growth_of
from proof.chaos.journal import Journal
from proof.chaos.proxy import Proxy
from proof.stage import Stage, wait_until

ACT = Path(__file__).with_name("act.sh")
CLIENTS, OPERATORS = 3, 2
# This client asks the HTTP server; the others ask the database.
HTTP_CLIENT = 2
LOOK_SECONDS = 0.05
SAMPLE_SECONDS, ONLOOK_SECONDS, PROGRESS_SECONDS = 5.0, 3.0, 30.0
# How long a worker that is told to end may take: its grace, and a server that is slow.
END_SECONDS = 60.0
# For each worker: its statements, its news, and one that the server has not noticed yet. And as many for the others.
CONNECTIONS_PER_WORKER = 3
# The HTTP server: its threads, its background process, and as many that the database has not noticed yet.
CONNECTIONS_OF_API = 16
# Of the time of the trouble, in which all runs are started.
STARTED_BY = 0.85
_UNFINISHED = "SELECT count(*) FROM runs WHERE status NOT IN ('completed', 'failed', 'cancelled')"


class Settings(msgspec.Struct, frozen=True):
    seed: int = 1
    runs: int = 5000
    minutes: float = 20.0
    workers: int = 4
    lease_seconds: float = 2.0
    # How long everything may take to come to its end when the trouble is over; and of that without any new work.
    finish_minutes: float = 30.0
    hang_minutes: float = 2.0


class Report(msgspec.Struct):
    """What was done and what was found."""

    settings: Settings
    troubles: dict[str, int] = msgspec.field(default_factory=dict)
    # Seconds from a server that is back to the first work that was leased since.
    recoveries: list[float] = msgspec.field(default_factory=list)
    totals: Totals = msgspec.field(default_factory=Totals)
    deeds: dict[str, int] = msgspec.field(default_factory=dict)
    unfetched: int = 0
    trouble_seconds: float = 0.0
    finish_seconds: float = 0.0
    check_seconds: float = 0.0
    findings: list[str] = msgspec.field(default_factory=list)
    is_interrupted: bool = False


class Chaos:
    """One chaos run, in its own folder, on its own server."""

    def __init__(self, settings: Settings, server: PostgresServer, folder: Path) -> None:
        self.settings = settings
        self.server = server
        self.report = Report(settings)
        self.stage = Stage(folder, server.url)
        self.stage.environment |= {"ACT": str(ACT), "MULLIGAN_LEASE": f"{settings.lease_seconds:g}s"}
        self.journal = Journal(self.stage.journal)
        self.checker = InvariantChecker(server.url)
        self._exits = ExitStack()
        self._next = dict.fromkeys(("sample", "onlook", "progress"), 0.0)
        # When the server came back, and the newest lease by then.
        self._recovering: tuple[float, int] | None = None
        # How many commands had begun, and when the last of them did.
        self._begun_before, self._begun_at = -1, 0.0

    def __enter__(self) -> Chaos:
        flows.written(self.stage.folder)
        # The tables exist before any process connects.
        with self.stage.service() as service:
            assert service.reader.store.runs() == []
        self.fleet = self._exits.enter_context(Fleet(self.stage, self.server.url, self.settings.workers))
        proxy = self._exits.enter_context(Proxy(self.server.url))
        self.api = ApiServer(self.stage, proxy)
        self._exits.callback(self.api.close)
        self.trouble = FaultInjector(self.settings.seed, self.server, self.fleet, self.settings.lease_seconds)
        self.trouble.api = self.api
        self.trouble.restarted = self._note_restart
        self.trouble.position = lambda: self.journal.position
        self.clients = [self._client(number) for number in range(CLIENTS)]
        self.operators = [self._program("operator", number, self.settings.seed + number) for number in range(OPERATORS)]
        return self

    def __exit__(self, *_: object) -> None:
        """Also what was stopped when it was interrupted goes on, and then ends."""
        self.trouble.end()
        for process in (*self.clients, *self.operators):
            process.kill()
            process.wait()
        self._exits.close()
        kill_with_variable(b"STAGE", bytes(self.stage.folder), END_SECONDS)

    def _client(self, number: int) -> subprocess.Popen[str]:
        seconds = self.settings.minutes * 60 * STARTED_BY
        pace = self.settings.runs / CLIENTS / seconds if seconds else 0.0
        words = (self.settings.seed, number, self.settings.runs, CLIENTS, f"{pace:.4f}")
        return self._program("http_client" if number == HTTP_CLIENT else "client", number, *words, paper="client")

    def _program(self, name: str, number: int, *words: object, paper: str = "") -> subprocess.Popen[str]:
        """Start a client or operator program, on the connection of a worker, so that it is cut off with that one."""
        worker = self.fleet.workers[(number + 1) % len(self.fleet.workers)]
        noted = self._paper(f"{paper or name}-{number}")
        said = noted.with_name(f"{noted.name}.stderr")
        with said.open("a") as errors, noted.open("a") as lines:
            options = {"environment": worker.environment, "stdout": lines, "stderr": errors}
            return self.stage.start_program("-m", f"proof.chaos.{name}", *words, **options)

    def _paper(self, name: str) -> Path:
        return self.stage.folder / name

    # -- the trouble -------------------------------------------------------------------------------------------------

    def endure(self) -> None:
        """Inject faults for the requested time, or until there is nothing more to do."""
        begun_at = time.monotonic()
        until = begun_at + self.settings.minutes * 60
        self.trouble.begin()
        while time.monotonic() < until and not self.is_all_done():
            self.trouble.go_on()
            self.look()
            time.sleep(LOOK_SECONDS)
        self.calm_down()
        self.report.trouble_seconds = time.monotonic() - begun_at

    def calm_down(self) -> None:
        """End all faults."""
        self.trouble.end()
        self._paper("calm").touch()
        self.report.troubles = dict(self.trouble.counts)

    def look(self) -> None:
        """What is to be seen while all goes on."""
        self.fleet.look()
        self.api.look()
        self.journal.look()
        self._note_recovery()
        if self._is_time("sample", SAMPLE_SECONDS):
            self.fleet.sample()
        if self._is_time("onlook", ONLOOK_SECONDS):
            self.find(self.checker.look())
        if self._is_time("progress", PROGRESS_SECONDS):
            self._tell_progress()

    def _is_time(self, what: str, seconds: float) -> bool:
        if time.monotonic() < self._next[what]:
            return False
        self._next[what] = time.monotonic() + seconds
        return True

    def _tell_progress(self) -> None:
        troubles = sum(self.trouble.counts.values())
        started = sum(1 for _ in self._acknowledged())
        said = f"{started} runs started, {self.journal.begun} commands begun, {troubles} troubles"
        print(f"{time.strftime('%H:%M:%S')} {said}, {len(self.report.findings)} findings", file=sys.stderr, flush=True)

    def find(self, found: list[str]) -> None:
        """Keep what was found, once."""
        self.report.findings += [one for one in found if one not in self.report.findings]

    # -- how long it takes to recover

    def _note_restart(self) -> None:
        self._recovering = (time.monotonic(), self.journal.fence_max)

    def _note_recovery(self) -> None:
        if self._recovering is not None and self.journal.fence_max > self._recovering[1]:
            self.report.recoveries.append(time.monotonic() - self._recovering[0])
            self._recovering = None

    # -- the end -----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Wait until everything has ended, or report what hangs."""
        begun_at = time.monotonic()
        until = begun_at + self.settings.finish_minutes * 60
        while not self.is_all_done() and time.monotonic() < min(until, self._hangs_at()):
            self.look()
            time.sleep(LOOK_SECONDS)
        self.report.finish_seconds = time.monotonic() - begun_at
        if not self.is_all_done():
            self._tell_who_hangs()
        self._end_everybody()

    def _hangs_at(self) -> float:
        """When it is clear that nothing goes on, unless something begins before."""
        if self.journal.begun != self._begun_before:
            self._begun_before, self._begun_at = self.journal.begun, time.monotonic()
        return self._begun_at + self.settings.hang_minutes * 60

    def is_all_done(self) -> bool:
        return all(client.poll() is not None for client in self.clients) and self._unfinished() == 0

    def _unfinished(self) -> int:
        """Return how many runs have not ended; -1 if that is unknown."""
        try:
            with psycopg.connect(self.server.url, connect_timeout=5) as connection:
                rows = connection.execute(_UNFINISHED).fetchall()
        except psycopg.OperationalError:
            return -1
        return int(rows[0][0])

    def _tell_who_hangs(self) -> None:
        """Each worker writes where it is, and ends; the tables are written down."""
        minutes = self.report.finish_seconds / 60
        self.find([f"{self._unfinished()} runs have not ended {minutes:.1f} minutes after the trouble: see 'held'"])
        self._paper("held").write_text(_describe(read_store_contents(self.server.url)))
        for worker in self.fleet.workers:
            worker.process.send_signal(signal.SIGABRT)
            worker.process.wait()
            worker.start()

    def _end_everybody(self) -> None:
        for number, operator in enumerate(self.operators):
            if operator.poll() is not None:
                self.find([f"an operator ended with {operator.returncode}: see operator-{number}.stderr"])
            operator.kill()
            operator.wait()
        for number, client in enumerate(self.clients):
            if client.poll():
                self.find([f"a client ended with {client.returncode}: see client-{number}.stderr"])
        self.find(self.fleet.deaths)
        self.find(list(self._check_holdings()))
        self.find(list(self.api.end(END_SECONDS)))
        self.find(list(self.fleet.end(END_SECONDS)))
        self.find([f"still running: {left}" for left in self._leftovers()])

    def _check_holdings(self) -> Iterator[str]:
        """What workers hold when all is done: memory, files, connections."""
        self.fleet.sample()
        for worker in self.fleet.workers:
            more = growth_of(worker.samples)
            if more:
                yield f"worker {worker.number} grew: {more}"
        with psycopg.connect(self.server.url) as connection:
            asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mulligan'"
            ((count,),) = connection.execute(asked).fetchall()
        if count > CONNECTIONS_PER_WORKER * (self.settings.workers + 1) + CONNECTIONS_OF_API:
            yield f"{count} connections are open for {self.settings.workers} workers"

    def _leftovers(self) -> list[str]:
        try:
            wait_until(lambda: not self.stage.leftovers(), "somebody is left", END_SECONDS)
        except AssertionError:
            return self.stage.leftovers()
        return []

    def check(self) -> None:
        """Ask everything of every run."""
        begun_at = time.monotonic()
        report, numbers = self.report, range(self.settings.runs)
        with self.stage.service() as service:
            lines = self.journal.lines()
            outages = [(one, self.journal.between(one.first_byte, one.last_byte)) for one in self.trouble.outages]
            acknowledged = dict(self._acknowledged())
            self.find(list(check_all(service, numbers, acknowledged, lines, report.totals, outages)))
            held = read_store_contents(self.server.url)
            self.find(list(check_rest(held)))
            report.unfetched = len(held.answers)
            self._keep_logs(service)
        report.deeds = self._deeds()
        report.check_seconds = time.monotonic() - begun_at

    def _acknowledged(self) -> Iterator[tuple[int, int]]:
        for number in range(CLIENTS):
            for line in self._paper(f"client-{number}").read_text().splitlines():
                n, run_id = line.split()
                yield int(n), int(run_id)

    def _deeds(self) -> dict[str, int]:
        """What the operators did, and what was said to them: how often."""
        papers = (self._paper(f"operator-{number}").read_text() for number in range(OPERATORS))
        lines = [line.split() for paper in papers for line in paper.splitlines()]
        return Counter(f"{verb} {said}" for verb, _, said in lines)

    def _keep_logs(self, service: Service) -> None:
        """The logs of runs that something was found about, beside what the workers said."""
        named = {int(number) for found in self.report.findings for number in re.findall(r"\brun (\d+)", found)}
        for run_id in sorted(named)[:TOLD_MAX]:
            lines = [encode(entry) for entry in service.reader.store.log(run_id)]
            self._paper(f"run-{run_id}.jsonl").write_bytes(b"\n".join(lines))


def _describe(held: object) -> str:
    return msgspec.json.format(msgspec.json.encode(msgspec.to_builtins(held, str_keys=True)), indent=1).decode()

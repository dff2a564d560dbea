"""One chaos run: a server, workers, clients, operators, faults; and then a check of everything."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from mulligan.core.model.codec import encode
from mulligan.service.server.tokens.tokens import TokenForm
from mulligan.service.service import Service
from mulligan.testing.postgres import PostgresServer
from mulligan.worker.supervisor.processes import kill_with_variable
from proof.chaos import announcements, flows, hooks, sender
from proof.chaos.api_server import ApiServer
from proof.chaos.checker import (
    TOLD_MAX,
    HeartbeatJournal,
    InvariantChecker,
    Totals,
    all_runs,
    check_all,
    check_rest,
    read_store_contents,
)
from proof.chaos.faults import FaultInjector
from proof.chaos.fleet import Fleet, growth_of
from proof.chaos.journal import Journal
from proof.chaos.proxy import Proxy
from proof.chaos.watchers import TOKEN_FILE
from proof.stage import Stage, wait_until

ACT = Path(__file__).with_name("act.sh")
CLIENTS, OPERATORS = 3, 2
# These ask the HTTP server; the others ask the database.
HTTP_CLIENT, HTTP_OPERATOR = 2, 1
# How many runs a watcher must know the end of, and how long it may take to come back.
WATCHED_RUNS, WATCH_SECONDS = 40, 60.0
SEND_SECONDS = 60.0
LOOK_SECONDS = 0.05
SAMPLE_SECONDS, ONLOOK_SECONDS, PROGRESS_SECONDS = 5.0, 3.0, 30.0
# How often in a lease the ages of all heartbeats are noted.
HEARTBEAT_LOOKS = 4
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
    # Who follows the list of runs all the time, and whether a real browser does too.
    watchers: int = 8
    has_browser: bool = False


class Report(msgspec.Struct):
    """What was done and what was found."""

    settings: Settings
    troubles: dict[str, int] = msgspec.field(default_factory=dict)
    # Seconds from a server that is back to the first work that was leased since.
    recoveries: list[float] = msgspec.field(default_factory=list)
    totals: Totals = msgspec.field(default_factory=Totals)
    deeds: dict[str, int] = msgspec.field(default_factory=dict)
    unfetched: int = 0
    # What watchers saw, and what came of the notices.
    watched: dict[str, int] = msgspec.field(default_factory=dict)
    announced: dict[str, int] = msgspec.field(default_factory=dict)
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
        self.stage.home.folder.mkdir(mode=0o700, exist_ok=True)
        # The tables exist before any process connects.
        with self.stage.service() as service:
            assert service.reader.store.runs() == []
            announcements.put_schedule(service)
            webhooks = hooks.put_webhooks(service, self.stage.folder)
            tokens = {user: _token(service, user, *scopes) for user, scopes in TOKENS.items()}
        self._paper(TOKEN_FILE).write_text(tokens["watcher"])
        self._paper(sender.TOKEN_FILE).write_text(tokens["sender"])
        every = self.settings.lease_seconds / HEARTBEAT_LOOKS
        self._exits.enter_context(HeartbeatJournal(self.server.url, self._paper("heartbeats"), every))
        self.target = announcements.Target(self.settings.seed)
        self._exits.callback(self.target.close)
        self.fleet = self._exits.enter_context(Fleet(self.stage, self.server.url, self.settings.workers))
        proxy = self._exits.enter_context(Proxy(self.server.url))
        self.api = ApiServer(self.stage, proxy, self.target.config + webhooks)
        self._exits.callback(self.api.close)
        self._of_server = {"MULLIGAN_STORE": "", "MULLIGAN_SERVER": self.api.url, "MULLIGAN_TOKEN": tokens["operator"]}
        remote = self.fleet.add_remote(self.api.port, tokens["remote"])
        self.trouble = FaultInjector(self.settings.seed, self.server, self.fleet, self.settings.lease_seconds)
        self.trouble.remote = remote
        self.trouble.api = self.api
        self.trouble.restarted = self._note_restart
        self.trouble.position = lambda: self.journal.position
        self.clients = [self._client(number) for number in range(CLIENTS)]
        self.operators = [self._program("operator", number, self.settings.seed + number) for number in range(OPERATORS)]
        self.senders = [self._sender(number) for number in range(sender.SENDERS)]
        self.trouble.kill_sender = self._kill_sender
        self.watchers = [self._program("watchers", 0, self.settings.watchers)]
        if self.settings.has_browser:
            self.watchers.append(self._program("browsers", 0))
        return self

    def __exit__(self, *_: object) -> None:
        """Also what was stopped when it was interrupted goes on, and then ends."""
        self.trouble.end()
        for process in (*self.clients, *self.operators, *self.senders, *self.watchers):
            process.kill()
            process.wait()
        self._exits.close()
        kill_with_variable(b"STAGE", bytes(self.stage.folder), END_SECONDS)

    def _client(self, number: int) -> subprocess.Popen[str]:
        seconds = self.settings.minutes * 60 * STARTED_BY
        pace = self.settings.runs / CLIENTS / seconds if seconds else 0.0
        words = (self.settings.seed, number, self.settings.runs, CLIENTS, f"{pace:.4f}")
        return self._program("http_client" if number == HTTP_CLIENT else "client", number, *words, paper="client")

    def _sender(self, number: int) -> subprocess.Popen[str]:
        return self._program("sender", number, self.settings.seed, number, self.settings.runs)

    def _kill_sender(self, number: int) -> None:
        """Another one goes on with what nobody has told it."""
        self.senders[number].kill()
        self._end_sender(number, -signal.SIGKILL)
        self.senders[number] = self._sender(number)

    def _end_sender(self, number: int, expected: int) -> None:
        if (code := self.senders[number].wait()) != expected:
            self.find([f"a sender ended with {code}: see sender-{number}.stderr"])

    def _program(self, name: str, number: int, *words: object, paper: str = "") -> subprocess.Popen[str]:
        """Start a client or operator program, on the connection of a worker, so that it is cut off with that one."""
        worker = self.fleet.workers[(number + 1) % self.settings.workers]
        is_served = name == "operator" and number == HTTP_OPERATOR
        noted = self._paper(f"{paper or name}-{number}")
        said = noted.with_name(f"{noted.name}.stderr")
        with said.open("a") as errors, noted.open("a") as lines:
            environment = self._of_server if is_served else worker.environment
            options = {"environment": environment, "stdout": lines, "stderr": errors}
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
        self.target.is_calm = True
        with self.stage.service() as service:
            until = time.monotonic() + SEND_SECONDS
            # All may be done before its first instant, or before the server is back that starts it.
            while service.schedules.show(announcements.SCHEDULE).last is None and time.monotonic() < until:
                self.look()
                time.sleep(LOOK_SECONDS)
            service.schedules.pause(announcements.SCHEDULE, "it is calm")
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
        self.find(list(self._check_watchers()))
        self._wait_for_notices()
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

    def _check_watchers(self) -> Iterator[str]:
        """Whoever watched all the time knows how the last runs ended, as soon as the server is back."""
        with self.stage.service() as service:
            newest = [run for run in service.reader.store.runs(limit=5 * WATCHED_RUNS) if run.parent_run_id is None]
        expected = {str(run.run_id): run.status for run in newest[:WATCHED_RUNS]}
        for name, wrong in (("watchers", wrong_watchers), ("browsers", wrong_pages)):
            paper = self._paper("watchers.json" if name == "watchers" else "browser.json")
            if name == "browsers" and not self.settings.has_browser:
                continue
            until = time.monotonic() + WATCH_SECONDS
            while (found := wrong(paper, expected)) and time.monotonic() < until:
                self.look()
                time.sleep(LOOK_SECONDS)
            yield from found
        for process in self.watchers:
            if process.poll() is not None:
                yield f"a watcher ended with {process.returncode}: see watchers-0.stderr and browsers-0.stderr"
            process.kill()
            process.wait()
        self.report.watched = json.loads(self._paper("watchers.json").read_text())["counts"]
        if self.settings.has_browser and self._paper("browser.json").exists():
            pages = json.loads(self._paper("browser.json").read_text())["pages"]
            self.report.watched["renderings of pages"] = sum(page["renderings"] for page in pages.values())

    def _wait_for_notices(self) -> None:
        """Until all of them are sent: what a dead sender had claimed is free."""
        until = time.monotonic() + SEND_SECONDS
        with self.stage.service() as service:
            announcements.let_claims_end(service)
            while any(one.status == "waiting" for one in announcements.outbox(service)) and time.monotonic() < until:
                self.look()
                time.sleep(LOOK_SECONDS)

    def _end_everybody(self) -> None:
        for number, operator in enumerate(self.operators):
            if operator.poll() is not None:
                self.find([f"an operator ended with {operator.returncode}: see operator-{number}.stderr"])
            operator.kill()
            operator.wait()
        for number, one in enumerate(self.senders):
            one.kill()
            self._end_sender(number, -signal.SIGKILL)
        for number, client in enumerate(self.clients):
            if client.poll():
                self.find([f"a client ended with {client.returncode}: see client-{number}.stderr"])
        self.find(self.fleet.deaths)
        self.find(list(self._check_holdings()))
        # The remote worker signs off at the server.
        self.find(list(self.fleet.end(END_SECONDS)))
        self.find(list(self.api.end(END_SECONDS)))
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
            sent = list(sender.accepted(map(self._paper, (f"sender-{one}" for one in range(sender.SENDERS)))))
            self.find(list(check_all(service, numbers, acknowledged, lines, report.totals, outages, sent)))
            ticks = [run.run_id for run in all_runs(service) if run.workflow == announcements.SCHEDULE]
            self.find(list(announcements.check_instants(service, ticks)))
            self.find(list(announcements.check_notices(service, ticks, self.target)))
            again = sum(times - 1 for times in self.target.received.values())
            report.announced = {
                "instants": len(ticks),
                "notices": len(announcements.outbox(service)),
                "notices that arrived again": again,
                **self.target.counts,
            }
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


# Who asks the server, and what they may.
TOKENS = {"watcher": ("read",), "operator": ("run", "decide"), "remote": ("worker",), "sender": ("send",)}


def _token(service: Service, user: str, *scopes: str) -> str:
    return service.tokens.create(TokenForm(user=user, scopes=scopes)).secret


def wrong_watchers(paper: Path, expected: dict[str, str]) -> list[str]:
    """Which watchers do not know how the runs stand."""
    known = json.loads(paper.read_text())["watchers"] if paper.exists() else [{}]
    return [
        f"watcher {number} believes that run {run_id} is {statuses.get(run_id)}, and it is {status}"
        for number, statuses in enumerate(known)
        for run_id, status in expected.items()
        if statuses.get(run_id) != status
    ][:TOLD_MAX]


def wrong_pages(paper: Path, expected: dict[str, str]) -> list[str]:
    """What the pages of a browser show that is not so."""
    if not paper.exists():
        return ["no page was opened"]
    shown: dict[str, Any] = json.loads(paper.read_text())
    found = [f"a page: {problem}" for problem in shown["problems"]]
    found += [f"page {path} is {one['state']}" for path, one in shown["pages"].items() if one["state"] != "live"]
    rows = shown["pages"].get("/runs", {"rows": {}})["rows"]
    if not rows.keys() & expected.keys():
        found.append(f"the page of the runs shows none of the last ones, but {list(rows)[:5]}")
    for run_id, status in expected.items():
        # What has completed after failures is shown as degraded.
        shown_as = (status, "degraded") if status == "completed" else (status,)
        if run_id in rows and not any(one in rows[run_id] for one in shown_as):
            found.append(f"the page of the runs shows '{rows[run_id]}' for run {run_id}, which is {status}")
    return found[:TOLD_MAX]


def _describe(held: object) -> str:
    return msgspec.json.format(msgspec.json.encode(msgspec.to_builtins(held, str_keys=True)), indent=1).decode()

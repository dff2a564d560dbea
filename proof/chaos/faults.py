"""Everything that goes wrong while the chaos runs: kills, stops, cut connections, crashes and outages."""

from __future__ import annotations

import heapq
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count, cycle

import msgspec

from mulligan.testing.postgres import PostgresServer
from mulligan.worker.supervisor.processes import Process, descendants, snapshot
from proof.chaos.api_server import ApiServer
from proof.chaos.fleet import Fleet, Worker, stopped
from proof.chaos.proxy import html
from proof.chaos.sender import SENDERS

# Something to do; what it returns is done after a while to end it.
Act = Callable[[], None]

# How long a server takes to be started at most: its old children may still be going.
START_SECONDS = 60.0
# In leases: how long nothing else goes wrong before an outage, how long that lasts, and in what part of it a step that
# ends has certainly ended by itself. Supervisors kill at two thirds of a lease after the last heartbeat; a worker gives
# a call up after a lease, so that a shorter outage may be no more to it than a slow answer.
QUIET_LEASES = 2.0
OUTAGE_LEASES = (0.7, 3.0)
ENDED_LEASES = 0.4


class Outage(msgspec.Struct, frozen=True):
    """The server was away for long enough that tasks were killed, and there were no other faults."""

    how: str
    # Until all processes had a lease to come back.
    began: datetime
    ended: datetime
    # Positions in the journal: what was written between them could not be reported.
    first_byte: int
    last_byte: int


class FaultSchedule:
    """Things to do, each at its time."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Act]] = []
        self._numbers = count()

    def add(self, seconds: float, act: Act) -> None:
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._numbers), act))

    def run_due(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic():
            heapq.heappop(self._due)[2]()

    def end(self) -> None:
        """Whatever has begun is ended now."""
        while self._due:
            heapq.heappop(self._due)[2]()


class FaultInjector:
    """Everything that goes wrong: restarts of the server, attacks on workers, cuts of the network, each in its time."""

    def __init__(self, seed: int, server: PostgresServer, fleet: Fleet, lease_seconds: float) -> None:
        self.server = server
        self.fleet = fleet
        self.lease_seconds = lease_seconds
        # The HTTP server, if there is one.
        self.api: ApiServer | None = None
        # The worker that asks it, if there is one.
        self.remote: Worker | None = None
        self.counts: Counter[str] = Counter()
        # Kills one of those who send events, and starts another one.
        self.kill_sender: Callable[[int], None] | None = None
        # Called when the server is there again.
        self.restarted: Act = lambda: None
        # How much of the journal is written.
        self.position: Callable[[], int] = lambda: 0
        self.outages: list[Outage] = []
        # Nothing else goes wrong around an outage; and how much of what went wrong is not over.
        self.is_quiet = False
        self._open = 0
        self._agenda = FaultSchedule()
        self._is_over = False
        self._of_server = random.Random(f"server {seed}")
        self._of_workers = random.Random(f"workers {seed}")
        self._of_network = random.Random(f"network {seed}")
        self._of_outages = random.Random(f"outages {seed}")
        self._of_api = random.Random(f"api {seed}")
        self._of_remote = random.Random(f"remote {seed}")
        self._of_senders = random.Random(f"senders {seed}")
        self._ways_to_stop: Iterator[str] = cycle(("fast", "immediate", "kill -9", "frozen"))

    def begin(self) -> None:
        self._agenda.add(self._of_server.uniform(3, 10), self._restart_and_again)
        self._agenda.add(self._of_workers.uniform(1, 4), self._attack_and_again)
        self._agenda.add(self._of_network.uniform(1, 4), self._cut_and_again)
        self._agenda.add(self._of_outages.uniform(10, 20), self._quiet_and_outage)
        self._agenda.add(self._of_api.uniform(4, 10), self._attack_api_and_again)
        self._agenda.add(self._of_remote.uniform(4, 10), self._stand_in_and_again)
        self._agenda.add(self._of_senders.uniform(1, 4), self._kill_sender_and_again)

    def go_on(self) -> None:
        """Do what is due."""
        self._agenda.run_due()

    def end(self) -> None:
        """From now on nothing goes wrong."""
        self._is_over = True
        self._agenda.end()
        self.fleet.heal()
        if self.api is not None:
            self.api.proxy.heal()
            self.api.proxy.cut()

    def _end_later(self, seconds: float, end: Act) -> None:
        """What has begun is over then."""
        self._open += 1

        def ended() -> None:
            self._open -= 1
            end()

        self._agenda.add(seconds, ended)

    def _waits(self, act: Act) -> bool:
        """Whether it is to be done later, since nothing may go wrong now."""
        if self.is_quiet:
            self._agenda.add(self.lease_seconds, act)
        return self.is_quiet

    # -- outages

    def _quiet_and_outage(self) -> None:
        """When all that went wrong is over and forgotten, the server goes away."""
        if self._is_over:
            return
        self.is_quiet = True
        if self._open:
            self._agenda.add(0.5, self._quiet_and_outage)
            return
        self._agenda.add(QUIET_LEASES * self.lease_seconds, self._outage_and_again)

    def _outage_and_again(self) -> None:
        if self._is_over:
            return
        leases = self._of_outages.uniform(*OUTAGE_LEASES)
        self.outage(next(self._ways_to_stop), leases * self.lease_seconds)
        self._agenda.add(self._of_outages.uniform(20, 60), self._quiet_and_outage)

    def outage(self, how: str, seconds: float) -> None:
        """Stop the server for so long. No other faults until all have had a lease more."""
        self.is_quiet = True
        self.counts[f"outage {how}"] += 1
        back = self._taken_away(how)
        began, first = datetime.now(UTC), self.position()
        last = first

        def mark() -> None:
            nonlocal last
            last = self.position()

        def end() -> None:
            back()
            self._end_later(self.lease_seconds, calm)

        def calm() -> None:
            self.outages.append(Outage(how, began, datetime.now(UTC), first, last))
            self.is_quiet = False

        self._agenda.add(ENDED_LEASES * self.lease_seconds, mark)
        self._end_later(seconds, end)

    # -- the server

    def _restart_and_again(self) -> None:
        if self._is_over or self._waits(self._restart_and_again):
            return
        self.restart(next(self._ways_to_stop), self._of_server.uniform(0.2, 4.0))
        self._agenda.add(self._of_server.uniform(5, 40), self._restart_and_again)

    def restart(self, how: str, seconds: float) -> None:
        """It is away for so long."""
        self.counts[f"server {how}"] += 1
        self._end_later(seconds, self._taken_away(how))

    def _taken_away(self, how: str) -> Act:
        """From now on it does not answer; what is returned brings it back."""
        if how == "frozen":
            return stopped(family_of(self.server.pid))
        if how == "kill -9":
            self.server.kill()
        else:
            self.server.stop(how)
        return self._start_server

    def _start_server(self) -> None:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                self.server.start()
                break
            except RuntimeError:
                if time.monotonic() > until:
                    raise
        self.restarted()

    # -- workers

    def _attack_and_again(self) -> None:
        if self._is_over or self._waits(self._attack_and_again):
            return
        chance = self._of_workers
        worker = chance.choice(self.fleet.workers)
        self.attack(worker, chance.choice(ATTACKS), chance.uniform(0.2, 1.0), chance.uniform(1.2, 2.5))
        self._agenda.add(chance.uniform(1, 8), self._attack_and_again)

    def attack(self, worker: Worker, what: str, short: float, long: float) -> None:
        """`short` and `long` are how many leases a stop lasts. The first worker is never killed: it grows old."""
        if what.startswith("kill") and worker.number == 0 and what != "kill supervisor":
            what = "stop long"
        self.counts[f"worker {what}"] += 1
        seconds = (short if what == "stop" else long) * self.lease_seconds
        match what:
            case "kill":
                worker.kill()
            case "kill with supervisor":
                worker.kill_with_supervisor()
            case "kill supervisor":
                worker.kill_supervisor()
            case "stop with supervisor":
                self._end_later(seconds, worker.stop_with_supervisor())
            case "stop supervisor":
                self._end_later(seconds, worker.stop_supervisor())
            case _:
                self._end_later(seconds, worker.stop())

    # -- the HTTP server

    def _attack_api_and_again(self) -> None:
        if self._is_over or self._waits(self._attack_api_and_again):
            return
        self.attack_api(self._of_api.choice(API_ATTACKS), self._of_api.uniform(0.2, 4.0))
        self._agenda.add(self._of_api.uniform(3, 15), self._attack_api_and_again)

    def attack_api(self, what: str, seconds: float) -> None:
        """Kill it, so that another is started; or stop it or cut it off from the database for so long."""
        assert self.api is not None
        self.counts[f"HTTP server {what}"] += 1
        match what:
            case "kill":
                self.api.kill()
            case "kill background":
                self.api.kill_background()
            case "stop":
                self._end_later(seconds, self.api.stop())
            case _:
                self.api.proxy.refuse()
                self.api.proxy.cut()
                self._end_later(seconds, self.api.proxy.heal)

    def _stand_in_and_again(self) -> None:
        if self._is_over or self.remote is None or self._waits(self._stand_in_and_again):
            return
        chance = self._of_remote
        self.stand_in(self.remote, chance.choice(list(STAND_INS)), chance.uniform(0.2, 3.0) * self.lease_seconds)
        self._agenda.add(chance.uniform(5, 15), self._stand_in_and_again)

    def stand_in(self, worker: Worker, what: str, seconds: float) -> None:
        """Something else answers a remote worker in place of its server for so long: it waits."""
        self.counts[f"in place of the HTTP server {what}"] += 1
        worker.proxy.stand_in(STAND_INS[what])
        self._end_later(seconds, worker.proxy.heal)

    # -- senders of events

    def _kill_sender_and_again(self) -> None:
        if self._is_over or self.kill_sender is None or self._waits(self._kill_sender_and_again):
            return
        self.attack_sender(self._of_senders.randrange(SENDERS))
        self._agenda.add(self._of_senders.uniform(1, 8), self._kill_sender_and_again)

    def attack_sender(self, number: int) -> None:
        assert self.kill_sender is not None
        self.counts["sender kill"] += 1
        self.kill_sender(number)

    # -- the network

    def _cut_and_again(self) -> None:
        if self._is_over or self._waits(self._cut_and_again):
            return
        chance = self._of_network
        worker = chance.choice(self.fleet.workers)
        self.cut(worker, chance.choice(CUTS), chance.uniform(0.1, 2.0) * self.lease_seconds)
        self._agenda.add(chance.uniform(1, 8), self._cut_and_again)

    def cut(self, worker: Worker, what: str, seconds: float) -> None:
        self.counts[f"network {what}"] += 1
        match what:
            case "reset":
                worker.proxy.cut()
            case "refused":
                worker.proxy.refuse()
            case "slow":
                worker.proxy.slow_down(0.02)
            case "half open to the server":
                worker.proxy.swallow("server")
            case "half open to the client":
                worker.proxy.swallow("client")
            case _:
                worker.proxy.swallow("server", "client")
        self._end_later(seconds, worker.proxy.heal)


def family_of(pid: int) -> list[Process]:
    """A process and all that come from it."""
    return descendants(snapshot(), [pid])


ATTACKS = (
    *("kill", "kill", "kill", "kill with supervisor", "kill supervisor"),
    *("stop", "stop", "stop long", "stop with supervisor", "stop supervisor"),
)
CUTS = ("reset", "reset", "refused", "slow", "half open to the server", "half open to the client", "silent")
API_ATTACKS = ("kill", "kill", "kill", "kill background", "stop", "cut off")
STAND_INS = {
    "a page with 500": html("500 Internal Server Error"),
    "a page with 404": html("404 Not Found"),
    "a page with 200": html("200 OK"),
    "JSON with 200": html("200 OK", "{}"),
    "JSON with 404": html("404 Not Found", '{"detail": "Not Found"}'),
    # As a gateway says it, in the same form as our errors.
    "problem details with 401": html("401 Unauthorized", '{"detail": "no session", "code": "token_not_valid"}'),
    "problem details with 404": html("404 Not Found", '{"type": "about:blank", "detail": "no route", "code": "route"}'),
}

"""A simulated cluster with servers: each has its own connection, and may die or be stopped as workers may."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from random import Random
from typing import Any, cast

from mulligan.core.model.schedule import CatchUp, Overlap, Schedule
from mulligan.ports import Store
from mulligan.ports.server_records import NoticeRecord
from mulligan.testing.faults import Crash
from proof.simulator.cluster.simulated_cluster import SimulatedCluster
from proof.simulator.cluster.simulated_server import (
    SCHEDULED,
    Delivery,
    Message,
    SimulatedServer,
    pause_schedule,
    put_schedule,
    read_schedule,
    resume_schedule,
    waiting_notices,
)
from proof.simulator.fault_budget import FaultBudget
from proof.simulator.fault_injection import with_faults
from proof.simulator.server_checks import DeliveryChecks, ScheduleChecks

SERVERS_MAX = 2
# A server looks this often.
LOOK_SECONDS = 1.0
# How often servers look, at most, until nothing is left to do.
ROUNDS_MAX = 200
_CATCH_UPS: tuple[CatchUp, ...] = ("none", "last", "all")
_OVERLAPS: tuple[Overlap, ...] = ("skip", "queue", "allow", "cancel")


class ClusterWithServers(SimulatedCluster):
    """One schedule, and the notices of all runs."""

    def __init__(self, seed: object, budget: FaultBudget) -> None:
        super().__init__(seed, budget)
        self.servers: list[SimulatedServer] = []
        self.schedule_checks = ScheduleChecks()
        self.deliveries = DeliveryChecks(self.database.read_contents)
        self._server_connections: dict[str, Store] = {}
        self._servers_started = 0
        # Whether targets refuse, and answers of theirs are lost.
        self._are_targets_bad = True
        self._put_schedule(Random(f"schedule {seed}"))
        for _ in range(self.rng.choice((1, SERVERS_MAX))):
            self.start_server()

    def _put_schedule(self, dice: Random) -> None:
        now = self.clock.now()
        self._schedule = Schedule(
            SCHEDULED.name,
            every=dice.choice((60.0, 150.0, 400.0)),
            anchor=now,
            catch_up=dice.choice(_CATCH_UPS),
            catch_up_max=3,
            overlap=dice.choice(_OVERLAPS),
            pause_after=dice.choice((None, None, 2)),
            inputs={"until": "${schedule.instant}", "after": "${schedule.previous}"},
            reads_instant=True,
        )
        self._since = now
        put_schedule(self.operator, self._schedule, now)

    def close(self) -> None:
        for connection in self._server_connections.values():
            connection.close()
        super().close()

    # -- servers -----------------------------------------------------------------------------------------------------

    def start_server(self) -> None:
        self._servers_started += 1
        name, host = f"server {self._servers_started}", self.rng.choice(self.hosts)
        wall = self._walls[host]
        self._server_connections[name] = self.database.open(
            self.clock if self.database.is_shared else wall.of_process()
        )
        store = _Claims(with_faults(self._server_connections[name], self), name, self.deliveries)
        self.servers.append(SimulatedServer(name, host, cast(Store, store), wall, self._deliver(name)))

    def lose_server(self, server: SimulatedServer) -> None:
        self.servers.remove(server)
        self._server_connections.pop(server.name).close()

    def act_server(self, server: SimulatedServer) -> None:
        """Let a server look once. If it dies, its connection is gone."""
        self.clock.advance(LOOK_SECONDS)
        self._acting.append(cast(Any, server))
        before = self.database.answered()
        try:
            server.step()
        except Crash as crash:
            self.happened[f"crash of a server {crash.point}"] += 1
            self.lose_server(server)
        finally:
            self._acting.pop()
            # What it has removed, or others have fetched meanwhile, need not be kept.
            for message_id in before - self.database.answered():
                self.note_answer(message_id)

    @property
    def runnable_servers(self) -> list[SimulatedServer]:
        now = self.clock.monotonic()
        acting = cast(list[Any], self._acting)
        return [one for one in self.servers if one.frozen_until <= now and one not in acting]

    def _deliver(self, server: str) -> Any:
        def deliver(target: str, message: Message) -> Delivery:
            keys = [notice.key for notice in message.notices]
            answer = self.rng.choice(_ANSWERS) if self._are_targets_bad and self.faults else "accepted"
            self.happened[f"notice {answer}"] += 1
            self.deliveries.on_send(server, keys, is_accepted=answer in ("accepted", "answer lost"))
            if answer == "bug":
                raise RuntimeError("a bug in a library")
            return _DELIVERIES[answer]

        return deliver

    # -- invariants --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        super().check()
        self._check_schedule()
        for server in self.servers:
            if server.problems:
                raise AssertionError(f"promise 13: a job of a server fails: {server.problems[0]}")
        self.deliveries.check(self.contents)
        if self.deliveries.violations:
            raise AssertionError(self.deliveries.violations[0])

    def _check_schedule(self) -> None:
        found = read_schedule(self.operator)
        if found is not None:
            self.schedule_checks.check(self._schedule, self._since, found[1], self.checker.runs)

    # -- the end of faults -------------------------------------------------------------------------------------------

    def end_faults(self) -> None:
        """After everything that is due was decided, a person pauses the schedule: else the history has no end."""
        super().end_faults()
        self._are_targets_bad = False
        for server in self.servers:
            server.frozen_until = 0.0
        if not self.servers:
            self.start_server()
        self._let_servers_look(2)
        found = read_schedule(self.operator)
        assert found is not None
        self.schedule_checks.check_finished(self._schedule, self._since, found[1], self._now())
        if self.schedule_checks.started_at_pause is None:
            self.pause_or_resume()

    def pause_or_resume(self) -> None:
        """Pause the schedule, as a person does, or resume it."""
        now = self._now()
        if self.schedule_checks.started_at_pause is None:
            self.schedule_checks.note_pause(pause_schedule(self.operator, now))
        else:
            resume_schedule(self.operator, now)
            self.schedule_checks.note_resume(self._since, now)

    def _let_servers_look(self, rounds: int) -> None:
        for _ in range(rounds):
            # Longer than a job that failed waits at most.
            self.clock.advance(61.0)
            for server in list(self.servers):
                self.act_server(server)
                self.check()

    def _now(self) -> datetime:
        return self.operator.now() or self.clock.now()

    def send_all(self) -> None:
        """Let servers send what waits until nothing does."""
        for _ in range(ROUNDS_MAX):
            if not waiting_notices(self.operator):
                break
            self.clock.advance(61.0)
            for server in list(self.servers):
                self.act_server(server)
        self.contents = self.checker.check_new()
        self.deliveries.check_finished(self.contents)
        if self.deliveries.violations:
            raise AssertionError(self.deliveries.violations[0])


class _Claims:
    """A server's store that says which notices were claimed."""

    def __init__(self, store: Store, server: str, deliveries: DeliveryChecks) -> None:
        self._store = store
        self._server = server
        self._deliveries = deliveries

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @property
    def server_records(self) -> Any:
        return _ClaimedRecords(self._store.server_records, self._server, self._deliveries)


class _ClaimedRecords:
    def __init__(self, records: Any, server: str, deliveries: DeliveryChecks) -> None:
        self._records = records
        self._server = server
        self._deliveries = deliveries

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    def claim_notices(self, target: str, now: datetime, until: datetime, limit: int) -> Sequence[NoticeRecord]:
        found: Sequence[NoticeRecord] = self._records.claim_notices(target, now, until, limit)
        self._deliveries.note_claim(self._server, [notice.key for notice in found])
        return found


_DELIVERIES = {
    "accepted": Delivery(),
    "refused": Delivery("HTTP 400"),
    "busy": Delivery("HTTP 503", is_target_busy=True),
    "down": Delivery("HTTP 429", is_target_down=True, retry_after=5.0),
    "answer lost": Delivery("no answer", is_target_down=True),
}
_ANSWERS = (*("accepted",) * 5, *_DELIVERIES, "bug")

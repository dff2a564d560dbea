"""Deliberate defects in stores and engine (in the core: `sabotage_core`), for a while: a simulation must find each.

A defect is a function that replaces one of the product's, which it gets as `real`. Nothing of the product is edited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from mulligan.core.effects import effects
from mulligan.engine import engine, run_driver
from mulligan.engine.driven_runs import DrivenRuns
from mulligan.engine.heartbeat import HeartbeatSender
from mulligan.engine.task_leasing import TaskSupply
from mulligan.engine.tasks_in_flight import TasksInFlight
from mulligan.errors import StaleLease
from mulligan.ports import Commit
from mulligan.store import breaker_transaction, memory, sqlite_commit
from mulligan.store.clock import ProcessClock
from mulligan.store.memory import MemoryStore
from mulligan.store.memory_tables import MemoryTables
from mulligan.store.sqlite import SqliteStore
from mulligan.store.sqlite_tickets import SQL
from mulligan.testing import simulated_worker

Replacement = Callable[[Any], Any]


class Defect(msgspec.Struct, frozen=True):
    """What is replaced, where, and by what."""

    where: Any
    name: Any
    made: Replacement

    @contextmanager
    def at_work(self) -> Iterator[None]:
        is_item = isinstance(self.where, dict)
        real = self.where[self.name] if is_item else vars(self.where)[self.name]
        put = self.where.__setitem__ if is_item else lambda name, new: setattr(self.where, name, new)
        put(self.name, self.made(real))
        try:
            yield
        finally:
            put(self.name, real)


DEFECTS: dict[str, Defect] = {}


def defect(where: Any, name: Any) -> Callable[[Replacement], Replacement]:
    """Note a defect under the sentence that its function's docstring is."""

    def noted(made: Replacement) -> Replacement:
        assert made.__doc__ is not None
        DEFECTS[made.__doc__] = Defect(where, name, made)
        return made

    return noted


def commits(store: type, **less: Any) -> Replacement:
    """A store's `commit` that writes these fields instead of what it was given."""

    def made(real: Any) -> Any:
        def commit(self: Any, wanted: list[Commit]) -> Any:
            return real(self, [replace(one, **less) for one in wanted])

        return commit

    return made


def _less(store: type, sentence: str, **fields: Any) -> None:
    DEFECTS[sentence] = Defect(store, "commit", commits(store, **fields))


_less(MemoryStore, "a commit forgets its timers", timers=())
_less(MemoryStore, "a commit forgets what it queues", queued=())
_less(MemoryStore, "a commit forgets to tell another run", outgoing=())
_less(MemoryStore, "a commit forgets to tell the child runs", child_reports=())
_less(MemoryStore, "a commit forgets what it stops", stopped=())
_less(MemoryStore, "a commit forgets what its breakers count", counted=())
_less(MemoryStore, "a commit writes the log and not the rows", rows=())
_less(SqliteStore, "the last commit of a round is none", is_last=False)
_less(SqliteStore, "a commit starts no child runs that it was to start", children=())


# -- stores ----------------------------------------------------------------------------------------------------------


@defect(MemoryStore, "commit")
def _(real: Any) -> Any:
    """a message is drained, and who asked gets no answer"""

    def commit(self: MemoryStore, wanted: list[Commit]) -> Any:
        return real(self, [replace(one, drained=[(id_, None) for id_, _ in one.drained]) for one in wanted])

    return commit


@defect(sqlite_commit, "_write_rows")
def _(real: Any) -> Any:
    """on SQLite a row that goes is kept"""

    def write_rows(db: Any, commit: Commit) -> None:
        real(db, replace(commit, rows=[row for row in commit.rows if row[3] is not None]))

    return write_rows


@defect(SQL, "drain")
def _(real: Any) -> Any:
    """on SQLite a message that came meanwhile goes with those that were read"""
    return "DELETE FROM messages WHERE run_id = (SELECT run_id FROM messages WHERE id = ?)"


@defect(SQL, "take_turns")
def _(real: str) -> str:
    """on SQLite the fence does not grow"""
    return real.replace("fence + (holder = '')", "fence")


@defect(SQL, "void_turns")
def _(real: str) -> str:
    """on SQLite the dead keep their turns"""
    return real.replace("holder = ''", "holder = holder", 1)


@defect(SQL, "delete_timers")
def _(real: str) -> str:
    """on SQLite the timers of a round outlive it"""
    return "SELECT ?"


@defect(MemoryTables, "next_ticket")
def _(real: Any) -> Any:
    """every second token is that of the lease before"""

    def next_ticket(self: MemoryTables) -> int:
        return (real(self) + 1) // 2 + 1

    return next_ticket


@defect(MemoryStore, "_free")
def _(real: Any) -> Any:
    """a task is handed out that somebody has"""
    return lambda self: list(self.tables.tasks.values())


@defect(memory, "_take_turn")
def _(real: Any) -> Any:
    """a new holder has the old fence"""

    def take_turn(run: Any, holder: str) -> Any:
        run.fence -= not run.holder
        return real(run, holder)

    return take_turn


@defect(SqliteStore, "_count")
def _(real: Any) -> Any:
    """on SQLite a breaker does not count"""
    return lambda self, db, counted: None


@defect(MemoryStore, "_check")
def _(real: Any) -> Any:
    """a turn is believed that is another's by now"""
    return lambda self, commit: None


@defect(MemoryStore, "expire")
def _(real: Any) -> Any:
    """who is buried keeps one of its leases"""

    def expire(self: MemoryStore, name: str, **given: Any) -> bool:
        kept = self._held(name)[:1]
        is_buried: bool = real(self, name, **given)
        for one in kept if is_buried else ():
            self.tables.tasks[one.task_key] = one
        return is_buried

    return expire


@defect(MemoryStore, "_end")
def _(real: Any) -> Any:
    """a lease ends, and its run is not told"""
    return lambda self, kept, report: self.tables.remove_task(kept)


@defect(MemoryStore, "expire")
def _(real: Any) -> Any:
    """who is buried keeps its turns"""

    def expire(self: MemoryStore, name: str, **given: Any) -> bool:
        held = [run for run in self.tables.runs.values() if run.holder == name]
        is_buried: bool = real(self, name, **given)
        for run in held if is_buried else ():
            run.holder = name
        return is_buried

    return expire


@defect(MemoryStore, "fire_timers")
def _(real: Any) -> Any:
    """a timer is taken down, and nobody is told"""

    def fire_timers(self: MemoryStore, root_run_id: int | None = None, **named: Any) -> int:
        before = set(self.tables.messages)
        count: int = real(self, root_run_id, **named)
        for id_ in set(self.tables.messages) - before:
            del self.tables.messages[id_]
        return count

    return fire_timers


@defect(breaker_transaction, "admission")
def _(real: Any) -> Any:
    """others pass a breaker while its probe is under way"""

    def admission(circuit: Any, guard: Any, now: Any, **told: Any) -> Any:
        found = real(circuit, guard, now, **told)
        return "go" if found == "wait" and circuit.status == "half_open" else found

    return admission


@defect(breaker_transaction, "admission")
def _(real: Any) -> Any:
    """a breaker whose probe was lost is never probed again"""

    def admission(circuit: Any, guard: Any, now: Any, **told: Any) -> Any:
        return real(circuit, guard, now, **{**told, "is_probe_alive": True})

    return admission


@defect(breaker_transaction, "admission")
def _(real: Any) -> Any:
    """more tasks run behind a breaker than may fail before it opens"""

    def admission(circuit: Any, guard: Any, now: Any, **told: Any) -> Any:
        return real(circuit, guard, now, **{**told, "running": 0})

    return admission


@defect(SQL, "insert_child_messages")
def _(real: str) -> str:
    """on SQLite only the first of the child runs is told"""
    return f"{real} LIMIT 1"


@defect(MemoryStore, "report")
def _(real: Any) -> Any:
    """a report counts whose lease is void"""

    def report(self: MemoryStore, token: int, report: Any, *, guard: Any = None) -> None:
        try:
            real(self, token, report, guard=guard)
        except StaleLease:
            self.tables.add_message(next(iter(self.tables.runs)), report)

    return report


# -- the engine ------------------------------------------------------------------------------------------------------


@defect(run_driver.RunDriver, "requeue")
def _(real: Any) -> Any:
    """who takes a run up forgets the tasks that wait"""
    return lambda self, task_key: self.queue.clear()


@defect(engine.Engine, "_lease_tasks")
def _(real: Any) -> Any:
    """an engine never asks the store for tasks"""
    return lambda self: None


@defect(TaskSupply, "has_others")
def _(real: Any) -> Any:
    """a worker that was alone when it last looked takes what belongs to the host of another"""
    return lambda self: not self.is_alone


@defect(TasksInFlight, "_restore")
def _(real: Any) -> Any:
    """after the store was away what runs is started again"""

    def restore(self: TasksInFlight, leases: Any, unwritten: Any) -> None:
        real(self, leases, unwritten)
        self.reserve_and_start(list(leases.values()))

    return restore


@defect(TasksInFlight, "_renew_stale_heartbeat")
def _(real: Any) -> Any:
    """who was kept from his work for long takes it for his own"""

    def renew_stale_heartbeat(self: TasksInFlight, leases: Any) -> None:
        if self.executor is not None:
            self.executor.renew(self._clock.monotonic())

    return renew_stale_heartbeat


@defect(TasksInFlight, "_restore")
def _(real: Any) -> Any:
    """after the store was away what a commit without an answer gave is not started"""

    def restore(self: TasksInFlight, leases: Any, unwritten: Any) -> None:
        known = {*unwritten, *(lease.token for lease in self.executor.running)} if self.executor else set()
        real(self, {token: lease for token, lease in leases.items() if token in known}, unwritten)

    return restore


@defect(run_driver._CARRY_OUT, effects.SetTimer)
def _(real: Any) -> Any:
    """a timer that has passed already is not fired"""

    def set_timer(drive_: Any, pending: Any, effect: Any, now: Any) -> None:
        if effect.due > drive_.state.run.at:
            real(drive_, pending, effect, now)

    return set_timer


@defect(run_driver.RunDriver, "_end")
def _(real: Any) -> Any:
    """a child run ends and tells nobody"""

    def end(self: run_driver.RunDriver, pending: Any, now: Any) -> None:
        pending.is_last = True

    return end


@defect(run_driver.RunDriver, "roll_back")
def _(real: Any) -> Any:
    """a turn that could not be written has forgotten what it was told"""

    def roll_back(self: run_driver.RunDriver) -> None:
        waiting = self.reports.copy()
        real(self)
        self.reports = waiting

    return roll_back


@defect(DrivenRuns, "_pass_on_reports")
def _(real: Any) -> Any:
    """what our own tasks came to goes with a turn that is another's"""
    return lambda self, driver: None


@defect(run_driver.RunDriver, "_is_too_late")
def _(real: Any) -> Any:
    """a task is started though its turn has ended it before"""
    return lambda self, pending, started: False


@defect(run_driver.RunDriver, "_is_stopped_in_time")
def _(real: Any) -> Any:
    """a task is started though its turn has asked it to stop"""
    return lambda self, pending, stop: False


@defect(TasksInFlight, "keep")
def _(real: Any) -> Any:
    """what a run was told when the store went away is forgotten"""
    return lambda self, reports: None


@defect(TasksInFlight, "wait")
def _(real: Any) -> Any:
    """what ends while the store is away is forgotten"""

    def wait(self: TasksInFlight, seconds: float) -> None:
        real(self, seconds)
        self._ended.clear()

    return wait


@defect(simulated_worker, "expire_dead_workers")
def _(real: Any) -> Any:
    """the dead are not buried"""
    return lambda store, look, end_leftovers, **judged: []


@defect(HeartbeatSender, "may_expire_others")
def _(real: Any) -> Any:
    """after an outage the first one back buries all others"""
    return property(lambda self: True)


@defect(HeartbeatSender, "may_expire_others")
def _(real: Any) -> Any:
    """an old heartbeat says nothing to anybody"""
    return property(lambda self: False)


@defect(simulated_worker, "expire_dead_workers")
def _(real: Any) -> Any:
    """who is buried leaves its tasks running"""

    def expire_dead_workers(store: Any, look: Any, end_leftovers: Any, **judged: Any) -> Any:
        return real(store, look, lambda name: None, **judged)

    return expire_dead_workers


@defect(run_driver.RunDriver, "_notices")
def _(real: Any) -> Any:
    """an event is announced to nobody"""
    return lambda self, entries: ()


# -- clocks ----------------------------------------------------------------------------------------------------------


@defect(ProcessClock, "now")
def _(real: Any) -> Any:
    """timers follow the steps of the wall clock"""
    return lambda self: self._read_wall()


@defect(DrivenRuns, "_drive")
def _(real: Any) -> Any:
    """a run whose log is ahead of the clock waits for it"""

    def _drive(self: Any, *args: Any) -> Any:
        found = real(self, *args)
        found.ahead = run_driver.NOT_AHEAD
        self._timers.ahead.clear()
        return found

    return _drive

"""Servers in a simulated cluster: processes that start what schedules say, and send the notices of the outbox.

The table of jobs, the schedules and the sender are real. A server has its own connection and the wall clock of its
host. Not real: the catalogue, which has one workflow, and the network, at whose other end `delivery_checks` listens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from datetime import datetime
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from mulligan.core.model import reports as r
from mulligan.core.model.actions import shell_command
from mulligan.core.model.schedule import Schedule
from mulligan.core.model.workflow import END, NoticeRule, Step, Workflow, encode, version
from mulligan.core.schedules.deciding import Pause, ScheduleState, paused, resumed
from mulligan.errors import StoreUnavailable
from mulligan.ports import NewRun, Store
from mulligan.ports.server_records import Document, NoticeRecord
from mulligan.service.runs.area import Runs
from mulligan.service.runs.changes.answers import ChangeResult
from mulligan.service.runs.changes.changes import Changes
from mulligan.service.runs.changes.prepared_runs import Prepared
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.server import retention
from mulligan.service.server.background_jobs import JOBS, BackgroundJobs
from mulligan.service.server.notices.messages import Delivery as Delivery
from mulligan.service.server.notices.messages import Message as Message
from mulligan.service.server.notices.notices import Notices
from mulligan.service.server.notices.sender import Sender
from mulligan.service.server.notices.targets import Target
from mulligan.service.server.schedules.schedules import SCHEDULE, STATE, Schedules, StoredSchedule
from mulligan.service.server.server_config import RetentionSection, ServerConfig
from mulligan.testing.clock import WallClock

TARGETS = {"ops": Target(webhook="https://ops.example/"), "team": Target(urls=("json://team",), per_minute=2)}

# What the schedule starts.
SCHEDULED = Workflow(
    name="nightly",
    steps=(Step(name="s0", action=shell_command("do it")),),
    end=Step(name=END),
    notify=(NoticeRule(on=("failed", "needs_person"), to=("ops", "team")),),
)

# Asked with a target and a message: what comes of sending it.
Deliver = Callable[[str, Message], Delivery]


class SimulatedServer:
    """One process of a server: its jobs, one after the other, over a connection that may fail."""

    def __init__(self, name: str, host: str, store: Store, clock: WallClock, deliver: Deliver) -> None:
        self.name = name
        self.host = host
        self.frozen_until = 0.0
        self._store = store
        self._clock = clock
        self._deliver = deliver
        self.problems: list[str] = []
        self._jobs = BackgroundJobs(JOBS, self.problems.append, clock.monotonic)
        self._service: _Service | None = None

    def step(self) -> None:
        """Run the jobs that are due. If the store does not answer, everything is opened again, as after a while."""
        if self._service is None:
            self._service = _Service(self._store, self._clock, self._deliver)
        try:
            self._jobs.run_due(cast(Any, self._service))
        except StoreUnavailable:
            self._service = None


class _Service:
    """What the jobs need of `Service`."""

    def __init__(self, store: Store, clock: WallClock, deliver: Deliver) -> None:
        self._store = store
        self._clock = clock
        home = SimpleNamespace(is_there=True, folder=Path("/"), store_url="", is_remote=False)
        self.reader: RunReader = _Reader(cast(Any, home))
        self.reader.store = store
        self.notices = _SimulatedNotices(self.reader, clock, deliver)
        self.schedules = Schedules(self.reader, "server", "", self.now, lambda by, project: self)
        self.catalogue = _Catalogue(store)
        self.changes: Changes = _Changes(self.reader, self.now)
        self.runs = Runs(self.reader, *[cast(Any, None)] * 2)
        self.machine = SimpleNamespace(remove_old=self._remove_old)

    def now(self) -> datetime:
        return self._store.now() or self._clock.now()

    def _remove_old(self, now: datetime) -> datetime:
        removed = retention.remove_old(self._store.server_records, RetentionSection(), now)
        return now + (retention.NEXT_BATCH if removed.is_cut else retention.EVERY)


class _Reader(RunReader):
    """The real one, of a home without files."""

    def keep_lost_numbers(self) -> None:
        pass


class _Changes(Changes):
    """The real one; what it takes from the machine comes from the simulation."""

    def __init__(self, reader: RunReader, now: Callable[[], datetime]) -> None:
        super().__init__(reader, "schedule")
        self._now = now

    def cancel(self, run_id: int, *, now: bool = False, reason: str = "", dry_run: bool = False) -> ChangeResult:
        self.reader.store.put(run_id, r.CancelRequested(self._now(), "schedule", reason, now))
        return ChangeResult(run_id, dry_run, "running", [], [], [], [])

    def _new(self, prepared: Prepared, request: r.RunRequested) -> NewRun:
        new = super()._new(prepared, request)
        uid = prepared.labels.get("schedule_instant", "")
        return msgspec.structs.replace(new, request=msgspec.structs.replace(new.request, at=self._now(), uid=uid))


class _Catalogue:
    """One published workflow: what the schedule of the history starts."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def load(self, name: str, number: int | None = None) -> Workflow:
        return SCHEDULED

    def prepare(
        self, name: str, number: int | None = None, inputs: Mapping[str, Any] = {}, labels: Mapping[str, str] = {}
    ) -> Prepared:
        data = encode(SCHEDULED)
        return Prepared(SCHEDULED, data, version(data), dict(inputs), Path("/"), labels=dict(labels))


class _SimulatedNotices(Notices):
    """The real ones, with targets of our own, and without threads."""

    def __init__(self, reader: RunReader, clock: WallClock, deliver: Deliver) -> None:
        super().__init__(reader, "server", None)
        self._clock = clock
        self._deliver = deliver

    def config(self) -> ServerConfig:
        return ServerConfig(targets=TARGETS)

    @cached_property
    def sender(self) -> Sender:
        return Sender(self._outbox, self._send, clock=self._clock.monotonic, pool=_AtOnce())

    def _send(self, target: Target, message: Message, now: datetime) -> Delivery:
        return self._deliver(message.notices[0].target, message)


class _AtOnce(Executor):
    """Runs what is submitted before `submit` returns."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


# -- what people do --------------------------------------------------------------------------------------------------

SCHEDULE_NAME = "nightly"


def put_schedule(store: Store, schedule: Schedule, now: datetime) -> None:
    """Put a schedule there, as `schedule create` does."""
    data = msgspec.json.encode(StoredSchedule(schedule, now))
    store.server_records.put_document(Document(SCHEDULE, SCHEDULE_NAME, data, now, "someone"), expected=0)


def read_schedule(store: Store) -> tuple[StoredSchedule, ScheduleState] | None:
    """Return the schedule and what it has done so far; None if there is none."""
    found = store.server_records.document("", SCHEDULE, SCHEDULE_NAME)
    if found is None:
        return None
    state = store.server_records.document("", STATE, SCHEDULE_NAME)
    return (
        msgspec.json.decode(found.data, type=StoredSchedule),
        msgspec.json.decode(state.data, type=ScheduleState) if state is not None else ScheduleState(),
    )


def pause_schedule(store: Store, now: datetime) -> ScheduleState:
    """Pause it, as a person does; return its state."""
    return _change(store, lambda state: paused(state, Pause(now, "someone")), now)


def resume_schedule(store: Store, now: datetime) -> ScheduleState:
    return _change(store, lambda state: resumed(state, now), now)


def _change(store: Store, change: Callable[[ScheduleState], ScheduleState], now: datetime) -> ScheduleState:
    document = store.server_records.document("", STATE, SCHEDULE_NAME)
    state = change(msgspec.json.decode(document.data, type=ScheduleState) if document is not None else ScheduleState())
    store.server_records.put_document(Document(STATE, SCHEDULE_NAME, msgspec.json.encode(state), now, "someone"))
    return state


def waiting_notices(store: Store) -> list[NoticeRecord]:
    return store.server_records.notices(status="waiting", limit=1000)

"""A store over HTTP: what a server has, for readers, for verbs and for workers without a database.

Runs are driven by the workers of the server itself: over HTTP nobody takes turns, so that a token for workers can do
nothing but run tasks. A worker leases tasks and reports their ends. What it has to say is gathered and sent with its
next question, so that one round of the engine's loop is one round trip.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import msgspec

from mulligan.core.deciding.workers.breaker import Guard
from mulligan.core.effects.program_history import ProgramHistory
from mulligan.core.model.events import Entry
from mulligan.core.model.reports import ApprovalGiven, Classified, EventSent, Report
from mulligan.errors import InputInvalid, KeyUsed, MulliganError, StoreRefused, StoreUnavailable
from mulligan.ports import (
    NONE_AHEAD,
    Answer,
    AuditRecord,
    Commit,
    CommitResult,
    IdleRuns,
    Lease,
    LoadedRun,
    LogChunk,
    LogKey,
    Message,
    NewRun,
    Offer,
    Poll,
    RunLists,
    ServerRecords,
    StopRequest,
    Store,
    Turn,
    WorkerRecord,
)
from mulligan.store.encoding import entries_containing
from mulligan.store.http.http_artifacts import HttpArtifacts
from mulligan.store.http.http_calls import AskedByName, EndedTask, Found, Sent, WorkDone, answer_decoder
from mulligan.store.http.http_connection import HttpTransport, Transport
from mulligan.store.http.http_records import HttpRecords
from mulligan.store.http.server_login import find_ca_file, find_token

# How many entries of a log are asked for at once when it is searched.
LOG_PAGE = 5_000

# A worker that has talked to the server within this time has its requests to stop.
STOPS_SECONDS = 0.2

# Any other collection is sent as a list.
_encode = msgspec.json.Encoder(enc_hook=list).encode


# What there is nothing of over HTTP: the workers of the server drive runs, and it judges them, with its clock and their
# heartbeats. It checks its schema before each answer, and tells of every change. What each gives in place of an answer.
_NOTHING: Mapping[str, Callable[[], Any]] = {
    **dict.fromkeys(("runs_with_messages", "take_turns", "runs_with_work", "queued_tasks"), list),
    **dict.fromkeys(("has_leases", "expire"), bool),
    **dict.fromkeys(("release", "next_due", "check_schema", "watch_run_ends"), lambda: None),
    "idle_runs": lambda: IdleRuns([], None),
    "fire_timers": int,
}


class HttpStore(AskedByName):
    """The store behind the server at `url`; or, with `transport`, whatever answers its calls.

    What has no method here is asked for by its name.

    `is_worker`: for a process that runs tasks, with a token for workers. It is shared: heartbeats count, and tasks are
    leased.
    """

    is_shared = True
    is_in_place = True

    def __init__(
        self,
        url: str = "",
        *,
        lease_seconds: float = 30.0,
        token: str = "",
        is_worker: bool = False,
        transport: Transport | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(self._call, "", Store)
        scope = "worker" if is_worker else "read"
        self._transport = transport or HttpTransport(
            url, token=token or find_token(url), ca_file=find_ca_file(), scope=scope, monotonic=monotonic
        )
        self._is_worker = is_worker
        self._lease_seconds = lease_seconds
        self._monotonic = monotonic
        self.artifacts = HttpArtifacts(self._transport, self._ask, is_worker=is_worker)
        self.lists = cast(RunLists, AskedByName(self._ask, "lists.", RunLists))
        shipping = (self._gather_logs, self._watched_runs, self._read_own_log) if is_worker else ()
        self.server_records = cast(ServerRecords, HttpRecords(self._ask, *shipping))
        # Answers that came with the report itself, by the id of the message.
        self._answers: dict[int, Answer] = {}
        self._work = _Work()
        # The number of the last change that we know of. None while nobody has asked for changes.
        self._change = -1
        self._is_waiting = False

    def close(self) -> None:
        self._transport.close()

    def _call(self, call: str, /, **arguments: Any) -> Found:  # type: ignore[type-var]
        answer = self._transport.call(call, _encode(arguments))
        try:
            found: Found = answer_decoder(call)(answer)
            return found
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            # A worker that was registered waits for a server of its version.
            kind = StoreUnavailable if self._is_worker and self._work.name else StoreRefused
            raise kind(
                f"the answer of the server cannot be read: {error}",
                hint="use the same version of Mulligan as the server",
            ) from error

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in _NOTHING:
            nothing = _NOTHING[name]
            return lambda *_, **__: nothing()
        return super().__getattr__(name)

    # -- readers -----------------------------------------------------------------------------------------------------

    def load_all(self, run_ids: Collection[int]) -> list[LoadedRun]:
        # Over HTTP nobody drives runs.
        return [self.load(run_id) for run_id in run_ids]

    def search_log(self, run_id: int, any_of: tuple[str, ...], after: int = 0, *, also: str = "{") -> list[Entry]:
        # A server of an earlier version could not search. It is asked for single steps by a person, seldom.
        found: list[Entry] = []
        while page := self.log(run_id, after, LOG_PAGE):
            found += entries_containing(page, any_of, also)
            after = page[-1].seq
        return found

    def tallies(
        self, workflow: str | None = None, since: datetime | None = None, project: str | None = None
    ) -> list[tuple[int, str, str, str, bytes]]:
        """Of the project of the token."""
        return self._ask("tallies", workflow=workflow, since=since)

    def tagged_rows(self, tag: str, limit: int, beside: int | None = None) -> list[tuple[int, str, str, bytes]]:
        if not self._is_worker:
            return self._ask("tagged_rows", tag=tag, limit=limit)
        try:
            return self._ask("work.tagged_rows", tag=tag, limit=limit, beside=beside)
        except InputInvalid:
            # A server of an earlier version does not know the project of a run: nothing is reused.
            return []

    def now(self) -> datetime | None:
        """The time of the server, by which all its workers go."""
        return self._ask("work.now" if self._is_worker else "now")

    # -- changes by other processes ----------------------------------------------------------------------------------

    def queue_mark(self) -> Hashable:
        return object()

    def has_changes(self) -> bool:
        if self._is_worker:
            self._send_what_waits()
        if not self._is_waiting:
            # Nothing was asked yet, so nothing is known.
            self.fileno()
            return True
        try:
            number = self._transport.end_wait()
        except MulliganError:
            # The connection is gone, and its descriptor with it.
            self._is_waiting = False
            raise
        if number is None:
            return False
        self._is_waiting = False
        has_changed, self._change = number != self._change, number
        self.fileno()
        return has_changed

    def version(self) -> str | None:
        """The server tells of changes only those who wait for them."""
        return None

    def fileno(self) -> int | None:
        if not self._is_waiting:
            self._descriptor = self._transport.begin_wait(self._change)
            self._is_waiting = self._descriptor is not None
        return self._descriptor

    # -- verbs -------------------------------------------------------------------------------------------------------

    def create(self, runs: Sequence[NewRun], holder: str = "", *, audit: Sequence[AuditRecord] = ()) -> list[Turn]:
        """Create runs; the server writes the audit itself.

        A run without a key gets one: asking again after a lost answer creates nothing twice.
        """
        if holder:
            raise _no_turns()
        own = [not run.key for run in runs]
        named = [run if run.key else msgspec.structs.replace(run, key=f"http: {os.urandom(16).hex()}") for run in runs]
        try:
            return self._ask("create", runs=named)
        except StoreUnavailable:
            if not all(own):
                # The caller asks again with its key.
                raise
            return [self._created(run) for run in named]

    def _created(self, run: NewRun) -> Turn:
        """The run, created now unless the first request has done it."""
        try:
            created: list[Turn] = self._ask("create", runs=[run])
        except KeyUsed as used:
            return Turn(used.run_id, "", 0)
        return created[0]

    def put(self, run_id: int, report: Report, *, is_asking: bool = False) -> int:
        """Send a report. If it asks for an answer, the server waits for it and sends it back with its own."""
        name = "put_decision" if isinstance(report, Classified | ApprovalGiven) else "put_control"
        name = "put_event" if isinstance(report, EventSent) else name
        sent: Sent = self._ask(name, run_id=run_id, report=report, is_asking=is_asking)
        if sent.answer is not None:
            self._answers[sent.message_id] = sent.answer
        return sent.message_id

    def answer(self, message_id: int) -> Answer | None:
        return self._answers.pop(message_id, None)

    def remove(self, root_run_ids: Collection[int], *, is_forced: bool = False) -> list[int]:
        if is_forced:
            raise StoreRefused(
                "a damaged run is removed where it is",
                hint="run 'mulligan remove' on the host of the server, or ask it: DELETE /api/v1/runs/RUN",
            )
        return self._ask("remove", root_run_ids=[*root_run_ids])

    def skip_run_ids(self, last: int) -> int:
        raise StoreRefused("the numbers of runs are given out where the runs are")

    def records_containing(self, text: str) -> Iterator[tuple[int, bytes]]:
        raise StoreRefused(
            "files that no run refers to can only be looked for where they are",
            hint="run 'mulligan gc' on the host of the server",
        )

    # -- workers -----------------------------------------------------------------------------------------------------

    def register(self, worker: WorkerRecord) -> None:
        # What an earlier worker of this process has gathered is void with its leases.
        self._work = _Work(worker.name)
        self._ask("work.register", worker=worker, lease_seconds=self._lease_seconds)

    def record_heartbeat(self, name: str) -> datetime | None:
        done = self._exchange(name, is_beat=True)
        self._work.watched = done.watched
        return done.now if done.is_alive else None

    def lease(
        self, worker: str, offer: Offer, *, root_run_id: int | None = None, is_guarded: bool = False
    ) -> list[Lease]:
        if root_run_id is not None:
            raise _no_turns()
        return self._exchange(worker, offer=offer).leases

    def report(self, token: int, report: Report, *, guard: Guard | None = None) -> None:
        """Gather the last report of a lease. It is sent with the next exchange, as often as it takes."""
        self._work.ended[token] = EndedTask(token, report, guard)  # type: ignore[arg-type]

    def report_all(self, ended: Sequence[tuple[int, Report, Guard | None]]) -> bool:
        for token, report, guard in ended:
            self.report(token, report, guard=guard)
        return True

    def report_and_lease(
        self,
        worker: str,
        ended: Sequence[tuple[int, Report, Guard | None]],
        offer: Offer,
        *,
        root_run_id: int | None = None,
    ) -> tuple[bool, list[Lease]]:
        return self.report_all(ended), self.lease(worker, offer, root_run_id=root_run_id)

    def stop_requests(self, worker: str) -> list[StopRequest]:
        if self._monotonic() - self._work.exchanged_at >= STOPS_SECONDS:
            self._exchange(worker)
        return self._work.stops

    def leases_of(self, worker: str) -> list[Lease]:
        """The leases of a worker, without those that it has ended: the server may not know of the end yet."""
        self._exchange(worker)
        return self._ask("work.leases_of", worker=worker)

    def ended_runs(self, run_ids: list[int]) -> list[int]:
        """Those of the runs that have ended, or that the server does not have any more."""
        return self._ask("work.ended_runs", run_ids=run_ids)

    def program_history(self, run_id: int, delivered: int) -> ProgramHistory:
        """What a new process of a program replays. A worker may not read the run itself."""
        return self._ask("work.program_history", run_id=run_id, delivered=delivered)

    def content(self, run_id: int, digest: str) -> bytes | None:
        """A file of the published version that a run works with."""
        return self._ask("work.content", run_id=run_id, digest=digest)

    def set_trouble(self, name: str, trouble: str) -> None:
        self._ask("work.set_trouble", worker=name, trouble=trouble)

    def retire(self, name: str) -> None:
        self._exchange(name)
        self._ask("work.retire", worker=name)

    def _gather_logs(self, chunks: Iterable[LogChunk]) -> None:
        for chunk in chunks:
            self._work.logs.append(chunk)
            self._work.log_bytes += len(chunk.data)
            if self._work.log_bytes >= EXCHANGE_BYTES_MAX:
                self._exchange(self._work.name)

    def _read_own_log(self, key: LogKey, start: int, end: int) -> bytes:
        return self._ask("work.read_log", worker=self._work.name, key=key, start=start, end=end)

    def _watched_runs(self) -> list[int]:
        return self._work.watched

    def _send_what_waits(self) -> None:
        """Send what has waited for a whole round of the loop: a worker that is full, or is ending, asks for nothing."""
        work = self._work
        if work.is_waiting and (work.ended or work.logs):
            self._exchange(work.name)
        work.is_waiting = bool(work.ended or work.logs)

    def _exchange(self, worker: str, *, offer: Offer | None = None, is_beat: bool = False) -> WorkDone:
        """One round trip. What was gathered is forgotten once the server has it."""
        work = self._work
        while True:
            ended, logs, is_all = work.next_batch()
            done: WorkDone = self._ask(
                "work.exchange",
                worker=worker,
                ended=ended,
                logs=logs,
                offer=offer if is_all else None,
                is_beat=is_beat,
            )
            work.forget(ended, logs)
            if is_all:
                break
        work.stops, work.exchanged_at, work.is_waiting = done.stops, self._monotonic(), False
        return done

    # -- turns: only the workers of the server have them -------------------------------------------------------------

    def inbox(self, run_ids: Collection[int]) -> list[Message]:
        found: list[Message] = [] if self._is_worker else self._ask("inbox", run_ids=[*run_ids])
        return found

    def commit(self, commits: Sequence[Commit]) -> list[CommitResult]:
        raise _no_turns()

    def poll(
        self,
        worker: str,
        root_run_id: int | None = None,
        *,
        holder: str = "",
        ahead: Mapping[int, timedelta] = NONE_AHEAD,
    ) -> Poll:
        # Over HTTP nobody drives runs.
        return Poll([], [], self.stop_requests(worker), None)


# How much is sent at once: a server takes 4 MiB, and JSON needs a third more for bytes.
EXCHANGE_BYTES_MAX, ENDED_MAX = 1 << 20, 500


class _Work:
    """What a worker has to say to the server, and what it has heard last."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        # By token, until the server has it.
        self.ended: dict[int, EndedTask] = {}
        self.logs: list[LogChunk] = []
        self.log_bytes = 0
        self.stops: list[StopRequest] = []
        # The runs whose logs somebody reads while they are written.
        self.watched: list[int] = []
        self.exchanged_at = float("-inf")
        # Whether something was here already in the last round of the loop.
        self.is_waiting = False

    def next_batch(self) -> tuple[list[EndedTask], list[LogChunk], bool]:
        """As much as one request may have, logs before the ends of their tasks; and whether that is all."""
        logs: list[LogChunk] = []
        size = 0
        for chunk in self.logs:
            if logs and size + len(chunk.data) > EXCHANGE_BYTES_MAX:
                return [], logs, False
            logs.append(chunk)
            size += len(chunk.data)
        ended: list[EndedTask] = []
        for one in self.ended.values():
            size += len(_encode(one))
            if (ended or logs) and (size > EXCHANGE_BYTES_MAX or len(ended) >= ENDED_MAX):
                return ended, logs, False
            ended.append(one)
        return ended, logs, True

    def forget(self, ended: Iterable[EndedTask], logs: Collection[LogChunk]) -> None:
        for one in ended:
            self.ended.pop(one.token, None)
        self.log_bytes -= sum(len(chunk.data) for chunk in logs)
        del self.logs[: len(logs)]


def _no_turns() -> StoreRefused:
    return StoreRefused(
        "a run of a server is driven by the workers of the server",
        hint="start it without driving it here: mulligan run --detach, or through the API",
    )

"""The calls of a store over HTTP, as a server answers them: for one user, and in the project of a token.

What a caller says about itself is not believed: who has changed something, and when, is filled in here.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from mulligan.core.deciding.report_checks import NUMBER_MAX, check_report, parts
from mulligan.core.deciding.rounds.fork import kept_data, kept_sessions, outdated_approvals, own_kept, worktree_origin
from mulligan.core.deciding.rounds.kept_approvals import refuse_changed_inputs
from mulligan.core.deciding.workers.breaker import Verdict
from mulligan.core.deciding.workers.expiry_permission import HeartbeatSeries, first_heartbeat
from mulligan.core.effects.program_history import ProgramHistory, program_history
from mulligan.core.effects.run_lists import QueuedShape, RunFilter, search_words
from mulligan.core.model.artifacts import Artifact, Format, is_artifact_name, run_id_of
from mulligan.core.model.clusters.shipped_logs import SHIPPED_BYTES_MAX
from mulligan.core.model.graph import Graph
from mulligan.core.model.kept_history import pack_history
from mulligan.core.model.reports import EventSent, LeaseExpired, Report, RetryRequested, RunRequested
from mulligan.core.model.scopes import allows
from mulligan.core.model.workflow import Breaker, decode
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.state.workspace import WORKER_FOLDER
from mulligan.engine.crash_answers import without_content
from mulligan.engine.worker_expiry import expire_dead_workers
from mulligan.errors import (
    CodecError,
    InputInvalid,
    MulliganError,
    NotFound,
    Refused,
    ScopeMissing,
    StoreRefused,
    StoreUnavailable,
    UnknownRun,
    error_by_code,
)
from mulligan.language.expressions import Cel
from mulligan.language.input_values import check_recorded_inputs
from mulligan.language.python.definitions import read_definition
from mulligan.ports import Answer, Lease, NewRun, Offer, RunRecord, Store, Turn, WorkerRecord
from mulligan.ports.server_records import LogChunk, LogKey, TokenRecord
from mulligan.service.home import Home
from mulligan.service.host.object_places import places_of, refuse_foreign_places
from mulligan.service.host.slurm.job_ends import JobEnds
from mulligan.service.logs.log_ranges import watched_runs
from mulligan.service.runs.changes.changes import Changes
from mulligan.service.runs.changes.event_receivers import not_for_this_run, refusal_for_sender
from mulligan.service.runs.changes.foresight import try_report
from mulligan.service.runs.changes.received_runs import check_received
from mulligan.service.runs.changes.run_inbox import ask
from mulligan.service.runs.changes.run_worktrees import pin_origin
from mulligan.service.runs.changes.starting import check_key
from mulligan.service.runs.stored.past_states import PastStates
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.server.logins import owner_of
from mulligan.service.server.remote_run_folders import ASKED_MAX
from mulligan.service.server.worker_owners import WorkerOwners
from mulligan.store.clock import PROCESS_CLOCK
from mulligan.store.http.http_calls import CALL_HEADER as CALL_HEADER
from mulligan.store.http.http_calls import CALLS as CALLS
from mulligan.store.http.http_calls import PROCESS_HEADER as PROCESS_HEADER
from mulligan.store.http.http_calls import PROTOCOL as PROTOCOL
from mulligan.store.http.http_calls import PROTOCOL_HEADER as PROTOCOL_HEADER
from mulligan.store.http.http_calls import WAIT_SECONDS as WAIT_SECONDS
from mulligan.store.http.http_calls import (
    ControlReport,
    DecisionReport,
    EndedTask,
    Sent,
    WorkDone,
    arguments_type,
)
from mulligan.worker.supervisor.processes import kill_worker_processes
from mulligan.worker.work_folders import FOLDERS_MAX

# The largest artifact: what a worker of a shared store may keep.
UPLOAD_BYTES_MAX = 256 << 20
# Its name, and each part of it: a file system has 255, and a name that is taken gets a number.
ARTIFACT_NAME_CHARS_MAX, ARTIFACT_PART_CHARS_MAX = 1000, 240
# Which process this is, for callers that ask again.
PROCESS = os.urandom(8).hex()
# How many answers to changes are remembered, and how long a repeated call waits for the first.
ANSWERS_MAX, FIRST_SECONDS_MAX = 2_000, 30.0
# How long workers do not hear of a change that is not about the queue.
OTHER_CHANGES_SECONDS = 0.1
# How many ids or keys one question may have, and how much a filter of runs may name. An id is looked up once.
QUESTION_IDS_MAX, FILTER_VALUES_MAX = 100_000, 1_000
# How long the id of a change may be: the last ones are remembered.
CALL_ID_CHARS_MAX = 100
# How much of a log one answer has.
LOG_BYTES_MAX = 1 << 20
# What a client may count: pilots of a profile, see `service/slurm`.
JOB_BREAKER = re.compile(r"slurm:[A-Za-z0-9_-]{1,40}")
BREAKER_FAILURES_MAX, BREAKER_SECONDS_MAX = 1_000, 86_400.0
SHAPE_MAX, MESSAGE_CHARS_MAX = 2**62, 2_000
# What a worker may say about itself, and how many tasks it may have at once.
WORKER_CHARS_MAX, WORKER_LABELS_MAX, FOLDER_CHARS_MAX, OFFERED_MAX = 300, 200, 5_000, 10_000
_encode = msgspec.json.Encoder().encode
# The arguments with values of workflows, which are checked as such.
_CONTENT = frozenset(("runs", "report", "ended"))
# Those that are lists of what is asked about.
_ASKED = frozenset(("run_ids", "root_run_ids", "keys"))
_LONG_NUMBER = re.compile(rb"\d{19}|\d[eE]")
_WITHOUT_ZONE = re.compile(rb'"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(?::\d\d(?:\.\d*)?)?"')


class UploadedFile(NamedTuple):
    """A body that was written to disk."""

    path: str
    size: int
    sha256: str


class StoreCalls:
    """Answers calls in the name of `changes.by`, limited to what a token may do."""

    def __init__(self, changes: Changes, token: TokenRecord | None = None, judge: HeartbeatJudge | None = None) -> None:
        self._changes = changes
        self._reader: RunReader = changes.reader
        self._token = token
        self._judge = judge or JUDGE

    def for_token(self, token: TokenRecord) -> StoreCalls:
        return StoreCalls(self._changes, token, self._judge)

    @property
    def _store(self) -> Store:
        return self._reader.store

    @property
    def _owners(self) -> WorkerOwners:
        return WorkerOwners(self._reader, self._token)

    def answer(
        self, scope: str, name: str, body: bytes, *, protocol: str, call_id: str = "", process: str = ""
    ) -> bytes:
        """The answer to the call of that name, which has to belong to the scope.

        A change with the id of an earlier one is not carried out again: it gets the same answer, if this is the process
        that was asked then.
        """
        refuse_other_protocol(protocol)
        call = CALLS.get(name)
        if call is None or call.scope != scope:
            raise NotFound(f"a store has no call '{name}' for '{scope}'", hint="use the same version as the server")
        arguments = _without_repeats(_read(name, body))
        if len(call_id) > CALL_ID_CHARS_MAX:
            raise InputInvalid(f"the id of a call has at most {CALL_ID_CHARS_MAX} characters", hint="use a shorter one")
        if process and process != PROCESS:
            raise StoreUnavailable(
                "the server was started again while it worked on the request",
                hint="it is unknown whether the last change took effect: look at the run before you repeat it",
            )
        if not call_id or not call.is_change:
            return self._perform(name, arguments)
        # Nobody gets the answer to a call of somebody else.
        asked_by = owner_of(self._token.id) if self._token is not None else ""
        digest = hashlib.sha256(body).digest()
        return ANSWERED.once(f"{asked_by}/{name}/{call_id}", lambda: self._perform(name, arguments), digest)

    def _perform(self, name: str, arguments: Mapping[str, Any]) -> bytes:
        own: Callable[..., Any] | None = _OWN.get(name)
        if own is not None:
            result = own(self, **arguments)
        else:
            part, _, method = name.rpartition(".")
            target = getattr(self._store, part) if part else self._store
            result = getattr(target, method)(**self._in_project(arguments))
        return bytes(result) if CALLS[name].answer is bytes else _encode(result)

    def _in_project(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments, with the project of the token in place of the one that is asked for."""
        if "project" not in arguments or self._token is None or self._token.project is None:
            return arguments
        return {**arguments, "project": self._token.project}

    # -- verbs -------------------------------------------------------------------------------------------------------

    def _now(self) -> datetime:
        return self._store.now() or datetime.now(UTC)

    def _workers(self) -> list[WorkerRecord]:
        """The workers, as they are seen from the server: only here can their locks be read."""
        return [self._seen(worker) for worker in self._store.workers()]

    def _seen(self, worker: WorkerRecord) -> WorkerRecord:
        is_alive = self._reader.is_alive(worker)
        # The workers of a file send no heartbeats: whoever holds its lock is seen now.
        beat_at = self._now() if is_alive and not self._store.is_shared else worker.beat_at
        return replace(worker, lock="", is_expired=not is_alive, beat_at=beat_at)

    def _find(self, wanted: RunFilter, before: int | None, limit: int) -> list[RunRecord]:
        return self._store.lists.find(_with_words(wanted), before=before, limit=limit)

    def _count(self, wanted: RunFilter, limit: int) -> int:
        return self._store.lists.count(_with_words(wanted), limit=limit)

    def _create(self, runs: list[NewRun]) -> list[Turn]:
        now = self._now()
        checked = check_received(self._reader, runs, self._refuse_workflow)
        return self._store.create(
            [
                replace(
                    run,
                    request=replace(
                        self._own_history(run),
                        at=now,
                        by=self._changes.by,
                        notify=self._changes.rules_with(run.request.notify),
                    ),
                )
                for run in checked
            ]
        )

    def _own_history(self, run: NewRun) -> RunRequested:
        """A fork at an event begins with what our own log says. Whoever starts it decides by another call.

        It works where its run did; any other run in the folder that each worker has.
        """
        request = run.request
        if request.decision is not None:
            raise InputInvalid(
                "a fork of a run of a server decides nothing by itself", hint="decide when it is started"
            )
        if request.forked_from is None:
            return replace(request, history=None, forked_at=0, worktree=None, cwd=WORKER_FOLDER)
        if not request.history:
            return self._own_results(run, replace(request, history=None))
        run_id, seq, past = request.forked_from, request.forked_at, PastStates(self._reader)
        old = past.at(run_id, seq).state
        if old.run.status in RUN_ENDED or old.run.stop is not None or not past.is_at_rest(run_id, seq):
            raise Refused(
                f"run {run_id} cannot be continued from event {seq}", hint="use the same version as the server"
            )
        if request.has_inputs:
            refuse_changed_inputs(old, request.inputs)
        origin = pin_origin(worktree_origin(old), request.uid)
        # Its results are those of the log.
        request = replace(request, kept=(), stale=(), data={}, sessions={})
        history = pack_history(islice(self._reader.events(run_id), seq))
        return replace(request, history=history, worktree=origin, cwd=old.run.cwd)

    def _own_results(self, run: NewRun, request: RunRequested) -> RunRequested:
        """A fork from a step keeps the results that our own log has, and no approval that was for something else."""
        assert request.forked_from is not None
        old = self._reader.state(request.forked_from)
        if request.forked_at:
            old = PastStates(self._reader).at(request.forked_from, request.forked_at).state
        graph = Graph(decode(run.workflow))
        request = self._own_worktree(old, replace(request, forked_at=0, cwd=old.run.cwd))
        kept = tuple(own_kept(old, graph, request.kept))
        request = replace(request, kept=kept, data=kept_data(old, kept), sessions=kept_sessions(old, kept))
        for name, why in outdated_approvals(old, graph, request.inputs, {one.step for one in request.kept}).items():
            raise Refused(
                f"'{name}' of run {request.forked_from} cannot be kept, since a person has to be asked again: {why}",
                hint="use the same version of Mulligan as the server",
                step=name,
            )
        return request

    def _own_worktree(self, old: State, request: RunRequested) -> RunRequested:
        """A fork copies the worktree that our own log names, also if its client is too old to say so."""
        opens = "" if old.workflow.workspace is None else old.workflow.workspace.opens
        is_copied = request.worktree is not None or any(one.step == opens for one in request.kept)
        origin = pin_origin(worktree_origin(old), request.uid) if is_copied else None
        return replace(request, kept=tuple(one for one in request.kept if one.step != opens), worktree=origin)

    def _put(self, run_id: int, report: ControlReport | DecisionReport | EventSent, is_asking: bool) -> Sent:
        self._refuse_workflow(self._reader.record(run_id).workflow)
        self._refuse_code(report)
        if isinstance(report, RetryRequested) and report.revised is not None:
            # The digest is that of a file of the caller's host: nobody has the server open a file by its path.
            report = replace(report, revised=replace(report.revised, digest=""))
        named: Report = replace(report, at=self._now(), by=self._changes.by)
        check_report(named)
        if isinstance(report, RetryRequested) and report.revised is not None:
            # A corrected definition that could not be started either is refused, and so are inputs that do not fit it.
            workflow, _ = read_definition(msgspec.json.encode(report.revised.definition))
            check_recorded_inputs(workflow, report.revised.inputs, Cel(os.environ, self._store.artifacts.fetch))
        if not is_asking:
            # The run may be another when it takes it up, so that it decides. What no run can process is refused here.
            with suppress(Refused, NotFound, CodecError):
                try_report(self._reader, run_id, named)
            return Sent(self._store.put(run_id, named))
        return Sent(*ask(self._reader, run_id, named))

    def _put_event(self, run_id: int, report: EventSent, is_asking: bool) -> Sent:
        if report.key:
            check_key(report.key)
        if self._token is None or allows(self._token.scopes, "read"):
            return self._put(run_id, report, is_asking)
        if (limits := self._token.limits.workflows) and self._reader.record(run_id).workflow not in limits:
            raise not_for_this_run()
        try:
            sent = self._put(run_id, report, is_asking)
        except MulliganError as error:
            raise refusal_for_sender(error) from None
        if sent.answer is None or not sent.answer.error:
            return sent
        shown = refusal_for_sender(error_by_code(sent.answer.error)(sent.answer.message, hint=sent.answer.hint))
        return Sent(sent.message_id, Answer(shown.code, shown.message, shown.hint))

    def _count_outcome(self, name: str, rules: Breaker, verdict: Verdict) -> None:
        """Only breakers of jobs: those that workflows declare count what their tasks report."""
        if not JOB_BREAKER.fullmatch(name):
            raise InputInvalid("a client counts outcomes of jobs alone", hint="their breakers are called slurm:PROFILE")
        if not (1 <= rules.failures <= BREAKER_FAILURES_MAX and 1.0 <= rules.reset <= BREAKER_SECONDS_MAX):
            raise InputInvalid("these are no rules of a breaker", hint="use the same version of Mulligan as the server")
        self._store.count_outcome(name, rules, verdict)

    def _refuse_queued(self, shape: QueuedShape, message: str, project: str | None) -> int:
        if max(shape.memory, shape.gpus, shape.nodes) > SHAPE_MAX or len(message) > MESSAGE_CHARS_MAX:
            raise InputInvalid("no task can ask for this", hint="use the same version of Mulligan as the server")
        own = self._token.project if self._token is not None and self._token.project is not None else project
        return self._store.refuse_queued(shape, message, own)

    def _refuse_code(self, report: Report) -> None:
        """Refuse a corrected workflow from a token that may not send code."""
        is_code = isinstance(report, RetryRequested) and report.revised is not None
        if is_code and self._token is not None and not {"write", "admin"} & set(self._token.scopes):
            raise ScopeMissing(
                "this token has no scope 'write', which a corrected workflow needs: it is code",
                hint="retry without the file, or use a token that has it",
                scope="write",
            )

    def _refuse_workflow(self, name: str) -> None:
        """Refuse a workflow that the token is not for."""
        allowed = self._token.limits.workflows if self._token is not None else ()
        if allowed and name not in allowed:
            known = ", ".join(f"'{one}'" for one in allowed)
            raise Refused(f"this token is not for the workflow '{name}'", hint=f"it is for: {known}")

    # -- workers -----------------------------------------------------------------------------------------------------

    def _register(self, worker: WorkerRecord, lease_seconds: float) -> None:
        """Register a worker of another host. Where hosts do not share the store, its lock can be seen by nobody."""
        seconds = self._reader.home.lease_seconds
        if lease_seconds != seconds:
            raise CallRefused(
                f"the lease of this worker is {lease_seconds:g}s, and that of the server {seconds:g}s",
                hint=f"start the worker with MULLIGAN_LEASE={seconds:g}s",
            )
        _check_worker(worker)
        known = next((one for one in self._store.workers() if one.name == worker.name), None)
        if known is not None and (
            (known.host, known.pid) != (worker.host, worker.pid) or not self._owners.is_owned(worker.name)
        ):
            raise Refused(f"there is a worker '{worker.name}' already", hint="a worker has a name of its own")
        if known is None:
            self._owners.expect_free(worker.name)
            self._owners.add(worker.name)
        # Nor is a path that it names looked at: its heartbeats say whether it is alive.
        said = replace(worker, lock="", is_expired=False, trouble=worker.trouble[:MESSAGE_CHARS_MAX])
        self._store.register(replace(said, started_at=self._now(), beat_at=None))

    def _exchange(
        self, worker: str, ended: list[EndedTask], logs: list[LogChunk], offer: Offer | None, is_beat: bool
    ) -> WorkDone:
        """Take results and logs, and give leases and requests to stop. An end that is already known changes nothing."""
        store = self._store
        if offer is not None:
            _check_offer(offer)
        if not self._owners.is_owned(worker) and worker not in {one.name for one in store.workers()}:
            # It has expired, and is not remembered any more.
            return WorkDone(False, self._now())
        self._owners.expect(worker)
        held = {lease.token: lease.task for lease in store.leases_of(worker)} if ended or logs else {}
        if logs:
            running = {(task.run_id, task.place, task.attempt) for task in held.values()}
            store.server_records.append_log(self._own_logs(worker, logs, running))
        # An end that does not belong to the lease is not reported: a worker says nothing about the tasks of others.
        tasks = ((one, held[one.token]) for one in ended if one.token in held)
        known = [
            (one.token, self._own_report(worker, one.report), task.guard)
            for one, task in tasks
            if (task.place, task.attempt) == (one.report.place, one.report.attempt)
        ]
        # A time that is not that of a heartbeat sets no clock.
        now = datetime.now(UTC)
        taken_at = self._judge.take(store, worker, self._reader.home.lease_seconds) if is_beat else now
        leases: list[Lease] = []
        if offer is not None:
            # A worker that has expired gets none.
            _, leases = store.report_and_lease(worker, known, offer)
        elif known:
            store.report_all(known)
        watched = watched_runs(store.server_records, now) if is_beat else []
        return WorkDone(
            taken_at is not None, taken_at or now, self._handed_out(leases), store.stop_requests(worker), watched
        )

    def _handed_out(self, leases: Sequence[Lease]) -> list[Lease]:
        """The leases for a worker elsewhere. What an older version has started works in the folder of this home."""
        here = self._reader.home.folders.work
        found = []
        for lease, place in zip(leases, places_of(self._store, [lease.task for lease in leases]), strict=True):
            home = WORKER_FOLDER if lease.task.home == here else lease.task.home
            is_other = place or home != lease.task.home
            found.append(replace(lease, task=replace(lease.task, home=home, objects=place)) if is_other else lease)
        return found

    def _own_report(self, worker: str, report: Report) -> Report:
        """The last report of a task. What makes no sense in it fails the attempt, so that the worker can go on."""
        if isinstance(report, LeaseExpired):
            report = replace(report, worker=worker)
        over_http = "it came from a worker over HTTP"
        return without_content(report, over_http, partial(refuse_foreign_places, self._store)) or report

    def _own_logs(self, worker: str, logs: list[LogChunk], running: Collection[tuple[int, str, int]]) -> list[LogChunk]:
        """The pieces of logs of attempts that run here, or that a worker of the same owner has left when it died.

        That it says to be on the same host is not enough: anybody could say so.
        """
        host = next((one.host for one in self._store.workers() if one.name == worker), "")
        allowed: dict[tuple[int, str, int], bool] = {}
        for key in dict.fromkeys((one.key.run_id, one.key.place, one.key.attempt) for one in logs):
            allowed[key] = key in running or self._was_left(host, *key)
        return [
            one
            for one in logs
            if allowed[one.key.run_id, one.key.place, one.key.attempt]
            and 0 <= one.start <= SHIPPED_BYTES_MAX - len(one.data)
        ]

    def _was_left(self, host: str, run_id: int, place: str, attempt: int) -> bool:
        try:
            started = self._reader.started_attempt(run_id, place, attempt)
        except (UnknownRun, CodecError):
            return False
        return started is not None and started.host == host != "" and self._owners.is_owned(started.worker)

    # -- logs --------------------------------------------------------------------------------------------------------

    def _read_log(self, key: LogKey, start: int, end: int) -> bytes:
        """What is in the files of this host, or was shipped to the store."""
        self._reader.record(key.run_id)
        start = max(start, 0)
        return self._reader.log_ranges.read(key, start, min(end, start + LOG_BYTES_MAX)) if start < end else b""

    def _log_size(self, key: LogKey) -> tuple[int, bool] | None:
        self._reader.record(key.run_id)
        found = self._reader.log_ranges.size(key)
        return (found.size, found.is_whole) if found is not None else None

    def _watch_logs(self, run_id: int) -> None:
        self._reader.record(run_id)
        self._reader.log_ranges.watch(run_id)

    def _earlier_results(self, tag: str, limit: int, beside: int | None) -> list[tuple[int, str, str, bytes]]:
        """Results in the project of a run. A worker of an earlier version does not say for which run it asks."""
        if beside is None and (self._token is None or self._token.project is None):
            return []
        return self._store.tagged_rows(tag, limit, beside)

    def _leases_of(self, worker: str) -> list[Lease]:
        self._owners.expect(worker)
        return self._handed_out(self._store.leases_of(worker))

    def _ended_runs(self, run_ids: list[int]) -> list[int]:
        """Of which runs a worker may remove its files: those that have ended, or are not in its project any more."""
        if len(run_ids) > ASKED_MAX:
            raise InputInvalid(f"a worker asks about at most {ASKED_MAX} runs at once", hint="ask in parts")
        going = {one.run_id for one in self._store.lists.records(run_ids) if one.status not in RUN_ENDED}
        return [run_id for run_id in run_ids if run_id not in going]

    def _read_own_log(self, worker: str, key: LogKey, start: int, end: int) -> bytes:
        """Of an attempt that this worker carries out."""
        self._owners.expect(worker)
        leased = {(one.task.run_id, one.task.place, one.task.attempt) for one in self._store.leases_of(worker)}
        return self._read_log(key, start, end) if (key.run_id, key.place, key.attempt) in leased else b""

    def _program_history(self, run_id: int, delivered: int) -> ProgramHistory:
        return program_history(self._reader.state(run_id), delivered)

    def _set_trouble(self, worker: str, trouble: str) -> None:
        self._owners.expect(worker)
        self._store.set_trouble(worker, trouble[:MESSAGE_CHARS_MAX])

    def _retire(self, worker: str) -> None:
        self._owners.expect(worker)
        self._store.retire(worker)
        self._owners.remove(worker)

    def keep_artifact(self, name: str, format: Format, file: UploadedFile, *, protocol: str) -> str:
        """Keep what a worker uploads. The name that it got."""
        refuse_other_protocol(protocol)
        _check_name(name)
        # `UnknownRun` for a run of another project.
        self._store.run(run_id_of(name))
        with open(file.path, "rb") as written:
            os.fsync(written.fileno())
        return self._store.artifacts.keep_file(Artifact(name, file.size, file.sha256, format), file.path).name

    def _fetch(self, artifact: Artifact) -> bytes:
        _check_name(artifact.name)
        refuse_foreign_places(self._store, [artifact.place] if artifact.place else [])
        return self._store.artifacts.fetch(artifact)


_OWN: Mapping[str, Callable[..., Any]] = {
    "server_records.read_log": StoreCalls._read_log,
    "server_records.log_size": StoreCalls._log_size,
    "server_records.watch_logs": StoreCalls._watch_logs,
    "now": StoreCalls._now,
    "lists.find": StoreCalls._find,
    "lists.count": StoreCalls._count,
    "workers": StoreCalls._workers,
    "create": StoreCalls._create,
    "put_control": StoreCalls._put,
    "count_outcome": StoreCalls._count_outcome,
    "refuse_queued": StoreCalls._refuse_queued,
    "put_decision": StoreCalls._put,
    "put_event": StoreCalls._put_event,
    "work.register": StoreCalls._register,
    "work.exchange": StoreCalls._exchange,
    "work.leases_of": StoreCalls._leases_of,
    "work.ended_runs": StoreCalls._ended_runs,
    "work.set_trouble": StoreCalls._set_trouble,
    "work.retire": StoreCalls._retire,
    "work.now": StoreCalls._now,
    "work.tagged_rows": StoreCalls._earlier_results,
    "work.fetch": StoreCalls._fetch,
    "work.read_log": StoreCalls._read_own_log,
    "work.program_history": StoreCalls._program_history,
    "artifacts.fetch": StoreCalls._fetch,
}


def _without_repeats(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with each id or key once: a store answers for each that is named, as often as it is named."""
    for field in _ASKED.intersection(arguments):
        arguments[field] = [*dict.fromkeys(arguments[field])]
        if len(arguments[field]) > QUESTION_IDS_MAX:
            raise InputInvalid(f"a question is about at most {QUESTION_IDS_MAX:,} things at once", hint="ask in parts")
    if len(arguments.get("statuses", ())) > FILTER_VALUES_MAX:
        raise _too_many_values()
    return arguments


def _too_many_values() -> InputInvalid:
    return InputInvalid(f"a filter of runs names at most {FILTER_VALUES_MAX:,} values", hint="ask for fewer")


def _with_words(wanted: RunFilter) -> RunFilter:
    """The filter with words as an index has them. Others mean something else to it."""
    if sum(len(one) for one in msgspec.structs.astuple(wanted) if isinstance(one, tuple)) > FILTER_VALUES_MAX:
        raise _too_many_values()
    return replace(wanted, words=search_words(wanted.words))


def gives_bytes(name: str) -> bool:
    """Whether the answer to this call is bytes as they are, and not JSON."""
    return CALLS[name].answer is bytes


def _read(name: str, body: bytes) -> dict[str, Any]:
    try:
        read = msgspec.json.decode(body, type=arguments_type(name))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputInvalid(
            f"the arguments of '{name}' cannot be read: {error}", hint="use the same version of Mulligan as the server"
        ) from None
    # They are looked through only where there may be something.
    if b"\\u" in body or _WITHOUT_ZONE.search(body) or _LONG_NUMBER.search(body):
        for field in read.__struct_fields__:
            _check_values(name, getattr(read, field), is_content=field in _CONTENT)
    return {field: getattr(read, field) for field in read.__struct_fields__}


def _check_values(name: str, value: Any, *, is_content: bool) -> None:
    """Refuse a time without a zone, which no time of a log can be compared with, and what no database has.

    Inputs of runs and results of tasks may have that: their texts and numbers are not columns.
    """
    found = [value]
    for one in found:
        if isinstance(one, datetime):
            if one.tzinfo is None:
                hint = "write it like 2026-01-31T09:30:00Z"
                raise InputInvalid(f"a time in the arguments of '{name}' has no zone", hint=hint)
        elif isinstance(one, str):
            if "\0" in one and not is_content:
                raise InputInvalid(f"the arguments of '{name}' contain a NUL character", hint="remove it")
        elif isinstance(one, int):
            if abs(one) > NUMBER_MAX and not is_content:
                raise InputInvalid(f"a number in the arguments of '{name}' is too large", hint="use a smaller one")
        else:
            found += parts(one)


def _check_worker(worker: WorkerRecord) -> None:
    """Refuse a worker that says more about itself than others can read. Nor is a name printed that is none."""
    texts = (worker.name, worker.host, worker.version)
    if not worker.name or not all(len(one) <= WORKER_CHARS_MAX and one.isprintable() for one in texts):
        raise InputInvalid("this is not a name of a worker", hint=f"one line of at most {WORKER_CHARS_MAX} characters")
    if worker.job is not None and len(_encode(worker.job)) > MESSAGE_CHARS_MAX:
        raise InputInvalid("this is not a job of a scheduler", hint="use the same version of Mulligan as the server")
    _check_labels(worker.labels)


def _check_offer(offer: Offer) -> None:
    """Refuse an offer that takes long to compare with what is queued."""
    if len(offer.lacks) > FOLDERS_MAX or any(len(one) > FOLDER_CHARS_MAX for one in offer.lacks):
        raise InputInvalid(f"a worker names at most {FOLDERS_MAX} folders that it lacks", hint="name the newest ones")
    if len(offer.refused_cpus) > OFFERED_MAX:
        raise InputInvalid("these are too many numbers of processors", hint="offer fewer")
    if offer.tasks_max + offer.ahead > OFFERED_MAX:
        raise InputInvalid(f"a worker has at most {OFFERED_MAX:,} tasks at once", hint="start several workers")
    _check_labels(offer.labels)


def _check_labels(labels: Sequence[str]) -> None:
    if len(labels) > WORKER_LABELS_MAX or any(len(one) > WORKER_CHARS_MAX for one in labels):
        raise InputInvalid(f"a worker has at most {WORKER_LABELS_MAX} labels", hint="use fewer and shorter ones")


def _check_name(name: str) -> None:
    """Refuse a name that is not one of an artifact: it might lead out of the folder of artifacts."""
    is_long = len(name) > ARTIFACT_NAME_CHARS_MAX or max(map(len, name.split("/"))) > ARTIFACT_PART_CHARS_MAX
    if is_long or not is_artifact_name(name) or not run_id_of(name):
        raise InputInvalid("this is not a name of an artifact", hint="write it like 17/build/1/2/output.json")


class CallRefused(StoreRefused):
    """A protocol or a lease that is not that of this server: the message is for the caller."""

    http_status = 400


def refuse_other_protocol(protocol: str) -> None:
    """Refuse a caller that speaks another version of these calls."""
    if protocol != str(PROTOCOL):
        said = f"version {protocol}" if protocol else "no version"
        raise CallRefused(
            f"the server speaks version {PROTOCOL} of the protocol for stores, and this Mulligan {said}",
            hint="use the same version of Mulligan here and on the server",
        )


class ChangeCounts(NamedTuple):
    """Numbers that differ from the last ones if something was written in between: anything, and work for workers."""

    changes: int
    work: int


class ChangeCounter:
    """Counts the changes of a store, over a connection of its own, since each connection hears of a change once.

    A worker is not woken by the changes of the others, each of which it would answer with a question: it hears at once
    of queued tasks and of requests to stop, and of everything else, which may concern it too, after a moment.
    """

    def __init__(self, home: Home, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = home.open()
        self._monotonic = monotonic
        # Another process counts from another number, so that nobody takes one count for the other.
        self._changes = self._work = int.from_bytes(os.urandom(4), "big")
        self._mark = self._store.queue_mark()
        # Whether workers have not heard of a change yet, and when they last heard of one.
        self._is_owed = False
        self._worked_at = float("-inf")

    def read(self) -> ChangeCounts:
        has_changes = self._store.has_changes()
        mark = self._store.queue_mark() if has_changes else self._mark
        self._changes += has_changes
        self._is_owed = self._is_owed or has_changes
        now = self._monotonic()
        if mark != self._mark or (self._is_owed and now - self._worked_at >= OTHER_CHANGES_SECONDS):
            self._work += 1
            self._mark, self._is_owed, self._worked_at = mark, False, now
        return ChangeCounts(self._changes, self._work)

    def close(self) -> None:
        self._store.close()


class HeartbeatJudge:
    """Takes the heartbeats of workers, and expires those that send none: perhaps nobody else does, beside the store.

    After an outage of the store, or of the server, all heartbeats are old although the workers are alive. So it judges
    nobody unless it has taken heartbeats for a whole lease. Locks are left to the workers on their hosts.
    """

    def __init__(
        self,
        elapsed: Callable[[], float] = PROCESS_CLOCK.elapsed,
        kill_leftovers: Callable[[str], object] = kill_worker_processes,
    ) -> None:
        self._elapsed = elapsed
        self._kill_leftovers = kill_leftovers
        self._job_ends = JobEnds()
        self._lock = threading.Lock()
        self._series: HeartbeatSeries | None = None

    def take(self, store: Store, worker: str, lease_seconds: float) -> datetime | None:
        """Record a heartbeat of this worker: when. None if it has expired."""
        sent = self._elapsed()
        taken_at = store.record_heartbeat(worker)
        if self._may_expire_others(sent, lease_seconds):
            expire_dead_workers(store, lambda _: "unknown", self._kill_leftovers, ask_jobs=self._job_ends.ask)
        return taken_at

    def _may_expire_others(self, sent: float, lease_seconds: float) -> bool:
        now = self._elapsed()
        with self._lock:
            before = self._series or first_heartbeat(now)
            self._series = before.after_heartbeat(sent, now, lease_seconds)
            return self._series.may_expire_others(now, lease_seconds)


class AnsweredChanges:
    """The answers to the last changes, by token and id of the call, for callers whose connection broke before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: OrderedDict[str, _Answered] = OrderedDict()

    def once(self, call_id: str, perform: Callable[[], bytes], digest: bytes = b"") -> bytes:
        """What `perform` returns or raises, or has returned or raised for this id. `digest`: of what is asked."""
        with self._lock:
            found = self._answers.get(call_id)
            if found is None:
                mine = self._answers[call_id] = _Answered(digest)
                while len(self._answers) > ANSWERS_MAX:
                    self._answers.popitem(last=False)
        if found is not None and found.digest != digest:
            raise Refused("the id of this call was used for another request", hint="each call has an id of its own")
        if found is not None:
            return found.wait()
        return mine.carry_out(perform)


class _Answered:
    """One change: being carried out, or with its answer."""

    def __init__(self, digest: bytes) -> None:
        self.digest = digest
        self._is_done = threading.Event()
        self._answer = b""
        self._error: MulliganError | None = None

    def carry_out(self, perform: Callable[[], bytes]) -> bytes:
        try:
            self._answer = perform()
        except MulliganError as error:
            self._error = error
            raise
        except BaseException:
            self._error = StoreUnavailable("the server has failed at the request", hint="its log says why")
            raise
        finally:
            self._is_done.set()
        return self._answer

    def wait(self) -> bytes:
        if not self._is_done.wait(FIRST_SECONDS_MAX):
            raise StoreUnavailable("the server still works on the request", hint="ask again later")
        if self._error is not None:
            raise self._error
        return self._answer


ANSWERED = AnsweredChanges()
JUDGE = HeartbeatJudge()

"""What a store may be asked over HTTP: the one table of calls, which the store over HTTP and the server share.

A call is `POST store/SCOPE/NAME` with its arguments as a JSON object. Its answer is the JSON of its result, or bytes as
they are. JSON and not MessagePack: what a store returns then equals what it has stored, also where the two formats
differ (large integers). Two things are no calls of this table: waiting for changes, which takes long, and keeping an
artifact, whose content is the body.

An argument is a question, or the server checks it. What is left to believe is what each caller may decide anyway:

| argument | what the server makes of it |
|---|---|
| ids of runs, keys of rows and logs | those of another project are unknown: `project_view` |
| `project` | that of the token; only a token of all projects names one |
| `kind` of a document | one that a route of the API shows: `ReadableKind` |
| `runs` | checked field by field: the table of `service/received_runs` |
| `report` | `at` and `by` are filled in; no file of the caller is opened; an artifact is one of the project |
| `ended` | a place and an attempt that this worker has leased; the guard is that of the task |
| `name`, `rules`, `verdict` of an outcome | for breakers of jobs, within bounds. Breakers belong to all projects |
| `shape`, `message` | a bounded text, for queued tasks of the project |
| `worker` | has to belong to the user of the token; times are filled in, and no lock that it names is looked at |
| its host, capacity, labels, job; `offer` | its own to say: they decide which tasks of the project it gets |
| `tag`, `beside` | finds results of the project of that run |
| `artifact`, an upload | in the folder of a run of the project; compared with its digest; nothing is replaced |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from inspect import signature
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from mulligan.core.deciding.workers.breaker import Guard, Verdict
from mulligan.core.effects.program_history import ProgramHistory
from mulligan.core.effects.run_lists import (
    Attribute,
    LeasedTask,
    OpenTasks,
    OpenTimer,
    OutcomeCount,
    QueuedShape,
    RunFilter,
)
from mulligan.core.model import reports as r
from mulligan.core.model.artifacts import Artifact
from mulligan.core.model.events import Entry
from mulligan.core.model.workflow import Breaker
from mulligan.ports import (
    Answer,
    BreakerRecord,
    Lease,
    LoadedRun,
    Message,
    NewRun,
    Offer,
    RunRecord,
    StopRequest,
    Turn,
    WaitingPlace,
    WorkerRecord,
)
from mulligan.ports.server_records import (
    AuditRecord,
    Document,
    LogChunk,
    LogKey,
    NoticeRecord,
    NoticeStatus,
    Scope,
    TokenRecord,
    WorkflowVersion,
)

# Grows whenever a call changes so that an older client or server would misunderstand it.
PROTOCOL = 1
PROTOCOL_HEADER = "Mulligan-Protocol"
# The id of a change. The process of the server that has carried it out gives the same answer again.
CALL_HEADER = "Mulligan-Call"
# Which process of the server has answered; in a request, which one has to: another one does not know the call.
PROCESS_HEADER = "Mulligan-Process"
# How long a server waits for changes before it answers that there are none.
WAIT_SECONDS = 20.0

# Reports of people about a run as a whole, and their decisions about a step.
ControlReport = r.CancelRequested | r.PauseRequested | r.ResumeRequested | r.RetryRequested
DecisionReport = r.Classified | r.ApprovalGiven
# What a worker says about the end of a task that was leased to it.
TaskReport = r.TaskEnded | r.TaskInterrupted | r.LeaseExpired


class Sent(msgspec.Struct, frozen=True):
    """A report that was put into an inbox, and the answer of the run if the sender has waited for one."""

    message_id: int
    answer: Answer | None = None


class EndedTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last report of a lease."""

    token: int
    report: TaskReport
    guard: Guard | None = None


class WorkDone(msgspec.Struct, frozen=True):
    """The answer to one round trip of a worker."""

    # False if the worker has expired: its leases are void.
    is_alive: bool
    # With a heartbeat: the time of the store.
    now: datetime
    leases: list[Lease] = []
    stops: list[StopRequest] = []
    # With a heartbeat: the runs whose logs somebody reads while they are written.
    watched: list[int] = []


Found = TypeVar("Found")


class Ask(Protocol):
    """Makes a call of the table. The answer is of the type that is said there, which is the one that is expected."""

    def __call__(self, call: str, /, **arguments: Any) -> Found: ...  # type: ignore[type-var]


class StoreCall(NamedTuple):
    """One call: who may make it, the types of its arguments, and the type of its answer."""

    scope: Scope
    arguments: Mapping[str, Any]
    answer: Any = None
    # Whether it changes something. Then it is never sent again without the id of the first time.
    is_change: bool = False


# What a database can count.
Time = Annotated[datetime, msgspec.Meta(tz=True)]
Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_RUN_IDS = {"run_ids": list[Integer]}
_PAGE = {"before": Integer | None, "limit": Integer}
_NAMED = {"project": str, "name": str}
_LOG = {"key": LogKey}
# The documents that a route of the API shows to the same scope. All others are the server's own: logins, workers.
ReadableKind = Literal["draft", "hooks", "schedule", "schedule_state"]

CALLS: Mapping[str, StoreCall] = {
    # -- reading runs
    "run": StoreCall("read", {"run_id": Integer}, RunRecord),
    "runs": StoreCall("read", {**_PAGE, "statuses": list[str]}, list[RunRecord]),
    "children": StoreCall("read", {"run_id": Integer}, list[RunRecord]),
    "load": StoreCall("read", {"run_id": Integer}, LoadedRun),
    "log": StoreCall("read", {"run_id": Integer, "after": Integer, "limit": Integer | None}, list[Entry]),
    "inbox": StoreCall("read", _RUN_IDS, list[Message]),
    "run_under": StoreCall("read", {"key": str}, int | None),
    "runs_under": StoreCall("read", {"ending": str}, list[tuple[str, int]]),
    "waiting_places": StoreCall("read", {}, list[WaitingPlace]),
    "tallies": StoreCall(
        "read", {"workflow": str | None, "since": datetime | None}, list[tuple[int, str, str, str, bytes]]
    ),
    "recent_rows": StoreCall(
        "read", {"workflow": str, "kind": str, "key": str, "limit": Integer}, list[tuple[int, bytes]]
    ),
    "tagged_rows": StoreCall("read", {"tag": str, "limit": Integer}, list[tuple[int, str, str, bytes]]),
    "breakers": StoreCall("read", {}, list[BreakerRecord]),
    "queued_shapes": StoreCall("read", {"project": str | None}, list[QueuedShape]),
    "workers": StoreCall("read", {}, list[WorkerRecord]),
    "now": StoreCall("read", {}, datetime),
    # -- lists
    "lists.find": StoreCall("read", {"wanted": RunFilter, **_PAGE}, list[RunRecord]),
    "lists.count": StoreCall("read", {"wanted": RunFilter, "limit": Integer}, int),
    "lists.status_counts": StoreCall("read", {}, dict[str, int]),
    "lists.outcome_counts": StoreCall("read", {"since": Time, "until": Time}, list[OutcomeCount]),
    "lists.records": StoreCall("read", _RUN_IDS, list[RunRecord]),
    "lists.attributes": StoreCall("read", _RUN_IDS, list[tuple[int, Attribute]]),
    "lists.rows": StoreCall("read", {**_RUN_IDS, "kind": str, "limit": Integer}, list[tuple[int, str, bytes]]),
    "lists.places": StoreCall("read", {"keys": list[tuple[Integer, str]]}, list[tuple[int, str, bytes]]),
    "lists.open_tasks": StoreCall("read", {"root_run_ids": list[Integer]}, list[OpenTasks]),
    "lists.open_timers": StoreCall("read", {"root_run_ids": list[Integer]}, list[OpenTimer]),
    "lists.leased_tasks": StoreCall("read", {}, list[LeasedTask]),
    "lists.holders": StoreCall("read", {}, list[tuple[str, int, int]]),
    # -- what a server keeps
    "server_records.version": StoreCall("read", {**_NAMED, "number": Integer | None}, WorkflowVersion | None),
    "server_records.versions": StoreCall("read", {**_NAMED, **_PAGE}, list[WorkflowVersion]),
    "server_records.newest_versions": StoreCall(
        "read", {"project": str, "after": str, "limit": Integer}, list[WorkflowVersion]
    ),
    # The manifest and the files of a published version.
    "server_records.content": StoreCall("read", {"project": str, "digest": str}, bytes | None),
    "server_records.missing_contents": StoreCall("write", {"project": str, "digests": list[str]}, list[str]),
    "server_records.document": StoreCall("read", {"project": str, "kind": ReadableKind, "name": str}, Document | None),
    "server_records.documents": StoreCall("read", {"kind": ReadableKind, "project": str | None}, list[Document]),
    "server_records.tokens": StoreCall("admin", {}, list[TokenRecord]),
    "server_records.audit": StoreCall(
        "admin", {"project": str | None, **_PAGE, "who": str, "action": str}, list[AuditRecord]
    ),
    "server_records.notices": StoreCall(
        "read",
        {"status": NoticeStatus | None, "project": str | None, "run_id": Integer | None, **_PAGE},
        list[NoticeRecord],
    ),
    "server_records.read_log": StoreCall("read", {**_LOG, "start": Integer, "end": Integer}, bytes),
    "server_records.log_size": StoreCall("read", _LOG, tuple[int, bool] | None),
    # Somebody reads the logs of a run while they are written.
    "server_records.watch_logs": StoreCall("read", {"run_id": Integer}),
    "server_records.logs_of": StoreCall("read", {"run_id": Integer}, list[LogKey]),
    "artifacts.fetch": StoreCall("read", {"artifact": Artifact}, bytes),
    # -- changing runs
    "create": StoreCall("write", {"runs": list[NewRun]}, list[Turn], is_change=True),
    "put_control": StoreCall(
        "run", {"run_id": Integer, "report": ControlReport, "is_asking": bool}, Sent, is_change=True
    ),
    "put_decision": StoreCall(
        "decide", {"run_id": Integer, "report": DecisionReport, "is_asking": bool}, Sent, is_change=True
    ),
    "put_event": StoreCall("send", {"run_id": Integer, "report": r.EventSent, "is_asking": bool}, Sent, is_change=True),
    "refuse_queued": StoreCall(
        "run", {"shape": QueuedShape, "message": str, "project": str | None}, int, is_change=True
    ),
    "count_outcome": StoreCall("run", {"name": str, "rules": Breaker, "verdict": Verdict}, is_change=True),
    "reset_breaker": StoreCall("run", {"name": str}, bool, is_change=True),
    "remove": StoreCall("admin", {"root_run_ids": list[Integer]}, list[int], is_change=True),
    # -- working
    "work.register": StoreCall("worker", {"worker": WorkerRecord, "lease_seconds": float}, is_change=True),
    # Results, logs and a heartbeat go, leases and requests to stop come. An offer asks for tasks.
    "work.exchange": StoreCall(
        "worker",
        {"worker": str, "ended": list[EndedTask], "logs": list[LogChunk], "offer": Offer | None, "is_beat": bool},
        WorkDone,
        is_change=True,
    ),
    "work.leases_of": StoreCall("worker", {"worker": str}, list[Lease]),
    "work.ended_runs": StoreCall("worker", _RUN_IDS, list[int]),
    "work.set_trouble": StoreCall("worker", {"worker": str, "trouble": str}),
    "work.retire": StoreCall("worker", {"worker": str}, is_change=True),
    "work.now": StoreCall("worker", {}, datetime),
    # The results of the project of the run `beside`. A worker of an earlier version does not say which run it asks for.
    "work.tagged_rows": StoreCall(
        "worker", {"tag": str, "limit": Integer, "beside": Integer | None}, list[tuple[int, str, str, bytes]]
    ),
    "work.fetch": StoreCall("worker", {"artifact": Artifact}, bytes),
    # What a program has written on other hosts, before it goes on with this worker.
    "work.read_log": StoreCall("worker", {"worker": str, **_LOG, "start": Integer, "end": Integer}, bytes),
    # A file of a published version that the run works with.
    "work.content": StoreCall("worker", {"run_id": Integer, "digest": str}, bytes | None),
    # What a new process of a program replays: up to the n-th end of a call.
    "work.program_history": StoreCall("worker", {"run_id": Integer, "delivered": Integer}, ProgramHistory),
}


# What an argument is that older clients do not send.
_MISSING: Mapping[str, tuple[Any]] = {"beside": (None,)}


@cache
def arguments_type(name: str) -> type[msgspec.Struct]:
    """The struct that a body of this call is decoded into. Unknown arguments are refused."""
    fields = [(field, *rest, *_MISSING.get(field, ())) for field, *rest in CALLS[name].arguments.items()]
    return msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True)


@cache
def answer_decoder(name: str) -> Callable[[bytes], Any]:
    """Made at the first use: a command makes a few of the calls. Bytes are sent as they are."""
    answer = CALLS[name].answer
    return bytes if answer is bytes else msgspec.json.Decoder(answer).decode


class AskedByName:
    """The methods of a protocol that are calls of the table, with the same arguments; `group` begins their names."""

    def __init__(self, ask: Ask, group: str, protocol: type) -> None:
        self._ask, self._group, self._protocol = ask, group, protocol

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = self._group + name
        if call not in CALLS:
            raise AttributeError(name)
        method, sent = signature(getattr(self._protocol, name)), CALLS[call].arguments

        def ask(*args: Any, **named: Any) -> Any:
            given = method.bind(self, *args, **named)
            if not given.arguments.keys() <= {"self", *sent}:
                raise TypeError(f"the call '{call}' has no other arguments than {', '.join(sent)}")
            given.apply_defaults()
            return self._ask(call, **{argument: given.arguments[argument] for argument in sent})

        return ask

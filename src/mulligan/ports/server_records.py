"""What a server keeps in the store beside the runs: workflows, documents, tokens, audit, outbox, logs of other hosts.

A *project* is a name space of the store; "" is the first one, which a store without a server has. Names are unique in
a project.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal, Protocol

import msgspec

# -- workflows -------------------------------------------------------------------------------------------------------


class WorkflowVersion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A published text. It is never changed; a new text is a new version."""

    name: str
    # The SHA-256 of the text.
    digest: str
    published_at: datetime
    published_by: str
    # Counts from 1 for each name. The store fills it in.
    number: int = 0
    # "" in lists.
    text: str = ""
    # Whose file it is: one of `formats.FORMATS`.
    format: str = ""
    # Why it was published.
    note: str = ""
    labels: Mapping[str, str] = {}
    project: str = ""


class WorkflowVersions(Protocol):
    """The published workflows."""

    def publish(self, version: WorkflowVersion) -> WorkflowVersion:
        """Add a version; the number is filled in. The newest one, unchanged, if its text is the same."""

    def version(self, project: str, name: str, number: int | None = None) -> WorkflowVersion | None:
        """One version with its text, the newest by default."""

    def versions(self, project: str, name: str, *, before: int | None = None, limit: int = 50) -> list[WorkflowVersion]:
        """The versions of a workflow without their texts, the newest first."""

    def newest_versions(self, project: str, *, after: str = "", limit: int = 100) -> list[WorkflowVersion]:
        """The newest version of each workflow without its text, by name, behind `after`."""


# -- documents -------------------------------------------------------------------------------------------------------


class Document(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text (JSON, mostly) that people or servers change: a draft, a schedule and its state, a hook."""

    kind: str
    name: str
    data: bytes
    updated_at: datetime
    updated_by: str = ""
    # Grows by one with every change; the first is 1. The store fills it in.
    revision: int = 0
    project: str = ""


# The one document of a store that says where its artifacts are, if they are objects: see `service.host.object_places`.
OBJECT_STORE_KIND = "object_store"


class Documents(Protocol):
    """Documents by kind and name, each with a revision that is compared before it is changed."""

    def document(self, project: str, kind: str, name: str) -> Document | None: ...

    def documents(self, kind: str, project: str | None = None) -> list[Document]:
        """All of a kind, of one project or of all, by project and name."""

    def put_document(self, document: Document, *, expected: int | None = None) -> Document:
        """Write it; the revision is filled in. `RevisionMismatch` if the stored one is not at `expected`.

        0 expects that there is none; None overwrites whatever is there.
        """

    def delete_document(self, project: str, kind: str, name: str, *, expected: int | None = None) -> bool:
        """False if there is none. `RevisionMismatch` as above."""


# -- tokens and audit ------------------------------------------------------------------------------------------------

Scope = Literal["read", "send", "run", "decide", "propose", "write", "admin", "worker"]


class TokenLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a token may do less than its scopes say. Empty or None: no limit."""

    workflows: tuple[str, ...] = ()
    decisions_per_hour: int | None = None
    # Those of `core.model.guard_rails.VERDICTS` that it may decide.
    verdicts: tuple[str, ...] = ()
    # How sure a decision about a parked step has to be, from 0 to 1.
    min_confidence: float | None = None


class TokenRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token without its secret. `id` is public; the store knows the SHA-256 of the secret."""

    id: str
    digest: str
    # The name in which changes are recorded.
    user: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    created_by: str = ""
    # The project that it sees; None for all.
    project: str | None = ""
    note: str = ""
    limits: TokenLimits = TokenLimits()
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class Tokens(Protocol):
    """Who may do what."""

    def add_token(self, token: TokenRecord) -> None: ...

    def token_of(self, digest: str) -> TokenRecord | None:
        """The token with this digest, also if it has expired or was revoked."""

    def tokens(self) -> list[TokenRecord]:
        """All of them, the newest first."""

    def revoke_token(self, token_id: str, at: datetime) -> bool:
        """False if there is none."""


class AuditRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change that somebody asked for, or was refused."""

    at: datetime
    who: str
    # The route: `POST /api/v1/runs/{run_id}:cancel`.
    action: str
    # The path that was asked for, and the HTTP status of the answer.
    target: str
    status: int
    project: str = ""
    token_id: str = ""
    # The reason that was given, and the address that it came from.
    why: str = ""
    source: str = ""
    # Filled in by the store.
    id: int = 0


class Audit(Protocol):
    """What was changed by whom. Rows are only added."""

    def add_audit(self, records: Sequence[AuditRecord]) -> None: ...

    def add_audit_within(
        self, records: Sequence[AuditRecord], *, actions: Collection[str], since: datetime, count_max: int
    ) -> bool:
        """Add rows of one token, unless it would then have more than `count_max` that `count_audit` counts.

        In one transaction, so that no two callers take the same last place. False if nothing was added.
        """

    def audit(
        self,
        project: str | None = None,
        *,
        before: int | None = None,
        limit: int = 100,
        who: str = "",
        action: str = "",
    ) -> list[AuditRecord]:
        """The newest first, with ids below `before`."""

    def count_audit(self, token_id: str, actions: Collection[str], since: datetime) -> int:
        """How many accepted changes (status below 400) a token has made, for limits."""


# -- notices ---------------------------------------------------------------------------------------------------------

NoticeStatus = Literal["waiting", "sent", "given_up"]


class NoticeRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message to people or programs. `key` is the same whenever it is sent again, and unique in the store."""

    key: str
    # The name of the target in the configuration of the server.
    target: str
    # JSON: what happened, in words and as data.
    body: bytes
    created_at: datetime
    run_id: int = 0
    project: str = ""
    status: NoticeStatus = "waiting"
    attempts: int = 0
    # When it is sent next; then when it was sent or given up.
    due_at: datetime | None = None
    # What the last attempt said.
    reason: str = ""
    # Filled in by the store.
    id: int = 0


class SettledNotice(msgspec.Struct, frozen=True):
    """What came of sending a notice."""

    id: int
    status: NoticeStatus
    attempts: int
    due_at: datetime | None = None
    reason: str = ""


class TargetPause(msgspec.Struct, frozen=True):
    """A target that is left alone until `retry_at`. Its notices stay as they are, and wait."""

    target: str
    # How often in a row it was tried in vain; 0 if it has had its messages of this minute, or is not known.
    failures: int
    # Since when it fails.
    since: datetime
    retry_at: datetime
    # Why its notices wait.
    reason: str


class WaitingTarget(msgspec.Struct, frozen=True):
    """A target for which notices wait."""

    target: str
    # When the first of them is due.
    due_at: datetime
    pause: TargetPause | None = None

    @property
    def next_at(self) -> datetime:
        """When something may be sent to it."""
        return self.due_at if self.pause is None else max(self.due_at, self.pause.retry_at)


class Outbox(Protocol):
    """Notices that are sent at least once."""

    def put_notices(self, notices: Sequence[NoticeRecord]) -> int:
        """Add those whose key is new; how many. Notices of a turn are written by its commit instead."""

    def waiting_targets(self, now: datetime) -> list[WaitingTarget]:
        """Each target for which something waits, by name."""

    def claim_notices(self, target: str, now: datetime, until: datetime, limit: int) -> list[NoticeRecord]:
        """The oldest due ones for a target. No other sender gets them before `until`."""

    def settle_notices(self, settled: Sequence[SettledNotice]) -> None:
        """What came of sending them, all at once. They are no longer claimed."""

    def release_notices(self, ids: Sequence[int]) -> None:
        """Leave those that were claimed and not tried to the next sender, as they were."""

    def put_target_pause(self, pause: TargetPause) -> None:
        """Leave a target alone for a while."""

    def end_target_pause(self, target: str) -> None:
        """The target takes messages again."""

    def make_notices_due(self, now: datetime) -> None:
        """Let everything that waits and is not claimed be due now, and no target be left alone."""

    def notices(
        self,
        *,
        status: NoticeStatus | None = None,
        project: str | None = None,
        run_id: int | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[NoticeRecord]:
        """The newest first, with ids below `before`; of all projects and runs by default."""

    def remove_notices(self, created_before: datetime) -> int:
        """Remove those that were sent or given up before, and what was noted of targets before."""


# -- logs of other hosts ---------------------------------------------------------------------------------------------

Stream = Literal["stdout", "stderr"]


class LogKey(msgspec.Struct, frozen=True):
    """One stream of one attempt."""

    run_id: int
    place: str
    attempt: int
    stream: Stream


class LogChunk(msgspec.Struct, frozen=True):
    """A piece of a log, redacted. Writing it again changes nothing, and no piece replaces what is there."""

    key: LogKey
    start: int
    data: bytes
    # Nothing follows.
    is_last: bool = False


class LogChunks(Protocol):
    """Logs that were shipped to the store. They are removed with their run."""

    def append_log(self, chunks: Iterable[LogChunk]) -> None:
        """Append what goes beyond the end of each log. What comes after a gap, or after the last piece, is ignored."""

    def read_log(self, key: LogKey, start: int, end: int) -> bytes:
        """The bytes that are there between the two positions."""

    def log_size(self, key: LogKey) -> tuple[int, bool] | None:
        """How many bytes there are, and whether that is all; None if nothing was shipped."""

    def logs_of(self, run_id: int) -> list[LogKey]:
        """What was shipped of a run."""


# -- retention -------------------------------------------------------------------------------------------------------


class TableSize(msgspec.Struct, frozen=True):
    """How much a table of the store holds. The rows may be an estimate; 0 bytes where that is not known."""

    name: str
    rows: int
    size: int = 0


class Retention(Protocol):
    """Removes what nobody needs any more, in batches, so that other processes can write in between."""

    def remove_audit(self, before: datetime, limit: int) -> int:
        """Remove the oldest rows of the audit, of this time; how many."""

    def remove_tokens(self, token_ids: Collection[str]) -> int:
        """Remove tokens that nobody can use any more; how many."""

    def newest_answer(self) -> int:
        """The newest answer to a report that nobody has fetched yet; 0 if there is none."""

    def remove_answers(self, up_to: int, limit: int) -> int:
        """Remove the oldest answers up to this one: who asked has died. How many."""

    def table_sizes(self) -> list[TableSize]:
        """All tables, by name."""


class ServerRecords(WorkflowVersions, Documents, Tokens, Audit, Outbox, LogChunks, Retention, Protocol):
    """All of it."""

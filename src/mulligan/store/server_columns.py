"""Reads and writes the rows of what a server keeps: the columns are the same in all databases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from mulligan.errors import CodecError
from mulligan.ports import (
    AuditRecord,
    Document,
    LogChunk,
    LogKey,
    NoticeRecord,
    TargetPause,
    TokenRecord,
    WaitingTarget,
    WorkflowVersion,
)
from mulligan.store.columns import Columns
from mulligan.store.encoding import encoded, micros, moment_from

_Flag = bool | Literal[0, 1]

_VERSION = Columns(
    "a published workflow",
    project=str,
    name=str,
    number=int,
    digest=str,
    published_at=int,
    published_by=str,
    format=str,
    note=str,
    labels=bytes,
    text=bytes,
)
_DOCUMENT = Columns(
    "a document", kind=str, project=str, name=str, data=bytes, updated_at=int, updated_by=str, revision=int
)
_TOKEN = Columns("a token", record=bytes, revoked_at=int | None)
_AUDIT = Columns(
    "a row of the audit",
    id=int,
    at=int,
    who=str,
    action=str,
    target=str,
    status=int,
    project=str,
    token_id=str,
    why=str,
    source=str,
)
_NOTICE = Columns(
    "a notice",
    id=int,
    key=str,
    target=str,
    created_at=int,
    run_id=int,
    project=str,
    status=Literal["waiting", "sent", "given_up"],
    attempts=int,
    due_at=int,
    reason=str,
    body=bytes,
)
_WAITING_TARGET = Columns(
    "a target of notices",
    target=str,
    due_at=int,
    failures=int | None,
    since=int | None,
    retry_at=int | None,
    reason=str | None,
)
_PIECE = Columns("a shipped log", start=int, data=bytes)
_EXTENT = Columns("a shipped log", start=int, size=int, is_last=_Flag)
_LOG_KEY = Columns("a shipped log", run_id=int, place=str, attempt=int, stream=Literal["stdout", "stderr"])
_LABELS, _TOKEN_RECORD = msgspec.json.Decoder(dict[str, str]), msgspec.json.Decoder(TokenRecord)


def version_row(version: WorkflowVersion) -> tuple[Any, ...]:
    return (
        *(version.project, version.name, version.number, version.digest, micros(version.published_at)),
        *(version.published_by, version.format, version.note, encoded(version.labels), version.text.encode()),
    )


def version_from(row: Sequence[Any]) -> WorkflowVersion:
    project, name, number, digest, published_at, published_by, format_, note, labels, text = _VERSION.read(row)
    return WorkflowVersion(
        name=name,
        digest=digest,
        published_at=moment_from(published_at),
        published_by=published_by,
        number=number,
        text=_text(text, "a published workflow"),
        format=format_,
        note=note,
        labels=_decoded(_LABELS, labels, "a published workflow"),
        project=project,
    )


def document_row(document: Document) -> tuple[Any, ...]:
    return (
        *(document.kind, document.project, document.name, document.data),
        *(micros(document.updated_at), document.updated_by),
    )


def document_from(row: Sequence[Any]) -> Document:
    kind, project, name, data, updated_at, updated_by, revision = _DOCUMENT.read(row)
    return Document(kind, name, data, moment_from(updated_at), updated_by, revision, project)


def token_row(token: TokenRecord) -> tuple[Any, ...]:
    return token.id, token.digest, micros(token.created_at), _micros_or_none(token.revoked_at), encoded(token)


def token_from(row: Sequence[Any]) -> TokenRecord:
    record, revoked_at = _TOKEN.read(row)
    token: TokenRecord = _decoded(_TOKEN_RECORD, record, "a token")
    return msgspec.structs.replace(token, revoked_at=None if revoked_at is None else moment_from(revoked_at))


def audit_from(row: Sequence[Any]) -> AuditRecord:
    id_, at, who, action, target, status, project, token_id, why, source = _AUDIT.read(row)
    return AuditRecord(moment_from(at), who, action, target, status, project, token_id, why, source, id_)


def notice_from(row: Sequence[Any]) -> NoticeRecord:
    id_, key, target, created_at, run_id, project, status, attempts, due_at, reason, body = _NOTICE.read(row)
    return NoticeRecord(
        key=key,
        target=target,
        body=body,
        created_at=moment_from(created_at),
        run_id=run_id,
        project=project,
        status=status,
        attempts=attempts,
        due_at=due_from(due_at),
        reason=reason,
        id=id_,
    )


def due_from(due_at: int | None) -> datetime | None:
    return moment_from(due_at) if due_at else None


def waiting_target_from(row: Sequence[Any]) -> WaitingTarget:
    """A notice without a time is due since long."""
    target, due_at, failures, since, retry_at, reason = _WAITING_TARGET.read(row)
    if failures is None:
        return WaitingTarget(target, moment_from(due_at))
    pause = TargetPause(target, failures, moment_from(since), moment_from(retry_at), reason)
    return WaitingTarget(target, moment_from(due_at), pause)


# -- logs ------------------------------------------------------------------------------------------------------------


def log_columns(key: LogKey) -> tuple[int, str, int, str]:
    return key.run_id, key.place, key.attempt, key.stream


def log_key_from(row: Sequence[Any]) -> LogKey:
    return LogKey(*_LOG_KEY.read(row))


def log_rows(chunks: Iterable[LogChunk]) -> list[tuple[Any, ...]]:
    """A row for each piece, cut so that it begins where the one before ends; then where the first of its log begins.

    What comes after a gap is left out, and so is what comes after the last piece.
    """
    rows: list[tuple[Any, ...]] = []
    key: LogKey | None = None
    first = end = 0
    is_over = False
    for chunk in sorted(chunks, key=lambda one: (log_columns(one.key), one.start, -len(one.data))):
        if chunk.key != key:
            key, first, end, is_over = chunk.key, chunk.start, chunk.start, False
        known = end - chunk.start
        is_new = len(chunk.data) > known or (chunk.is_last and len(chunk.data) == known)
        if is_over or known < 0 or not is_new:
            continue
        data = chunk.data[known:]
        rows.append((*log_columns(chunk.key), end, len(data), chunk.is_last, data, first))
        end, is_over = end + len(data), chunk.is_last
    return rows


def joined(pieces: Iterable[Sequence[Any]], start: int, end: int) -> bytes:
    """The bytes between two positions, up to the first gap. The pieces are ordered by their start, and may overlap."""
    found = bytearray()
    for piece in pieces:
        at, data = _PIECE.read(piece)
        position = start + len(found)
        if at > position:
            break
        found += data[position - at : end - at]
    return bytes(found)


def extent(rows: Iterable[Sequence[Any]]) -> tuple[int, bool] | None:
    """How many bytes there are up to the first gap, and whether nothing follows; None without any piece."""
    size, is_whole, is_any = 0, False, False
    for row in rows:
        start, length, is_last = _EXTENT.read(row)
        is_any = True
        if start > size:
            break
        size, is_whole = max(size, start + length), is_whole or bool(is_last)
    return (size, is_whole) if is_any else None


# -- trouble ---------------------------------------------------------------------------------------------------------


def _micros_or_none(moment: datetime | None) -> int | None:
    return None if moment is None else micros(moment)


def _decoded(decoder: Any, data: bytes, what: str) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CodecError(f"{what} in the store cannot be read: {error}") from error


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CodecError(f"{what} in the store cannot be read: {error}") from error

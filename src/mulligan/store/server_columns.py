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
from mulligan.store.columns import Columns, Records
from mulligan.store.encoding import encoded, micros, moment_from

_Flag = bool | Literal[0, 1]


_TOKEN = Columns("a token", record=bytes, revoked_at=int | None)
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


def document_row(document: Document) -> tuple[Any, ...]:
    return (
        *(document.kind, document.project, document.name, document.data),
        *(micros(document.updated_at), document.updated_by),
    )


def token_row(token: TokenRecord) -> tuple[Any, ...]:
    return token.id, token.digest, micros(token.created_at), _micros_or_none(token.revoked_at), encoded(token)


def token_from(row: Sequence[Any]) -> TokenRecord:
    record, revoked_at = _TOKEN.read(row)
    token: TokenRecord = _decoded(_TOKEN_RECORD, record, "a token")
    return msgspec.structs.replace(token, revoked_at=None if revoked_at is None else moment_from(revoked_at))


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


# -- records ---------------------------------------------------------------------------------------------------------

version_from = Records(
    "a published workflow",
    WorkflowVersion,
    "project name number digest published_at published_by format note labels text",
    labels=lambda data: _decoded(_LABELS, data, "a published workflow"),
    text=lambda data: _text(data, "a published workflow"),
).read
document_from = Records("a document", Document, "kind project name data updated_at updated_by revision").read
audit_from = Records(
    "a row of the audit", AuditRecord, "id at who action target status project token_id why source"
).read
notice_from = Records(
    "a notice", NoticeRecord, "id key target created_at run_id project status attempts due_at reason body"
).read

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

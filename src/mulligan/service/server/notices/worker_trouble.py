"""Notices about workers: one takes no more tasks, since its machine fails them, and later that this is over.

Every server looks. Which troubles were announced is kept in documents, whose revision is part of the key of a notice:
servers that look at the same time write one notice, and one that dies in between has it written by the next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from mulligan.core.model.text.formatting import single_line
from mulligan.errors import RevisionMismatch
from mulligan.history.notice_text import NoticeBody
from mulligan.ports import Document, NoticeRecord, Store

KIND: Final = "worker_trouble"


class Announced(msgspec.Struct, frozen=True):
    """What was announced last of a worker: its trouble, or "" for its end."""

    trouble: str
    host: str = ""


def announce_troubles(store: Store, targets: Sequence[str], now: datetime, by: str) -> int:
    """Write the notices of troubles that have begun or ended since they were announced last. How many."""
    records = store.server_records
    # Before the workers: what is announced is never newer than what is seen of them.
    known = {document.name: document for document in records.documents(KIND, "")}
    workers = {worker.name: worker for worker in store.workers()}
    count = 0
    for name in sorted(known.keys() | {name for name, worker in workers.items() if worker.trouble}):
        document, worker = known.get(name), workers.get(name)
        before = msgspec.json.decode(document.data, type=Announced) if document is not None else Announced("")
        after = Announced(worker.trouble, worker.host) if worker is not None else Announced("", before.host)
        revision = document.revision if document is not None else 0
        if bool(before.trouble) != bool(after.trouble):
            body = _body(name, before, after, is_gone=worker is None, at=now)
            count += records.put_notices([_notice(name, revision + 1, body, target) for target in targets])
            changed = Document(KIND, name, msgspec.json.encode(after), now, by)
            try:
                records.put_document(changed, expected=revision)
            except RevisionMismatch:
                continue  # another server has announced it
        if worker is None:
            # No other worker will have its name.
            records.delete_document("", KIND, name)
    return count


def _body(name: str, before: Announced, after: Announced, *, is_gone: bool, at: datetime) -> NoticeBody:
    details: tuple[str, ...] = ()
    who = f"worker '{name}' on '{after.host}'"
    if after.trouble:
        title = f"{who} takes no tasks: {single_line(after.trouble)}"
        details = ("its attempts were interrupted, not failed; it tries again by itself",)
    elif is_gone:
        title = f"{who} has ended; it took no tasks: {single_line(before.trouble)}"
    else:
        title, details = f"{who} takes tasks again", (f"it was: {single_line(before.trouble)}",)
    return NoticeBody(event=KIND, title=title, at=at, status="in_trouble" if after.trouble else "", details=details)


def _notice(name: str, number: int, body: NoticeBody, target: str) -> NoticeRecord:
    digest = hashlib.sha256(f"{name} {number} {target}".encode()).hexdigest()
    return NoticeRecord(key=f"worker_{digest[:32]}", target=target, body=msgspec.json.encode(body), created_at=body.at)

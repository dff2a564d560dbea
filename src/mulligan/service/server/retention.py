"""What a server and `mulligan gc` remove from the store besides runs: old rows that nobody needs, in batches.

`docs/operate/operations.md` says for every table of the store why it does not grow for ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice

import msgspec

from mulligan.core.model.clusters.shipped_logs import WATCH_KIND
from mulligan.ports import ArtifactRecord, Document, ServerRecords, Store, TokenRecord
from mulligan.service.home import Home
from mulligan.service.server.server_config import RetentionSection, find_config

# How many rows one batch removes, and how long after an incomplete one the next follows.
BATCH, NEXT_BATCH = 1_000, timedelta(seconds=5)
# How often a server looks for what is old.
EVERY = timedelta(hours=1)
# Who asks polls many times a second: an answer that was there so long ago is nobody's.
ANSWERS_KEPT, LINKS_KEPT, WATCHES_KEPT = timedelta(hours=1), timedelta(days=1), timedelta(days=1)
# A file that is being written is younger. How many files are looked at, one batch after the other.
LEFT, FILES = timedelta(hours=1), 10_000
_KIND, _ANSWERS, _LINKS = "retention", "answers", "login"


class RemovedRows(msgspec.Struct, frozen=True):
    """How many rows of each kind were removed, or would be."""

    audit: int = 0
    tokens: int = 0
    answers: int = 0
    documents: int = 0
    # Whether there may be more of them.
    is_cut: bool = False

    @property
    def total(self) -> int:
        return self.audit + self.tokens + self.answers + self.documents


def remove_old(records: ServerRecords, rules: RetentionSection, now: datetime, *, batch: int = BATCH) -> RemovedRows:
    """Remove one batch of each kind. Safe for several processes at once, and to be killed in."""
    audit = records.remove_audit(now - timedelta(days=rules.audit_days), batch)
    ended = _ended_tokens(records, now - timedelta(days=rules.token_days))
    tokens = records.remove_tokens(ended[:batch]) if ended else 0
    answers = _remove_answers(records, now, batch)
    old = _old_documents(records, now)
    documents = sum(records.delete_document(one.project, one.kind, one.name) for one in old[:batch])
    is_cut = batch in (audit, answers) or max(len(ended), len(old)) > batch
    return RemovedRows(audit, tokens, answers, documents, is_cut)


def remove_all_old(records: ServerRecords, rules: RetentionSection, now: datetime) -> RemovedRows:
    """Remove everything that is old, batch by batch."""
    total = RemovedRows()
    while True:
        found = remove_old(records, rules, now)
        counts = {
            name: getattr(total, name) + getattr(found, name) for name in ("audit", "tokens", "answers", "documents")
        }
        total = RemovedRows(**counts)
        if not found.is_cut or not found.total:
            return total


def _ended_tokens(records: ServerRecords, before: datetime) -> list[str]:
    """The tokens that ended before, also the sessions of browsers."""

    def has_ended(token: TokenRecord) -> bool:
        ends = [at for at in (token.revoked_at, token.expires_at) if at is not None]
        return bool(ends) and min(ends) < before

    return [token.id for token in records.tokens() if has_ended(token)]


def _remove_answers(records: ServerRecords, now: datetime, batch: int) -> int:
    """Remove the answers that were there an hour ago. The newest of then is noted in the store."""
    mark = records.document("", _KIND, _ANSWERS)
    if mark is not None and now - mark.updated_at < ANSWERS_KEPT:
        return 0
    removed = records.remove_answers(int(mark.data or b"0"), batch) if mark is not None else 0
    newest = records.newest_answer()
    if removed < batch and (newest or mark is not None):
        records.put_document(Document(_KIND, _ANSWERS, b"%d" % newest, updated_at=now))
    return removed


def _old_documents(records: ServerRecords, now: datetime) -> list[Document]:
    """Links to log in that nobody used, and marks of people who read logs."""
    kept: tuple[tuple[str, timedelta], ...] = ((_LINKS, LINKS_KEPT), (WATCH_KIND, WATCHES_KEPT))
    return [one for kind, age in kept for one in records.documents(kind) if one.updated_at < now - age]


class Retention:
    """What a server removes by itself, a batch at a time.

    That is also what killed processes have left half-written in a home: uploads, and artifacts that are files. A home
    may have millions of artifacts, and schedules wait meanwhile: one batch is looked at, and the next one later.
    """

    def __init__(self, home: Home, store: Store, batch: int = FILES) -> None:
        self._home = home
        self._store = store
        self._batch = batch
        # Those that are still to be looked at; None begins again.
        self._artifacts: Iterator[ArtifactRecord] | None = None

    def remove_due(self, now: datetime) -> datetime:
        """Remove a batch, by the configuration in the home; when to look again."""
        removed = remove_old(self._store.server_records, find_config(self._home.folder).retention, now)
        # The times of files are those of this host.
        has_more_files = self.remove_files(datetime.now(UTC))
        return now + (NEXT_BATCH if removed.is_cut or has_more_files else EVERY)

    def remove_files(self, now: datetime) -> bool:
        """Look at a batch of files. Whether there are more."""
        if self._artifacts is None:
            # Rows of a database are whole.
            self._artifacts = iter(()) if self._home.store_url else iter(self._store.artifacts.records())
        is_cut = self._remove_uploads(now - LEFT)
        batch = list(islice(self._artifacts, self._batch))
        self._store.artifacts.remove(one.name for one in batch if not one.is_whole and one.kept_at < now - LEFT)
        has_more = is_cut or len(batch) == self._batch
        self._artifacts = self._artifacts if has_more else None
        return has_more

    def _remove_uploads(self, before: datetime) -> bool:
        removed = 0
        with suppress(FileNotFoundError), os.scandir(self._home.uploads) as files:
            for file in files:
                with suppress(OSError):
                    if file.stat(follow_symlinks=False).st_mtime < before.timestamp():
                        os.unlink(file.path)
                        removed += 1
                if removed == self._batch:
                    return True
        return False

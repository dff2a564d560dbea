"""Exports the traces of runs while they go on: reads what was added to their logs, and sends the spans that ended.

With them goes, if that is asked, what Python steps wrote with `logging`, under the spans of their attempts.
What was sent is remembered in the store, and only after the collector took it. So everything is sent at least once;
the ids of spans are hashes, and a collector that gets one twice has it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec

from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import CodecError
from mulligan.history.spans import Span, SpanReader
from mulligan.ports import Document, RunRecord, Store
from mulligan.service.logs.log_levels import split_records
from mulligan.service.runs.stored.run_reader import RunReader

POLL_SECONDS = 2.0
# Ended runs whose later rounds are still noticed.
ENDED_RUNS_FOLLOWED = 500
# How many runs are looked at in one round.
NEW_RUNS_MAX, PAGE = 2_000, 500
_KIND, _NAME = "trace_export", "state"


# A collector refuses a request that is too large, with all records in it.
TEXT_BYTES_MAX = 16 * 1024


class StepRecord(msgspec.Struct, frozen=True):
    """One record of an attempt, with the lines behind it."""

    span: Span
    at: datetime
    level: str
    logger: str
    text: str


def read_records(reader: RunReader, run_id: int, spans: Iterable[Span]) -> Iterator[StepRecord]:
    """The records of the attempts among these spans of a run, as far as their logs are here or in the store."""
    for span in spans:
        attempt = span.attributes.get("mulligan.attempt")
        if attempt is None:
            continue
        log = reader.attempt_log(run_id, span.attributes["mulligan.place"], attempt)
        for head, body in split_records(log.stderr):
            text = body[:TEXT_BYTES_MAX].decode("utf-8", "replace").rstrip("\n")
            yield StepRecord(span, _moment(head["at"]) or span.end, head["level"], head["logger"], text)


def _moment(text: str) -> datetime | None:
    """A step may print what only looks like a time."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


class _State(msgspec.Struct):
    """What was exported: the newest run that was seen, and for each followed run the last event."""

    newest: int
    followed: dict[int, int] = {}


class TraceExporter:
    """Follows all runs of a store."""

    def __init__(self, store: Store, send: Callable[[int, Sequence[Span]], object]) -> None:
        self._store = store
        self._send = send
        self._state: _State | None = None
        # The open spans of each followed run, and the last event that they know.
        self._readers: dict[int, tuple[SpanReader, int]] = {}

    def export_due(self, now: datetime) -> datetime:
        """Send what has ended since the last call; when to call again."""
        state = self._load()
        seen = msgspec.json.encode(state)
        self._find_new_runs(state)
        for record in self._store.lists.records([*state.followed]):
            if record.seq > state.followed[record.run_id]:
                with suppress(CodecError):  # a damaged run holds up no other
                    self._export(record, state.followed[record.run_id])
                state.followed[record.run_id] = record.seq
        self._forget(state)
        if msgspec.json.encode(state) != seen:
            document = Document(_KIND, _NAME, msgspec.json.encode(state), updated_at=now)
            self._store.server_records.put_document(document)
        return now + timedelta(seconds=POLL_SECONDS)

    def _load(self) -> _State:
        """What was exported. The first time nothing of the past is."""
        if self._state is None:
            found = self._store.server_records.document("", _KIND, _NAME)
            newest = self._store.runs(limit=1)
            self._state = (
                _State(newest[0].run_id if newest else 0)
                if found is None
                else msgspec.json.decode(found.data, type=_State)
            )
        return self._state

    def _find_new_runs(self, state: _State) -> None:
        before, newest, count = None, state.newest, 0
        while count < NEW_RUNS_MAX:
            page = [record for record in self._store.runs(limit=PAGE, before=before) if record.run_id > newest]
            state.followed.update((record.run_id, 0) for record in page)
            state.newest = max([state.newest, *(record.run_id for record in page)])
            count += len(page)
            if len(page) < PAGE:
                return
            before = page[-1].run_id

    def _export(self, record: RunRecord, after: int) -> None:
        reader, known = self._readers.pop(record.run_id, (SpanReader(), 0))
        spans = []
        while entries := self._store.log(record.run_id, known, PAGE):
            spans += [span for span in reader.read(entries) if span.seq > after]
            known = entries[-1].seq
        if spans:
            self._send(record.run_id, spans)
        self._readers[record.run_id] = (reader, known)

    def _forget(self, state: _State) -> None:
        """Follow the open runs and the newest ended ones."""
        records = {record.run_id: record for record in self._store.lists.records([*state.followed])}
        ended = sorted(run_id for run_id, record in records.items() if record.status in RUN_ENDED)
        dropped = {*ended[:-ENDED_RUNS_FOLLOWED]} | (state.followed.keys() - records.keys())
        for run_id in dropped:
            del state.followed[run_id]
        for run_id in [run_id for run_id in self._readers if run_id in dropped or run_id in ended]:
            # A later round reads the log again.
            del self._readers[run_id]

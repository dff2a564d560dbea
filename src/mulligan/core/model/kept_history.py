"""The beginning of a log that a fork keeps: packed into the request for the new run, and as the new run writes it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from mulligan.core.model.codec import decode_log, encode_log
from mulligan.core.model.events import Entry, RunStarted
from mulligan.core.model.reports import RunRequested
from mulligan.errors import CodecError


def pack_history(entries: Iterable[Entry]) -> bytes:
    """The first entries of a log in a twentieth of their size: a request goes through the inbox of the new run."""
    return zlib.compress(encode_log(entries), 1)


def kept_history(request: RunRequested) -> Iterator[Entry]:
    """The entries that a fork begins with: those of the other run, but started as this run."""
    try:
        data = zlib.decompress(request.history or b"")
    except zlib.error as error:
        raise CodecError(f"the history that run {request.run_id} begins with cannot be read: {error}") from error
    for entry in decode_log(data):
        fact = entry.fact
        yield replace(entry, fact=_started_here(fact, request)) if isinstance(fact, RunStarted) else entry


def _started_here(fact: RunStarted, request: RunRequested) -> RunStarted:
    return replace(
        fact,
        run_id=request.run_id,
        uid=request.uid,
        forked_from=request.forked_from,
        forked_at=request.forked_at,
        # A fork of a child run is nobody's child.
        parent_run_id=None,
        callers_budget=None,
        labels=request.labels,
        capacity=request.capacity,
        notify=request.notify,
    )

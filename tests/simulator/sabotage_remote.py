"""Deliberate defects in what is between a worker over HTTP and the store of its server."""

from __future__ import annotations

from typing import Any

from mulligan.service.server import store_calls
from mulligan.service.server.store_calls import AnsweredChanges, HeartbeatJudge, StoreCalls
from mulligan.store.http import http_store
from mulligan.store.http.http_connection import HttpTransport

from .sabotage import DEFECTS, defect

_BEFORE = set(DEFECTS)


@defect(AnsweredChanges, "once")
def _(real: Any) -> Any:
    """a request that is repeated is carried out again"""
    return lambda self, call_id, perform, digest=b"": perform()


@defect(store_calls, "PROCESS")
def _(real: str) -> str:
    """a server that was started again carries out a repeated request"""
    # Every process is the one that was asked before.
    return _Any(real)


class _Any(str):
    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


@defect(http_store._Work, "next_batch")
def _(real: Any) -> Any:
    """what a remote worker has sent is forgotten before the server has it"""

    def next_batch(self: Any) -> Any:
        ended, logs, is_all = real(self)
        self.ended.clear()
        return ended, logs, is_all

    return next_batch


@defect(HeartbeatJudge, "_may_expire_others")
def _(real: Any) -> Any:
    """a server expires workers whose heartbeats it could not take"""
    return lambda self, sent, lease_seconds: True


@defect(store_calls._OWN, "work.exchange")
def _(real: Any) -> Any:
    """the ends of tasks that come with a heartbeat are lost"""

    def exchange(self: StoreCalls, worker: str, ended: Any, logs: Any, offer: Any, is_beat: bool) -> Any:
        return real(self, worker, [] if is_beat else ended, logs, offer, is_beat)

    return exchange


@defect(HttpTransport, "_ask")
def _(real: Any) -> Any:
    """a lost request of a remote worker counts as answered by the one before"""

    def ask(self: Any, method: str, path: str, body: bytes, headers: Any, **named: Any) -> bytes:
        answers = self.__dict__.setdefault("_last", {})
        try:
            answers[path] = real(self, method, path, body, headers, **named)
        except Exception:
            if path not in answers:
                raise
        return answers[path]

    return ask


# Those of this module: all of them show only where workers take part over HTTP.
SENTENCES = tuple(sentence for sentence in DEFECTS if sentence not in _BEFORE)

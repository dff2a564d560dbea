"""The routes of a store over HTTP: what `mulligan` asks with MULLIGAN_SERVER, and what workers without a database ask.

Each scope has a path of its own, so that the table of routes says who may ask what. Bodies are read by the service,
which knows the types of each call.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Literal
from weakref import WeakKeyDictionary

import msgspec

from mulligan.api.http.routing import JSON, Answer, Call, Query, Route, RouteScope
from mulligan.errors import MulliganError
from mulligan.service.home import Home
from mulligan.service.server.store_calls import (
    CALL_HEADER,
    PROCESS,
    PROCESS_HEADER,
    PROTOCOL_HEADER,
    UPLOAD_BYTES_MAX,
    WAIT_SECONDS,
    ChangeCounter,
    ChangeCounts,
    gives_bytes,
)
from mulligan.service.service import Service

_HEADERS = {PROCESS_HEADER: PROCESS}
_BYTES = "application/octet-stream"
_PATH = "store"
# How often one thread looks for changes, for all who wait; and how often while something changes.
LOOK_SECONDS, BUSY_LOOK_SECONDS, BUSY_SECONDS = 0.02, 0.004, 0.25
ArtifactFormat = Literal["json", "text", "file", "parquet", "arrow", "npy"]


def _answer(scope: str, call: Call) -> Answer:
    name = call.path["call"]
    data = call.service.store_calls.for_token(call.token).answer(
        scope,
        name,
        call.body,
        protocol=call.headers.get(PROTOCOL_HEADER.lower(), ""),
        call_id=call.headers.get(CALL_HEADER.lower(), ""),
        process=call.headers.get(PROCESS_HEADER.lower(), ""),
    )
    return Answer(data, headers=_HEADERS, media=_BYTES if gives_bytes(name) else JSON)


# -- artifacts -------------------------------------------------------------------------------------------------------


class Upload(Query, frozen=True):
    """Which artifact the body is."""

    name: str
    format: ArtifactFormat


def _keep(call: Call) -> Answer:
    calls = call.service.store_calls.for_token(call.token)
    protocol = call.headers.get(PROTOCOL_HEADER.lower(), "")
    name = calls.keep_artifact(call.query.name, call.query.format, call.body, protocol=protocol)
    return Answer(msgspec.json.encode(name), headers=_HEADERS)


# -- waiting for changes ---------------------------------------------------------------------------------------------


class WaitQuery(Query, frozen=True):
    """How long to wait, and behind which change."""

    since: int = -1
    seconds: float = WAIT_SECONDS


class ChangeWaits:
    """All requests of one loop that wait for the next change of one store: one of them looks for all."""

    def __init__(self) -> None:
        self._counter: ChangeCounter | None = None
        self._counts = ChangeCounts(-1, -1)
        self._changed_at = float("-inf")
        # Each with the number that it knows, and whether it waits for work only.
        self._waiting: dict[asyncio.Future[int], tuple[int, bool]] = {}
        self._look: asyncio.Task[None] | None = None

    async def next(self, call: Call, since: int, seconds: float, *, is_worker: bool) -> int:
        """The number of the last change, once it is not `since`, after so many seconds, or when the server ends."""
        number = _number(await call.read(self._read), is_worker)
        if number != since or seconds <= 0 or call.is_closing():
            return number
        woken: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[woken] = since, is_worker
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._look_for_all(call))
        try:
            return await asyncio.wait_for(woken, min(seconds, WAIT_SECONDS))
        except TimeoutError:
            return _number(self._counts, is_worker)
        finally:
            del self._waiting[woken]

    def _read(self, service: Service) -> ChangeCounts:
        """In the thread for readers: the connection of the counter belongs to it."""
        if self._counter is None:
            self._counter = ChangeCounter(service.home)
        try:
            self._counts = self._counter.read()
        except MulliganError:
            # The next one connects again.
            self._counter.close()
            self._counter = None
            raise
        return self._counts

    async def _look_for_all(self, call: Call) -> None:
        loop = asyncio.get_running_loop()
        seen = self._counts
        while self._waiting:
            is_busy = loop.time() - self._changed_at < BUSY_SECONDS
            await asyncio.sleep(BUSY_LOOK_SECONDS if is_busy else LOOK_SECONDS)
            try:
                counts = await call.read(self._read)
            except MulliganError as error:
                for woken in self._waiting:
                    if not woken.done():
                        woken.set_exception(error)
                return
            if counts != seen:
                seen, self._changed_at = counts, loop.time()
            # Not only after a change since the last look: who has begun to wait meanwhile may have read it first.
            for woken, (since, is_worker) in self._waiting.items():
                number = _number(counts, is_worker)
                if (number != since or call.is_closing()) and not woken.done():
                    woken.set_result(number)


def _number(counts: ChangeCounts, is_worker: bool) -> int:
    return counts.work if is_worker else counts.changes


# By loop and store: a process of the server has one of each.
_WAITS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Home, ChangeWaits]] = WeakKeyDictionary()


async def _wait(scope: str, call: Call) -> Answer:
    home = await call.read(lambda service: service.home)
    waits = _WAITS.setdefault(asyncio.get_running_loop(), {}).setdefault(home, ChangeWaits())
    number = await waits.next(call, call.query.since, call.query.seconds, is_worker=scope == "worker")
    return Answer(msgspec.json.encode(number), headers=_HEADERS)


# -- the table -------------------------------------------------------------------------------------------------------

# Each scope, what its calls are about, and whether they are changes to be audited.
_SCOPES: tuple[tuple[RouteScope, str, bool], ...] = (
    ("read", "reading", False),
    ("run", "changes of a run", True),
    ("decide", "decisions", True),
    ("send", "events that are sent to a run", True),
    ("write", "new runs", True),
    ("admin", "what only an administrator may", True),
    # What a worker did is in the log of its runs.
    ("worker", "leases and results of a worker without a database", False),
)
# Those that look at all runs.
SUMS = frozenset(("tallies", "lists.status_counts", "lists.outcome_counts"))
# A larger body of those who may send workflows has one that takes long to check: half a millisecond for a kilobyte.
DEFINITION_BYTES = 64 << 10
_WAITING_SCOPES: tuple[RouteScope, ...] = ("read", "worker")
ROUTES = (
    *(
        Route(
            "POST",
            f"{_PATH}/{scope}/{{call}}",
            partial(_answer, scope),
            scope,
            f"A call of the store over HTTP, for MULLIGAN_SERVER: {about}.",
            body=bytes,
            media=JSON,
            problems=(409, 410, 413),
            is_change=is_change,
            creates_run=scope == "write",
            is_sum=SUMS if scope == "read" else False,
            slow_bytes=DEFINITION_BYTES if scope in ("write", "run") else None,
            is_question=scope == "read",
        )
        for scope, about, is_change in _SCOPES
    ),
    Route(
        "POST",
        f"{_PATH}/artifacts",
        _keep,
        "worker",
        "Keep an artifact of a task.",
        query=Upload,
        body=bytes,
        answer=str,
        is_change=False,
        body_bytes_max=UPLOAD_BYTES_MAX,
        is_upload=True,
        problems=(413,),
    ),
    *(
        Route(
            "GET",
            f"{_PATH}/changes/{scope}",
            partial(_wait, scope),
            scope,
            "Wait for the next change.",
            query=WaitQuery,
            answer=int,
        )
        for scope in _WAITING_SCOPES
    ),
)

"""More moments at which a process may die: around each thing that it does to others.

The product has named fault points where an engine and a schedule decide. The processes around them (a server, a sender,
a remote worker, a Dask session, an allocator) talk to a store, to each other and to foreign systems. Here each of these
acts gets a point before it and one after it, in a process that was started to die there; the product knows nothing of
it. A method that is not there any more fails loudly when the process starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

from mulligan.ports import fault_point

# What is done, and where that is in the product.
ACTS = {
    "write": "a transaction that writes",
    "request": "a request that changes something, from its arrival to its answer",
    "send": "a message to the target of a notice",
    "call": "a call of a remote worker to its server",
    "message": "a message of a Dask worker to the driver of a run",
    "order": "an order of the driver that a Dask worker takes in",
    "start": "an order to start tasks, carried out",
    "program": "a program of Slurm",
}
_WRITES = re.compile(r"\b(?:INSERT|UPDATE|DELETE|MERGE)\b")


def points(*acts: str) -> tuple[str, ...]:
    """The two points of each act."""
    return tuple(f"{when}_{act}" for act in acts for when in ("before", "after"))


def install(point: str) -> None:
    """Make the act pass its points, if this is one of them."""
    act = point.partition("_")[2]
    if act in _INSTALL and point in points(act):
        _INSTALL[act]()


def _install_write() -> None:
    _around("write", "mulligan.store.sqlite.sqlite_file", "SqliteFile", "write")
    client: Any = import_module("mulligan.store.postgres.postgres_client")
    sql: dict[str, str] = import_module("mulligan.store.postgres.postgres_pipeline").SQL
    exchange = client.pipeline

    def pipeline(connection: Any, prepared: Any, asked: Any, notices: Any = ()) -> Any:
        """One round trip. A statement that writes alone is a transaction; otherwise the commit is the moment."""
        names = [name for name, _ in asked]
        is_single = "begin" not in names and not connection.info.transaction_status
        is_reading = "begin_reading" in names
        is_written = ("commit" in names and not is_reading) or (is_single and any(_is_write(sql, n) for n in names))
        if not is_written:
            return exchange(connection, prepared, asked, notices)
        fault_point("before_write")
        found = exchange(connection, prepared, asked, notices)
        fault_point("after_write")
        return found

    client.pipeline = pipeline


def _is_write(sql: dict[str, str], name: str) -> bool:
    return bool(_WRITES.search(sql[name.removesuffix("/1")].upper()))


def _install_request() -> None:
    api: Any = import_module("mulligan.api.app").Api
    answer = api._answer

    async def answered(self: Any, exchange: Any) -> Any:
        if exchange.request.method == "GET":
            return await answer(self, exchange)
        fault_point("before_request")
        found = await answer(self, exchange)
        fault_point("after_request")
        return found

    api._answer = answered


def _install_start() -> None:
    session: Any = import_module("mulligan.dask_executor.session")
    kind = import_module("mulligan.dask_executor.messages").Start
    inner = session._HANDLERS[kind]

    def outer(*words: Any) -> None:
        fault_point("before_start")
        inner(*words)
        fault_point("after_start")

    session._HANDLERS[kind] = outer


def _around(act: str, module: str, owner: str, name: str) -> None:
    """Pass the two points of an act around a function, or a method of a class."""
    holder: Any = import_module(module)
    holder = getattr(holder, owner) if owner else holder
    inner: Callable[..., Any] = getattr(holder, name)

    @wraps(inner)
    def outer(*words: Any, **options: Any) -> Any:
        fault_point(f"before_{act}")
        found = inner(*words, **options)
        fault_point(f"after_{act}")
        return found

    setattr(holder, name, outer)


_INSTALL: dict[str, Callable[[], None]] = {
    "write": _install_write,
    "request": _install_request,
    "send": lambda: _around("send", "mulligan.service.server.notices.sender", "", "send"),
    "call": lambda: _around("call", "mulligan.store.http.http_connection", "HttpTransport", "call"),
    "message": lambda: _around("message", "mulligan.dask_executor.channel", "Channel", "send"),
    "order": lambda: _around("order", "mulligan.dask_executor.session", "Session", "_receive"),
    "start": _install_start,
    "program": lambda: _around("program", "mulligan.service.host.slurm.client", "SlurmClient", "_call"),
}

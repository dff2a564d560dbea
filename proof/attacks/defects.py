"""The product broken on purpose, once for each law: attacks that would not find these defects would prove nothing.

`python -m proof.attacks --defects` attacks a server that is broken in each of these ways, and fails if one is not
found. A part of them is in `make test`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from proof.attacks.callers import BLUE
from proof.attacks.campaign import Battlefield, Campaign

BATCHES, SIZE = 2, 250


class Defect(NamedTuple):
    """What breaks the product, and the law that is broken then."""

    name: str
    law: str

    @property
    def function(self) -> str:
        """As `forked_processes` takes it."""
        return f"{__name__}:{self.name}"


def show_all_projects() -> None:
    """Whoever names a run may read it, whatever its project is."""
    view: Any = import_module("mulligan.store.project_view")
    view.ProjectView._shown = lambda self, record: record
    view.VisibleRuns.among = lambda self, run_ids: set(run_ids)


def write_elsewhere() -> None:
    """What one project did is written into the records of another."""
    log: Any = import_module("mulligan.service.server.audit").AuditLog
    add = log.add
    log.add = lambda self, records: add(self, [replace(record, project=BLUE) for record in records])


def believe_every_scope() -> None:
    """A token may do everything."""
    import_module("mulligan.api.access.auth").allows = lambda token, scope: True  # type: ignore[attr-defined]


def believe_every_site() -> None:
    """A page of another site may use the cookie of a browser."""
    gate: Any = import_module("mulligan.api.access.auth").Gate
    gate._check_same_site = lambda self, request: None


def ignore_signals() -> None:
    """A server does not end when it is told to."""
    server: Any = import_module("mulligan.api.processes.server")._Server
    server._end = lambda self: None


def fail_at_random() -> None:
    """Some requests are answered with a bug."""
    _meddle("/api/v1/usage", lambda send: _answer(send, 500))


def die_at_random() -> None:
    """Some requests end the process."""
    _meddle("/api/v1/usage", lambda send: os._exit(1))


def say_nothing() -> None:
    """A request is never answered."""
    _meddle("/api/v1/usage", lambda send: asyncio.sleep(3600), once=True)


def start_nothing() -> None:
    """No run is started."""
    _meddle("/api/v1/runs", lambda send: _answer(send, 409))


def be_unready() -> None:
    """A server says that it cannot answer."""
    _meddle("/readyz", lambda send: _answer(send, 503))


def log_tracebacks() -> None:
    """What nobody should read is in the log."""
    _meddle("/api/v1/stats", lambda send: _log(send, "Traceback (most recent call last):\n  here\nKeyError: 1\n"))


def log_bodies() -> None:
    """The log has far more than a line for a request."""
    _meddle("/api/v1", lambda send: _log(send, "x" * 20_000))


def keep_everything() -> None:
    """A server keeps what it was sent."""
    _meddle("/api/v1/stats", lambda send: _keep(send, 1 << 30), once=True)


DEFECTS = (
    Defect("show_all_projects", "others_are_not_read"),
    Defect("write_elsewhere", "other_data_is_kept"),
    Defect("believe_every_scope", "a_scope_is_needed"),
    Defect("believe_every_site", "other_sites_change_nothing"),
    Defect("ignore_signals", "one_signal_ends_it"),
    Defect("fail_at_random", "no_request_is_a_bug"),
    Defect("die_at_random", "processes_live"),
    Defect("say_nothing", "every_request_is_answered"),
    Defect("start_nothing", "others_are_served"),
    Defect("be_unready", "the_server_answers"),
    Defect("log_tracebacks", "no_bug_is_logged"),
    Defect("log_bodies", "logs_are_bounded"),
    Defect("keep_everything", "memory_is_bounded"),
)


def unfound(
    folder: Path, *, say: Callable[[str], object] = lambda _: None, defects: Iterable[Defect] = DEFECTS, seed: int = 1
) -> list[str]:
    """The defects that an attack on a broken server does not find."""
    missed = []
    for number, defect in enumerate(defects):
        say(f"{defect.name}: {defect.law}")
        place = folder / f"defect-{number}"
        place.mkdir()
        with Battlefield(place, defect=defect.function) as battlefield:
            campaign = Campaign(battlefield, "sqlite", seed)
            campaign.session(0, batches=BATCHES, size=SIZE, shrink=False)
        laws = {finding.law for finding in campaign.found.values()}
        if defect.law not in laws:
            missed.append(f"'{defect.name}' is not found by {defect.law}, but by {sorted(laws) or 'nothing'}")
    return missed


# -- a server that meddles -------------------------------------------------------------------------------------------

Send = Callable[[Any], Awaitable[None]]


def _meddle(path: str, do: Callable[[Send], Awaitable[Any] | None], *, once: bool = False) -> None:
    """Do something else for requests of a path. What gives True is answered as usual afterwards.

    Not before there is something to attack: the first requests fill the store.
    """
    api: Any = import_module("mulligan.api.app").Api
    answer = api.__call__
    state = {"seen": 0, "done": 0}

    async def call(self: Any, scope: Any, receive: Any, send: Send) -> None:
        state["seen"] += 1
        is_meant = scope["path"].startswith(path) and state["seen"] > 150 and not (once and state["done"])
        if is_meant:
            state["done"] += 1
            done = do(send)
            if not (await done if done is not None else None):
                return
        await answer(self, scope, receive, send)

    api.__call__ = call


async def _answer(send: Send, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"{}"})


async def _log(send: Send, text: str) -> bool:
    print(text, file=sys.stderr, flush=True)
    return True


_KEPT: list[bytes] = []


async def _keep(send: Send, size: int) -> bool:
    _KEPT.append(b"x" * size)
    return True

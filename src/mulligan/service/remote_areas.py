"""The catalogue and the schedules of a server: changes go through its routes, so that the server checks them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import msgspec

from mulligan.errors import Problem, Refused
from mulligan.service.catalogue.catalogue import Catalogue, Publication, PublishedWorkflow
from mulligan.service.home import Home
from mulligan.service.schedules.forms import ScheduleForm
from mulligan.service.schedules.schedules import Backfill, Schedules, ScheduleView
from mulligan.service.server_client import ask_route


class _Published(msgspec.Struct, frozen=True):
    """What a server answers beside the version that it has published."""

    is_new: bool
    warnings: tuple[Problem, ...] = ()
    schedules: tuple[str, ...] = ()
    removed_schedules: tuple[str, ...] = ()
    dry_run: bool = False


class ServerCatalogue(Catalogue):
    """The published workflows of a server."""

    def publish(
        self,
        name: str,
        text: str,
        *,
        file: str = "",
        format: str | None = None,
        note: str = "",
        labels: Mapping[str, str] = MappingProxyType({}),
        dry_run: bool = False,
    ) -> Publication:
        body = {"text": text, "file": file, "format": format, "note": note, "labels": dict(labels)}
        answer = _ask(self._reader.home, "PUT", "workflows", name, body=body, dry_run=dry_run)
        more = msgspec.convert(answer, _Published)
        return Publication(
            msgspec.convert(answer, PublishedWorkflow),
            more.is_new,
            more.warnings,
            more.schedules,
            more.removed_schedules,
            more.dry_run,
        )


class ServerSchedules(Schedules):
    """The schedules of a server."""

    def all(self) -> list[ScheduleView]:
        return msgspec.convert(_ask(self._reader.home, "GET", "schedules")["schedules"], list[ScheduleView])

    def show(self, name: str) -> ScheduleView:
        return self._asked("GET", name)

    def put(self, name: str, form: ScheduleForm, *, expected: int | None = None, dry_run: bool = False) -> ScheduleView:
        return self._asked("PUT", name, body=form, dry_run=dry_run)

    def delete(self, name: str) -> None:
        _ask(self._reader.home, "DELETE", "schedules", name)

    def pause(self, name: str, reason: str = "") -> ScheduleView:
        return self._asked("POST", name, verb="pause", body={"reason": reason})

    def resume(self, name: str, reason: str = "") -> ScheduleView:
        return self._asked("POST", name, verb="resume", body={"reason": reason})

    def backfill(self, name: str, begin: datetime, end: datetime, *, dry_run: bool = False) -> Backfill:
        body = {"from": begin, "to": end, "dry_run": dry_run}
        return msgspec.convert(_ask(self._reader.home, "POST", "schedules", name, verb="backfill", body=body), Backfill)

    def fire_due(self, now: datetime) -> datetime | None:
        raise Refused("the server starts what is due", hint="it needs no help from here")

    def _asked(
        self, method: str, name: str, *, verb: str = "", body: Any = None, dry_run: bool = False
    ) -> ScheduleView:
        answer = _ask(self._reader.home, method, "schedules", name, verb=verb, body=body, dry_run=dry_run)
        return msgspec.convert(answer, ScheduleView)


def _ask(
    home: Home,
    method: str,
    what: str,
    name: str = "",
    *,
    verb: str = "",
    body: Any = None,
    dry_run: bool = False,
) -> Any:
    path = what + (f"/{quote(name, safe='')}" if name else "") + (f":{verb}" if verb else "")
    return ask_route(home, method, f"{path}?dry_run=true" if dry_run else path, body)

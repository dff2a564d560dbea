"""Catalogue, schedules and tokens of a server: read over its store, changed through its routes, which check them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from mulligan.core.model.schedule import Schedule
from mulligan.errors import WARNING, LanguageError, Problem, Refused
from mulligan.service.home import Home
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.server.catalogue.catalogue import (
    Catalogue,
    Draft,
    Proposal,
    ProposedDraft,
    Publication,
    Published,
    PublishedWorkflow,
)
from mulligan.service.server.combined_structs import combine
from mulligan.service.server.schedules.forms import ScheduleForm, instant_text
from mulligan.service.server.schedules.schedules import Backfill, Schedules, ScheduleView
from mulligan.service.server.server_client import open_transport
from mulligan.service.server.tokens.tokens import NewToken, TokenForm, TokenList, Tokens, TokenView
from mulligan.service.server.webhooks.area import Webhooks, WebhookView
from mulligan.service.server.webhooks.webhook_forms import WebhookForm

Answered = TypeVar("Answered")
_NO_LABELS: Mapping[str, str] = MappingProxyType({})


def ask(
    home: Home,
    method: str,
    path: str,
    type_: type[Answered],
    body: Any = None,
    *,
    text: str = "",
    expected: int | str | None = None,
    dry_run: bool = False,
) -> Answered:
    """The answer of a route of the server, or the error that it answers with. `text`: what problems are about."""
    query = f"?{urlencode({'dry_run': 'true'})}" if dry_run else ""
    tag = expected if isinstance(expected, str) else f'"{expected}"'
    headers = {} if expected is None else {"If-Match": tag}
    data = b"" if body is None else msgspec.json.encode(body)
    try:
        with open_transport(home) as transport:
            return msgspec.json.decode(transport.request(method, f"{path}{query}", data, headers), type=type_)
    except LanguageError as refused:
        raise LanguageError([_with_line(one, text) for one in refused.problems]) from None


class _Remote:
    """What the routes of a server change."""

    _reader: RunReader

    def _ask(self, method: str, path: str, type_: type[Answered], body: Any = None, **about: Any) -> Answered:
        return ask(self._reader.home, method, path, type_, body, **about)


class RemoteCatalogue(_Remote, Catalogue):
    """The catalogue of a server."""

    def publish(
        self,
        name: str,
        text: str,
        *,
        file: str = "",
        format: str | None = None,
        note: str = "",
        labels: Mapping[str, str] = _NO_LABELS,
        dry_run: bool = False,
        bundle: str = "",
    ) -> Publication:
        body = {"text": text, "file": file, "format": format, "note": note, "labels": dict(labels)}
        if bundle:
            body["bundle"] = bundle
        path = f"workflows/{quote(name, safe='')}"
        return _publication(self._ask("PUT", path, Published, body, text=text, dry_run=dry_run), text)

    def put_content(self, digest: str, content: bytes) -> None:
        with open_transport(self._reader.home) as transport:
            transport.request("PUT", f"contents/{digest}", content)

    def put_draft(self, name: str, text: str, *, file: str = "", note: str = "", expected: int | None = 0) -> Draft:
        body = {"text": text, "file": file, "note": note}
        path = f"workflows/{quote(name, safe='')}/draft"
        return self._ask("PUT", path, Draft, body, expected="*" if expected is None else expected)

    def propose(self, name: str, text: str, *, file: str = "", note: str = "", dry_run: bool = False) -> Proposal:
        body = {"text": text, "file": file, "note": note, "dry_run": dry_run}
        found = self._ask("POST", f"workflows/{quote(name, safe='')}:propose", ProposedDraft, body, text=text)
        return combine(Proposal, found, warnings=tuple(_warning(one, text) for one in found.warnings))

    def delete_draft(self, name: str, *, expected: int | None = None) -> None:
        self._ask("DELETE", f"workflows/{quote(name, safe='')}/draft", dict, expected=expected)

    def publish_draft(
        self, name: str, *, note: str = "", expected: int | None = None, dry_run: bool = False
    ) -> Publication:
        body = {"note": note, "dry_run": dry_run}
        path = f"workflows/{quote(name, safe='')}:publish"
        return _publication(self._ask("POST", path, Published, body, expected=expected))


class RemoteSchedules(_Remote, Schedules):
    """The schedules of a server."""

    def put(self, name: str, form: ScheduleForm, *, expected: int | None = None, dry_run: bool = False) -> ScheduleView:
        return self._ask("PUT", _path(name), ScheduleView, form, expected=expected, dry_run=dry_run)

    def delete(self, name: str) -> None:
        self._ask("DELETE", _path(name), dict)

    def pause(self, name: str, reason: str = "") -> ScheduleView:
        return self._ask("POST", f"{_path(name)}:pause", ScheduleView, {"reason": reason})

    def resume(self, name: str, reason: str = "") -> ScheduleView:
        return self._ask("POST", f"{_path(name)}:resume", ScheduleView, {"reason": reason})

    def backfill(self, name: str, begin: datetime, end: datetime, *, dry_run: bool = False) -> Backfill:
        body = {"from": instant_text(begin), "to": instant_text(end), "dry_run": dry_run}
        return self._ask("POST", f"{_path(name)}:backfill", Backfill, body)

    def take_over(self, workflow: str, schedules: Mapping[str, Schedule]) -> NoReturn:
        raise AssertionError("the server takes them over when it publishes the text")

    def fire_due(self, now: datetime) -> NoReturn:
        raise Refused("the server starts what is due by itself", hint="list what comes: mulligan schedule list")


class RemoteWebhooks(_Remote, Webhooks):
    """The webhooks of a server, which knows their secrets."""

    def all(self) -> list[WebhookView]:
        found = self._ask("GET", "webhooks", dict[str, list[WebhookView] | None])
        return found["webhooks"] or []

    def show(self, name: str) -> WebhookView:
        return self._ask("GET", f"webhooks/{quote(name, safe='')}", WebhookView)

    def put(self, name: str, form: WebhookForm, *, expected: int | None = None, dry_run: bool = False) -> WebhookView:
        path = f"webhooks/{quote(name, safe='')}"
        return self._ask("PUT", path, WebhookView, form, expected=expected, dry_run=dry_run)

    def delete(self, name: str) -> None:
        self._ask("DELETE", f"webhooks/{quote(name, safe='')}", dict)


class RemoteTokens(_Remote, Tokens):
    """The tokens of a server. It writes the audit."""

    def create(self, form: TokenForm) -> NewToken:
        return self._ask("POST", "tokens", NewToken, form)

    def list_tokens(self) -> TokenList:
        return self._ask("GET", "tokens", TokenList)

    def revoke(self, token_id: str) -> TokenView:
        return self._ask("DELETE", f"tokens/{quote(token_id, safe='')}", TokenView)


def _with_line(problem: Problem, text: str) -> Problem:
    """A problem with the line that it is about, which an answer does not repeat."""
    lines = text.splitlines()
    if problem.source_line or not 0 < problem.line <= len(lines):
        return problem
    return msgspec.structs.replace(problem, source_line=lines[problem.line - 1])


def _path(name: str) -> str:
    return f"schedules/{quote(name, safe='')}"


def _publication(answer: Published, text: str = "") -> Publication:
    warnings = tuple(_warning(one, text) for one in answer.warnings)
    return combine(Publication, answer, workflow=combine(PublishedWorkflow, answer), warnings=warnings)


def _warning(answer: Mapping[str, Any], text: str) -> Problem:
    """A warning as a local check gives it: an answer has its code without the prefix, and not its line."""
    code = str(answer["code"])
    return _with_line(Problem(**{**answer, "code": code if code.startswith(WARNING) else f"{WARNING}{code}"}), text)

"""Webhooks in the store, and what a delivery to one does.

A webhook is a document. Where its secret is, the configuration of the server says (`[webhook_secrets]`): the store has
the name alone. A delivery is checked first, which is fast; only what is signed is read. Its id becomes the key of the
event or of the run, so the same delivery does nothing twice, also if the server was killed in between.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Literal, Protocol

import msgspec

from mulligan.core.model.agents.guard_rails import HOOK_PREFIX
from mulligan.errors import (
    EventUnusable,
    InputInvalid,
    KeyMismatch,
    LanguageError,
    MediaUnsupported,
    MulliganError,
    NotFound,
    Refused,
    RequestRefused,
    RunFinished,
    ServerBusy,
    UnknownRun,
)
from mulligan.language.text.suggestions import did_you_mean
from mulligan.ports.server_records import AuditRecord, Document, ServerRecords, TokenRecord
from mulligan.service.runs.changes.changes import Changes
from mulligan.service.runs.changes.event_receivers import SentEvents, had_receivers, send_to_all
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.server.audit import ACCEPTED, AuditLog, AuditWithRun, audit_row
from mulligan.service.server.catalogue.catalogue import Catalogue
from mulligan.service.server.catalogue.texts import check_name, is_name
from mulligan.service.server.combined_structs import combine
from mulligan.service.server.notices.targets import signing_key
from mulligan.service.server.server_config import ServerConfig
from mulligan.service.server.webhooks.reading import Delivery, Reading, read_delivery
from mulligan.service.server.webhooks.signatures import SECRET_CHARS_MIN, verify
from mulligan.service.server.webhooks.webhook_forms import (
    Auth,
    SendForm,
    StartForm,
    WebhookForm,
    check_form,
    check_start,
)

WEBHOOK = "webhook"
PATH = "/hooks/"
BODY_BYTES_MAX = 256 * 1024
WEBHOOKS_MAX = 1_000
# Two are there while a secret is changed.
SECRETS_MAX = 4
# Refusals that a later delivery of the same would get too.
_OF_NO_USE = (InputInvalid.code, EventUnusable.code)
# A longer id is replaced by its digest.
_ID_CHARS_MAX = 80


class Receivers(Protocol):
    """What a webhook needs of `Service.runs`."""

    def find_receivers(self, *, key: str = "", labels: Mapping[str, str] | None = None) -> list[int]: ...


class ProjectService(Protocol):
    """What a webhook needs of the service of its project, in its own name."""

    @property
    def reader(self) -> RunReader: ...
    @property
    def catalogue(self) -> Catalogue: ...
    @property
    def changes(self) -> Changes: ...
    @property
    def runs(self) -> Receivers: ...


class UnknownWebhook(NotFound):
    """There is no webhook of this name."""

    code = "webhook.unknown"


class DeliveryRefused(MulliganError):
    """A signed delivery that the server cannot use, now or ever. Its sender does not learn why: the audit has it."""

    code = "webhook.refused"
    http_status = 422
    exit_code = 2

    def __init__(self, message: str, *, token: TokenRecord, why: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        # In whose name it was, and why it was refused, for the audit.
        self.token, self.why = token, why


class NoRunYet(DeliveryRefused):
    """An event for a run that is not there, or takes it not now. The sender may send it again later."""

    code = "webhook.no_run"
    http_status = 409


class UnreadableDelivery(DeliveryRefused):
    """A signed delivery whose body cannot be read."""

    code = "webhook.unreadable"
    http_status = 400


class DeliveryUnsupported(DeliveryRefused):
    """A signed delivery whose body is neither JSON nor a form."""

    code = "webhook.media"
    http_status = 415


class WebhookView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A webhook: what it says, and where it is. Its secret is not part of it."""

    name: str
    # Behind the address of the server.
    path: str
    auth: Auth
    # The name of its secret.
    secret: str
    updated_at: datetime
    updated_by: str
    revision: int
    header: str = ""
    filter: str = ""
    id: str = ""
    send: SendForm | None = None
    start: StartForm | None = None
    # Why no delivery can be checked now; "" if all is well.
    problem: str = ""
    dry_run: bool = False


class Received(msgspec.Struct, frozen=True):
    """What the sender of a delivery gets to know: nothing of a run but its number."""

    status: Literal["accepted", "ignored"]
    run_ids: list[int]


class CheckedDelivery(msgspec.Struct, frozen=True):
    """A delivery that is signed, and which one it is."""

    project: str
    name: str
    form: WebhookForm
    id: str
    delivery: Delivery
    at: datetime

    @property
    def token(self) -> TokenRecord:
        """What the webhook may do, and under which name it is recorded."""
        return TokenRecord(
            id="",
            digest="",
            user=f"{HOOK_PREFIX}{self.name}",
            scopes=("run",),
            created_at=self.at,
            project=self.project,
        )


class Webhooks:
    """The webhooks of one project, in the name of `by`."""

    def __init__(
        self,
        reader: RunReader,
        by: str,
        project: str,
        now: Callable[[], datetime],
        config: Callable[[], ServerConfig],
        services: Callable[..., ProjectService],
    ) -> None:
        self._reader = reader
        self._by = by
        self._project = project
        self._now = now
        self._config = config
        # The service for a token, with rows for the audit.
        self._services = services

    # -- looking -----------------------------------------------------------------------------------------------------

    def all(self) -> list[WebhookView]:
        """All webhooks, by name."""
        if not self._reader.home.is_there:
            return []
        return [self._view(one) for one in self._records.documents(WEBHOOK, self._project)]

    def show(self, name: str) -> WebhookView:
        """One webhook. `UnknownWebhook`."""
        return self._view(self._document(name))

    # -- changing ----------------------------------------------------------------------------------------------------

    def put(self, name: str, form: WebhookForm, *, expected: int | None = None, dry_run: bool = False) -> WebhookView:
        """Create or change a webhook. `RevisionMismatch` unless the stored one is at `expected`."""
        check_name(name, "webhook")
        check_form(form)
        if form.start is not None:
            workflow = self._services(self._token()).catalogue.load(form.start.workflow, form.start.version)
            check_start(form.start, workflow)
        old = self._records.document(self._project, WEBHOOK, name) if self._reader.home.is_there else None
        if old is None and self._reader.home.is_there:
            known = len(self._records.documents(WEBHOOK, self._project))
            if known >= WEBHOOKS_MAX:
                raise Refused(f"there are {known:,} webhooks, and no more can be", hint="delete some of them")
        data = msgspec.json.encode(form)
        document = Document(WEBHOOK, name, data, self._now(), self._by, project=self._project)
        if dry_run:
            document = msgspec.structs.replace(document, revision=(old.revision if old else 0) + 1)
            return msgspec.structs.replace(self._view(document), dry_run=True)
        return self._view(self._records.put_document(document, expected=expected))

    def delete(self, name: str) -> None:
        """Remove a webhook: what is sent to it from then on is refused. Its runs stay."""
        self._document(name)
        self._records.delete_document(self._project, WEBHOOK, name)

    # -- deliveries --------------------------------------------------------------------------------------------------

    def check(self, project: str, name: str, delivery: Delivery) -> CheckedDelivery:
        """Whether somebody who knows the secret has sent it. `UnknownWebhook`, `SignatureRefused`, `TimeRefused`."""
        is_possible = is_name(name) and (not project or is_name(project))
        found = self._records.document(project, WEBHOOK, name) if is_possible else None
        if found is None:
            raise UnknownWebhook("there is no such webhook", hint="whoever runs the server knows its address")
        form, now = _form(found), self._now()
        secrets, problem = self._secrets(form)
        if problem:
            # Not in the log, which strangers would fill: whoever looks at the webhook sees it.
            raise ServerBusy("this webhook cannot check deliveries now", hint="send it again later")
        delivery_id = verify(form.auth, form.header, secrets, delivery.headers, delivery.body, now)
        return CheckedDelivery(project, name, form, delivery_id, delivery, now)

    def carry_out(self, checked: CheckedDelivery) -> Received:
        """Do what the webhook says. The same delivery does nothing twice. `DeliveryRefused`, `NoRunYet`."""
        token, form = checked.token, checked.form
        try:
            if not form.id and form.start is not None and not form.start.key:
                # Sent again: nothing of it needs to be read.
                known = self._services(token).reader.store.run_under(f"request: {_key(checked, checked.id)}")
                if known is not None:
                    return Received("accepted", [known])
            reading = read_delivery(form, checked.delivery)
            if not reading.is_wanted:
                return Received("ignored", [])
            key = _key(checked, f"said {reading.id}" if reading.id else checked.id)
            if form.start is not None:
                return self._start(checked, form.start, reading, reading.key or key)
            assert form.send is not None
            return self._send(checked, form.send, reading, key)
        except DeliveryRefused:
            raise
        except MulliganError as error:
            if error.http_status >= 500:
                raise
            if isinstance(error, RequestRefused):
                unread = DeliveryUnsupported if isinstance(error, MediaUnsupported) else UnreadableDelivery
                raise unread(error.message, token=token, why=error.code, hint=error.hint) from None
            kind = NoRunYet if isinstance(error, Refused) else DeliveryRefused
            raise kind(_REFUSED, token=token, why=_why(error), hint=_HINT) from None

    def _start(self, checked: CheckedDelivery, start: StartForm, reading: Reading, key: str) -> Received:
        rows = AuditWithRun([_row(checked, "started a run")])
        service = self._services(checked.token, rows)
        prepared = service.catalogue.prepare(start.workflow, start.version, reading.inputs, reading.labels)
        try:
            run_id = service.changes.start(prepared, key).run_id
        except KeyMismatch as other:
            # The run is there since the first delivery, of another version of the workflow or the webhook.
            run_id = other.run_id
        return Received("accepted", [run_id])

    def _send(self, checked: CheckedDelivery, send: SendForm, reading: Reading, key: str) -> Received:
        service, audit = self._services(checked.token), AuditLog(self._reader)
        try:
            found = service.runs.find_receivers(key=reading.run_key, labels=reading.labels)
        except UnknownRun as error:
            if send.if_no_run == "ignore":
                return Received("ignored", [])
            if had_receivers(service.reader, reading.labels):
                audit.add([_row(checked, f"'{reading.event}' was ignored: all runs with the labels have ended")])
                return Received("ignored", [])
            raise NoRunYet(_REFUSED, token=checked.token, why=_why(error), hint=_HINT) from None
        # Before the change, so that a crash does not lose it.
        audit.add([_row(checked, f"sent '{reading.event}' to {_named(found)}")])
        event = partial(service.changes.send_event, name=reading.event, value=reading.value, key=key, foresees=False)
        sent = send_to_all(found, event)
        others = [one for one in sent.refused if one.code != RunFinished.code]
        if sent.refused:
            audit.add([_row(checked, _refusals(sent))])
        if others and not sent.run_ids:
            kind = DeliveryRefused if all(one.code in _OF_NO_USE for one in others) else NoRunYet
            raise kind(_REFUSED, token=checked.token, why=others[0].code, hint=_HINT)
        return Received("accepted" if sent.run_ids else "ignored", sent.run_ids)

    # -- behind it ---------------------------------------------------------------------------------------------------

    @property
    def _records(self) -> ServerRecords:
        return self._reader.store.server_records

    def _token(self) -> TokenRecord:
        """Whoever puts a webhook sees the workflows of its project."""
        return TokenRecord(
            id="", digest="", user=self._by, scopes=("read",), created_at=self._now(), project=self._project
        )

    def _document(self, name: str) -> Document:
        is_there = self._reader.home.is_there
        found = self._records.document(self._project, WEBHOOK, name) if is_there and is_name(name) else None
        if found is None:
            known = [one.name for one in self._records.documents(WEBHOOK, self._project)] if is_there else []
            hint = did_you_mean(name, known) or "list them: mulligan webhook list"
            raise UnknownWebhook(f"there is no webhook '{name[:100]}'", hint=hint, webhook=name)
        return found

    def _secrets(self, form: WebhookForm) -> tuple[Sequence[str], str]:
        """The secrets of a webhook, and why there are none; no value is in a message."""
        try:
            sources = self._config().webhook_secrets.get(form.secret)
        except LanguageError:
            return (), "the configuration of the server cannot be read"
        if sources is None:
            return (), f"[webhook_secrets] of the configuration of the server has no '{form.secret[:60]}'"
        try:
            found = [one.value() for one in (sources if isinstance(sources, tuple) else (sources,))]
            if form.auth == "standard":
                for one in found:
                    signing_key(one)
        except InputInvalid:
            return (), f"the secret '{form.secret[:60]}' cannot be read where the server runs"
        if any(len(one) < SECRET_CHARS_MIN for one in found):
            return (), f"the secret '{form.secret[:60]}' has less than {SECRET_CHARS_MIN} characters"
        return found, ""

    def _view(self, document: Document) -> WebhookView:
        form = _form(document)
        project = f"{document.project}/" if document.project else ""
        return combine(
            WebhookView,
            document,
            form,
            path=f"{PATH}{project}{document.name}",
            header=form.header if form.auth == "secret" else "",
            problem=self._secrets(form)[1],
        )


_REFUSED = "the server cannot use this delivery"
_HINT = "whoever runs the server finds the reason in its audit"


def _form(document: Document) -> WebhookForm:
    return msgspec.json.decode(document.data, type=WebhookForm)


def _key(checked: CheckedDelivery, delivery_id: str) -> str:
    """The key of what a delivery does: no second event of a run and no second run can have it."""
    is_short = delivery_id.isprintable() and len(delivery_id) <= _ID_CHARS_MAX
    shown = delivery_id if is_short else f"long {hashlib.sha256(delivery_id.encode()).hexdigest()}"
    return f"{HOOK_PREFIX}{checked.name}: {shown}"


def _row(checked: CheckedDelivery, why: str) -> AuditRecord:
    return audit_row(
        checked.token,
        at=checked.at,
        action=_action(checked.project),
        target=f"{PATH}{f'{checked.project}/' if checked.project else ''}{checked.name}",
        source=checked.delivery.source,
        status=ACCEPTED,
        why=why,
    )


def _action(project: str) -> str:
    return "POST /hooks/{project}/{name}" if project else "POST /hooks/{name}"


def _named(run_ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, run_ids[:10]))
    return f"run {shown}" if len(run_ids) <= 10 else f"run {shown} and {len(run_ids) - 10:,} more"


def _refusals(sent: SentEvents) -> str:
    shown = "; ".join(f"run {one.run_id}: {one.code}" for one in sent.refused[:5])
    return f"refused by {len(sent.refused):,}: {shown}"


def _why(error: MulliganError) -> str:
    return f"{error.code}: {error.message}"

"""Buttons of notices: signed links that decide what a notice asks for, once, with the rights of a token.

A link says which question it is about (the run and the event that asked), which answer it gives, and until when. Its
signature is the permission: whoever has the message may answer. So it decides nothing by being opened (a chat program
opens links to show what is behind them), and everything that limits the token limits the link.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from mulligan.core.model import events as e
from mulligan.core.model.scopes import allows
from mulligan.errors import InputInvalid, LanguageError, MulliganError, RevisionMismatch, StoreUnavailable
from mulligan.history.notice_text import NoticeBody
from mulligan.ports import NoticeRecord
from mulligan.ports.server_records import Document, ServerRecords, TokenRecord
from mulligan.service.decisions.decisions import make_decision
from mulligan.service.decisions.inbox import Decisions
from mulligan.service.runs.changes.changes import Changes
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.server.audit import ACCEPTED, AuditLog, audit_row
from mulligan.service.server.notices.messages import Answer, Button
from mulligan.service.server.server_config import ServerConfig
from mulligan.service.server.tokens.decision_ledger import DecisionLedger

PATH = "/decide"
ANSWERS: dict[str, tuple[Answer, ...]] = {"approval": ("approve", "refuse"), "triage": ("retry", "fail")}
# What a key needs at least: it is not typed by anybody.
KEY_CHARS_MIN = 32
LINK_CHARS_MAX = 2_000
_USED = "used_button"
# Signed with it, so that the same key may sign other things.
_PURPOSE = b"mulligan button 1."
_ACTION = f"POST {PATH}"


class ButtonRefused(MulliganError):
    """A link that does not decide. Nothing was changed."""

    code = "button.refused"
    http_status = 403
    exit_code = 2

    def __init__(self, message: str, *, hint: str = "", token: TokenRecord | None = None) -> None:
        super().__init__(message, hint=hint)
        # In whose name it was, for the audit.
        self.token = token
        self.why = f"{self.code}: {message}"


class ButtonExpired(ButtonRefused):
    """A link after its time."""

    code = "button.expired"
    http_status = 410


class ButtonUsed(ButtonRefused):
    """A link that has decided already, or another one of the same message."""

    code = "button.used"
    http_status = 409


class QuestionChanged(ButtonRefused):
    """What the link is about was decided, or is asked anew since."""

    code = "button.changed"
    http_status = 409


class ButtonLink(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a link says."""

    target: str
    project: str
    run_id: int
    # The event that asked.
    seq: int
    step: str
    answer: Answer
    # Seconds since 1970.
    expires: int
    # That of the notice: its buttons are used up together.
    nonce: str


class ShownQuestion(msgspec.Struct, frozen=True):
    """What a page asks before it decides."""

    link: ButtonLink
    workflow: str
    # What the approval says, or how the step failed.
    text: str
    by: str


class ProjectService(Protocol):
    """What a button needs of the service of its token."""

    @property
    def reader(self) -> RunReader: ...
    @property
    def changes(self) -> Changes: ...
    @property
    def decisions(self) -> Decisions: ...


# -- links -----------------------------------------------------------------------------------------------------------


def signed(link: ButtonLink, key: bytes) -> str:
    """The text of a link."""
    said = msgspec.json.encode(link)
    return f"{_text(said)}.{_text(_signature(said, key))}"


def read_link(text: str, keys: Sequence[bytes], now: datetime) -> ButtonLink:
    """What a link says. ButtonRefused for one that none of the keys has signed, ButtonExpired after its time."""
    said, _, signature = text.partition(".")
    try:
        data, given = _bytes(said), _bytes(signature)
        fits = (hmac.compare_digest(_signature(data, key), given) for key in keys)
        if len(text) > LINK_CHARS_MAX or not any(fits):
            raise _not_signed()
        link = msgspec.json.decode(data, type=ButtonLink)
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise _not_signed() from None
    if now.timestamp() >= link.expires:
        raise ButtonExpired("this button has expired", hint="decide on the dashboard, or with the command line")
    return link


def _not_signed() -> ButtonRefused:
    return ButtonRefused("this link is not valid", hint="use the button of the message; its key may have been changed")


def _signature(data: bytes, key: bytes) -> bytes:
    return hmac.digest(key, _PURPOSE + data, hashlib.sha256)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    found = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if _text(found) != text:
        raise ValueError  # another way to write the same
    return found


def button_keys(config: ServerConfig) -> list[bytes]:
    """The keys, the one that signs first. InputInvalid if there is none."""
    found = [source.value().encode() for source in config.buttons.keys]
    if not found:
        raise InputInvalid("[buttons] of the configuration of the server has no key")
    if any(len(one) < KEY_CHARS_MIN for one in found):
        raise InputInvalid(f"the key of [buttons] has less than {KEY_CHARS_MIN} characters")
    return found


def make_buttons(config: ServerConfig, notice: NoticeRecord, body: NoticeBody) -> tuple[Button, ...]:
    """The buttons of a notice that asks something; none for others. InputInvalid if they cannot be made."""
    target, url = config.targets.get(notice.target), config.server.public_url.rstrip("/")
    if target is None or not target.decides_as or body.request not in ANSWERS:
        return ()
    if not url:
        raise InputInvalid("[server] of the configuration has no 'public_url', where the buttons would lead")
    key = button_keys(config)[0]
    expires = int((notice.created_at + timedelta(hours=config.buttons.hours)).timestamp())
    return tuple(
        Button(
            answer,
            f"{url}{PATH}?link="
            + signed(
                ButtonLink(
                    notice.target, notice.project, body.run_id, body.seq, body.step, answer, expires, notice.key
                ),
                key,
            ),
        )
        for answer in ANSWERS[body.request]
    )


# -- deciding --------------------------------------------------------------------------------------------------------


class Buttons:
    """What opened links ask, and what pressed ones decide."""

    def __init__(
        self,
        reader: RunReader,
        now: Callable[[], datetime],
        config: Callable[[], ServerConfig],
        services: Callable[..., ProjectService],
    ) -> None:
        self._reader = reader
        self._now = now
        self._config = config
        self._services = services

    @property
    def _records(self) -> ServerRecords:
        return self._reader.store.server_records

    def show(self, text: str) -> ShownQuestion:
        """What a link would decide. Nothing is changed."""
        link, token = self._checked(text)
        service = self._services(token)
        asked, workflow = self._question(service, link, token)
        if self._records.document(link.project, _USED, link.nonce) is not None:
            raise _used(token)
        return ShownQuestion(link, workflow, asked, token.user)

    def decide(self, text: str, reason: str, source: str, actions: Sequence[str]) -> ShownQuestion:
        """Decide. The use is written first, so that two servers never decide twice with one link."""
        link, token = self._checked(text)
        row = audit_row(
            token,
            at=self._now(),
            action=_ACTION,
            target=f"{PATH}: notice to '{link.target}'",
            source=source,
            status=ACCEPTED,
            why="",
        )
        ledger = DecisionLedger(AuditLog(self._reader), row, token.limits, (*actions, _ACTION), self._now)
        service = self._services(token, ledger=ledger)
        asked, workflow = self._question(service, link, token)
        self._use(link, token)
        try:
            self._answer(service, link, f"button of a notice to '{link.target}'" + (f": {reason}" if reason else ""))
        except StoreUnavailable:
            raise  # it may have been decided
        except MulliganError:
            self._records.delete_document(link.project, _USED, link.nonce)
            raise
        return ShownQuestion(link, workflow, asked, token.user)

    def _answer(self, service: ProjectService, link: ButtonLink, reason: str) -> None:
        if link.answer in ANSWERS["approval"]:
            is_approved = link.answer == "approve"
            service.changes.approve(link.run_id, link.step, is_approved=is_approved, reason=reason)
            return
        attempt = _attempt_of(self._asking(link))
        decision = make_decision(
            run_id=link.run_id, step=link.step, verdict=link.answer, reason=reason, attempt=attempt
        )
        for one in service.changes.decide([decision]).decisions:
            if one.error is not None:
                raise one.error

    # -- checks

    def _checked(self, text: str) -> tuple[ButtonLink, TokenRecord]:
        """The link and the token with whose rights it decides, both as they are now."""
        try:
            config = self._config()
            keys = button_keys(config)
        except (InputInvalid, LanguageError):
            raise ButtonRefused("this server decides nothing by buttons", hint="see [buttons] of server.toml") from None
        link = read_link(text, keys, self._now())
        target = config.targets.get(link.target)
        if target is None or not target.decides_as:
            raise ButtonRefused(
                f"target '{link.target}' decides nothing any more", hint="it was changed in server.toml"
            )
        token = next((one for one in self._records.tokens() if one.id == target.decides_as), None)
        if token is None or not token.is_valid(self._now()) or not allows(token.scopes, "decide"):
            raise ButtonRefused(
                f"the token of target '{link.target}' may not decide: it was revoked, has expired or lacks the scope",
                hint="name another one as 'decides_as' in server.toml",
                token=token,
            )
        if token.project is not None and token.project != link.project:
            raise ButtonRefused(f"the token of target '{link.target}' is for another project", token=token)
        # It decides about the project of the notice, whatever else its token may do.
        return link, msgspec.structs.replace(token, project=link.project)

    def _asking(self, link: ButtonLink) -> e.Fact:
        entries = self._reader.store.log(link.run_id, after=link.seq - 1, limit=1)
        return entries[0].fact

    def _question(self, service: ProjectService, link: ButtonLink, token: TokenRecord) -> tuple[str, str]:
        """What is asked, and of which workflow. QuestionChanged if it is not the question of the notice any more."""
        found = service.decisions.details(link.run_id, link.step)
        if found.entry is None:
            answer = found.answer
            said = f": {answer.verdict} by {answer.by}" if answer is not None else ""
            raise QuestionChanged(f"'{link.step}' of run {link.run_id} does not wait any more{said}", token=token)
        later = self._reader.store.log(link.run_id, after=link.seq - 1)
        asked = [entry.seq for entry in later if _step_asked(entry.fact) == link.step]
        if asked != [link.seq]:
            raise QuestionChanged(
                f"'{link.step}' of run {link.run_id} asks something else by now",
                hint="use the newest message about it",
                token=token,
            )
        entry = found.entry
        failure = entry.failure or {}
        return entry.message or str(failure.get("message") or failure.get("code") or ""), entry.workflow or ""

    def _use(self, link: ButtonLink, token: TokenRecord) -> None:
        """Note that the buttons of the notice are used up. ButtonUsed if they were."""
        now = self._now()
        for old in self._records.documents(_USED, link.project):
            # After its time a link is refused anyway.
            if int(old.data) <= now.timestamp():
                self._records.delete_document(old.project, _USED, old.name)
        used = Document(_USED, link.nonce, str(link.expires).encode(), now, token.user, project=link.project)
        try:
            self._records.put_document(used, expected=0)
        except RevisionMismatch:
            raise _used(token) from None


def _used(token: TokenRecord) -> ButtonUsed:
    return ButtonUsed("this button was used already, or another one of its message", token=token)


def _step_asked(fact: e.Fact) -> str:
    """The step about which a fact asks somebody; "" for any other."""
    if isinstance(fact, e.AttemptStarted):
        return fact.place
    return fact.step if isinstance(fact, e.StepParked | e.TriageSuggested) else ""


def _attempt_of(fact: e.Fact) -> int | None:
    return fact.attempt if isinstance(fact, e.StepParked | e.TriageSuggested) else None

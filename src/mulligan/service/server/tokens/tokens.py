"""Tokens: who may do what with a server.

A secret is 256 random bits. The store knows its SHA-256 alone, so a secret is shown once, when it is made. It is found
by that digest: comparing digests in an index tells nobody how much of a guessed secret is right.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import cast

import msgspec

from mulligan.core.model.agents.guard_rails import (
    AGENT_DECISIONS_PER_HOUR,
    AGENT_PREFIX,
    AGENT_VERDICTS,
    HOOK_PREFIX,
    VERDICTS,
    agent_user,
    is_agent,
)
from mulligan.core.model.scopes import MEANINGS, SCOPES
from mulligan.errors import InputInvalid, NotFound
from mulligan.language.text.suggestions import did_you_mean
from mulligan.ports import Scope, ServerRecords, TokenLimits, TokenRecord
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.server.combined_structs import combine
from mulligan.service.server.logins import digest_of, new_secret, owner_of

_ID_BYTES = 6
USER_CHARS_MAX, NOTE_CHARS_MAX, PROJECT_CHARS_MAX, WORKFLOWS_MAX = 100, 1000, 100, 100
# Longer ones are as good as none.
_EXPIRY_MAX = timedelta(days=36_500)
_LIST_HINT = "list them: mulligan token list"


class UnknownToken(NotFound):
    """No token has this id."""

    code = "token.unknown"


class TokenView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token as people see it: everything but its secret."""

    id: str
    # The name in which its changes are recorded.
    user: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    created_by: str
    # The project that it sees; None for all.
    project: str | None
    is_valid: bool
    note: str = ""
    workflows: tuple[str, ...] = ()
    decisions_per_hour: int | None = None
    # What it may decide; anything if this is empty.
    verdicts: tuple[str, ...] = ()
    # How sure its decisions about parked steps have to be.
    min_confidence: float | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


class TokenList(msgspec.Struct, frozen=True):
    """All tokens, the newest first."""

    tokens: tuple[TokenView, ...]
    next: str | None = None


class NewToken(msgspec.Struct, frozen=True):
    """A token that was just made. Its secret is shown here and never again."""

    token: TokenView
    secret: str


class TokenForm(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a new token shall be: for a user, or for an agent.

    An agent is recorded as `agent:NAME`. Unless it is said, it may answer failures with 'retry' or 'fail', twenty times
    an hour.
    """

    user: str = ""
    scopes: tuple[str, ...] = ()
    note: str = ""
    # How long it is valid; None for ever.
    expires_in_seconds: float | None = None
    # The workflows whose runs it may start and change; all of them if this is empty.
    workflows: tuple[str, ...] = ()
    decisions_per_hour: int | None = None
    # The name of the agent that it is for, in place of a user.
    agent: str = ""
    # What it may decide: retry, fail, approve, refuse; anything if this is empty, unless it is for an agent.
    verdicts: tuple[str, ...] = ()
    # How sure a decision about a parked step has to be, from 0 to 1.
    min_confidence: float | None = None
    # The project that it sees.
    project: str = ""
    all_projects: bool = False


class Tokens:
    """The tokens of a store, or of the one project that `reader` shows."""

    def __init__(self, reader: RunReader, by: Callable[[], str], now: Callable[[], datetime]) -> None:
        self._reader, self._by, self._now = reader, by, now

    @property
    def _records(self) -> ServerRecords:
        return self._reader.store.server_records

    def create(self, form: TokenForm) -> NewToken:
        """A new token. Its secret is in the answer and nowhere else."""
        form = _with_agent_defaults(form)
        self._check(form)
        secret = new_secret()
        now = self._now()
        seconds = form.expires_in_seconds
        record = TokenRecord(
            id=secrets.token_hex(_ID_BYTES),
            digest=digest_of(secret),
            user=agent_user(form.agent.strip()) if form.agent else form.user.strip(),
            scopes=cast(tuple[Scope, ...], tuple(scope for scope in SCOPES if scope in form.scopes)),
            created_at=now,
            created_by=self._by(),
            project=self._project(form),
            note=form.note.strip(),
            limits=combine(TokenLimits, form, verdicts=tuple(one for one in VERDICTS if one in form.verdicts)),
            expires_at=None if seconds is None else now + timedelta(seconds=seconds),
        )
        self._records.add_token(record)
        return NewToken(_view(record, now), secret)

    def list_tokens(self) -> TokenList:
        now = self._now()
        found = self._records.tokens() if self._reader.home.is_there else []
        return TokenList(tuple(_view(token, now) for token in found))

    def revoke(self, token_id: str) -> TokenView:
        """Nobody is let in with it any more, nor with a browser session that comes from it. `UnknownToken`.

        Revoking it again changes nothing.
        """
        known = {token.id: token for token in self._records.tokens()} if self._reader.home.is_there else {}
        now = self._now()
        if token_id not in known or not self._records.revoke_token(token_id, now):
            hint = did_you_mean(token_id, known) or _LIST_HINT
            raise UnknownToken(f"there is no token '{token_id[:60]}'", hint=hint)
        for token in self._records.tokens():
            if owner_of(token.id) == token_id and token.revoked_at is None:
                self._records.revoke_token(token.id, now)
        return _view(next(token for token in self._records.tokens() if token.id == token_id), now)

    # -- what a new token may be

    def _check(self, form: TokenForm) -> None:
        self._check_agent(form)
        _check_line(form.note, "the note of a token", NOTE_CHARS_MAX)
        _check_line(form.project, "the name of a project", PROJECT_CHARS_MAX)
        if "/" in form.project or "@" in form.project:
            raise InputInvalid(f"'{form.project}' is not the name of a project", hint="leave out '/' and '@'")
        for scope in form.scopes:
            if scope not in SCOPES:
                hint = did_you_mean(scope, SCOPES) or f"it may be one of: {', '.join(SCOPES)}"
                raise InputInvalid(f"'{scope[:60]}' is not a scope", hint=hint)
        if not form.scopes:
            meanings = "; ".join(f"{name}: {meaning}" for name, meaning in MEANINGS.items())
            raise InputInvalid("a token needs a scope", hint=meanings)
        self._check_worker(form)
        if len(form.workflows) > WORKFLOWS_MAX:
            raise InputInvalid(
                f"a token may name at most {WORKFLOWS_MAX} workflows", hint="name fewer, or none for all"
            )
        for workflow in form.workflows:
            _check_line(workflow, "the name of a workflow", USER_CHARS_MAX, needs_any=True)
        check_guard_rails(form.verdicts, form.decisions_per_hour, form.min_confidence)
        seconds = form.expires_in_seconds
        if seconds is not None and not 0 < seconds <= _EXPIRY_MAX.total_seconds():
            hint = "give how long it is valid, like 30d, or leave it out for ever"
            raise InputInvalid("the expiry of a token must be in the future, and within a hundred years", hint=hint)

    @staticmethod
    def _check_agent(form: TokenForm) -> None:
        """Who it is for. An agent that could make tokens would have no guard rails."""
        if not form.agent:
            _check_line(form.user, "the user of a token", USER_CHARS_MAX, needs_any=True)
            if form.user.strip().startswith(HOOK_PREFIX):
                raise InputInvalid(f"'{form.user[:60]}' is the name of a webhook", hint="use another name")
            if is_agent(form.user.strip()):
                name = form.user.strip().removeprefix(AGENT_PREFIX)
                raise InputInvalid(f"'{form.user[:60]}' is the name of an agent", hint=f"write: --agent {name[:60]}")
            return
        if form.user:
            raise InputInvalid("a token is for a user or for an agent", hint="name one of them")
        _check_line(form.agent, "the name of an agent", USER_CHARS_MAX, needs_any=True)
        if "admin" in form.scopes:
            raise InputInvalid(
                "an agent cannot have the scope 'admin': it could make a token without limits",
                hint="give it what it needs: read, run, decide, propose or write",
            )

    @staticmethod
    def _check_worker(form: TokenForm) -> None:
        """A worker works, and does nothing else."""
        if "worker" not in form.scopes:
            return
        if len(form.scopes) > 1:
            raise InputInvalid(
                "the scope 'worker' cannot be combined with others", hint="make a token of its own for people"
            )
        limits = (form.agent, form.workflows, form.verdicts)
        if any(limits) or form.decisions_per_hour is not None or form.min_confidence is not None:
            raise InputInvalid("a token of a worker has no limits", hint="leave them out")

    def _project(self, form: TokenForm) -> str | None:
        ours = self._reader.project
        if ours is None:
            return None if form.all_projects else form.project
        if form.all_projects or form.project not in ("", ours):
            raise InputInvalid(
                f"a token of the project '{ours}' makes tokens for this project only",
                hint="leave the project out, or use a token for all projects",
            )
        return ours


def read_limits(may: str, decisions_per_hour: int | None, min_confidence: str) -> TokenLimits:
    """Guard rails as a command line has them: verdicts with commas between them, and a number as a text."""
    verdicts = tuple(one.strip() for one in may.split(",")) if may.strip() else ()
    try:
        confidence = float(min_confidence) if min_confidence else None
    except ValueError:
        raise InputInvalid(f"'{min_confidence[:40]}' is not a number", hint="write it like 0.8") from None
    check_guard_rails(verdicts, decisions_per_hour, confidence)
    return TokenLimits((), decisions_per_hour, tuple(one for one in VERDICTS if one in verdicts), confidence)


def check_guard_rails(verdicts: tuple[str, ...], decisions_per_hour: int | None, min_confidence: float | None) -> None:
    """`InputInvalid` for guard rails that cannot be."""
    for verdict in verdicts:
        if verdict not in VERDICTS:
            hint = did_you_mean(verdict, VERDICTS) or f"it may be one of: {', '.join(VERDICTS)}"
            raise InputInvalid(f"unknown verdict '{verdict[:60]}' of a token", hint=hint)
    if decisions_per_hour is not None and not 0 <= decisions_per_hour < 2**31:
        raise InputInvalid("decisions per hour must be a number of 0 or more", hint="leave it out for no limit")
    if min_confidence is not None and not 0 <= min_confidence <= 1:
        raise InputInvalid("the confidence that decisions need is a number from 0 to 1", hint="write it like 0.8")


def _with_agent_defaults(form: TokenForm) -> TokenForm:
    """What an agent may do unless it is said."""
    if not form.agent or "worker" in form.scopes:
        return form
    per_hour = form.decisions_per_hour
    return msgspec.structs.replace(
        form,
        scopes=form.scopes or ("decide",),
        verdicts=form.verdicts or AGENT_VERDICTS,
        decisions_per_hour=AGENT_DECISIONS_PER_HOUR if per_hour is None else per_hour,
    )


def _view(token: TokenRecord, now: datetime) -> TokenView:
    return combine(TokenView, token, token.limits, is_valid=token.is_valid(now))


def _check_line(text: str, what: str, chars_max: int, *, needs_any: bool = False) -> None:
    stripped = text.strip()
    if (needs_any and not stripped) or len(stripped) > chars_max or not stripped.isprintable():
        raise InputInvalid(f"{what} must be one line of {'1' if needs_any else '0'} to {chars_max} characters")

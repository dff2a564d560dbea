"""Targets: where notices go. `[targets.NAME]` of the configuration: addresses of apprise, or a webhook.

An address often contains a token, so no message, log or answer quotes one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from mulligan.core.model.text.durations import parse_duration
from mulligan.core.model.text.formatting import error_reason
from mulligan.errors import InputInvalid

GIVE_UP_AFTER, GIVE_UP_SECONDS = "24h", 86_400.0
TIMEOUT_SECONDS = 10.0
# apprise takes seconds to look at a text of 100,000 characters.
ADDRESS_CHARS_MAX = 4_000
# How many messages a minute a target of people gets by default: what is beyond that is joined into one.
PEOPLE_PER_MINUTE = 20
_TOO_LONG = f"an address has at most {ADDRESS_CHARS_MAX:,} characters"
_NAME = re.compile(r"[A-Za-z0-9_-]+")
# How secrets are written by the Standard Webhooks.
_PREFIX = "whsec_"


class TargetRefused(ValueError):
    """What a target says cannot be meant. `msgspec` adds where it stands."""


class SecretSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a secret is found by the process that sends: `{env = "NAME"}` or `{file = "PATH"}`."""

    env: str = ""
    file: str = ""

    def __post_init__(self) -> None:
        if bool(self.env) == bool(self.file):
            raise TargetRefused('write {env = "NAME"} or {file = "PATH"}')

    @property
    def place(self) -> str:
        return f"environment variable {self.env}" if self.env else f"file '{self.file}'"

    def value(self, environ: Mapping[str, str] = os.environ) -> str:
        """The secret. `InputInvalid` if it is not there."""
        if self.env:
            found = environ.get(self.env, "")
        else:
            try:
                with open(self.file, encoding="utf-8") as file:
                    found = file.read()
            except (OSError, UnicodeDecodeError) as error:
                reason = error_reason(error) if isinstance(error, OSError) else "not UTF-8"
                raise InputInvalid(f"the {self.place} cannot be read: {reason}") from None
        if not found.strip():
            raise InputInvalid(f"the {self.place} is not set or empty")
        return found.strip()


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `[targets]`."""

    # Addresses of apprise, such as "mailto://…" or "slack://…".
    urls: tuple[str | SecretSource, ...] = ()
    # Gets a POST for each notice: a CloudEvents body, signed as the Standard Webhooks are.
    webhook: str | SecretSource = ""
    # The keys of the signatures. With two, both sign, so that the receiver may change from one to the other.
    secret: SecretSource | tuple[SecretSource, ...] = ()
    # What a webhook gets: a CloudEvent, or a message for a chat.
    form: Literal["event", "slack", "teams"] = "event"
    # The id of the token with whose rights the buttons of a message decide; without one it has none.
    decides_as: str = ""
    # At most so many messages a minute; what is beyond that is joined into one. 0: no limit.
    per_minute: Annotated[int, msgspec.Meta(ge=0)] | None = None
    # How long sending is tried.
    give_up_after: str = GIVE_UP_AFTER
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0, le=300)] = TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        if bool(self.urls) == bool(self.webhook):
            raise TargetRefused("a target has 'urls' or a 'webhook', one of the two")
        if any(len(url) > ADDRESS_CHARS_MAX for url in (*self.urls, self.webhook) if isinstance(url, str)):
            raise TargetRefused(_TOO_LONG)
        if (self.form != "event" or self.decides_as) and not self.webhook:
            raise TargetRefused("'form' and 'decides_as' are for a 'webhook'")
        if self.decides_as and self.form == "event":
            raise TargetRefused('\'decides_as\' is for the forms "slack" and "teams": their messages have buttons')
        if self.secret and not self.webhook:
            raise TargetRefused("'secret' is for a 'webhook': it signs what is sent")
        if isinstance(self.webhook, str) and self.webhook:
            _check_webhook(self.webhook)
        try:
            seconds = parse_duration(self.give_up_after)
        except ValueError:
            seconds = 0.0
        if not seconds:
            raise TargetRefused("'give_up_after' is a time such as \"24h\"")

    @property
    def secrets(self) -> tuple[SecretSource, ...]:
        return self.secret if isinstance(self.secret, tuple) else (self.secret,)

    @property
    def give_up_seconds(self) -> float:
        return parse_duration(self.give_up_after)

    @property
    def messages_per_minute(self) -> int:
        """0 for no limit, which is the default for a program."""
        if self.per_minute is not None:
            return self.per_minute
        return 0 if self.webhook else PEOPLE_PER_MINUTE

    def webhook_url(self) -> str:
        """The address of the webhook. `InputInvalid` if it is not there or not one."""
        if isinstance(self.webhook, str):
            return self.webhook
        found = _checked_length(self.webhook)
        try:
            _check_webhook(found)
        except TargetRefused as error:
            raise InputInvalid(f"the {self.webhook.place}: {error}") from None
        return found

    def addresses(self) -> list[str]:
        """The addresses of apprise. `InputInvalid` if one of them is not there."""
        return [url if isinstance(url, str) else _checked_length(url) for url in self.urls]

    def signing_keys(self) -> list[bytes]:
        return [signing_key(source.value()) for source in self.secrets]


def _checked_length(source: SecretSource) -> str:
    found = source.value()
    if len(found) > ADDRESS_CHARS_MAX:
        raise InputInvalid(f"the {source.place}: {_TOO_LONG}")
    return found


def _check_webhook(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_address = False
    if not is_address:
        raise TargetRefused("'webhook' is an address that begins with https:// or http://")


def signing_key(secret: str) -> bytes:
    """The bytes of a key: base64 after `whsec_`, as the Standard Webhooks write it; otherwise the text itself."""
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError:  # also of `binascii`, and for what is not ASCII
        message = f"a secret that begins with '{_PREFIX}' continues with base64, and this one does not"
        raise InputInvalid(message) from None


def sign(keys: Iterable[bytes], message_id: str, timestamp: int | str, body: bytes) -> str:
    """The header `webhook-signature` of the Standard Webhooks: one signature for each key."""
    signed = b".".join((message_id.encode(), str(timestamp).encode(), body))
    found = (base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in keys)
    return " ".join(f"v1,{signature}" for signature in found)


def check_name(name: str) -> str:
    """The name of a target, if it can be one."""
    if not _NAME.fullmatch(name):
        raise InputInvalid(
            f"'{name[:60]}' is not the name of a target", hint="a name of letters, digits, '_' and '-', such as ops"
        )
    return name

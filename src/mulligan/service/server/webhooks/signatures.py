"""Whether a delivery comes from somebody who knows the secret, and which delivery it is.

What is wrong with one that is refused is not said: a stranger learns nothing from trying. All comparisons take the
same time wherever the first difference is.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from mulligan.errors import MulliganError
from mulligan.service.server.notices.targets import sign, signing_key
from mulligan.service.server.webhooks.webhook_forms import ID_HEADER, ID_HEADERS, TIME_HEADER, Auth

# How far the time of a delivery may be from that of the server, in both directions: as the Standard Webhooks say.
TOLERANCE_SECONDS = 300
# A sender that changes its key sends one signature for each.
SIGNATURES_MAX = 16
# A shorter secret could be guessed.
SECRET_CHARS_MIN = 16
SIGNATURE_HEADER, GITHUB_HEADER = "webhook-signature", "x-hub-signature-256"
_SECONDS = re.compile(r"[0-9]{1,12}")


class SignatureRefused(MulliganError):
    """A delivery that is not signed with a secret of the webhook. What is wrong with it is not said."""

    code = "webhook.signature"
    http_status = 401
    exit_code = 2


class TimeRefused(MulliganError):
    """A signed delivery whose time is too far from that of the server: it is old, or a clock is wrong."""

    code = "webhook.time"
    http_status = 401
    exit_code = 2


def verify(
    auth: Auth, header: str, secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now: datetime
) -> str:
    """The id of a delivery, as far as its signature covers it. `SignatureRefused`, `TimeRefused`."""
    if auth == "standard":
        return _verify_standard(secrets, headers, body, now)
    if auth == "github":
        expected = [f"sha256={hmac.digest(one.encode(), body, hashlib.sha256).hex()}" for one in secrets]
        _refuse_unless_one(expected, [headers.get(GITHUB_HEADER, "")])
        # The id of the delivery is in a header that is not signed.
        return _digest(body)
    given = headers.get(header.lower(), "")
    if header.lower() == "authorization":
        kind, _, rest = given.partition(" ")
        given = rest.strip() if kind.lower() == "bearer" else given
    _refuse_unless_one(secrets, [given])
    timestamp = headers.get(TIME_HEADER, "")
    if timestamp:
        _check_time(timestamp, now)
    said = next((headers[name] for name in ID_HEADERS if headers.get(name)), "")
    return f"id {said}" if said else _digest(timestamp.encode() + b"." + body)


def _verify_standard(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now: datetime) -> str:
    message_id, timestamp = headers.get(ID_HEADER, ""), headers.get(TIME_HEADER, "")
    expected = sign(map(signing_key, secrets), message_id, timestamp, body).split(" ")
    _refuse_unless_one(expected, headers.get(SIGNATURE_HEADER, "").split(" ", SIGNATURES_MAX)[:SIGNATURES_MAX])
    if not message_id:
        raise _refusal()
    _check_time(timestamp, now)
    return f"id {message_id}"


def _check_time(timestamp: str, now: datetime) -> None:
    if not _SECONDS.fullmatch(timestamp) or abs(now.timestamp() - int(timestamp)) > TOLERANCE_SECONDS:
        raise TimeRefused(
            f"the time of the delivery is more than {TOLERANCE_SECONDS // 60} minutes from that of the server",
            hint="look at the clock of the sender; a delivery that is sent again needs a new time and signature",
        )


def _refuse_unless_one(expected: Iterable[str], given: Sequence[str]) -> None:
    """`SignatureRefused` unless one of `given` is one of `expected`. All of them are compared, as digests."""
    digests = [_sha256(one) for one in given]
    is_there = False
    for one in expected:
        wanted = _sha256(one)
        for digest in digests:
            is_there |= hmac.compare_digest(wanted, digest)
    if not is_there:
        raise _refusal()


def _refusal() -> SignatureRefused:
    return SignatureRefused("this delivery is not signed as it should be", hint="use the secret of this webhook")


def _sha256(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _digest(data: bytes) -> str:
    return f"sha256 {hashlib.sha256(data).hexdigest()}"

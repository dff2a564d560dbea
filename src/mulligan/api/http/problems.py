"""Errors as problem details (RFC 9457): what is wrong and what to do, with the codes of the command line."""

from __future__ import annotations

import errno
import logging
import re
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from mulligan.errors import (
    InputInvalid,
    LanguageError,
    MethodNotAllowed,
    MulliganError,
    RequestTooLarge,
    RequestTooSlow,
    ServerBusy,
    ServerFailed,
    StoreOvertaken,
    StoreRefused,
    StoreUnavailable,
    TakesTooLong,
    TokenRefused,
    TooManyRequests,
    bounded,
)
from mulligan.service.rendering.json_output import to_json

PROBLEM = "application/problem+json"
# When a caller should ask again if the store does not answer.
RETRY_SECONDS = 2
# And if somebody has to start a newer server first.
OVERTAKEN_SECONDS = 30
_WORD = re.compile(r"(?<!^)(?=[A-Z])")
_log = logging.getLogger("mulligan.server")


class FileProblem(msgspec.Struct, frozen=True):
    """A problem in a workflow file."""

    code: str
    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    hint: str = ""


class ProblemDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """What every error looks like."""

    # `urn:mulligan:error:` and the code.
    type: str
    # The kind of error in words; the same for all errors with this code.
    title: str
    status: int
    # What is wrong this time.
    detail: str
    code: str
    # What to do.
    hint: str = ""
    data: dict[str, Any] = {}
    # If a workflow file is refused: all that is wrong with it.
    problems: list[FileProblem] = []


def details(error: MulliganError) -> ProblemDetails:
    """An error as the body of an answer."""
    words = _WORD.sub(" ", type(error).__name__)
    problems = error.problems if isinstance(error, LanguageError) else ()
    status = error.http_status if 400 <= error.http_status < 600 else 500
    return ProblemDetails(
        type=f"urn:mulligan:error:{error.code}",
        title=words[0] + words[1:].lower(),
        status=status,
        detail=bounded(error.message),
        code=error.code,
        hint=bounded(error.hint),
        # What has no form in JSON is a text.
        data=msgspec.to_builtins(dict(error.data), enc_hook=str, str_keys=True),
        problems=[msgspec.convert(to_json(one), FileProblem) for one in problems],
    )


def as_known_error(error: Exception, where: str) -> MulliganError:
    """The error to answer with. What a caller must not know is written into the log of the server, and nowhere else.

    That is every error that is not ours, and where the store is: a message about it may name hosts and folders.
    """
    if isinstance(error, ServerBusy):
        return error
    if isinstance(error, StoreUnavailable):
        _log.warning("%s: %s", where, error.message)
        return StoreUnavailable("the store does not answer now", hint="ask again in a few seconds")
    if isinstance(error, StoreOvertaken):
        _log.error("%s: %s", where, error.message)
        return StoreOvertaken(
            "a newer Mulligan has migrated the store of this server, which answers nothing any more",
            hint="start the server with the newer version; then ask again",
            retry_after=OVERTAKEN_SECONDS,
        )
    if isinstance(error, TakesTooLong) or (isinstance(error, MulliganError) and error.http_status < 500):
        return error
    if (said := _unusable_text(error) or _unusable_text(error.__cause__)) is not None:
        return InputInvalid(f"a text of the request {said}", hint="send another one")
    error_id = secrets.token_hex(4)
    if isinstance(error, MulliganError):
        # A bug, or a store that has to be repaired: whoever runs the server has to know.
        _log.error("%s: error %s: %s", where, error_id, error.render())
        known: type[MulliganError] = type(error) if isinstance(error, StoreRefused) else ServerFailed
    else:
        _log.error("%s: internal error %s", where, error_id, exc_info=error)
        known = ServerFailed
    return known(
        f"the server failed to answer (error {error_id})",
        hint="whoever runs the server finds the reason under this id in its log; asking again may work",
        error_id=error_id,
    )


def _unusable_text(error: BaseException | None) -> str | None:
    """What is wrong with a text that neither a file nor a database can have; None for every other error."""
    if isinstance(error, UnicodeEncodeError):
        return "is not valid UTF-8"
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return "is too long for a name"
    return "contains a NUL character" if isinstance(error, ValueError) and "embedded null" in str(error) else None


def headers_of(error: MulliganError) -> Mapping[str, str]:
    """The headers that an error needs."""
    if isinstance(error, TooManyRequests | StoreUnavailable | TakesTooLong | StoreOvertaken):
        return {"retry-after": str(error.data.get("retry_after", RETRY_SECONDS))}
    if isinstance(error, TokenRefused):
        return {"www-authenticate": 'Bearer realm="mulligan"'}
    if isinstance(error, RequestTooLarge | RequestTooSlow):
        # What is left of the body is not read.
        return {"connection": "close"}
    if isinstance(error, MethodNotAllowed):
        return {"allow": str(error.data["allow"])}
    return {}

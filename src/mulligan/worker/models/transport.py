"""Send one request to a model over HTTP, and turn every way in which that goes wrong into a failure with a code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx2
import msgspec

from mulligan import StepError
from mulligan.core.model.text.http_codes import status_code
from mulligan.core.model.workflow import Secret
from mulligan.worker.actions.http import CONNECT_SECONDS
from mulligan.worker.actions.http_client import Limits, make_client, translate_errors
from mulligan.worker.actions.http_request import build_request, shown
from mulligan.worker.actions.http_response import body_excerpt, retry_after
from mulligan.worker.models.settings import ModelSettings
from mulligan.worker.models.sse import StreamTooLarge, events

# An event with one token of text has some hundred bytes, so a stream is much larger than its text.
STREAM_BYTES_MAX = 64 << 20
_BAD_REQUEST = 400
_UNAUTHORIZED = (401, 403)
# A 429 that waiting does not help: the account has no money left.
_QUOTA = "insufficient_quota"
# What a provider says in the middle of a stream, and the failure that it would have been at the beginning.
_ERROR_CODES = {"overloaded_error": "HTTP_5XX", "api_error": "HTTP_5XX", "server_error": "HTTP_5XX"}
_ERROR_CODES |= {"rate_limit_error": "HTTP_429", "rate_limit_exceeded": "HTTP_429", "invalid_request_error": "HTTP_4XX"}
# An answer that the service reports as failed, in words of its own.
FAILED = "AGENT_FAILED"
_T = TypeVar("_T")


class Exchange:
    """One request and its answer, which arrives as events of a stream or in one piece."""

    def __init__(self, settings: ModelSettings, request: httpx2.Request, response: httpx2.Response) -> None:
        self._settings = settings
        self._request = request
        self._response = response

    @property
    def is_stream(self) -> bool:
        """Whether it arrives as events. A server may ignore that it was asked for a stream."""
        return self._response.headers.get("content-type", "").lower().startswith("text/event-stream")

    def events(self) -> Iterator[str]:
        """Yield the data of each event."""
        try:
            yield from events(self._response.iter_bytes(), STREAM_BYTES_MAX)
        except StreamTooLarge:
            message = f"the stream of the answer has more than {STREAM_BYTES_MAX} bytes"
            raise self.failure("OUTPUT_INVALID", message) from None

    def body(self, kind: type[_T]) -> _T:
        """Return the answer that arrives in one piece."""
        data = bytearray()
        # A character is up to six bytes in JSON; the rest is for the other fields.
        bytes_max = 6 * self._settings.max_answer + (1 << 20)
        for chunk in self._response.iter_bytes():
            data += chunk
            if len(data) > bytes_max:
                raise self.failure("OUTPUT_INVALID", f"the answer has more than {bytes_max} bytes ('max_answer')")
        return self.decode(bytes(data), kind)

    def decode(self, data: bytes | str, kind: type[_T]) -> _T:
        """Decode an event or a body; OUTPUT_INVALID if it is not what this wire format sends."""
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            text = data if isinstance(data, str) else data.decode("utf-8", "replace")
            message = (
                f"the answer is not what '{self._settings.kind}' sends: {str(error)[:200].lower()}: {text[:200]!r}"
            )
            raise self.failure("OUTPUT_INVALID", message) from None

    def error(self, said: Any) -> StepError:
        """Return the failure that the service reports in the middle of its answer."""
        fields = said if isinstance(said, dict) else {"message": said}
        kind = fields.get("type") or fields.get("code") or ""
        message = f"the service reports {str(kind)[:100] or 'an error'}: {str(fields.get('message') or said)[:500]}"
        # Some services say the status that they would have answered with.
        code = status_code(kind)[0] if isinstance(kind, int) and kind >= _BAD_REQUEST else _ERROR_CODES.get(str(kind))
        return self.failure(code or FAILED, message)

    def incomplete(self) -> StepError:
        """Return the failure of a stream that ended before the answer did."""
        return self.failure("CONNECTION", "the stream ended before the answer was complete")

    def failure(self, code: str, message: str) -> StepError:
        return _failure(self._settings, self._request, code, message)


@contextmanager
def exchange(settings: ModelSettings, path: str, headers: dict[str, str], body: dict[str, Any]) -> Iterator[Exchange]:
    """Send a request; the exchange is over when the context ends."""
    limits = Limits(CONNECT_SECONDS, settings.read_timeout, names_limits=True)
    request = build_request(
        httpx2.Timeout(settings.read_timeout, connect=CONNECT_SECONDS),
        url=_address(settings.url, path),
        method="POST",
        # No key for repetitions: a service would return the wrong answer of the last attempt again.
        headers={"accept-encoding": "identity", "idempotency-key": None, **headers},
        json=body,
    )
    with make_client(verify=True) as client, translate_errors(request, limits):
        # No redirect is followed: it would carry the key elsewhere.
        response = client.send(request, stream=True)
        try:
            if not response.is_success:
                raise _refusal(settings, request, response)
            yield Exchange(settings, request, response)
        finally:
            response.close()


def _address(url: str, path: str) -> str:
    """Return the address of a call: some services want a version as a query."""
    base, mark, query = url.partition("?")
    return f"{base.rstrip('/')}{path}{mark}{query}"


def _refusal(settings: ModelSettings, request: httpx2.Request, response: httpx2.Response) -> StepError:
    """Return the failure for an answer with another status than 200."""
    status, said = response.status_code, body_excerpt(response)
    if response.has_redirect_location:
        where = shown(response.next_request.url) if response.next_request else ""
        message = f"answered {status}, a redirect to {where}: write the final address as 'url'"
        return _failure(settings, request, "INPUT_INVALID", message, retryable=False, status=status)
    code, retryable = status_code(status)
    if _QUOTA in said:
        retryable = False
    source = f" (the key is from {describe_key(settings.key)})" if status in _UNAUTHORIZED and settings.key else ""
    message = f"answered {status}{source}{': ' if said else ''}{_message_in(said)}"
    error = _failure(settings, request, code, message, retryable=retryable, status=status)
    if (after := retry_after(response)) is not None:
        error.details["retry_after"] = after
    return error


def describe_key(key: Secret) -> str:
    """Return where a key comes from, in words."""
    if key.env is not None:
        return f"environment variable '{key.env}'"
    return f"file '{key.file}'" if key.file is not None else "a command"


def _message_in(said: str) -> str:
    """Return the message of an error as these services send them; the whole text if it looks different."""
    try:
        found = msgspec.json.decode(said)["error"]
        return str(found["message"] if isinstance(found, dict) else found)
    except (msgspec.DecodeError, LookupError, TypeError, RecursionError):
        return said


def _failure(
    settings: ModelSettings,
    request: httpx2.Request,
    code: str,
    message: str,
    *,
    retryable: bool | None = None,
    status: int | None = None,
) -> StepError:
    where = shown(request.url)
    details: dict[str, Any] = {"provider": settings.name, "url": where}
    if status is not None:
        details["status"] = status
    return StepError(code, f"{where}: {message}", retryable=retryable, details=details)

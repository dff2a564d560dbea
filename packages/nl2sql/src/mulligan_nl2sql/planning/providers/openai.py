"""A model that is asked over HTTP, in the wire format of chat completions, which most services and servers speak."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2
import msgspec

from mulligan_nl2sql.planning import decompositions, failures
from mulligan_nl2sql.planning.failures import PlannerFailed
from mulligan_nl2sql.planning.planner import DecomposeRequest, Decomposition, Plan, PlanRequest, Refusal, Usage
from mulligan_nl2sql.planning.prompts import SYSTEM, make_prompt, read_answer

NAME = "openai"
DEFAULT_URL = "https://api.openai.com/v1"
_PATH = "/chat/completions"
_CONNECT_SECONDS = 10.0
_ANSWER_BYTES_MAX = 4 << 20
_EXCERPT_CHARS = 300
_RETRY_AFTER_MAX = 24 * 3600.0
_BAD_REQUEST, _REQUEST_TIMEOUT, _TOO_MANY, _SERVER_ERROR = 400, 408, 429, 500
# A 429 that waiting does not help: the account has no money left.
_NO_MONEY = "insufficient_quota"


class OpenaiSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the model is, and what it may take."""

    model: str
    url: str = DEFAULT_URL
    key: str = ""
    # For the whole answer.
    seconds: float = 60.0
    max_tokens: int = 2_000
    # US dollars for a million tokens, read and written; None: not known.
    prices: tuple[float, float] | None = None

    def __repr__(self) -> str:
        return f"OpenaiSettings(model={self.model!r}, url={self.url!r})"


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Tokens(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice] = []
    model: str = ""
    usage: _Tokens | None = None


class OpenaiPlanner:
    """The planner `openai`. It sends one request for each plan, and never another behind your back."""

    name = NAME

    def __init__(self, settings: OpenaiSettings) -> None:
        self._settings = settings

    def plan(self, request: PlanRequest) -> Plan | Refusal:
        """Ask the model. Every way in which that goes wrong is a PlannerFailed with a code."""
        text, model, usage = self._complete(SYSTEM, make_prompt(request))
        return read_answer(text, planner=NAME, model=model, usage=usage)

    def decompose(self, request: DecomposeRequest) -> Decomposition | Refusal:
        """Ask the model which databases get which part of the question."""
        text, model, usage = self._complete(decompositions.SYSTEM, decompositions.make_prompt(request))
        return decompositions.read_answer(text, request, planner=NAME, model=model, usage=usage)

    def _complete(self, system: str, prompt: str) -> tuple[str, str, Usage]:
        """The answer of the model, its name, and what it took."""
        # The service has renamed the field, and its newer models refuse the old name. Others know only that.
        limit = "max_completion_tokens" if self._settings.url == DEFAULT_URL else "max_tokens"
        body = {
            "model": self._settings.model,
            "messages": [
                {"role": "system", "content": system},
                {"role": "user", "content": prompt},
            ],
            limit: self._settings.max_tokens,
        }
        completion = self._decode(self._send(body))
        usage = self._usage(completion.usage)
        if not completion.choices:
            raise self._failure(failures.ANSWER_INVALID, "the answer has no 'choices'")
        choice = completion.choices[0]
        if choice.finish_reason == "length":
            raise self._failure(
                failures.ANSWER_INVALID, f"the answer was cut off at {self._settings.max_tokens} tokens"
            )
        text = choice.message.content or choice.message.refusal or ""
        return text, completion.model or self._settings.model, usage

    def _send(self, body: dict[str, Any]) -> bytes:
        headers = {"authorization": f"Bearer {self._settings.key}"} if self._settings.key else {}
        timeout = httpx2.Timeout(self._settings.seconds, connect=min(_CONNECT_SECONDS, self._settings.seconds))
        deadline = time.monotonic() + self._settings.seconds
        url = self._settings.url.rstrip("/") + _PATH
        try:
            # No redirect is followed: it would carry the key elsewhere.
            with (
                httpx2.Client(timeout=timeout, follow_redirects=False) as client,
                client.stream("POST", url, json=body, headers=headers) as response,
            ):
                data = self._body(response, deadline)
                self._check_status(response, data)
                return data
        except httpx2.TimeoutException:
            raise self._too_slow() from None
        except httpx2.InvalidURL as error:
            raise self._failure(failures.SETTINGS_INVALID, f"the address is not valid: {error}") from None
        except httpx2.DecodingError:
            raise self._failure(failures.ANSWER_INVALID, "the answer cannot be decompressed") from None
        except httpx2.HTTPError as error:
            message = f"no connection, or it broke: {str(error)[:_EXCERPT_CHARS] or type(error).__name__}"
            raise self._failure(failures.CONNECTION, message) from None

    def _body(self, response: httpx2.Response, deadline: float) -> bytes:
        data = bytearray()
        for chunk in response.iter_bytes():
            data += chunk
            if len(data) > _ANSWER_BYTES_MAX:
                raise self._failure(failures.ANSWER_INVALID, f"the answer has more than {_ANSWER_BYTES_MAX} bytes")
            if time.monotonic() > deadline:
                raise self._too_slow()
        return bytes(data)

    def _check_status(self, response: httpx2.Response, data: bytes) -> None:
        status = response.status_code
        if response.is_success:
            return
        said = _message_in(data)
        if response.has_redirect_location:
            message = f"answered {status}, a redirect: write the final address of the service"
            raise self._failure(failures.SETTINGS_INVALID, message, status=status)
        message = f"answered {status}{': ' if said else ''}{said}"
        if status == _TOO_MANY:
            raise self._failure(
                failures.RATE_LIMITED,
                message,
                is_retryable=_NO_MONEY not in data.decode("utf-8", "replace"),
                status=status,
                retry_after=retry_after(response.headers.get("retry-after", ""), datetime.now(UTC)),
            )
        if status >= _SERVER_ERROR:
            after = retry_after(response.headers.get("retry-after", ""), datetime.now(UTC))
            raise self._failure(failures.SERVER_ERROR, message, status=status, retry_after=after)
        is_retryable = status == _REQUEST_TIMEOUT
        raise self._failure(failures.CLIENT_ERROR, message, is_retryable=is_retryable, status=status)

    def _decode(self, data: bytes) -> _Completion:
        try:
            return msgspec.json.decode(data, type=_Completion)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            excerpt = data[:_EXCERPT_CHARS].decode("utf-8", "replace")
            message = f"the answer is no chat completion: {str(error)[:200].lower()}: {excerpt!r}"
            raise self._failure(failures.ANSWER_INVALID, message) from None

    def _usage(self, tokens: _Tokens | None) -> Usage:
        if tokens is None:
            return Usage()
        cost = None
        if self._settings.prices is not None:
            read, written = self._settings.prices
            cost = ((tokens.prompt_tokens or 0) * read + (tokens.completion_tokens or 0) * written) / 1_000_000
        return Usage(tokens.prompt_tokens, tokens.completion_tokens, cost)

    def _too_slow(self) -> PlannerFailed:
        return self._failure(failures.TIMEOUT, f"no whole answer within {self._settings.seconds:g} seconds")

    def _failure(self, code: str, message: str, *, is_retryable: bool | None = None, **details: Any) -> PlannerFailed:
        shown = self._settings.url.partition("?")[0].rpartition("@")[2]
        model = self._settings.model
        return PlannerFailed(
            code, f"{shown}: {message}", planner=NAME, is_retryable=is_retryable, model=model, **details
        )


def retry_after(header: str, now: datetime) -> float | None:
    """The seconds that a header Retry-After says: a number, or a date."""
    text = header.strip()
    try:
        seconds = float(text) if text[:1].isdigit() else (parsedate_to_datetime(text) - now).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(seconds, 0.0), _RETRY_AFTER_MAX) if seconds == seconds else None


def _message_in(data: bytes) -> str:
    """The message of an error as these services send it; the beginning of the text if it looks different."""
    try:
        found = msgspec.json.decode(data)["error"]
        return str(found["message"] if isinstance(found, dict) else found)[:_EXCERPT_CHARS]
    except (msgspec.MsgspecError, UnicodeDecodeError, LookupError, TypeError, RecursionError):
        return data[:_EXCERPT_CHARS].decode("utf-8", "replace").strip()

"""Turn the answer of a server to an `http` action into an output or a failure. All sizes are limited."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2

from mulligan import StepError
from mulligan.core.model.text.http_codes import status_code
from mulligan.worker.actions.http_request import shown

BODY_BYTES_MAX = 16 * 1024 * 1024
# How much of the body of an unexpected answer is shown.
EXCERPT_CHARS = 500
_EXCERPT_BYTES = 4 * EXCERPT_CHARS
_PIECE_BYTES = 1 << 16
_JSON_TYPE = re.compile(r"(?:application|text)/(?:[\w.+-]+\+)?json")


def output(response: httpx2.Response, bytes_max: int | None) -> dict[str, Any]:
    """Return the output of an expected answer. OUTPUT_INVALID if its body does not match its type, or is too large."""
    result = {"status": response.status_code, "headers": dict(response.headers)}
    body = _body(response, bytes_max or BODY_BYTES_MAX)
    if _is_json(response):
        return {**result, "body": _from_json(response, body)}
    text = _as_text(response, body)
    if text is None:
        return {**result, "body": base64.b64encode(body).decode(), "encoding": "base64"}
    return {**result, "body": text}


def unexpected_status(
    request: httpx2.Request, response: httpx2.Response, redirects: int, expected: list[int]
) -> StepError:
    """Return the failure for an answer with an unexpected status."""
    status = response.status_code
    url = shown(response.request.url)
    details: dict[str, Any] = {"status": status, "url": url}
    if (after := retry_after(response)) is not None:
        details["retry_after"] = after
    code, retryable = status_code(status)
    so_far = f" after {redirects} redirects" if redirects and response.has_redirect_location else ""
    expectation = f" (expected {', '.join(map(str, expected))})" if expected else ""
    excerpt = body_excerpt(response)
    message = f"{request.method} {url}: answered {status}{so_far}{expectation}{': ' if excerpt else ''}{excerpt}"
    return StepError(code, message, retryable=retryable, details=details)


def retry_after(response: httpx2.Response) -> float | None:
    """Return how many seconds the server wants us to wait, by its own clock if it sends one."""
    header = response.headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}", header, re.ASCII):
        return float(header)
    due = _date(header)
    if due is None:
        return None
    now = _date(response.headers.get("date", "")) or datetime.now(UTC)
    return max(0.0, round((due - now).total_seconds(), 3))


def _date(text: str) -> datetime | None:
    try:
        result = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return result if result.tzinfo is not None else result.replace(tzinfo=UTC)


def body_excerpt(response: httpx2.Response) -> str:
    """Return the first characters of its body, or as many as arrive."""
    data = bytearray()
    try:
        for chunk in response.iter_bytes():
            data += chunk
            if len(data) >= _EXCERPT_BYTES:
                break
    except httpx2.HTTPError:
        pass
    return data[:_EXCERPT_BYTES].decode("utf-8", "replace")[:EXCERPT_CHARS].strip()


def _body(response: httpx2.Response, bytes_max: int) -> bytes:
    """Read the body, counting decompressed bytes: a few bytes may decompress to gigabytes."""
    data = bytearray()
    for chunk in _decompress(response):
        data += chunk
        if len(data) > bytes_max:
            raise _invalid(response, f"its body has more than {bytes_max} bytes, the limit ('max_body')")
    return bytes(data)


def _decompress(response: httpx2.Response) -> Iterator[bytes]:
    """Yield the body. The library accepts a compressed body that ends early, so gzip is handled here."""
    if response.headers.get("content-encoding", "").strip().lower() != "gzip":
        yield from response.iter_bytes()
        return
    decompressor, has_data = zlib.decompressobj(zlib.MAX_WBITS | 16), False
    for compressed in response.iter_raw():
        has_data = True
        while compressed:
            yield _decompress_piece(decompressor, compressed)
            compressed = decompressor.unconsumed_tail
    if has_data and not decompressor.eof:
        raise httpx2.RemoteProtocolError("its compressed body is incomplete")


def _decompress_piece(decompressor: zlib._Decompress, compressed: bytes) -> bytes:
    try:
        return decompressor.decompress(compressed, _PIECE_BYTES)
    except zlib.error as error:
        raise httpx2.DecodingError(str(error)) from None


def _is_json(response: httpx2.Response) -> bool:
    media = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return _JSON_TYPE.fullmatch(media) is not None


def _from_json(response: httpx2.Response, body: bytes) -> Any:
    """Decode strictly, without NaN. No body at all, as after a HEAD, is null."""
    if not body:
        return None
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = f"its body is not valid JSON: {str(error)[:200].lower()}"
        raise _invalid(response, reason) from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _as_text(response: httpx2.Response, body: bytes) -> str | None:
    """Decode the body by its charset, otherwise as UTF-8; None if it is not text."""
    for charset in (response.charset_encoding, "utf-8"):
        try:
            text = body.decode(charset or "utf-8")
        except (LookupError, ValueError):
            continue
        return None if "\0" in text else text
    return None


def _invalid(response: httpx2.Response, message: str) -> StepError:
    url = shown(response.request.url)
    details = {"status": response.status_code, "url": url}
    return StepError("OUTPUT_INVALID", f"{response.request.method} {url}: {message}", details=details)

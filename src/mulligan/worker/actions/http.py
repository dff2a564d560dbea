"""`http`: one request. Its output is `{status, headers, body}`. Runs in a warm child, so only that loads httpx2."""

from __future__ import annotations

import os
import re
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import httpx2

from mulligan import StepError
from mulligan.core.model.formatting import error_reason
from mulligan.worker.actions.http_request import build_request, shown
from mulligan.worker.actions.http_response import output, unexpected_status

CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 60.0
REDIRECTS_MAX = 10
# The headers that are sent on after a redirect to another server.
_FORWARDED_HEADERS = frozenset(
    "accept accept-encoding accept-language connection content-length host user-agent".split()
)


def run(**request_keys: Any) -> dict[str, Any]:
    """Return the server's answer. Anything else is a StepError: HTTP_…, CONNECTION, TIMEOUT or OUTPUT_INVALID."""
    try:
        return _request(**request_keys)
    except StepError as error:
        # Print it to the log too.
        print(error.message, file=sys.stderr)
        raise


def _request(
    *,
    expect: list[int] | None = None,
    follow_redirects: bool = True,
    connect_timeout: float = CONNECT_SECONDS,
    read_timeout: float = SILENCE_SECONDS,
    max_body: int | None = None,
    verify: bool = True,
    names_limits: bool = True,
    **request_keys: Any,
) -> dict[str, Any]:
    limits = httpx2.Timeout(read_timeout, connect=connect_timeout)
    request = build_request(limits, **request_keys)
    request_limits = _Limits(connect_timeout, read_timeout, names_limits)
    with _client(verify) as client, _translate_errors(request, request_limits):
        response, redirects = _send(client, request, REDIRECTS_MAX if follow_redirects else 0)
        try:
            if response.status_code in expect if expect else response.is_success:
                return output(response, max_body)
            raise unexpected_status(request, response, redirects, expect or [])
        finally:
            response.close()


def _client(verify: bool) -> httpx2.Client:
    """Return a client for one request: a connection that was kept open may be dead, and would look like a failure.

    Uses the proxies of the environment, but not netrc: a password that the workflow does not mention is a surprise.
    """
    certificates = tuple(os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"))
    try:
        return httpx2.Client(verify=_tls(verify, certificates))
    except OSError as error:
        message = f"the certificates that the environment names cannot be read: {error_reason(error)}"
    except (ValueError, ImportError, httpx2.InvalidURL):
        message = "the proxy that the environment names cannot be used"  # its address may hold a password
    raise StepError("INPUT_INVALID", message, retryable=False)


@lru_cache(maxsize=4)
def _tls(verify: bool, certificates: tuple[str | None, ...]) -> ssl.SSLContext:
    """Return a context, cached because it reads all certificates of the system."""
    return httpx2.create_ssl_context(verify=verify)


def _send(client: httpx2.Client, request: httpx2.Request, redirects_max: int) -> tuple[httpx2.Response, int]:
    """Return the answer, its body unread, and how many redirects led there. After too many the last one is returned."""
    redirects = 0
    while True:
        response = client.send(request, stream=True)
        following = response.next_request
        if following is None or redirects == redirects_max:
            return response, redirects
        response.close()  # its body is not needed
        if following.url.scheme not in ("http", "https"):
            raise httpx2.RemoteProtocolError(f"it redirects to '{following.url.scheme}:', which is not HTTP")
        if _is_other_server(request.url, following.url):
            _strip_private(following)
        request, redirects = following, redirects + 1


def _is_other_server(old: httpx2.URL, new: httpx2.URL) -> bool:
    """Whether it is another server. An upgrade of the same host to https is not."""
    is_upgrade = old.scheme == "http" and new.scheme == "https" and old.port is None and new.port is None
    return old.host != new.host or (old.origin != new.origin and not is_upgrade)


def _strip_private(request: httpx2.Request) -> None:
    """Remove from a request what only the first server may see: any header, or the body, may contain a secret."""
    if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
        server = request.url.netloc.decode("ascii")
        raise httpx2.RemoteProtocolError(f"it redirects the body to '{server}', another server")
    for name in [name for name in request.headers if name not in _FORWARDED_HEADERS]:
        del request.headers[name]


class _Limits(NamedTuple):
    """The time limits of a request. `names_limits`: the workflow file has keys with these names."""

    connect_timeout: float
    read_timeout: float
    names_limits: bool

    def timed_out(self, request: httpx2.Request, name: str, message: str) -> StepError:
        """Return the failure of a request that hit this limit, not the timeout of the step."""
        seconds: float = getattr(self, name)
        text = f"{message} {seconds:g}s"
        if not self.names_limits:
            return _failure("TIMEOUT", request, text)
        error = _failure("TIMEOUT", request, f"{text} ({name})")
        error.details |= {"limit": name, "limit_seconds": seconds}
        return error


@contextmanager
def _translate_errors(request: httpx2.Request, limits: _Limits) -> Iterator[None]:
    """Convert the library's exceptions."""
    try:
        yield
    except httpx2.ConnectTimeout:
        raise limits.timed_out(request, "connect_timeout", "no connection within") from None
    except httpx2.WriteTimeout:
        raise limits.timed_out(request, "read_timeout", "the server accepted no data for") from None
    except httpx2.TimeoutException:
        raise limits.timed_out(request, "read_timeout", "the server sent nothing for") from None
    except (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol) as error:
        raise _failure("INPUT_INVALID", request, _reason_of(error), retryable=False) from None
    except UnicodeError:
        raise _failure("INPUT_INVALID", request, "the host name is not valid", retryable=False) from None
    except httpx2.DecodingError:
        raise _failure("OUTPUT_INVALID", request, "its body does not match its content encoding") from None
    except httpx2.HTTPError as error:
        # A certificate does not improve by asking again.
        retryable = False if _is_certificate(error) else None
        raise _failure("CONNECTION", request, _reason_of(error), retryable=retryable) from None


def _failure(code: str, request: httpx2.Request, message: str, *, retryable: bool | None = None) -> StepError:
    where = shown(request.url)
    return StepError(code, f"{request.method} {where}: {message}", retryable=retryable, details={"url": where})


def _is_certificate(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _reason_of(error: Exception) -> str:
    """Return the reason without error number and Python location, in lower case, without a full stop."""
    text = re.sub(r"^\[Errno -?\d+\] | \(_ssl\.c:\d+\)$", "", str(error)).rstrip(".") or type(error).__name__
    text = re.sub(r"^\[SSL(?:: \w+)?\] ", "tls: ", text)
    return text[0].lower() + text[1:]

"""What every request over HTTP shares: the client, and the failures that its errors become.

Only warm children import this module, because httpx2 takes long to load.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import httpx2

from mulligan import StepError
from mulligan.core.model.text.formatting import error_reason
from mulligan.worker.actions.http_request import shown


def make_client(verify: bool) -> httpx2.Client:
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


class Limits(NamedTuple):
    """The time limits of a request. `names_limits`: the workflow file has keys with these names."""

    connect_timeout: float
    read_timeout: float
    names_limits: bool

    def timed_out(self, request: httpx2.Request, name: str, message: str) -> StepError:
        """Return the failure of a request that hit this limit, not the timeout of the step."""
        seconds: float = getattr(self, name)
        text = f"{message} {seconds:g}s"
        if not self.names_limits:
            return request_failure("TIMEOUT", request, text)
        error = request_failure("TIMEOUT", request, f"{text} ({name})")
        error.details |= {"limit": name, "limit_seconds": seconds}
        return error


@contextmanager
def translate_errors(request: httpx2.Request, limits: Limits) -> Iterator[None]:
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
        raise request_failure("INPUT_INVALID", request, _reason_of(error), retryable=False) from None
    except UnicodeError:
        raise request_failure("INPUT_INVALID", request, "the host name is not valid", retryable=False) from None
    except httpx2.DecodingError:
        raise request_failure("OUTPUT_INVALID", request, "its body does not match its content encoding") from None
    except httpx2.HTTPError as error:
        # A certificate does not improve by asking again.
        retryable = False if _is_certificate(error) else None
        raise request_failure("CONNECTION", request, _reason_of(error), retryable=retryable) from None


def request_failure(code: str, request: httpx2.Request, message: str, *, retryable: bool | None = None) -> StepError:
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

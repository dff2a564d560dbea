"""`http`: one request. Its output is `{status, headers, body}`. Runs in a warm child, so only that loads httpx2."""

from __future__ import annotations

import sys
from typing import Any

import httpx2

from mulligan import StepError
from mulligan.worker.actions.http_client import Limits, make_client, translate_errors
from mulligan.worker.actions.http_request import build_request
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
    request_limits = Limits(connect_timeout, read_timeout, names_limits)
    with make_client(verify) as client, translate_errors(request, request_limits):
        response, redirects = _send(client, request, REDIRECTS_MAX if follow_redirects else 0)
        try:
            if response.status_code in expect if expect else response.is_success:
                return output(response, max_body)
            raise unexpected_status(request, response, redirects, expect or [])
        finally:
            response.close()


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

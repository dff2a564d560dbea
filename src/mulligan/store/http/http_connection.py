"""Calls of a server over one kept connection, and what is done if an answer does not come.

Nothing is ever changed twice. A call that only reads is sent again on a new connection. A change is sent again with the
id of the first time, and only to the process of the server that would remember it; otherwise the caller gets
`StoreUnavailable`, which does not say whether the change took effect.

Once a server has answered, whatever else answers in its place is waited for: a proxy with a page of its own, another
certificate, a name that cannot be found. A worker also waits for a server that fails or is of another version, and for
one that does not know its token for a moment.
"""

from __future__ import annotations

import http.client
import os
import select
import ssl
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import msgspec

from mulligan.errors import (
    LanguageError,
    LoginRefused,
    MulliganError,
    Problem,
    StoreForbidden,
    StoreRefused,
    StoreUnavailable,
    TooManyDecisions,
    error_by_code,
)
from mulligan.store.http.http_calls import CALL_HEADER, CALLS, PROCESS_HEADER, PROTOCOL, PROTOCOL_HEADER, WAIT_SECONDS

API = "/api/v1/"
# How long to wait for a connection, and for an answer: a change may wait for the process that drives the run.
CONNECT_SECONDS, ANSWER_SECONDS = 10.0, 60.0
# For how long a worker asks again after its token was refused: the store of the server may have just been restored.
LOGIN_GRACE_SECONDS = 30.0
_JSON = "application/json"
_STORE = f"{API}store/"
# What a server of an older or a newer version answers to a worker.
_OTHER_VERSION = frozenset({"request.path", "store.refused"})
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
# How the type of each error of a server begins: proxies and other programs have problem details too.
_PROBLEM_TYPE = "urn:mulligan:error:"
# Not an answer of a server of Mulligan is longer.
_PROBLEM_BYTES_MAX = 1 << 20
_A_TOKEN = "an administrator of the server can make another token: mulligan token create; then: mulligan login URL"
# What the answer of a server without TLS looks like.
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_AMBIGUOUS = "it is unknown whether the last change took effect: look at the run before you repeat it"


class Transport(Protocol):
    """How calls reach a server."""

    def call(self, name: str, body: bytes) -> bytes:
        """The answer to a call of the table. Errors of the server are raised as what they are there."""

    def upload(self, query: Mapping[str, str], data: bytes) -> bytes:
        """Keep an artifact. The answer is its description."""

    def begin_wait(self, since: int) -> int | None:
        """Ask to be woken by the next change behind number `since`. The descriptor that becomes readable then."""

    def end_wait(self) -> int | None:
        """The number of the last change, if the server has answered; None while it has not."""

    def close(self) -> None: ...


class HttpTransport:
    """Calls over HTTP. `scope` is what the waiting is for: `read`, or `worker`."""

    def __init__(
        self,
        url: str,
        *,
        token: str,
        ca_file: str = "",
        scope: str = "read",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = Address(url, ca_file)
        self._token = token
        self._scope = scope
        self._monotonic = monotonic
        # Whether a server of Mulligan has answered here, and since when it refuses the token.
        self._was_reached = False
        self._refused_at: float | None = None
        self._connection: http.client.HTTPConnection | None = None
        self._waiting: http.client.HTTPConnection | None = None
        self._is_waiting = False
        # The process that has answered last.
        self._process = ""

    def close(self) -> None:
        for connection in (self._connection, self._waiting):
            if connection is not None:
                connection.close()
        self._connection = self._waiting = None
        self._is_waiting = False

    # -- calls -------------------------------------------------------------------------------------------------------

    def call(self, name: str, body: bytes) -> bytes:
        call = CALLS[name]
        path = f"{API}store/{call.scope}/{name}"
        return self._ask("POST", path, body, {"Content-Type": _JSON}, is_change=call.is_change)

    def upload(self, query: Mapping[str, str], data: bytes) -> bytes:
        words = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        # Repeating it does no harm: the second one gets another name, and `gc` removes what no log refers to.
        path = f"{API}store/artifacts?{words}"
        return self._ask("POST", path, data, {"Content-Type": "application/octet-stream"}, is_change=False)

    def request(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = NO_HEADERS) -> bytes:
        """The answer of a route below `/api/v1`. A change is sent once: who has a key for it may ask again."""
        sent = {"Content-Type": _JSON, **headers} if body else headers
        is_change = method != "GET"
        return self._ask(method, f"{API}{path}", body, sent, is_change=is_change, is_remembered=not is_change)

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        is_change: bool,
        is_remembered: bool = True,
    ) -> bytes:
        """The answer to a request, which is sent at most twice; a change only if the server remembers the first one."""
        call_id = os.urandom(12).hex() if is_change else ""
        sent = {**headers, **self._headers, **({CALL_HEADER: call_id} if call_id else {})}
        was_sent = False
        try:
            connection = self._kept_connection()
            was_sent = True
            return self._exchange(connection, method, path, body, sent)
        except _ConnectionLost as lost:
            self._drop()
            if is_change and was_sent and not (self._process and is_remembered):
                raise self._unavailable(lost, is_change=True) from lost
        if is_change and was_sent:
            sent[PROCESS_HEADER] = self._process
        try:
            return self._exchange(self._kept_connection(), method, path, body, sent)
        except _ConnectionLost as lost:
            self._drop()
            raise self._unavailable(lost, is_change=is_change and was_sent) from lost

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
    ) -> bytes:
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise _ConnectionLost(_reason(error)) from error
        process = answer.headers.get(PROCESS_HEADER, "")
        self._process = process or self._process
        if answer.status >= 400:
            raise self._refusal(answer.status, data)
        if path.startswith(_STORE) and not process:
            raise self._foreign(answer.status)
        self._was_reached, self._refused_at = True, None
        return data

    def _refusal(self, status: int, data: bytes) -> MulliganError:
        """The error of an answer: `StoreUnavailable` if a better one may follow."""
        problem = _read_problem(data)
        if problem is None:
            return self._foreign(status)
        error = error_of(status, data, self._address.shown)
        if not self._was_reached or isinstance(error, StoreUnavailable):
            return error
        is_worker = self._scope == "worker"
        is_waited_for = is_temporary(status, problem.code, is_worker=is_worker)
        if is_worker and isinstance(error, LoginRefused):
            now = self._monotonic()
            self._refused_at = now if self._refused_at is None else self._refused_at
            is_waited_for = now - self._refused_at < LOGIN_GRACE_SECONDS
        return StoreUnavailable(error.message, hint=error.hint) if is_waited_for else error

    def _foreign(self, status: int) -> MulliganError:
        # Whoever is at the other end would answer the next question too, also when the server is back.
        self._drop()
        return foreign_answer(status, self._address.shown, was_reached=self._was_reached)

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}", PROTOCOL_HEADER: str(PROTOCOL)}

    def _kept_connection(self) -> http.client.HTTPConnection:
        """The connection, a new one if the server has closed it: what is sent on a closed one is lost."""
        if self._connection is not None and _is_readable(self._connection):
            self._drop()
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> http.client.HTTPConnection:
        try:
            return self._address.connect()
        except StoreRefused as refused:
            if not self._was_reached:
                raise
            # Its certificate was good before.
            raise _ConnectionLost(refused.message) from refused

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _unavailable(self, lost: Exception, *, is_change: bool = False) -> StoreUnavailable:
        hint = _AMBIGUOUS if is_change else f"is a server running at {self._address.shown}? mulligan server starts one"
        return StoreUnavailable(f"the server at {self._address.shown} does not answer: {lost}", hint=hint)

    # -- waiting for changes -----------------------------------------------------------------------------------------

    def begin_wait(self, since: int) -> int | None:
        try:
            if self._waiting is None:
                self._waiting = self._connect()
                # A TLS server sends tickets behind the handshake. They are read with the first answer.
                self._request_wait(0, -1)
                self._waiting.getresponse().read()
            self._request_wait(WAIT_SECONDS, since)
        except (_ConnectionLost, OSError, http.client.HTTPException) as error:
            self._end_waiting()
            raise self._unavailable(error) from error
        self._is_waiting = True
        return self._waiting.sock.fileno() if self._waiting.sock is not None else None

    def _request_wait(self, seconds: float, since: int) -> None:
        assert self._waiting is not None
        path = f"{API}store/changes/{self._scope}?seconds={seconds:g}&since={since}"
        self._waiting.request("GET", path, headers=self._headers)

    def end_wait(self) -> int | None:
        if self._waiting is None or not self._is_waiting or not _is_readable(self._waiting):
            return None
        try:
            answer = self._waiting.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._end_waiting()
            raise self._unavailable(_ConnectionLost(_reason(error))) from error
        self._is_waiting = False
        try:
            if answer.status < 400:
                return msgspec.json.decode(data, type=int)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._end_waiting()
            raise self._foreign(answer.status) from None
        self._end_waiting()
        raise self._refusal(answer.status, data)

    def _end_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.close()
        self._waiting, self._is_waiting = None, False


# X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH.
_OTHER_NAME = (62, 64)


class _ConnectionLost(Exception):
    """No connection, or none that lasted until the answer."""


class Address:
    """Where a server is: `https://HOST[:PORT]`. A path before `/api/v1` is kept out: a server has the whole host."""

    def __init__(self, url: str, ca_file: str = "") -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        is_plain = not (parts.username or parts.password or parts.query or parts.fragment or parts.path.strip("/"))
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1 or not is_plain:
            # The text is not shown: it may have a password in it.
            raise StoreRefused(
                "the address of the server is not a URL like https://HOST:PORT",
                hint="write it without a user, a password and a path; the token goes into MULLIGAN_TOKEN",
            )
        self._host, self._port, self._is_tls = parts.hostname, port, parts.scheme == "https"
        self.shown = f"{parts.scheme}://{parts.netloc}"
        self._ca_file = ca_file
        self._context: ssl.SSLContext | None = None

    def connect(self) -> http.client.HTTPConnection:
        connection = self._make()
        try:
            connection.connect()
        except ssl.SSLCertVerificationError as error:
            connection.close()
            is_other_name = error.verify_code in _OTHER_NAME
            raise StoreRefused(
                f"the certificate of {self.shown} cannot be verified: {error.verify_message.rstrip('.')}",
                hint="write the address with a name that is in the certificate"
                if is_other_name
                else "if an authority of your own has signed it: MULLIGAN_CA_FILE=FILE",
            ) from error
        except ssl.SSLError as error:
            connection.close()
            if error.reason != "WRONG_VERSION_NUMBER":
                raise _ConnectionLost(_reason(error)) from error
            raise StoreRefused(
                f"there is no TLS at {self.shown}", hint="if the server has none, the address begins with http://"
            ) from error
        except OSError as error:
            connection.close()
            if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
                plain = self.shown.replace("https:", "http:", 1)
                raise StoreRefused(f"{self.shown} does not speak TLS", hint=f"if that is meant: {plain}") from error
            raise _ConnectionLost(_reason(error)) from error
        if connection.sock is not None:
            connection.sock.settimeout(ANSWER_SECONDS)
        return connection

    def _make(self) -> http.client.HTTPConnection:
        if not self._is_tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_SECONDS)
        if self._context is None:
            self._context = self._make_context()
        return http.client.HTTPSConnection(self._host, self._port, timeout=CONNECT_SECONDS, context=self._context)

    def _make_context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._ca_file or None)
        except (OSError, ssl.SSLError) as error:
            raise StoreRefused(
                f"'{self._ca_file}' cannot be used as the file of a certificate authority: {_reason(error)}",
                hint="MULLIGAN_CA_FILE names a file with certificates in PEM",
            ) from error


class _ProblemDetails(msgspec.Struct, frozen=True):
    """An error as a server sends it."""

    type: str
    code: str
    detail: str
    hint: str = ""
    data: dict[str, Any] = {}
    problems: list[Problem] = []


def _read_problem(data: bytes) -> _ProblemDetails | None:
    """The error as a server sends it; None if something else has answered."""
    try:
        found = msgspec.json.decode(data[:_PROBLEM_BYTES_MAX], type=_ProblemDetails)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if found.type.startswith(_PROBLEM_TYPE) else None


def is_temporary(status: int, code: str, *, is_worker: bool) -> bool:
    """Whether a server that has answered before may give a better answer later. A worker has time to wait for it."""
    return status in (502, 503, 504) or (is_worker and (status >= 500 or code in _OTHER_VERSION))


def foreign_answer(status: int, where: str, *, was_reached: bool) -> MulliganError:
    """The error of an answer that is not our server's: something stands in its place, or the address is wrong."""
    message = f"{where} answers with HTTP status {status}, and not as a server of Mulligan does"
    if was_reached or status in (502, 503, 504):
        return StoreUnavailable(message, hint="a proxy may be waiting for the server: ask again later")
    return StoreRefused(message, hint="is it the address of a server of Mulligan?")


def error_of(status: int, data: bytes, where: str) -> MulliganError:
    """The error that a server answers with, of the class that it has there."""
    found = _read_problem(data)
    if found is None:
        return foreign_answer(status, where, was_reached=False)
    if found.code in ("token.refused", "token.scope"):
        # What this means to somebody who has a store, and what to do about it.
        kind = LoginRefused if found.code == "token.refused" else StoreForbidden
        return kind(f"the server at {where} refuses: {found.detail}", hint=_A_TOKEN, **_fields(found.data))
    if status == 503 or (status == 429 and found.code != TooManyDecisions.code):
        return StoreUnavailable(found.detail, hint=found.hint)
    kind_of_error = error_by_code(found.code)
    if issubclass(kind_of_error, LanguageError):
        return LanguageError(found.problems)
    try:
        error = kind_of_error(found.detail, hint=found.hint, **_fields(found.data))
    except TypeError:
        error = kind_of_error(found.detail, hint=found.hint)
    if error.code != found.code:
        # Its class is not loaded here, or belongs to a later version.
        error.__dict__.update(code=found.code, exit_code=2 if status < 500 else error.exit_code)
    return error


def _fields(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in ("message", "hint")}


def _is_readable(connection: http.client.HTTPConnection) -> bool:
    """Whether something has arrived that nobody has asked for: the end of the connection."""
    sock = connection.sock
    if sock is None:
        return True
    waiting = select.poll()
    waiting.register(sock, select.POLLIN)
    return bool(waiting.poll(0))


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error).lower() or type(error).__name__

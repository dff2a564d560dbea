"""`http`: what is asked, what is made of the answer, and what a bad server can do to it."""

from __future__ import annotations

import base64
import gzip
import socket
import ssl
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.web import Answer, as_json, reset, response, serving
from tests.support.work import Work

from mulligan.core.deciding.classify import classify
from mulligan.core.model.failure import Failure
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded

# Whatever the terminal of the tests is set to, a loopback server is asked directly.
DIRECTLY = {"NO_PROXY": "*"}
CERTIFICATE = Path(__file__).parent / "loopback.pem"


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Work]:
    """One worker for all: what a request needs is loaded once."""
    work = Work(tmp_path_factory.mktemp("work"))
    yield work
    work.close()
    assert work.remaining() == []


def ask(
    work: Work, url: str, env: dict[str, Any] | None = None, timeout: float | None = None, **keys: Any
) -> TaskEnded:
    return work.run(work.lease("http", {"method": "GET", "url": url, **keys}, env=env or DIRECTLY, timeout=timeout))


def answered(work: Work, *answers: Answer, **keys: Any) -> TaskEnded:
    with serving(*answers) as web:
        return ask(work, f"{web.url}/at?q=secret", **keys)


def failed(report: TaskEnded) -> dict[str, Any]:
    """What it says went wrong."""
    assert report.output is None
    (reported,) = report.outcome.reported
    return dict(reported)


def body_of(report: TaskEnded) -> Any:
    assert report.outcome == Outcome(), report.outcome
    return report.output["body"]


# -- what is asked ---------------------------------------------------------------------------------------------------


def test_a_request_has_what_its_keys_say(work: Work) -> None:
    keys = {"headers": {"X-One": 1, "X-Text": "é"}, "params": {"a b": "c&d", "n": [1, None, True], "no": None}}
    with serving(response()) as web:
        ask(work, f"{web.url}/path?first=1#fragment", **keys)

        assert web.line() == "GET /path?first=1&a+b=c%26d&n=1&n=true HTTP/1.1"
        assert (web.headers()["x-one"], web.headers()["x-text"]) == ("1", "é")
        assert web.headers()["host"] == f"127.0.0.1:{web.port}"


@pytest.mark.parametrize(
    ("keys", "content_type", "body"),
    [
        ({"json": {"text": "é", "n": 1}}, "application/json", '{"text":"é","n":1}'.encode()),
        # Null is a value of JSON's.
        ({"json": None}, "application/json", b"null"),
        ({"body": "as it is\n"}, None, b"as it is\n"),
        ({"body": 7}, None, b"7"),
        ({"form": {"a": "b c", "d": ["1", 2]}}, "application/x-www-form-urlencoded", b"a=b+c&d=1&d=2"),
        # What the user says about the type counts.
        ({"json": 1, "headers": {"content-type": "text/x-own"}}, "text/x-own", b"1"),
    ],
)
def test_a_body_is_sent_as_its_key_says(work: Work, keys: dict[str, Any], content_type: str, body: bytes) -> None:
    with serving(response()) as web:
        ask(work, web.url, method="POST", **keys)

        assert web.headers().get("content-type") == content_type
        assert web.body() == body


def test_a_name_and_a_password_are_sent_as_basic_authentication(work: Work) -> None:
    with serving(response()) as web:
        ask(work, web.url, auth={"user": "ann", "password": "pä:ss"})
        by_key = web.headers()["authorization"]
        ask(work, web.url.replace("//", "//ann:p%C3%A4:ss@"))

        assert by_key == web.headers()["authorization"] == "Basic " + base64.b64encode("ann:pä:ss".encode()).decode()


@pytest.mark.parametrize(
    ("method", "headers", "sent"),
    [
        ("POST", {}, "r-1:charge:2"),
        ("PATCH", {}, "r-1:charge:2"),
        # These do nothing more when they come once more.
        ("PUT", {}, None),
        ("GET", {}, None),
        ("POST", {"Idempotency-Key": "mine"}, "mine"),
        # Null: not sent at all.
        ("POST", {"Idempotency-Key": None}, None),
    ],
)
def test_a_post_says_which_visit_it_is_for(work: Work, method: str, headers: dict[str, Any], sent: str | None) -> None:
    with serving(response()) as web:
        params = {"method": method, "url": web.url, "headers": headers}
        work.run(work.lease("http", params, env=DIRECTLY, uid="r-1", place="charge", visit=2))

        assert web.headers().get("idempotency-key") == sent


def test_a_proxy_of_the_environment_is_used_and_no_netrc(work: Work, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine example.test login ann password secret\n")
    with serving(response(200, b"from the proxy")) as proxy:
        env = {"http_proxy": proxy.url, "NO_PROXY": "", "HOME": str(tmp_path)}
        report = ask(work, "http://example.test/page", env)

        assert body_of(report) == "from the proxy"
        assert proxy.line() == "GET http://example.test/page HTTP/1.1"
        assert "authorization" not in proxy.headers()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"url": "ftp://example.test/x"},
            "'ftp://example.test/x' is not an http(s) URL",
        ),
        ({"url": "example.test"}, "'example.test' is not an http(s) URL"),
        ({"url": ""}, "'' is not an http(s) URL"),
        ({"url": None}, "'' is not an http(s) URL"),
        ({"url": "http:///x"}, "'http:///x' is not a URL: it has no host, or an invalid port"),
        ({"url": "http://h:99999"}, "'http://h:99999' is not a URL: it has no host, or an invalid port"),
        # Neither who asks nor what is asked is told.
        ({"url": "http://ann:secret@h:port/?k=v"}, "'http://h:port/' is not a URL: invalid port: 'port'"),
        (
            {"url": "http://h/", "headers": {"X-A": "1\r\nX-B: 2"}},
            "the header 'x-a' contains a line break or another control character",
        ),
        (
            {"url": "http://h/", "json": 1, "body": "x"},
            "a request can have only one body, and this one has 'json' and 'body'",
        ),
    ],
)
def test_what_no_server_can_be_asked_is_refused(work: Work, keys: dict[str, Any], message: str) -> None:
    assert failed(ask(work, **keys)) == {"code": "INPUT_INVALID", "message": message, "retryable": False}


def test_a_host_that_can_have_no_name_is_refused(work: Work) -> None:
    url = f"http://{'a' * 70}.test/"

    assert failed(ask(work, url)) == {
        "code": "INPUT_INVALID",
        "message": f"GET {url}: the host name is not valid",
        "retryable": False,
        "details": {"url": url},
    }


def test_a_proxy_that_is_none_is_refused_without_its_address(work: Work) -> None:
    report = ask(work, "http://example.test/", {"http_proxy": "gopher://ann:secret@h", "NO_PROXY": ""})

    assert failed(report) == {
        "code": "INPUT_INVALID",
        "message": "the proxy that the environment names cannot be used",
        "retryable": False,
    }


# -- what is made of the answer --------------------------------------------------------------------------------------


def test_the_output_is_status_headers_and_body(work: Work) -> None:
    report = answered(work, as_json('{"results": [1, 2]}', 201, "X-Twice: a", "X-TWICE: b"))

    assert report.outcome == Outcome()
    assert report.output == {
        "status": 201,
        "headers": {"content-type": "application/json", "x-twice": "a, b", "content-length": "19"},
        "body": {"results": [1, 2]},
    }


@pytest.mark.parametrize(
    ("content_type", "body", "found"),
    [
        ("application/json; charset=utf-8", b"[1]", [1]),
        ("application/problem+json", b'{"a": null}', {"a": None}),
        ("application/jsonp", b"[1]", "[1]"),
        # No body at all is no JSON, and no lie either.
        ("application/json", b"", None),
        ("text/plain", b"", ""),
        ("text/plain", "é\n".encode(), "é\n"),
        ("text/plain; charset=iso-8859-1", b"\xe9", "é"),
        # An encoding that nobody knows, or that it is not in: it may still be UTF-8.
        ("text/plain; charset=nonsense", "é".encode(), "é"),
        ("text/plain; charset=ascii", "é".encode(), "é"),
        ("text/plain; charset=base64", b"aGk=", "aGk="),
    ],
)
def test_a_body_is_what_its_type_says(work: Work, content_type: str, body: bytes, found: Any) -> None:
    report = answered(work, response(200, body, f"Content-Type: {content_type}"))

    assert body_of(report) == found
    assert "encoding" not in report.output


@pytest.mark.parametrize("body", [b"\x89PNG\r\n\x1a\n\xff", b"a\0b", b"\xff\xfe"])
def test_what_is_no_text_is_base64(work: Work, body: bytes) -> None:
    report = answered(work, response(200, body, "Content-Type: image/png"))

    assert base64.b64decode(body_of(report)) == body
    assert report.output["encoding"] == "base64"


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_a_packed_body_is_unpacked(work: Work, encoding: str, pack: Any) -> None:
    report = answered(work, response(200, pack(b"packed"), f"Content-Encoding: {encoding}"))

    assert body_of(report) == "packed"


def test_the_head_of_a_page_has_no_body(work: Work) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"

    assert body_of(answered(work, head, method="HEAD")) is None


@pytest.mark.parametrize("body", ["{", "{'a': 1}", "[NaN]", "[" * 100_000, '"\\ud800"', "\xff"])
def test_json_that_is_none_is_invalid(work: Work, body: str) -> None:
    report = answered(work, response(200, body.encode("latin-1"), "Content-Type: application/json"))

    failure = failure_of(report)
    assert failure.code == "OUTPUT_INVALID"
    assert "JSON" in failure.message


def failure_of(report: TaskEnded) -> Failure:
    failure, _ = classify(report.outcome)
    assert failure is not None
    return failure


def test_what_is_said_of_json_that_is_none(work: Work) -> None:
    with serving(as_json("{")) as web:
        report = ask(work, f"{web.url}/at?q=secret")

    assert failed(report) == {
        "code": "OUTPUT_INVALID",
        "message": f"GET {web.url}/at: its body is not valid JSON: "
        "expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        "details": {"status": 200, "url": f"{web.url}/at"},
    }


# -- statuses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (500, "HTTP_5XX", True),
        (503, "HTTP_5XX", True),
        (429, "HTTP_429", True),
        (404, "HTTP_4XX", False),
        # The server itself asks to be asked again.
        (408, "HTTP_4XX", True),
        (425, "HTTP_4XX", True),
        (304, "VALIDATION_FAILED", True),
    ],
)
def test_a_status_that_is_not_expected_is_a_failure(work: Work, status: int, code: str, retryable: bool) -> None:
    failure = failure_of(answered(work, response(status)))

    assert (failure.code, failure.retryable) == (code, retryable)


@pytest.mark.parametrize(
    ("status", "expect", "code"),
    [(404, [200, 404], ""), (302, [302], ""), (200, [201], "VALIDATION_FAILED"), (202, [200], "VALIDATION_FAILED")],
)
def test_only_what_is_expected_is_a_success(work: Work, status: int, expect: list[int], code: str) -> None:
    report = answered(work, response(status), expect=expect)

    assert (report.output["status"] if report.output else failure_of(report).code) == (code or status)


def test_an_answer_that_is_not_expected_tells_what_was(work: Work) -> None:
    with serving(response(200, b"hello")) as web:
        failure = failure_of(ask(work, web.url + "/at", expect=[201, 202]))

    assert failure.message == f"GET {web.url}/at: answered 200 (expected 201, 202): hello"


def test_a_failure_tells_the_method_the_address_the_status_and_the_head_of_the_body(work: Work) -> None:
    with serving(response(503, b"x" * 2000 + b"y")) as web:
        report = ask(work, web.url.replace("//", "//ann:secret@") + "/at?token=secret", method="PUT")

    assert failed(report) == {
        "code": "HTTP_5XX",
        "message": f"PUT {web.url}/at: answered 503: {'x' * 500}",
        "details": {"status": 503, "url": f"{web.url}/at"},
    }
    assert report.outcome.trace.splitlines() == [f"mulligan.StepError: PUT {web.url}/at: answered 503: {'x' * 500}"]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        (("Retry-After: 7",), 7.0),
        (("Retry-After: Sun, 06 Nov 1994 08:49:37 GMT", "Date: Sun, 06 Nov 1994 08:49:07 GMT"), 30.0),
        # It was to be asked again long ago.
        (("Retry-After: Sun, 06 Nov 1994 08:49:37 GMT",), 0.0),
        (("Retry-After: soon",), None),
        (("Retry-After: -1",), None),
        (("Retry-After: 99999999999999999999",), None),
        (("Retry-After: Sun, 99 Nov 1994 08:49:37 GMT",), None),
        ((), None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_when_to_ask_again_is_told(work: Work, headers: tuple[str, ...], seconds: float | None, status: int) -> None:
    details = failed(answered(work, response(status, b"", *headers)))["details"]

    assert details.get("retry_after") == seconds


# -- certificates ----------------------------------------------------------------------------------------------------


@pytest.fixture
def tls() -> ssl.SSLContext:
    """A server whose certificate nobody knows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


def test_a_certificate_that_nobody_knows_is_not_asked_again(work: Work, tls: ssl.SSLContext) -> None:
    with serving(response(), tls=tls) as web:
        failure = failure_of(ask(work, web.url))

    assert (failure.code, failure.retryable) == ("CONNECTION", False)
    assert "certificate verify failed: self-signed certificate" in failure.message


def test_a_certificate_may_be_known_to_the_environment_or_not_be_looked_at(work: Work, tls: ssl.SSLContext) -> None:
    with serving(response(200, b"secure"), tls=tls) as web:
        assert body_of(ask(work, web.url, {**DIRECTLY, "SSL_CERT_FILE": str(CERTIFICATE)})) == "secure"
        assert body_of(ask(work, web.url, verify=False)) == "secure"


def test_a_server_that_does_not_speak_tls_is_a_failed_connection(work: Work) -> None:
    with serving(response()) as web:
        url = web.url.replace("http:", "https:")
        failure = failure_of(ask(work, url))

    assert (failure.code, failure.retryable) == ("CONNECTION", True)
    # What follows is OpenSSL's, and another word with each of its versions.
    assert failure.message.startswith(f"GET {url}: tls: ")
    assert "_ssl.c" not in failure.message


def test_certificates_that_cannot_be_read_are_bad_input(work: Work) -> None:
    report = ask(work, "https://127.0.0.1:1/", {**DIRECTLY, "SSL_CERT_FILE": "/no/such/file"})

    assert failed(report) == {
        "code": "INPUT_INVALID",
        "message": "the certificates that the environment names cannot be read: no such file or directory",
        "retryable": False,
    }


# -- redirects -------------------------------------------------------------------------------------------------------


def test_a_redirect_is_followed_and_a_post_becomes_a_get(work: Work) -> None:
    with serving(response(302, b"moved", "Location: /there?x=1"), response(200, b"here")) as web:
        report = ask(work, web.url, method="POST", json={})

        assert body_of(report) == "here"
        assert [web.line(0), web.line(1)] == ["POST / HTTP/1.1", "GET /there?x=1 HTTP/1.1"]


def test_who_asks_is_not_told_to_another_server(work: Work) -> None:
    with serving(response(200, b"other")) as other, serving(response(307, b"", f"Location: {other.url}")) as web:
        report = ask(work, web.url, auth={"user": "ann", "password": "secret"})

        assert body_of(report) == "other"
        assert "authorization" in web.headers()
        assert "authorization" not in other.headers()


def test_no_header_that_may_hold_a_secret_is_sent_to_another_server(work: Work) -> None:
    headers = {"X-Api-Key": "secret", "Cookie": "session=secret", "Accept": "text/plain"}
    with serving(response(200, b"other")) as other, serving(response(302, b"", f"Location: {other.url}")) as web:
        report = ask(work, web.url, headers=headers, method="POST", json={})

        assert body_of(report) == "other"
        assert web.headers()["x-api-key"] == "secret"
        assert other.headers()["accept"] == "text/plain"
        assert "secret" not in str(other.requests)
        assert "idempotency-key" not in other.headers()


def test_the_same_server_is_sent_them_again(work: Work) -> None:
    with serving(response(307, b"", "Location: /there"), response(200, b"here")) as web:
        report = ask(work, web.url, headers={"X-Api-Key": "secret"}, method="POST", json={"a": 1})

        assert body_of(report) == "here"
        assert (web.headers()["x-api-key"], web.body()) == ("secret", b'{"a":1}')


@pytest.mark.parametrize("status", [307, 308])
def test_a_body_is_not_sent_to_another_server(work: Work, status: int) -> None:
    with serving(response(200, b"other")) as other, serving(response(status, b"", f"Location: {other.url}")) as web:
        told = failed(ask(work, web.url, method="POST", json={"password": "secret"}))

        assert told["code"] == "CONNECTION"
        assert told["message"] == (f"POST {web.url}: it redirects the body to '127.0.0.1:{other.port}', another server")
        assert other.requests == []


def test_redirects_without_end_are_given_up(work: Work) -> None:
    with serving(response(302, b"", "Location: /again")) as web:
        report = ask(work, web.url)

        assert failed(report)["message"] == f"GET {web.url}/again: answered 302 after 10 redirects"
        assert len(web.requests) == 11


def test_a_redirect_that_is_not_to_be_followed_is_the_answer(work: Work) -> None:
    report = answered(work, response(302, b"", "Location: /there"), follow_redirects=False, expect=[302])

    assert report.output["headers"]["location"] == "/there"


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("file:///etc/passwd", "it redirects to 'file:', which is not HTTP"),
        ("http://h:port/", "invalid URL in location header: Invalid port: 'port'"),
    ],
)
def test_a_redirect_to_what_is_no_page_is_refused(work: Work, location: str, reason: str) -> None:
    with serving(response(302, b"", f"Location: {location}")) as web:
        assert failed(ask(work, f"{web.url}/")) == {
            "code": "CONNECTION",
            "message": f"GET {web.url}/: {reason}",
            "details": {"url": f"{web.url}/"},
        }


def test_the_body_of_a_redirect_is_not_read(work: Work) -> None:
    def endless(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 99999999999\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    assert body_of(answered(work, endless, response(200, b"there"))) == "there"


# -- bad servers -----------------------------------------------------------------------------------------------------


def broken(answer: bytes) -> Any:
    """An answer after which the connection is reset."""

    def act(connection: socket.socket) -> None:
        connection.sendall(answer)
        reset(connection)

    return act


@pytest.mark.parametrize(
    "answer",
    [
        # Nothing at all; an error at once.
        b"",
        reset,
        # It promises more than it gives, by number and by chunk.
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        # It does not speak HTTP; its header never ends.
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-A: " + b"a" * 300_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: a lot\r\n\r\n",
        b"\0\xff\0\xff\r\n\r\n",
    ],
)
def test_a_server_that_breaks_off_or_lies_is_a_failed_connection(work: Work, answer: Answer) -> None:
    failure = failure_of(answered(work, answer))

    assert (failure.code, failure.retryable) == ("CONNECTION", True)


def test_what_is_said_of_a_body_that_breaks_off(work: Work) -> None:
    with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf") as web:
        report = ask(work, f"{web.url}/at?q=secret")

    assert failed(report) == {
        "code": "CONNECTION",
        "message": f"GET {web.url}/at: peer closed connection without sending complete message body "
        "(received 4 bytes, expected 100)",
        "details": {"url": f"{web.url}/at"},
    }


def test_a_body_that_is_longer_than_it_says_is_what_it_says(work: Work) -> None:
    assert body_of(answered(work, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhalf and more")) == "half"


def test_a_failure_whose_body_breaks_off_is_still_that_failure(work: Work) -> None:
    report = answered(work, b"HTTP/1.1 500 Oh\r\nContent-Length: 100\r\n\r\nhalf")

    assert failed(report)["message"].endswith("answered 500: half")


def test_a_server_that_is_not_there_refuses(work: Work) -> None:
    with serving(response()) as web:
        pass

    assert failed(ask(work, f"{web.url}/at")) == {
        "code": "CONNECTION",
        "message": f"GET {web.url}/at: connection refused",
        "details": {"url": f"{web.url}/at"},
    }


def test_a_request_that_failed_has_no_exit_code_and_tells_no_line_of_our_code(work: Work) -> None:
    with serving(response()) as web:
        pass

    found = failure_of(ask(work, web.url))

    assert (found.code, found.exit_code) == ("CONNECTION", None)
    assert found.trace == f"mulligan.StepError: GET {web.url}: connection refused\n"


def test_a_failure_is_in_the_log_of_the_step(work: Work) -> None:
    lease = work.lease("http", {"url": "nowhere"}, env=DIRECTLY)

    work.run(lease)

    told = "'nowhere' is not an http(s) URL\n"
    assert work.log(lease, "err").read_text() == told


def test_a_name_that_nobody_knows_is_a_failed_connection(work: Work) -> None:
    # Where there is no network, nobody waits for it.
    impatient = {**DIRECTLY, "RES_OPTIONS": "timeout:1 attempts:1"}

    failure = failure_of(ask(work, "http://no-such-host.invalid/", impatient))

    assert (failure.code, failure.retryable) == ("CONNECTION", True)


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"])
def test_a_server_that_is_silent_takes_no_longer_than_it_may(work: Work, begun: bytes) -> None:
    def hang(connection: socket.socket) -> None:
        connection.sendall(begun)
        connection.recv(1)

    with serving(hang) as web:
        assert failed(ask(work, web.url, read_timeout=0.2)) == {
            "code": "TIMEOUT",
            "message": f"GET {web.url}: the server sent nothing for 0.2s (read_timeout)",
            "details": {"url": web.url, "limit": "read_timeout", "limit_seconds": 0.2},
        }


def test_a_connection_that_does_not_come_about_takes_no_longer_than_it_may(work: Work) -> None:
    # A queue that is full takes nobody in, and says nothing.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.socket() as first, socket.socket() as second:
        for other in (first, second):
            other.setblocking(False)
            other.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"

        assert failed(ask(work, url, connect_timeout=0.2)) == {
            "code": "TIMEOUT",
            "message": f"GET {url}: no connection within 0.2s (connect_timeout)",
            "details": {"url": url, "limit": "connect_timeout", "limit_seconds": 0.2},
        }


def test_the_time_of_the_step_ends_it_whatever_the_server_does(work: Work) -> None:
    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            connection.sendall(b"x")
            connection.settimeout(0.05)
            try:
                if not connection.recv(1):
                    return
            except TimeoutError:
                continue

    assert answered(work, drip, timeout=0.5).outcome.is_timed_out


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_body_without_end_is_cut_short(work: Work, is_packed: bool) -> None:
    def endless(connection: socket.socket) -> None:
        how = b"Content-Encoding: gzip\r\n" if is_packed else b""
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + how + b"Connection: close\r\n\r\n")
        pack = zlib.compressobj(wbits=31)
        while True:
            data = b"\0" * (1 << 20)
            connection.sendall(pack.compress(data) if is_packed else data)

    with serving(endless) as web:
        report = ask(work, web.url)

    assert failed(report) == {
        "code": "OUTPUT_INVALID",
        "message": f"GET {web.url}: its body has more than 16777216 bytes, the limit ('max_body')",
        "details": {"status": 200, "url": web.url},
    }
    assert report.usage["peak_memory"] < 200 << 20


def test_how_large_a_body_may_be_can_be_said(work: Work) -> None:
    assert body_of(answered(work, response(200, b"x" * 100), max_body=100)) == "x" * 100
    assert failed(answered(work, response(200, b"x" * 101), max_body=100))["code"] == "OUTPUT_INVALID"


def test_what_is_not_packed_as_it_says_is_invalid(work: Work) -> None:
    with serving(response(200, b"no gzip", "Content-Encoding: gzip")) as web:
        assert failed(ask(work, web.url)) == {
            "code": "OUTPUT_INVALID",
            "message": f"GET {web.url}: its body does not match its content encoding",
            "details": {"url": web.url},
        }


@pytest.mark.parametrize(
    "answer",
    [
        # The length is true, and what is packed is not whole.
        response(200, gzip.compress(b"x" * 100_000)[:-20], "Content-Encoding: gzip"),
        # Nobody says how long it is, so that the end of the connection is its end.
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"x" * 100_000)[:60],
    ],
)
def test_a_packed_body_that_breaks_off_is_a_failed_connection(work: Work, answer: bytes) -> None:
    failure = failure_of(answered(work, answer))

    assert (failure.code, failure.retryable) == ("CONNECTION", True)
    assert failure.message.endswith(": its compressed body is incomplete")


def test_a_body_that_is_packed_and_empty_is_empty(work: Work) -> None:
    assert body_of(answered(work, response(200, b"", "Content-Encoding: gzip"))) == ""


def test_a_redirect_to_an_endless_address_is_told_with_its_beginning(work: Work) -> None:
    failure = failure_of(answered(work, response(302, b"", "Location: /" + "a" * 50_000)))

    assert failure.message.startswith("GET http://127.0.0.1:")
    assert failure.message.endswith("aaa…: answered 302 after 10 redirects")


def test_one_bad_server_costs_the_next_request_nothing(work: Work) -> None:
    answered(work, reset)

    assert body_of(answered(work, response(200, b"well"))) == "well"

"""S3 in this process, as far as artifacts need it, with faults to order: what a bucket does when it does not do well.

    with s3_server() as s3:
        s3.refuse("PUT", 403)        # from now on
        s3.objects                   # by key: what is in the bucket

Not a model of S3: `tests/object_store/test_real_server.py` holds the same promises against a real one.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pytest

BUCKET = "bucket"
_OLD = "2020-01-01T00:00:00.000Z"


class S3:
    """One bucket, what was asked of it, and what it refuses."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        # As a bucket says when something was stored: by key, for those that are not from long ago.
        self.stored_at: dict[str, str] = {}
        self.requests: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self._parts: dict[str, dict[int, bytes]] = {}
        self._refused: dict[str, list[int]] = {}
        # Requests of these verbs are not answered while it is closed.
        self.gate = threading.Event()
        self.gate.set()
        self.held: frozenset[str] = frozenset()
        # Called when an object is stored, and before that is said.
        self.on_stored: Callable[[], None] = lambda: None
        self.url = ""

    def refuse(self, verb: str, status: int, times: int = 1_000_000) -> None:
        """Answer requests of this verb with an error."""
        self._refused[verb] = [status] * min(times, 1000)

    def next_refusal(self, verb: str) -> int | None:
        waiting = self._refused.get(verb)
        return waiting.pop() if waiting else None

    def begin_upload(self) -> str:
        self._parts[name := f"upload-{len(self._parts)}"] = {}
        return name

    def add_part(self, upload: str, number: int, data: bytes) -> None:
        self._parts[upload][number] = data

    def end_upload(self, upload: str) -> bytes:
        parts = self._parts.pop(upload)
        return b"".join(parts[number] for number in sorted(parts))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    s3: S3

    def _serve(self) -> None:
        verb, url = self.command, urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.s3.requests.append((verb, self.path))
        self.s3.headers.append(dict(self.headers))
        if verb in self.s3.held and not self.s3.gate.wait(60):
            return
        if status := self.s3.next_refusal(verb):
            self._answer(status, _error("AccessDenied" if status == 403 else "Trouble"))
            return
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        asked = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        if bucket != BUCKET:
            self._answer(404, _error("NoSuchBucket"))
        else:
            getattr(self, f"_{verb.lower()}")(key, asked, body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

    def _get(self, key: str, asked: dict[str, str], body: bytes) -> None:
        if not key:
            self._answer(200, self._listed(asked.get("prefix", "")))
        elif key not in self.s3.objects:
            self._answer(404, _error("NoSuchKey"))
        else:
            data, wanted = self.s3.objects[key], self.headers.get("range")
            if not wanted:
                self._answer(200, data, _said_of(data))
                return
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            part = data[int(first) : int(last) + 1]
            place = f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"
            self._answer(206, part, {**_said_of(data), "Content-Range": place})

    def _head(self, key: str, asked: dict[str, str], body: bytes) -> None:
        data = self.s3.objects.get(key)
        self._answer(404 if data is None else 200, data or b"", _said_of(data or b""))

    def _put(self, key: str, asked: dict[str, str], body: bytes) -> None:
        if "uploadId" in asked:
            self.s3.add_part(asked["uploadId"], int(asked["partNumber"]), body)
        else:
            self.s3.objects[key] = body
            self.s3.on_stored()
        self._answer(200, b"", _said_of(body))

    def _post(self, key: str, asked: dict[str, str], body: bytes) -> None:
        if "delete" in asked:
            keys = [
                one.text or "" for one in ElementTree.fromstring(body).iter() if one.tag.rpartition("}")[2] == "Key"
            ]
            for key in keys:
                self.s3.objects.pop(key, None)
            deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
            self._answer(200, _document("DeleteResult", deleted))
        elif "uploads" in asked:
            name = self.s3.begin_upload()
            self._answer(200, _document("InitiateMultipartUploadResult", f"<UploadId>{name}</UploadId>"))
        else:
            self.s3.objects[key] = data = self.s3.end_upload(asked["uploadId"])
            etag = hashlib.md5(data).hexdigest()
            self._answer(200, _document("CompleteMultipartUploadResult", f"<ETag>{etag}</ETag>"))

    def _delete(self, key: str, asked: dict[str, str], body: bytes) -> None:
        if "uploadId" not in asked:
            self.s3.objects.pop(key, None)
        self._answer(204, b"")

    def _listed(self, prefix: str) -> bytes:
        found = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{self.s3.stored_at.get(key, _OLD)}</LastModified>"
            f"<ETag>e</ETag><Size>{len(data)}</Size></Contents>"
            for key, data in sorted(self.s3.objects.items())
            if key.startswith(prefix)
        )
        return _document("ListBucketResult", f"<IsTruncated>false</IsTruncated>{found}")

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _said_of(data: bytes) -> dict[str, str]:
    return {"ETag": f'"{hashlib.md5(data).hexdigest()}"', "Last-Modified": "Wed, 01 Jan 2020 00:00:00 GMT"}


def _document(name: str, inside: str) -> bytes:
    return f'<?xml version="1.0"?><{name}>{inside}</{name}>'.encode()


def _error(code: str) -> bytes:
    return _document("Error", f"<Code>{code}</Code><Message>no</Message>")


@contextmanager
def s3_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """A server for as long as the context, and the environment with which clients find it."""
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'mulligan[objects]'")
    s3 = S3()
    handler = type("Handler", (_Handler,), {"s3": s3})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        s3.url = f"http://127.0.0.1:{server.server_port}"
        for name, value in environment(s3.url).items():
            monkeypatch.setenv(name, value)
        try:
            yield s3
        finally:
            s3.gate.set()
            server.shutdown()
            thread.join()


def environment(url: str) -> dict[str, str]:
    """What a client needs to know of a server."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "key-of-the-test",
        "AWS_SECRET_ACCESS_KEY": "secret-of-the-test",
        "AWS_REGION": "us-east-1",
        "MULLIGAN_OBJECT_TIMEOUT": "1s",
    }

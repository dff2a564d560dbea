"""One place of objects: put, fetched, listed and removed, each in bounded time.

What goes wrong becomes an error of ours with a sentence of ours: those of the library repeat what a server sends.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from mulligan.core.model.artifacts import Artifact, damaged_hash, damaged_size, verify_content
from mulligan.errors import ArtifactDamaged, ArtifactGone, ObjectStoreFailed, StoreLibraryMissing
from mulligan.object_store.places import TIMEOUT_VARIABLE, timeout_seconds

CONNECT_SECONDS = 5.0
# Parts of an upload that are sent again by themselves: at least so large, and at most so many.
PART_BYTES, PARTS_MAX = 8 << 20, 9_000
# Of each upload so many parts are in memory.
PARTS_AT_ONCE = 4
# What is read by one request.
READ_BYTES = 16 << 20
RETRIES_MAX = 8
_REMOVED_AT_ONCE = 500
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_URL = re.compile(r"https?://(?:\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?(?:/[^\s@]*)?")
_DENIALS = frozenset({"PermissionDeniedError", "UnauthenticatedError"})
_REFUSED = re.compile(r"\b(40[13]|Forbidden|Unauthorized|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch)\b")
_TIMED_OUT = re.compile(r"(?i)(?<!retry_)(?<!read_)timed? ?out|deadline")
_UNCREDENTIALED = re.compile(
    r"(?i)credential|missing\w* *\S*key|169\.254\.169\.254|metadata\.google|oauth|IDENTITY_|token"
)
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|The specified bucket does not exist")


class ObjectRecord(NamedTuple):
    """One object below a place."""

    name: str
    size: int
    stored_at: datetime


class Bucket:
    """The objects below one place, such as `s3://bucket/prefix/mulligan-4f2a91c0`."""

    def __init__(self, place: str, seconds_max: float = math.inf) -> None:
        self.place = place
        # Of a whole object, and of each request.
        self._fetch_seconds = seconds_max
        seconds = timedelta(seconds=min(timeout_seconds(os.environ.get(TIMEOUT_VARIABLE, "")), seconds_max))
        with _Translated(self.place, "used"):
            self._library = _library()
            self._store = self._library.store.from_url(
                place,
                client_options={
                    "connect_timeout": min(seconds, timedelta(seconds=CONNECT_SECONDS)),
                    "timeout": seconds,
                    "user_agent": "mulligan",
                    **_plain_http(os.environ),
                },
                retry_config={
                    "max_retries": RETRIES_MAX,
                    "retry_timeout": seconds,
                    "backoff": {
                        "init_backoff": timedelta(seconds=0.2),
                        "max_backoff": timedelta(seconds=5),
                        "base": 2,
                    },
                },
                **_credentials(place, os.environ),
            )

    def put_file(self, artifact: Artifact, path: str) -> None:
        """Upload a file, all or nothing. What is there already under this name has this content, and is not sent again.

        Parts that fail are sent again by themselves.
        """
        with _Translated(self.place, "written", artifact.name):
            if self._size(artifact.name) == artifact.size:
                return
            self._library.put(
                self._store,
                artifact.name,
                Path(path),
                chunk_size=max(PART_BYTES, artifact.size // PARTS_MAX + 1),
                max_concurrency=PARTS_AT_ONCE,
            )

    def _size(self, name: str) -> int | None:
        try:
            return int(self._library.head(self._store, name)["size"])
        except FileNotFoundError as error:
            if _NO_BUCKET.search(str(error)):
                raise
            return None
        except (PermissionError, self._library.exceptions.PermissionDeniedError):
            # Who may write objects may not be allowed to ask for them.
            return None

    def fetch(self, artifact: Artifact) -> bytes:
        """The content. ArtifactGone, ArtifactDamaged."""
        return verify_content(artifact, b"".join(self._pieces(artifact)))

    def fetch_to(self, artifact: Artifact, path: str) -> None:
        """Write the content to a new private file. ArtifactGone, ArtifactDamaged: then there is no file."""
        digest, size = hashlib.sha256(), 0
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(fd, "wb") as file:
                for piece in self._pieces(artifact):
                    digest.update(piece)
                    size += file.write(piece)
            if size != artifact.size:
                raise damaged_size(artifact, size)
            if digest.hexdigest() != artifact.sha256:
                raise damaged_hash(artifact)
        except BaseException:
            os.unlink(path)
            raise

    def _pieces(self, artifact: Artifact) -> Iterator[bytes]:
        """The content by ranges, each within the time of one request. One byte more shows that it has grown."""
        until = time.monotonic() + self._fetch_seconds
        with _Translated(self.place, "read", artifact.name):
            size = self._library.head(self._store, artifact.name)["size"]
            if size != artifact.size:
                raise damaged_size(artifact, size)
            for start in range(0, artifact.size, READ_BYTES):
                if time.monotonic() > until:
                    raise TimeoutError("timed out")
                end = min(start + READ_BYTES, artifact.size)
                yield bytes(self._library.get_range(self._store, artifact.name, start=start, end=end))

    def records(self) -> Iterator[ObjectRecord]:
        """All objects."""
        with _Translated(self.place, "listed"):
            for page in self._library.list(self._store):
                for one in page:
                    yield ObjectRecord(one["path"], one["size"], one["last_modified"])

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects. One that is gone is no error."""
        going = list(names)
        with _Translated(self.place, "removed"):
            for begin in range(0, len(going), _REMOVED_AT_ONCE):
                self._library.delete(self._store, going[begin : begin + _REMOVED_AT_ONCE])


def _library() -> Any:
    try:
        import obstore  # type: ignore[import-not-found,unused-ignore]
        import obstore.exceptions  # type: ignore[import-not-found,unused-ignore]
        import obstore.store  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise StoreLibraryMissing(
            "artifacts in object storage need a library that is not installed: obstore",
            hint="install it: pip install 'mulligan[objects]'",
        ) from None
    return obstore


def _plain_http(environ: Any) -> dict[str, Any]:
    """Whoever names an http:// endpoint means it: a server on this host or in a private network."""
    name, named = next(((name, environ[name]) for name in _ENDPOINTS if environ.get(name)), ("", ""))
    # The library panics at an address that it cannot read.
    if named and not _URL.fullmatch(named):
        raise ObjectStoreFailed(f"{name} is not a URL like https://HOST:PORT", failure_code="PERMISSION")
    return {"allow_http": True} if named.startswith("http://") else {}


def _credentials(place: str, environ: Any) -> dict[str, Any]:
    """Of S3 outside of AWS's own machines: the profiles of boto3, if that is installed. Others the library finds."""
    has_own = any(environ.get(name) for name in ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"))
    found: dict[str, Any] = {}
    if place.startswith("s3://") and (endpoint := environ.get("AWS_ENDPOINT_URL_S3")):
        found["endpoint"] = endpoint
    if place.startswith("s3://") and not has_own and not environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        try:
            from obstore.auth.boto3 import Boto3CredentialProvider  # type: ignore[import-not-found,unused-ignore]

            found["credential_provider"] = Boto3CredentialProvider()
        except (ImportError, ValueError):
            pass  # no boto3, or it knows none
    return found


class _Translated:
    """Turn an error of the library into one of ours."""

    def __init__(self, place: str, verb: str, name: str = "") -> None:
        self._place, self._verb, self._name = place, verb, name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, ObjectStoreFailed | ArtifactGone | ArtifactDamaged | StoreLibraryMissing):
            return
        # A panic of the library is no `Exception`.
        if not isinstance(error, Exception) and kind is not None and kind.__name__ != "PanicException":
            return
        # Of a file on this disk.
        if isinstance(error, OSError) and error.errno is not None:
            return
        raise self._translated(error) from None

    def _translated(self, error: BaseException) -> Exception:
        # Below its sentence the library says how it failed.
        text, _, below = str(error).partition("\n\nDebug source")
        kind = type(error).__name__
        what = f"artifact '{self._name}'" if self._name else f"'{self._place}'"
        where = f" in '{self._place}'" if self._name else ""
        if _NO_BUCKET.search(text):
            return self._failed(f"{what} cannot be {self._verb}{where}: there is no such bucket", "PERMISSION")
        if isinstance(error, FileNotFoundError) and self._verb == "read":
            return ArtifactGone(f"artifact '{self._name}' is gone from '{self._place}'", name=self._name)
        if isinstance(error, PermissionError) or kind in _DENIALS or _REFUSED.search(text):
            return self._failed(f"{what} cannot be {self._verb}{where}: access is denied", "PERMISSION")
        if _UNCREDENTIALED.search(text) and kind == "GenericError":
            reason = "no credentials for it were found"
            return self._failed(f"{what} cannot be {self._verb}{where}: {reason}", "PERMISSION")
        if "kind: Timeout" in below or _TIMED_OUT.search(text):
            return self._failed(f"{what} cannot be {self._verb}{where}: it does not answer in time", "TIMEOUT")
        if status := re.search(r"status code: (\d{3})|\((\d{3}) ", text):
            number = status[1] or status[2]
            return self._failed(f"{what} cannot be {self._verb}{where}: it answers with {number}", "CONNECTION")
        if kind == "GenericError":
            return self._failed(f"{what} cannot be {self._verb}{where}: it cannot be reached", "CONNECTION")
        return self._failed(f"{what} cannot be {self._verb}{where}: {kind}", "EXCEPTION")

    def _failed(self, message: str, failure_code: str) -> ObjectStoreFailed:
        return ObjectStoreFailed(message, failure_code=failure_code)


_opened: dict[tuple[str, ...], Bucket] = {}


def bucket_of(place: str, seconds_max: float = math.inf) -> Bucket:
    """The bucket of a place, opened once in a process: connections and credentials are kept.

    `seconds_max`: for whoever has heartbeats to send, and cannot wait as long as the setting allows.
    """
    key = (place, str(seconds_max), *(os.environ.get(name, "") for name in (*_ENDPOINTS, TIMEOUT_VARIABLE)))
    if key not in _opened:
        _opened[key] = Bucket(place, seconds_max)
    return _opened[key]

"""Recorded answers of a model: asked once over HTTP, then replayed from a file.

A request is known by a digest of what is asked. What differs from run to run is left out of it: secrets, and the
numbers and times in the headers of the context. The file has a JSON object per line and is safe to commit: it holds
neither the key nor any other secret.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from functools import lru_cache
from typing import Any

import msgspec

from mulligan import StepError
from mulligan.worker.models import find_kind
from mulligan.worker.models.answer_parts import Sink
from mulligan.worker.models.request import ModelAnswer, ModelRequest
from mulligan.worker.models.settings import Access, ModelSettings
from mulligan.worker.secrets.redactor import Redactor

FILE_BYTES_MAX = 256 << 20
# Lines of a context's header that differ from run to run.
_VOLATILE = re.compile(r"^( *(?:\w+_id|id|created_at)): .*$", re.MULTILINE)
_DIGEST_CHARS = 32
# Left out of the digest: a cassette may be replayed under another name, and at another place.
_NOT_ASKED = {"provider": "", "origin": None}


class Recorded(msgspec.Struct, frozen=True):
    """One line of a cassette. `request` is for people: only the digest is compared."""

    digest: str
    request: Any
    answer: ModelAnswer


def ask(request: ModelRequest, settings: ModelSettings, access: Access, sink: Sink) -> ModelAnswer:
    """Return the recorded answer; ask the model and record its answer if the cassette is being recorded."""
    asked = _redact(msgspec.structs.replace(request, **_NOT_ASKED), access)
    digest = digest_of(asked)
    if settings.recorded is None:
        return _replay(request, settings, digest, sink)
    recorded = settings.recorded
    asked_of = msgspec.structs.replace(request, model=request.model or recorded.model)
    answer: ModelAnswer = find_kind(recorded.kind).ask(asked_of, recorded, access, sink)
    _append(settings.file, Recorded(digest, asked, _redact(answer, access)))
    return answer


def digest_of(asked: Any) -> str:
    """Return the digest of a request, as JSON."""
    messages = [
        {**message, "text": _VOLATILE.sub(r"\1", message.get("text", ""))} for message in asked.get("messages", ())
    ]
    text = msgspec.json.encode({**asked, "messages": messages}, order="deterministic")
    return hashlib.sha256(text).hexdigest()[:_DIGEST_CHARS]


def _redact(value: Any, access: Access) -> Any:
    plain = msgspec.to_builtins(value)
    return Redactor(access.secrets).redact_value(plain) if access.secrets else plain


def _replay(request: ModelRequest, settings: ModelSettings, digest: str, sink: Sink) -> ModelAnswer:
    found = _read(settings.file).get(digest)
    if found is None:
        where = f" of '{request.origin.place}'" if request.origin else ""
        how = "to record it, set 'record: true' and 'of' in the file of providers, or MULLIGAN_CASSETTE_RECORD=PROVIDER"
        message = f"the cassette '{settings.file}' has no answer to this request{where} ({digest}); {how}"
        raise StepError("INPUT_INVALID", message, retryable=False)
    sink.write(found.text)
    sink.spend(found.usage, found.model)
    return found


def _read(file: str) -> dict[str, ModelAnswer]:
    try:
        info = os.stat(file)
        return _read_lines(file, info.st_mtime_ns, info.st_size)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _invalid(file, error.strerror or str(error)) from None


@lru_cache(maxsize=4)
def _read_lines(file: str, changed_at: int, size: int) -> dict[str, ModelAnswer]:
    """Read a file again only when it has changed. The last answer to a request counts."""
    if size > FILE_BYTES_MAX:
        raise _invalid(file, f"it is larger than {FILE_BYTES_MAX:,} bytes")
    found = {}
    with open(file, "rb") as opened:
        for number, line in enumerate(opened, start=1):
            if not line.strip():
                continue
            try:
                recorded = msgspec.json.decode(line, type=Recorded)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise _invalid(file, f"line {number}: {str(error)[:200].lower()}") from None
            found[recorded.digest] = recorded.answer
    return found


def _append(file: str, recorded: Recorded) -> None:
    """Add a line. Several steps may record at the same time."""
    try:
        with open(file, "ab") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX)
            opened.write(msgspec.json.encode(recorded) + b"\n")
    except OSError as error:
        raise _invalid(file, error.strerror or str(error)) from None


def _invalid(file: str, reason: str) -> StepError:
    return StepError("INPUT_INVALID", f"the cassette '{file}' cannot be used: {reason}", retryable=False)

"""Record what the parts of a step gave: the tools of a pipeline, pages, sinks. After a crash they are not run again.

The records are a file in the folder of the run, one line per part, in the order of the calls. An attempt whose
predecessor was killed runs as that one did, but takes the outcome of each recorded part from the file; it goes on with
the first part that has no record. An attempt that fails removes its records: a retry begins with the first part.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mulligan import StepError

_FOLDER = ".noetl-parts"
# The records of an attempt. What comes after so much is not recorded.
_BYTES_MAX = 64 * 1024 * 1024
# A shorter secret would be found in almost any text.
_SECRET_CHARS_MIN = 4
_RESULT, _ERROR = "result", "error"


class Parts:
    """The records of one attempt. `earlier` are those of the attempt before, if it was killed."""

    def __init__(self, file: Path, secrets: Iterable[str] = ()) -> None:
        self._file = file
        self._secrets = [json.dumps(text)[1:-1] for text in secrets if len(text) >= _SECRET_CHARS_MIN]
        self._earlier = _read(_predecessor(file))
        self._next = 0
        self._bytes_left = _BYTES_MAX
        self._is_open = self._begin()

    @property
    def is_replaying(self) -> bool:
        """Whether the next part has a record."""
        return self._next < len(self._earlier)

    def run(self, what: Any, work: Callable[[], Any]) -> Any:
        """What the part gives: from its record, otherwise by `work`. `what` is the tool, as the file has it."""
        label = _label(what)
        if self.is_replaying:
            record = self._earlier[self._next]
            if record.get("part") == label:
                self._next += 1
                return _outcome(record)
            self._forget_rest()
        try:
            result = work()
        except StepError as error:
            self._add({"part": label, _ERROR: _fields(error)})
            raise
        self._add({"part": label, _RESULT: result})
        return result

    def discard(self) -> None:
        """Remove the records: the attempt has failed, and its retry begins with the first part."""
        self._is_open = False
        for file in _all(self._file):
            file.unlink(missing_ok=True)

    def _begin(self) -> bool:
        """Begin the file with the records of the attempt before: a process of that one may still write to its own."""
        try:
            self._file.parent.mkdir(mode=0o700, exist_ok=True)
            return self._write(os.O_TRUNC, *self._earlier)
        except OSError:
            return False  # a full disk must not fail a step that could run without records

    def _forget_rest(self) -> None:
        """The step is another one now: what follows has no record."""
        self._earlier = self._earlier[: self._next]
        self._is_open = self._begin()

    def _add(self, record: dict[str, Any]) -> None:
        if not self._is_open:
            return
        try:
            is_whole = json.loads(json.dumps(record)) == record
            self._is_open = is_whole and self._write(os.O_APPEND, record)
        except (OSError, ValueError, TypeError, RecursionError):
            # Later parts are not recorded either: the records are always the first ones.
            self._is_open = False

    def _write(self, how: int, *records: dict[str, Any]) -> bool:
        """Write the records at once; False for one that contains a secret, or is too large."""
        data = "".join(f"{json.dumps(record)}\n" for record in records)
        if len(data) > self._bytes_left or any(secret in data for secret in self._secrets):
            return False
        self._bytes_left -= len(data)
        opened = os.open(self._file, os.O_WRONLY | os.O_CREAT | how, 0o600)
        try:
            os.write(opened, data.encode())
            os.fsync(opened)
        finally:
            os.close(opened)
        return True


def open_parts(secrets: Iterable[str]) -> Parts | None:
    """The records of this attempt; None outside of a run."""
    folder, key, attempt = (os.environ.get(f"MULLIGAN_{name}") for name in ("OUTPUT_DIR", "IDEMPOTENCY_KEY", "ATTEMPT"))
    if not folder or not key or not attempt or not attempt.isdecimal():
        return None
    name = hashlib.sha256(key.encode()).hexdigest()[:32]
    return Parts(Path(folder, _FOLDER, f"{name}.{int(attempt)}"), secrets)


def _predecessor(file: Path) -> Path | None:
    own = int(file.suffix[1:])
    before = [one for one in _all(file) if int(one.suffix[1:]) < own]
    return max(before, key=lambda one: int(one.suffix[1:]), default=None)


def _all(file: Path) -> list[Path]:
    return [one for one in file.parent.glob(f"{file.stem}.*") if one.suffix[1:].isdecimal()]


def _read(file: Path | None) -> list[dict[str, Any]]:
    """The records in a file, up to the first line that was not written whole."""
    found: list[dict[str, Any]] = []
    try:
        lines = file.read_bytes().split(b"\n")[:-1] if file is not None else []
        for line in lines:
            record = json.loads(line)
            if not isinstance(record, dict):
                break
            found.append(record)
    except (OSError, ValueError):
        pass
    return found


def _label(what: Any) -> str:
    text = json.dumps(what, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _fields(error: StepError) -> dict[str, Any]:
    return {field: getattr(error, field) for field in ("code", "message", "severity", "retryable", "details")}


def _outcome(record: dict[str, Any]) -> Any:
    if _ERROR not in record:
        return record.get(_RESULT)
    known = dict(record[_ERROR])
    raise StepError(known.pop("code"), known.pop("message"), **known)

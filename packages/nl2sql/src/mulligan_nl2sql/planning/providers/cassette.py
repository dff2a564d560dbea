"""Answers that another planner gave once, replayed from a file.

A request is known by the digest of what is asked: the question, the schema, the day, and what failed before. The file
has a JSON object per line. While it is recorded, a request that it knows is not asked again.
"""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from mulligan_nl2sql.planning.failures import SETTINGS_INVALID, PlannerFailed
from mulligan_nl2sql.planning.planner import (
    Decomposer,
    DecomposeRequest,
    Decomposition,
    Part,
    Plan,
    Planner,
    PlanRequest,
    Refusal,
)

NAME = "cassette"
_FILE_BYTES_MAX = 64 << 20
_DIGEST_CHARS = 32
Answer = Plan | Refusal | Decomposition
_Asked = TypeVar("_Asked", PlanRequest, DecomposeRequest)
_Given = TypeVar("_Given", bound=Answer)


class Recorded(msgspec.Struct, frozen=True):
    """One line. The question is for people: only the digest is compared."""

    digest: str
    question: str
    answer: Answer


class CassettePlanner:
    """The planner `cassette`. With `recorded_from`, it asks that planner what the file does not know, and keeps it."""

    name = NAME

    def __init__(self, file: Path, recorded_from: Planner | None = None) -> None:
        self._file = file
        self._recorded_from = recorded_from

    def plan(self, request: PlanRequest) -> Plan | Refusal:
        """The recorded answer. PlannerFailed if there is none and nobody to ask."""
        answer = self._answer(request, None if self._recorded_from is None else self._recorded_from.plan)
        if isinstance(answer, Decomposition):
            raise self._invalid("it has another kind of answer to this request")
        return answer

    def knows(self, request: PlanRequest | DecomposeRequest) -> bool:
        """Whether the answer is recorded."""
        return digest_of(request) in self._read()

    def decompose(self, request: DecomposeRequest) -> Decomposition | Refusal:
        """The recorded parts. A planner that decomposes nothing gives the whole question to each database."""
        recorded_from = self._recorded_from
        ask = recorded_from.decompose if isinstance(recorded_from, Decomposer) else None
        if recorded_from is not None and ask is None:
            return Decomposition(NAME, tuple(Part(one.database, request.question) for one in request.databases))
        answer = self._answer(request, ask)
        if isinstance(answer, Plan):
            raise self._invalid("it has another kind of answer to this request")
        return answer

    def _answer(self, request: _Asked, ask: Callable[[_Asked], _Given] | None) -> _Given | Answer:
        digest = digest_of(request)
        known = self._read().get(digest)
        if known is not None:
            return known
        if ask is None:
            message = f"the cassette {self._file} has no answer to '{request.question[:100]}' ({digest})"
            raise PlannerFailed(SETTINGS_INVALID, message, planner=NAME)
        answer = ask(request)
        self._append(Recorded(digest, request.question, answer))
        return answer

    def _read(self) -> dict[str, Answer]:
        try:
            data = self._file.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._invalid((error.strerror or str(error)).lower()) from None
        if len(data) > _FILE_BYTES_MAX:
            raise self._invalid(f"it has more than {_FILE_BYTES_MAX} bytes")
        # A line without its end was cut off by a crash: its request is asked again.
        whole, _, _ = data.rpartition(b"\n")
        found = {}
        for number, line in enumerate(whole.splitlines(), start=1):
            if not line.strip():
                continue
            try:
                recorded = msgspec.json.decode(line, type=Recorded)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise self._invalid(f"line {number}: {str(error)[:200].lower()}") from None
            found[recorded.digest] = recorded.answer
        return found

    def _append(self, recorded: Recorded) -> None:
        """Add a line. Several processes may record at the same time."""
        try:
            with self._file.open("a+b") as opened:
                fcntl.flock(opened, fcntl.LOCK_EX)
                opened.seek(0)
                whole, end, _ = opened.read(_FILE_BYTES_MAX + 1).rpartition(b"\n")
                opened.truncate(len(whole) + len(end))
                opened.write(msgspec.json.encode(recorded) + b"\n")
        except OSError as error:
            raise self._invalid((error.strerror or str(error)).lower()) from None

    def _invalid(self, reason: str) -> PlannerFailed:
        return PlannerFailed(SETTINGS_INVALID, f"the cassette {self._file} cannot be used: {reason}", planner=NAME)


def digest_of(request: PlanRequest | DecomposeRequest) -> str:
    """What a request is known by."""
    text = msgspec.json.encode(request, order="deterministic")
    return hashlib.sha256(text).hexdigest()[:_DIGEST_CHARS]

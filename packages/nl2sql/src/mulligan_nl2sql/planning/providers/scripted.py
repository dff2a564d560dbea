"""Answers from a file, for tests and demonstrations. The first entry whose conditions hold answers.

    [[answers]]
    question = "how many customers are there"   # in any case; any question if left out
    attempt = 1                                 # 1 is the first; every attempt if left out
    sql = "select count(*) from customers"      # or: refusal = "…", words = ["…"]; or: error = {code = "HTTP_5XX"}

    [[decompositions]]                          # for several databases; without an entry, each gets the whole question
    question = "customers and tickets"
    parts = [{database = "shop", question = "customers"}]  # or: refusal, error

The file is TOML, or JSON with the same keys. Nothing is counted, so a run that is resumed gets the same answers.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from mulligan_nl2sql.planning.decompositions import checked
from mulligan_nl2sql.planning.failures import SETTINGS_INVALID, PlannerFailed
from mulligan_nl2sql.planning.planner import (
    DecomposeRequest,
    Decomposition,
    Part,
    Plan,
    PlanRequest,
    Refusal,
    RefusalReason,
    Usage,
)

NAME = "scripted"
_FILE_BYTES_MAX = 4_000_000


class ScriptedError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How an entry fails."""

    code: str
    message: str = ""
    retryable: bool | None = None
    retry_after: float | None = None


class ScriptedAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry: conditions, and what is answered."""

    question: str | None = None
    attempt: int | None = None
    sql: str | None = None
    refusal: str | None = None
    words: tuple[str, ...] = ()
    error: ScriptedError | None = None
    usage: Usage = Usage()

    def __post_init__(self) -> None:
        if [self.sql is None, self.refusal is None, self.error is None].count(False) != 1:
            raise ValueError("an answer has one of 'sql', 'refusal' and 'error'")


class ScriptedDecomposition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which databases get which part of a question."""

    question: str | None = None
    parts: tuple[Part, ...] = ()
    refusal: str | None = None
    words: tuple[str, ...] = ()
    error: ScriptedError | None = None
    usage: Usage = Usage()

    def __post_init__(self) -> None:
        if [not self.parts, self.refusal is None, self.error is None].count(False) != 1:
            raise ValueError("a decomposition has one of 'parts', 'refusal' and 'error'")


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    answers: tuple[ScriptedAnswer, ...] = ()
    decompositions: tuple[ScriptedDecomposition, ...] = ()

    def __post_init__(self) -> None:
        if not self.answers and not self.decompositions:
            raise ValueError("there are neither 'answers' nor 'decompositions'")


class ScriptedPlanner:
    """The planner `scripted`."""

    name = NAME

    def __init__(self, file: Path) -> None:
        self._file = file
        self._script = _read(file)

    def plan(self, request: PlanRequest) -> Plan | Refusal:
        """The answer of the first entry whose conditions hold. PlannerFailed if there is none."""
        attempt = len(request.failed) + 1
        for answer in self._script.answers:
            if _is_about(answer, request.question) and answer.attempt in (None, attempt):
                return _answered(answer)
        message = f"{self._file} has no answer to '{request.question[:100]}', attempt {attempt}"
        raise PlannerFailed(SETTINGS_INVALID, message, planner=NAME)

    def decompose(self, request: DecomposeRequest) -> Decomposition | Refusal:
        """The parts that the first entry says; without one, the whole question for each database."""
        for entry in self._script.decompositions:
            if _is_about(entry, request.question):
                return _decomposed(entry, request)
        parts = tuple(Part(one.database, request.question) for one in request.databases)
        return Decomposition(NAME, parts, NAME)


def _is_about(entry: ScriptedAnswer | ScriptedDecomposition, question: str) -> bool:
    return entry.question is None or _plain(entry.question) == _plain(question)


def _decomposed(entry: ScriptedDecomposition, request: DecomposeRequest) -> Decomposition | Refusal:
    if entry.error is not None:
        raise _failed(entry.error)
    if entry.refusal is not None:
        return Refusal(NAME, RefusalReason.DECLINED, entry.refusal, entry.words, model=NAME, usage=entry.usage)
    return Decomposition(NAME, checked(entry.parts, request, NAME), NAME, entry.usage)


def _failed(error: ScriptedError) -> PlannerFailed:
    return PlannerFailed(
        error.code,
        error.message or f"the script says {error.code}",
        planner=NAME,
        is_retryable=error.retryable,
        retry_after=error.retry_after,
    )


def _answered(answer: ScriptedAnswer) -> Plan | Refusal:
    if answer.error is not None:
        raise _failed(answer.error)
    if answer.refusal is not None:
        return Refusal(NAME, RefusalReason.DECLINED, answer.refusal, answer.words, model=NAME, usage=answer.usage)
    return Plan(NAME, answer.sql or "", model=NAME, usage=answer.usage)


def _plain(question: str) -> str:
    return " ".join(question.casefold().split()).rstrip("?.! ")


def _read(file: Path) -> Script:
    try:
        data = file.read_bytes()[: _FILE_BYTES_MAX + 1]
        if len(data) > _FILE_BYTES_MAX:
            raise _invalid(file, f"it has more than {_FILE_BYTES_MAX} bytes")
        content: Any = msgspec.json.decode(data) if file.suffix == ".json" else tomllib.loads(data.decode())
        return msgspec.convert(content, Script)
    except OSError as error:
        raise _invalid(file, (error.strerror or str(error)).lower()) from None
    except (msgspec.MsgspecError, tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _invalid(file, str(error)[:200]) from None


def _invalid(file: Path, reason: str) -> PlannerFailed:
    return PlannerFailed(SETTINGS_INVALID, f"the script {file} cannot be used: {reason}", planner=NAME)

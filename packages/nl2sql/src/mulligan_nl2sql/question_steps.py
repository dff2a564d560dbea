"""The steps of `workflows/ask.yaml`: what happens to a question before its scans, and after them.

`steps` has those of a scan. These load no parser of SQL unless a planner needs one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date
from typing import Any

import msgspec

from mulligan import StepError
from mulligan_nl2sql.execution.schema_reading import read_schema
from mulligan_nl2sql.planning.failures import REFUSED
from mulligan_nl2sql.planning.find_planner import DEFAULT, find_planner
from mulligan_nl2sql.planning.planner import Decomposer, DecomposeRequest, Decomposition, NamedSchema, Part
from mulligan_nl2sql.policed_databases import find_database
from mulligan_nl2sql.routing.combining import ScanColumns
from mulligan_nl2sql.routing.combining import combine as combine_scans
from mulligan_nl2sql.routing.decomposing import SCANS_MAX, Scan, ask_whole, scans_of, split
from mulligan_nl2sql.routing.resolving import Candidate, ReadDatabase, find_candidates, unexplained_words
from mulligan_nl2sql.routing.verdicts import failed_scans, failure_of, judge, refusal, unread_databases


def index(url: str, database: str, policy: str = "") -> dict[str, Any]:
    """What may be read of one database, with the policy applied."""
    found, rules = find_database(url, policy, database)
    described: dict[str, Any] = msgspec.to_builtins(ReadDatabase(database, url, read_schema(found, rules)))
    return described


def resolve(question: str, today: str, planner: str, index: dict[str, Any]) -> dict[str, Any]:
    """What each database that was read makes of the question. `index` is the output of the map over databases."""
    databases = _read_databases(index["results"])
    unread = unread_databases(index["failures"])
    if not databases:
        raise failure_of(unread)
    is_choice = index["total"] > 1
    if not is_choice or planner != DEFAULT:
        # Nothing to choose, or the planner chooses: see `decompose_with_model`.
        candidates = tuple(Candidate(one.database, True) for one in databases)
    else:
        candidates = find_candidates(question, databases, date.fromisoformat(today), find_planner(DEFAULT, os.environ))
    if words := unexplained_words(candidates):
        quoted = ", ".join(f"'{word}'" for word in words)
        if unread:
            raise failure_of(unread, f"the others do not explain {quoted}")
        raise refusal(f"no database explains {quoted}", words)
    return {
        "candidates": msgspec.to_builtins(candidates),
        "asks_model": planner != DEFAULT
        and len(databases) > 1
        and isinstance(find_planner(planner, os.environ), Decomposer),
    }


def decompose_with_model(question: str, today: str, planner: str, index: dict[str, Any]) -> dict[str, Any]:
    """Ask a planner once which databases get which part of the question. What does not fit is OUTPUT_INVALID."""
    databases = _read_databases(index["results"])
    schemas = tuple(NamedSchema(one.database, one.schema) for one in databases)
    asked = find_planner(planner, os.environ)
    assert isinstance(asked, Decomposer)
    answer = asked.decompose(DecomposeRequest(question, schemas, date.fromisoformat(today), SCANS_MAX))
    described: dict[str, Any] = msgspec.to_builtins(answer)
    del described["type"]
    if isinstance(answer, Decomposition):
        return described
    del described["message"]
    if unread := unread_databases(index["failures"]):
        raise failure_of(unread, f"of the others the planner says: {answer.message}")
    raise StepError(REFUSED, answer.message, retryable=False, details=described)


def decompose(
    question: str,
    today: str,
    index: dict[str, Any],
    candidates: list[dict[str, Any]],
    decomposition: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The scans: what a model has said; the whole question for each database that explains it; or its parts by rules.

    `by` says which of them: `model`, `whole` or `rules`.
    """
    databases = _read_databases(index["results"])
    if decomposition is not None:
        parts = msgspec.convert(decomposition["parts"], tuple[Part, ...])
        return _described(scans_of(parts, databases), "model")
    found = msgspec.convert(candidates, tuple[Candidate, ...])
    explaining = {one.database for one in found if one.is_explained}
    scans = ask_whole(question, [one for one in databases if one.database in explaining])
    if scans:
        return _described(scans, "whole")
    scans = split(question, databases, date.fromisoformat(today), find_planner(DEFAULT, os.environ))
    if not scans:
        raise _not_decomposed(index, found)
    return _described(scans, "rules")


def _described(scans: Sequence[Scan], by: str) -> dict[str, Any]:
    return {"scans": msgspec.to_builtins(scans), "by": by}


def combine(scans: list[dict[str, Any]], columns: list[list[str] | None]) -> list[dict[str, Any]]:
    """Which results are one table. `columns` has None for a scan that was not executed."""
    executed = [
        ScanColumns(scan.number, scan.database, scan.question, tuple(found))
        for scan, found in zip(msgspec.convert(scans, tuple[Scan, ...]), columns, strict=True)
        if found is not None
    ]
    described: list[dict[str, Any]] = msgspec.to_builtins(combine_scans(executed))
    return described


def answer(
    answered: int, unread: list[dict[str, Any]], failed: list[dict[str, Any]], strict: bool
) -> list[dict[str, Any]]:
    """What is missing in the answer. It fails if nothing is left, and with `strict` if anything is missing."""
    missing = (*unread_databases(unread), *failed_scans(failed))
    judge(answered, missing, is_strict=strict)
    described: list[dict[str, Any]] = msgspec.to_builtins(missing)
    return described


def _not_decomposed(index: dict[str, Any], candidates: Sequence[Candidate]) -> Exception:
    reasons = "; ".join(f"{one.database}: {one.message}" for one in candidates)
    unread = unread_databases(index["failures"])
    if unread:
        return failure_of(unread, f"the others do not explain the question ({reasons})")
    return refusal(f"no database explains the whole question, nor one of them each part of it ({reasons})")


def _read_databases(results: list[dict[str, Any] | None]) -> tuple[ReadDatabase, ...]:
    return msgspec.convert([one for one in results if one is not None], tuple[ReadDatabase, ...])

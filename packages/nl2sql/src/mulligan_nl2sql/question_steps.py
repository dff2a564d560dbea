"""The steps of `workflows/ask.yaml`: what happens to a question before its scans, and after them.

`steps` has those of a scan. These load no parser of SQL unless a planner needs one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date
from typing import Any

import msgspec

from mulligan_nl2sql.execution.schema_reading import read_schema
from mulligan_nl2sql.planning.find_planner import DEFAULT, find_planner
from mulligan_nl2sql.policed_databases import find_database
from mulligan_nl2sql.routing.combining import ScanColumns
from mulligan_nl2sql.routing.combining import combine as combine_scans
from mulligan_nl2sql.routing.decomposing import Scan, ask_whole, split
from mulligan_nl2sql.routing.resolving import Candidate, ReadDatabase, find_candidates, unexplained_words
from mulligan_nl2sql.routing.verdicts import failed_scans, failure_of, judge, refusal, unread_databases


def index(url: str, database: str, policy: str = "") -> dict[str, Any]:
    """What may be read of one database, with the policy applied."""
    found, rules = find_database(url, policy, database)
    described: dict[str, Any] = msgspec.to_builtins(ReadDatabase(database, url, read_schema(found, rules)))
    return described


def resolve(question: str, today: str, planner: str, index: dict[str, Any]) -> list[dict[str, Any]]:
    """What each database that was read makes of the question. `index` is the output of the map over databases."""
    databases = _read_databases(index["results"])
    unread = unread_databases(index["failures"])
    if not databases:
        raise failure_of(unread)
    if index["total"] == 1 or planner != DEFAULT:
        # Nothing to choose, or nothing that could choose without asking a model.
        candidates = tuple(Candidate(one.database, True) for one in databases)
    else:
        candidates = find_candidates(question, databases, date.fromisoformat(today), find_planner(DEFAULT, os.environ))
    if words := unexplained_words(candidates):
        quoted = ", ".join(f"'{word}'" for word in words)
        if unread:
            raise failure_of(unread, f"the others do not explain {quoted}")
        raise refusal(f"no database explains {quoted}", words)
    described: list[dict[str, Any]] = msgspec.to_builtins(candidates)
    return described


def decompose(
    question: str, today: str, planner: str, index: dict[str, Any], candidates: list[dict[str, Any]]
) -> dict[str, Any]:
    """The scans: the whole question for each database that explains it, otherwise its parts, if there is no doubt."""
    databases = _read_databases(index["results"])
    found = msgspec.convert(candidates, tuple[Candidate, ...])
    explaining = {one.database for one in found if one.is_explained}
    scans = ask_whole(question, [one for one in databases if one.database in explaining])
    if not scans:
        scans = split(question, databases, date.fromisoformat(today), find_planner(DEFAULT, os.environ))
    if not scans:
        raise _not_decomposed(index, found)
    return {"scans": msgspec.to_builtins(scans)}


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

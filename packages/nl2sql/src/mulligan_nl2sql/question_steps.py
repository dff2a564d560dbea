"""The steps of `workflows/ask.yaml`: what happens to a question before its scans, and after them.

`steps` has those of a scan. These load no parser of SQL unless a planner needs one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from mulligan import StepError
from mulligan_nl2sql.database_urls import SERVER
from mulligan_nl2sql.execution.schema_reading import read_schema
from mulligan_nl2sql.indexing.kept_indexes import (
    KeptIndex,
    find_index,
    utc_now,
    why_file_does_not_fit,
    why_server_does_not_fit,
)
from mulligan_nl2sql.planning import decompositions
from mulligan_nl2sql.planning.failures import REFUSED
from mulligan_nl2sql.planning.find_planner import DEFAULT, find_planner
from mulligan_nl2sql.planning.planner import Decomposer, DecomposeRequest, Decomposition, NamedSchema, Part
from mulligan_nl2sql.planning.providers.cassette import CassettePlanner
from mulligan_nl2sql.policed_databases import find_database
from mulligan_nl2sql.policy import Policy
from mulligan_nl2sql.routing.combining import ScanColumns
from mulligan_nl2sql.routing.combining import combine as combine_scans
from mulligan_nl2sql.routing.decomposing import SCANS_MAX, Scan, ask_whole, scans_of, split
from mulligan_nl2sql.routing.resolving import Candidate, ReadDatabase, find_candidates, unexplained_words
from mulligan_nl2sql.routing.verdicts import failed_scans, failure_of, judge, refusal, unread_databases


def kept(databases: list[dict[str, str]], index: str, policy: str = "") -> dict[str, Any]:
    """What the kept indexes in a folder say of files that have not changed since. No database is asked.

    `names` are those of the databases that need not be read, `misfits` why others must be.
    """
    found: list[ReadDatabase] = []
    misfits: dict[str, str] = {}
    for one in databases:
        try:
            database, rules = find_database(one["url"], policy, one["name"])
            known = find_index(Path(index), database)
            if known is None or database.dialect == SERVER:
                continue
            if misfit := why_file_does_not_fit(known, database, rules):
                misfits[one["name"]] = misfit
            else:
                found.append(_from_index(one["url"], known, rules))
        except StepError:
            # The step that reads the database says what is wrong.
            continue
    names = [one.database for one in found]
    return {"databases": msgspec.to_builtins(found), "names": names, "misfits": misfits}


def index(url: str, database: str, policy: str = "", index: str = "") -> dict[str, Any]:
    """What may be read of one database, with the policy applied. `index` is a folder with kept indexes."""
    found, rules = find_database(url, policy, database)
    known = find_index(Path(index), found) if index and found.dialect == SERVER else None
    misfit = why_server_does_not_fit(known, found, rules, utc_now()) if known is not None else ""
    if known is not None and not misfit:
        read = _from_index(url, known, rules)
    else:
        read = ReadDatabase(database, url, read_schema(found, rules), misfit=misfit)
    described: dict[str, Any] = msgspec.to_builtins(read)
    return described


def _from_index(url: str, known: KeptIndex, policy: Policy) -> ReadDatabase:
    read_at = known.read_at.isoformat(timespec="seconds")
    return ReadDatabase(known.database, url, policy.apply(known.schema), kept_at=read_at)


def resolve(
    question: str,
    today: str,
    planner: str,
    databases: list[dict[str, str]],
    index: dict[str, Any],
    kept: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What each database that was read makes of the question. `index` is the output of the map over databases."""
    read = _read_databases(databases, index, kept)
    unread = unread_databases(index["failures"])
    if not read:
        raise failure_of(unread)
    if len(databases) == 1 or planner != DEFAULT:
        # Nothing to choose, or the planner chooses: see `decompose_with_model`.
        candidates = tuple(Candidate(one.database, True) for one in read)
    else:
        candidates = find_candidates(question, read, date.fromisoformat(today), find_planner(DEFAULT, os.environ))
    if words := unexplained_words(candidates):
        quoted = ", ".join(f"'{word}'" for word in words)
        if unread:
            raise failure_of(unread, f"the others do not explain {quoted}")
        raise refusal(f"no database explains {quoted}", words)
    return {
        "candidates": msgspec.to_builtins(candidates),
        "asks_model": planner != DEFAULT
        and len(read) > 1
        and isinstance(find_planner(planner, os.environ), Decomposer),
    }


def prompt(
    question: str,
    today: str,
    planner: str,
    databases: list[dict[str, str]],
    index: dict[str, Any],
    kept: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What an agent is asked for the parts of the question, and whether it is: a cassette may know the answer."""
    request = _decompose_request(question, today, databases, index, kept)
    asked = find_planner(planner, os.environ)
    is_known = isinstance(asked, CassettePlanner) and asked.knows(request)
    return {"text": f"{decompositions.SYSTEM}\n\n{decompositions.make_prompt(request)}", "is_asked": not is_known}


def decompose_with_model(
    question: str,
    today: str,
    planner: str,
    databases: list[dict[str, str]],
    index: dict[str, Any],
    kept: dict[str, Any] | None = None,
    reply: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Ask a planner once which databases get which part of the question. What does not fit is OUTPUT_INVALID.

    A planner that is an agent was asked by the step before, and `reply` is its output.
    """
    asked = find_planner(planner, os.environ, reply)
    assert isinstance(asked, Decomposer)
    answer = asked.decompose(_decompose_request(question, today, databases, index, kept))
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
    databases: list[dict[str, str]],
    index: dict[str, Any],
    candidates: list[dict[str, Any]],
    decomposition: dict[str, Any] | None = None,
    kept: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The scans: what a model has said; the whole question for each database that explains it; or its parts by rules.

    `by` says which of them: `model`, `whole` or `rules`.
    """
    read = _read_databases(databases, index, kept)
    if decomposition is not None:
        parts = msgspec.convert(decomposition["parts"], tuple[Part, ...])
        return _described(scans_of(parts, read), "model")
    found = msgspec.convert(candidates, tuple[Candidate, ...])
    explaining = {one.database for one in found if one.is_explained}
    scans = ask_whole(question, [one for one in read if one.database in explaining])
    if scans:
        return _described(scans, "whole")
    scans = split(question, read, date.fromisoformat(today), find_planner(DEFAULT, os.environ))
    if not scans:
        raise _not_decomposed(index, found)
    return _described(scans, "rules")


def _decompose_request(
    question: str,
    today: str,
    databases: list[dict[str, str]],
    index: dict[str, Any],
    kept: dict[str, Any] | None,
) -> DecomposeRequest:
    read = _read_databases(databases, index, kept)
    schemas = tuple(NamedSchema(one.database, one.schema) for one in read)
    return DecomposeRequest(question, schemas, date.fromisoformat(today), SCANS_MAX)


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


def _read_databases(
    databases: list[dict[str, str]], index: dict[str, Any], kept: dict[str, Any] | None
) -> list[ReadDatabase]:
    """What was read, now or earlier, in the order of the databases."""
    found = [one for one in index["results"] if one is not None] + (kept["databases"] if kept is not None else [])
    read = {one.database: one for one in msgspec.convert(found, tuple[ReadDatabase, ...])}
    return [read[one["name"]] for one in databases if one["name"] in read]

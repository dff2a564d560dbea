"""What may be read of a database, and what protects it: for people who write a policy, before anybody asks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from mulligan import StepError
from mulligan_nl2sql.asking.shown_answers import printable
from mulligan_nl2sql.database_urls import Database, split_name
from mulligan_nl2sql.execution.messages import Finding
from mulligan_nl2sql.execution.schema_reading import inspect, read_schema
from mulligan_nl2sql.limits import Limits
from mulligan_nl2sql.planning.find_planner import find_agent, find_planner
from mulligan_nl2sql.policed_databases import find_database
from mulligan_nl2sql.policy import Policy


class ReadableTable(msgspec.Struct, frozen=True):
    name: str
    columns: list[str]
    hidden_columns: list[str]


class Permissions(msgspec.Struct, frozen=True, kw_only=True):
    """What a question may read of a database."""

    database: str
    dialect: str
    tables: list[ReadableTable]
    # Tables that exist and may not be read.
    hidden: list[str]
    # Beyond those that are always allowed.
    functions: list[str]
    limits: Limits


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """`is_usable`: questions can be asked."""

    database: str
    is_usable: bool
    findings: list[Finding]


def read_permissions(url: str, policy: str = "") -> Permissions:
    """Read the schema and apply the policy. StepError if the URL, the policy or the database is no good."""
    database, rules = _find(url, policy)
    schema = read_schema(database, rules)
    return Permissions(
        database=database.name,
        dialect=database.dialect,
        tables=[
            ReadableTable(table.full_name, [column.name for column in table.columns], list(table.hidden_columns))
            for table in schema.tables
        ],
        hidden=list(schema.hidden),
        functions=list(rules.functions),
        limits=rules.limits,
    )


def diagnose(url: str, policy: str = "", planner: str = "") -> Diagnosis:
    """Look at the connection, the role, the policy and the planner. What is wrong with them is a finding."""
    database, rules = _find(url, policy)
    findings: list[Finding] = []
    try:
        findings += inspect(database, rules)
        count = len(read_schema(database, rules).tables)
        is_empty = count == 0
        findings.append(Finding("schema", f"{count} table{'' if count == 1 else 's'} may be read", is_problem=is_empty))
    except StepError as failure:
        findings.append(Finding("database", f"{failure.code}: {failure.message}", is_problem=True))
    if planner:
        findings.append(_planner_finding(planner))
    # A role that could write is used only if the policy says so.
    excused = {"role", "tables"} if rules.allow_writing_role else set()
    is_usable = not any(finding.is_problem and finding.name not in excused for finding in findings)
    return Diagnosis(database=database.name, is_usable=is_usable, findings=findings)


def show_permissions(permissions: Permissions) -> Iterator[str]:
    """The lines for a terminal."""
    yield f"{permissions.database} ({permissions.dialect})"
    for table in permissions.tables:
        hidden = f"; hidden: {', '.join(table.hidden_columns)}" if table.hidden_columns else ""
        yield printable(f"  {table.name}: {', '.join(table.columns)}{hidden}")
    if not permissions.tables:
        yield "  no table may be read"
    if permissions.hidden:
        yield printable(f"hidden tables: {', '.join(permissions.hidden)}")
    if permissions.functions:
        yield printable(f"further functions: {', '.join(permissions.functions)}")
    limits: dict[str, Any] = msgspec.to_builtins(permissions.limits)
    yield f"limits: {', '.join(f'{name} {value:,}' for name, value in limits.items())}"


def show_diagnosis(diagnosis: Diagnosis) -> Iterator[str]:
    """The lines for a terminal."""
    for finding in diagnosis.findings:
        yield f"{'problem' if finding.is_problem else 'ok':<8} {finding.name}: {printable(finding.message)}"
    yield f"{diagnosis.database} can{'' if diagnosis.is_usable else 'not'} be asked"


def _planner_finding(name: str) -> Finding:
    try:
        find_planner(name, os.environ)
    except StepError as failure:
        return Finding("planner", failure.message, is_problem=True)
    if agent := find_agent(name, os.environ):
        return Finding(
            "planner", f"'{agent}' is an agent, which gets the environment of nl2sql, and is asked by Mulligan"
        )
    return Finding("planner", f"'{name}' has all of its settings")


def _find(url: str, policy: str) -> tuple[Database, Policy]:
    name, plain_url = split_name(url)
    return find_database(plain_url, policy, name)

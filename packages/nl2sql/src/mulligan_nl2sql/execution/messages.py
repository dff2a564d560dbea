"""What the process of a query is asked, and what it answers."""

from __future__ import annotations

import os
import time
from typing import Any, Literal

import msgspec

from mulligan_nl2sql.database_urls import Database
from mulligan_nl2sql.failures import Code, QueryFailed, Stage
from mulligan_nl2sql.limits import MEBIBYTE, Limits
from mulligan_nl2sql.policy import Policy
from mulligan_nl2sql.schema import Schema

Task = Literal["schema", "index", "explain", "execute", "doctor"]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    task: Task
    database: Database
    limits: Limits
    policy: Policy
    # What may be read, for databases that check it themselves; None while the schema is read.
    schema: Schema | None = None
    # In lower case.
    functions: tuple[str, ...] = ()
    # SQL that was checked.
    sql: str = ""
    columns: tuple[str, ...] = ()
    # Pairs of an alias in the statement and a table with its schema.
    aliases: tuple[tuple[str, str], ...] = ()
    # What the statement defines by WITH.
    defined: tuple[str, ...] = ()
    rows_max: int = 0
    # An open file for the rows.
    rows_fd: int = -1
    # By the clock that all processes of a machine share.
    deadline: float
    parent_pid: int

    @property
    def stage(self) -> Stage:
        return Stage.SCHEMA if self.task in ("schema", "index", "doctor") else Stage(self.task)

    def failure(self, code: Code, message: str, **details: Any) -> QueryFailed:
        return QueryFailed(code, message, stage=self.stage, **details)

    def timed_out(self) -> QueryFailed:
        return self.failure(Code.TIMEOUT, f"the query took longer than {self.limits.seconds:g} s, the limit")

    def too_expensive(self, cost: float) -> QueryFailed:
        limit = self.limits.cost
        return self.failure(
            Code.TOO_EXPENSIVE,
            f"the query would cost {cost:,.0f}, and the limit is {limit:,.0f}: add a filter, or a condition for a join",
            cost=cost,
            limit=limit,
        )

    def memory_exceeded(self) -> QueryFailed:
        size = self.limits.memory_bytes // MEBIBYTE
        return self.failure(Code.MEMORY, f"the query needs more than {size} MiB of memory, the limit")


def make_request(task: Task, database: Database, policy: Policy, **fields: Any) -> Request:
    """A request of this process. Its time begins now."""
    return Request(
        task=task,
        database=database,
        limits=policy.limits,
        policy=policy,
        deadline=time.monotonic() + policy.limits.seconds,
        parent_pid=os.getpid(),
        **fields,
    )


class Finding(msgspec.Struct, frozen=True):
    """What `doctor` says of a database. `is_problem`: nothing is executed there."""

    name: str
    message: str
    is_problem: bool = False


class WrittenRows(msgspec.Struct, frozen=True):
    rows: int
    bytes: int
    # `rows` or `bytes`: which limit has cut the result; empty if it is whole.
    cut: str = ""


class FailureReport(msgspec.Struct, frozen=True):
    code: str
    message: str
    details: dict[str, Any] = {}


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of these is set."""

    schema: Schema | None = None
    cost: float | None = None
    written: WrittenRows | None = None
    findings: tuple[Finding, ...] | None = None
    failure: FailureReport | None = None

"""What can go wrong with a query: a code, how severe it is, whether a retry helps, and where it is in the statement."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from mulligan import StepError

# A model may write a megabyte, and a database quotes it.
_MESSAGE_CHARS_MAX = 600


class Stage(StrEnum):
    """Where a query was when it failed."""

    SCHEMA = "schema"
    CHECK = "check"
    EXPLAIN = "explain"
    EXECUTE = "execute"


class Repair(StrEnum):
    """What a planner needs to write a better statement; NONE if it cannot help."""

    NONE = ""
    MESSAGE = "message"
    SCHEMA = "schema"


class _Rule(NamedTuple):
    severity: str
    # The same statement may work later.
    is_retryable: bool
    repair: Repair


class Code(StrEnum):
    """The codes of failures. A failure of security is critical: it is neither retried nor repaired."""

    # The check: mistakes of a planner.
    SYNTAX = "SQL_SYNTAX"
    UNSUPPORTED = "SQL_UNSUPPORTED"
    TOO_COMPLEX = "SQL_TOO_COMPLEX"
    TABLE_UNKNOWN = "SQL_TABLE_UNKNOWN"
    COLUMN_UNKNOWN = "SQL_COLUMN_UNKNOWN"
    COLUMN_AMBIGUOUS = "SQL_COLUMN_AMBIGUOUS"
    FUNCTION_UNKNOWN = "SQL_FUNCTION_UNKNOWN"
    # The check: security.
    MANY_STATEMENTS = "SQL_MANY_STATEMENTS"
    NOT_A_QUERY = "SQL_NOT_A_QUERY"
    TABLE_FORBIDDEN = "SQL_TABLE_FORBIDDEN"
    COLUMN_FORBIDDEN = "SQL_COLUMN_FORBIDDEN"
    FUNCTION_FORBIDDEN = "SQL_FUNCTION_FORBIDDEN"
    # The plan.
    TOO_EXPENSIVE = "QUERY_TOO_EXPENSIVE"
    # The execution.
    TIMEOUT = "QUERY_TIMEOUT"
    MEMORY = "QUERY_MEMORY"
    CRASHED = "QUERY_CRASHED"
    REJECTED = "QUERY_REJECTED"
    FORBIDDEN_BY_DATABASE = "QUERY_FORBIDDEN"
    # The database.
    UNREACHABLE = "DATABASE_UNREACHABLE"
    BUSY = "DATABASE_BUSY"
    UNUSABLE = "DATABASE_UNUSABLE"
    UNSAFE = "DATABASE_UNSAFE"
    # What the user wrote.
    URL_INVALID = "DATABASE_URL_INVALID"
    POLICY_INVALID = "POLICY_INVALID"


_MISTAKE = _Rule("error", False, Repair.MESSAGE)
_WRONG_NAME = _Rule("error", False, Repair.SCHEMA)
_SECURITY = _Rule("critical", False, Repair.NONE)
_FINAL = _Rule("error", False, Repair.NONE)
_TEMPORARY = _Rule("error", True, Repair.NONE)

RULES: dict[Code, _Rule] = {
    Code.SYNTAX: _MISTAKE,
    Code.UNSUPPORTED: _MISTAKE,
    Code.TOO_COMPLEX: _MISTAKE,
    Code.TABLE_UNKNOWN: _WRONG_NAME,
    Code.COLUMN_UNKNOWN: _WRONG_NAME,
    Code.COLUMN_AMBIGUOUS: _WRONG_NAME,
    Code.FUNCTION_UNKNOWN: _MISTAKE,
    Code.MANY_STATEMENTS: _SECURITY,
    Code.NOT_A_QUERY: _SECURITY,
    Code.TABLE_FORBIDDEN: _SECURITY,
    Code.COLUMN_FORBIDDEN: _SECURITY,
    Code.FUNCTION_FORBIDDEN: _SECURITY,
    Code.TOO_EXPENSIVE: _MISTAKE,
    # Another statement for the same question would take as long, and the same one would time out again.
    Code.TIMEOUT: _FINAL,
    Code.MEMORY: _FINAL,
    Code.CRASHED: _TEMPORARY,
    Code.REJECTED: _MISTAKE,
    Code.FORBIDDEN_BY_DATABASE: _SECURITY,
    Code.UNREACHABLE: _TEMPORARY,
    Code.BUSY: _TEMPORARY,
    Code.UNUSABLE: _FINAL,
    Code.UNSAFE: _SECURITY,
    Code.URL_INVALID: _FINAL,
    Code.POLICY_INVALID: _FINAL,
}


class Position(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where in the statement of the planner. Lines and columns count from 1, offsets from 0; `end` is not included."""

    line: int
    column: int
    start: int = -1
    end: int = -1


class QueryFailed(StepError):
    """A query was refused, or failed. A step that raises it fails with its code, severity and details."""

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        stage: Stage,
        node: str = "",
        position: Position | None = None,
        **details: Any,
    ) -> None:
        rule = RULES[code]
        self.stage = stage
        self.node = node
        self.position = position
        self.repair = rule.repair
        fields = {
            "stage": stage.value,
            "node": node,
            "position": msgspec.to_builtins(position) if position else None,
            "repair": rule.repair.value,
            **details,
        }
        super().__init__(
            code.value,
            bounded(message),
            severity=rule.severity,
            retryable=rule.is_retryable,
            details={name: value for name, value in fields.items() if value not in (None, "")},
        )

    @property
    def is_security(self) -> bool:
        return self.severity == "critical"


def bounded(text: str) -> str:
    """The text, shortened in the middle if it is long."""
    if len(text) <= _MESSAGE_CHARS_MAX:
        return text
    half = _MESSAGE_CHARS_MAX // 2
    return f"{text[:half]} … {text[-half:]}"

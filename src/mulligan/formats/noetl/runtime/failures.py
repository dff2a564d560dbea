"""Failures of tools as NoETL shows them: one of 17 kinds, and details."""

from __future__ import annotations

import errno
from typing import Any

from mulligan import StepError

# By the code of the failure, where there are no details.
_BY_CODE = {
    "CONNECTION": "connection",
    "TIMEOUT": "timeout",
    "HTTP_429": "rate_limit",
    "HTTP_5XX": "server_error",
    "HTTP_4XX": "client_error",
    "INPUT_INVALID": "schema",
    "OUTPUT_INVALID": "parse",
    "EXPRESSION_FAILED": "transform",
    "OUTPUT_TOO_LARGE": "transform",
}
_BY_STATUS = {401: "auth", 403: "auth", 404: "not_found", 407: "auth", 408: "timeout", 410: "not_found"}
_DATABASES = frozenset({"postgres", "duckdb"})
_OF_DATABASES = {"CONNECTION": "db_connection", "TIMEOUT": "db_timeout"}
# By the SQLSTATE, the longest beginning that fits.
_BY_STATE = {
    "40001": "db_deadlock",
    "40P01": "db_deadlock",
    "55P03": "db_timeout",
    "57014": "db_timeout",
    "25P04": "db_timeout",
    "42501": "auth",
    "42601": "parse",
    "53100": "storage_quota",
    "58": "storage_access",
    "08": "db_connection",
    "22": "transform",
    "23": "db_constraint",
    "28": "auth",
    "42": "schema",
    "53": "db_connection",
    "57": "db_connection",
}
_BY_DUCKDB = {
    "Constraint": "db_constraint",
    "Catalog": "schema",
    "Binder": "schema",
    "Parser": "parse",
    "IO": "storage_access",
}
_BY_EXCEPTION: tuple[tuple[type[BaseException], str], ...] = (
    (TimeoutError, "timeout"),
    (ConnectionError, "connection"),
    (PermissionError, "storage_access"),
    (FileNotFoundError, "not_found"),
    (UnicodeError, "parse"),
    (ArithmeticError, "transform"),
    (LookupError, "transform"),
    (TypeError, "transform"),
    (AttributeError, "transform"),
)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_RETRYABLE_CODES = frozenset({"CONNECTION", "TIMEOUT", "HTTP_5XX", "HTTP_429", "EXCEPTION", "EXIT_NONZERO"})


def of_tool(error: StepError, source: str) -> StepError:
    """The failure of a tool, with the fields that playbooks read among its details."""
    retryable = error.code in _RETRYABLE_CODES if error.retryable is None else error.retryable
    return changed(error, details={**error.details, **_view(error, source), "retryable": retryable})


def changed(error: StepError, message: str = "", **changes: Any) -> StepError:
    """The failure with another message, or other fields."""
    fields = {"severity": error.severity, "retryable": error.retryable, "details": error.details, **changes}
    return StepError(error.code, message or error.message, **fields).with_traceback(error.__traceback__)


def of_exception(error: BaseException, source: str) -> StepError:
    """The failure for an exception of the playbook's code, with its traceback."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # a class of the playbook may do anything
        text = "it cannot be shown"
    details = {"exception_type": name, "kind": _kind_of_exception(error)}
    found = of_tool(StepError("EXCEPTION", f"{name}: {text}" if text else name, details=details), source)
    return found.with_traceback(error.__traceback__)


def view(error: StepError) -> dict[str, Any]:
    """`error` as templates read it."""
    found = {"kind": _BY_CODE.get(error.code, "unknown"), "retryable": True, **error.details, "message": error.message}
    found.setdefault("code", error.code)
    found.setdefault("status", found.get("http_status"))
    return found


def with_cause(details: dict[str, Any], causes: Any) -> dict[str, Any]:
    """The details of a failed loop or playbook, with `cause`: what failed inside it. The kind is that of the first."""
    found = [_cause(one) for one in causes or () if isinstance(one, dict)]
    return {"kind": found[0]["kind"], **details, "cause": found} if found else details


def _cause(failure: dict[str, Any]) -> dict[str, Any]:
    details = with_cause(dict(failure.get("details") or {}), failure.get("cause"))
    known = {key: failure.get(key) for key in ("code", "message", "step")}
    kind = details.get("kind") or _BY_CODE.get(str(failure.get("code")), "unknown")
    return {**known, "kind": kind, **({"cause": details["cause"]} if "cause" in details else {})}


def _view(error: StepError, source: str) -> dict[str, Any]:
    details = error.details
    found: dict[str, Any] = {"kind": details.get("kind") or _kind(error, source), "code": error.code, "source": source}
    if error.code.startswith("HTTP_") and isinstance(details.get("status"), int):
        status = details["status"]
        found |= {"http_status": status, "status_code": status, "code": f"HTTP_{status}"}
    if details.get("sqlstate"):
        found["pg_code"] = details["sqlstate"]
    return found


def _kind(error: StepError, source: str) -> str:
    state = str(error.details.get("sqlstate") or "")
    if kind := next((_BY_STATE[state[:size]] for size in (5, 2) if state[:size] in _BY_STATE), ""):
        return kind
    if source in _DATABASES and error.code in _OF_DATABASES:
        return _OF_DATABASES[error.code]
    if "duckdb" in error.details:
        return _BY_DUCKDB.get(str(error.details["duckdb"]).removesuffix("Exception"), "unknown")
    if error.code == "HTTP_4XX":
        return _BY_STATUS.get(error.details.get("status", 0), "client_error")
    return _BY_CODE.get(error.code, "unknown")


def _kind_of_exception(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno in _FULL:
        return "storage_quota"
    if type(error).__name__ == "JSONDecodeError":
        return "parse"
    return next((kind for of, kind in _BY_EXCEPTION if isinstance(error, of)), "unknown")

"""The URL of a database: which one it is, where it is, and which parts must not be shown."""

from __future__ import annotations

import os
from dataclasses import dataclass

from mulligan import StepError
from mulligan.core.model.text.database_urls import redact, scheme_to_show, secret_parts
from mulligan.worker.databases.failures import invalid

MEMORY = ":memory:"
KNOWN = "sqlite:///file.db, postgresql://user@host/name and duckdb:///file.duckdb"
SCHEMES = {"sqlite": "sqlite", "duckdb": "duckdb", "postgresql": "postgres", "postgres": "postgres"}


@dataclass(frozen=True)
class Address:
    """`kind` is `sqlite`, `postgres` or `duckdb`; `location` is a file, MEMORY, or the whole URL of a server."""

    kind: str
    location: str
    hidden: tuple[str, ...] = ()

    def redact(self, text: str) -> str:
        """Return the text without passwords."""
        return redact(text, self.hidden)


def read_address(text: object) -> Address:
    """Parse the URL. INPUT_INVALID if the database is unknown."""
    if not isinstance(text, str) or not text.strip():
        raise invalid(f"'connection' is {_shown(text)}; a database URL is expected, such as {KNOWN}")
    scheme, separator, rest = text.strip().partition("://")
    kind = SCHEMES.get(scheme.lower())
    if not separator or kind is None:
        raise _unknown(text)
    if kind == "postgres":
        return Address(kind, text.strip(), secret_parts(text.strip()))
    return Address(kind, _file(scheme, rest))


def refuse_missing(location: str) -> None:
    """Raise INPUT_INVALID if a file that is only to be read does not exist."""
    if location != MEMORY and not os.path.exists(location):
        raise invalid(f"there is no file '{location}', and a step with 'read_only: true' does not create it")


def _shown(value: object) -> str:
    if value is None or value == "":
        return "empty"
    return "blank" if isinstance(value, str) else f"of type '{type(value).__name__}'"


def _unknown(text: str) -> StepError:
    """Describe a wrong URL without showing it: it may contain a password."""
    scheme = scheme_to_show(text)
    if scheme:
        return invalid(f"unknown database '{scheme}://…'; known are {KNOWN}")
    what = "does not start with a database and '://'" if "://" in text else "has no '://'"
    return invalid(f"'connection' {what}; known are {KNOWN}")


def _file(scheme: str, rest: str) -> str:
    """Parse like other tools: three slashes and a relative name, or four slashes for an absolute one."""
    if rest in ("", "/", f"/{MEMORY}"):
        return MEMORY
    if not rest.startswith("/"):
        if "@" in rest:
            raise invalid(f"'connection' has a user and a host, but {scheme} has none: write '{scheme}:///' and a file")
        raise invalid(
            f"'{scheme}://{rest}' has a host, but {scheme} has none: write '{scheme}:///{rest}' for a file here"
        )
    if "\0" in rest:
        raise invalid("'connection' contains a NUL byte")
    return os.path.abspath(rest[1:])

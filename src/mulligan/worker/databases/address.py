"""The address of a database: which it is, where it is, and what of it may never be shown."""

from __future__ import annotations

import os
from dataclasses import dataclass

from mulligan import StepError
from mulligan.core.model.database_urls import redact, scheme_to_show, secret_parts
from mulligan.worker.databases.failures import invalid

MEMORY = ":memory:"
KNOWN = "sqlite:///file.db, postgresql://user@host/name and duckdb:///file.duckdb"
SCHEMES = {"sqlite": "sqlite", "duckdb": "duckdb", "postgresql": "postgres", "postgres": "postgres"}


@dataclass(frozen=True)
class Address:
    """`kind` is `sqlite`, `postgres` or `duckdb`; `place` a file, MEMORY, or the whole address of a server."""

    kind: str
    place: str
    hidden: tuple[str, ...] = ()

    def veiled(self, text: str) -> str:
        """The text without a password."""
        return redact(text, self.hidden)


def read_address(text: object) -> Address:
    """Where the database is. INPUT_INVALID where it is none that we know."""
    if not isinstance(text, str) or not text.strip():
        raise invalid(f"'connection' is {_shown(text)}, and the address of a database is expected, such as {KNOWN}")
    scheme, separator, rest = text.strip().partition("://")
    kind = SCHEMES.get(scheme.lower())
    if not separator or kind is None:
        raise _unknown(text)
    if kind == "postgres":
        return Address(kind, text.strip(), secret_parts(text.strip()))
    return Address(kind, _file(scheme, rest))


def refuse_missing(place: str) -> None:
    """INPUT_INVALID where a file is not there that is only to be read."""
    if place != MEMORY and not os.path.exists(place):
        raise invalid(f"there is no file '{place}', and a step that says 'read_only: true' makes none")


def _shown(value: object) -> str:
    if value is None or value == "":
        return "empty"
    return "blank" if isinstance(value, str) else f"of type '{type(value).__name__}'"


def _unknown(text: str) -> StepError:
    """The address itself is not shown: whatever it is, there may be a password in it."""
    scheme = scheme_to_show(text)
    if scheme:
        return invalid(f"there is no database '{scheme}://…': there are {KNOWN}")
    what = "does not begin with the name of a database and '://'" if "://" in text else "has no '://'"
    return invalid(f"'connection' {what}: there are {KNOWN}")


def _file(scheme: str, rest: str) -> str:
    """As others write it: three slashes and a relative name, or four for one from the root."""
    if rest in ("", "/", f"/{MEMORY}"):
        return MEMORY
    if not rest.startswith("/"):
        if "@" in rest:
            raise invalid(f"'connection' has a user and a host, and {scheme} has none: write '{scheme}:///' and a file")
        raise invalid(
            f"'{scheme}://{rest}' has a host, and {scheme} has none: write '{scheme}:///{rest}' for a file here"
        )
    if "\0" in rest:
        raise invalid("'connection' has a NUL in it, and no file has")
    return os.path.abspath(rest[1:])

"""A PostgreSQL for the bench: from the wheel that the tests use, or the one that is named; it syncs."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from mulligan.testing.postgres import GIVEN, own_server

# What the tests' server has switched off or made small.
_AS_THE_SERVER_HAS_IT = {"fsync": "on", "shared_buffers": "128MB"}


@contextmanager
def server() -> Iterator[str]:
    """The URL of a server in which databases can be made."""
    given = os.environ.get(GIVEN)
    if given:
        yield given
        return
    with own_server(_AS_THE_SERVER_HAS_IT) as own:
        yield own.url


@contextmanager
def database(url: str) -> Iterator[str]:
    """The URL of a new, empty database there; it is dropped at the end."""
    name = f"bench_{secrets.token_hex(6)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

"""Stores of earlier releases, as those left them: a home for SQLite, a schema of PostgreSQL."""

from __future__ import annotations

import lzma
import tarfile
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

HERE = Path(__file__).parent
# The schema that a dump names, and no other text in it.
DUMPED_SCHEMA = "mulligan_golden"


def unpack_home(release: str, target: Path) -> Path:
    """The home, with a database whose last pages are in its log: its processes were killed."""
    with tarfile.open(HERE / release / "home.tar.xz") as archive:
        # An argument of `extractall` only since Python 3.11.4.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(target)
    return target


def restore_schema(release: str, url: str) -> None:
    """Make the tables, in the empty schema that the URL names."""
    name = conninfo_to_dict(url)["options"].rpartition("=")[2]
    dump = lzma.decompress((HERE / release / "postgres.sql.xz").read_bytes())
    assert name
    with psycopg.connect(url) as connection:
        connection.execute(f"DROP SCHEMA {name}".encode())
        connection.execute(dump.replace(DUMPED_SCHEMA.encode(), name.encode()))

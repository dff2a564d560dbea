"""DBOS, set up as its workloads need it: quiet, and on SQLite with WAL and a sync per commit like everybody else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dbos import DBOS, DBOSConfig
from sqlalchemy import Engine, event


@event.listens_for(Engine, "connect")
def durable(connection: Any, _record: Any) -> None:
    """WAL and FULL on SQLite: its own default, a rollback journal, would need more syncs for each commit."""
    if type(connection).__module__.startswith("sqlite3"):
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")


@DBOS.step()
def step() -> None:
    return None


@DBOS.workflow()
def chain(count: int) -> int:
    for _ in range(count):
        step()
    return count


@contextmanager
def launched(store: str) -> Iterator[None]:
    """DBOS, running on `store` (sqlite or postgres)."""
    url = "sqlite:///dbos.db" if store == "sqlite" else os.environ["BENCH_POSTGRES"]
    # Without this its SQLAlchemy would look for psycopg2.
    url = url.replace("postgresql://", "postgresql+psycopg://")
    config: DBOSConfig = {"name": "bench", "system_database_url": url, "log_level": "ERROR"}
    DBOS(config=config)
    DBOS.launch()
    yield
    # All is committed. Its orderly shutdown waits up to a second for threads that sleep, which is no part of the work.
    os._exit(0)

"""A kept index: the whole schema of a database as it was read, and how to notice that it does not fit any more.

A policy is applied when an index is used: the file has the names of everything, and the values of what the policy let
be read then. It fits as long as

- the policy is the same;
- of a file: nothing was written to it since, by its size and time and those of its log;
- of a server: the structure is the same, which is read anew, and the values are at most an hour old.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from mulligan_nl2sql.database_urls import Database, url_to_keep
from mulligan_nl2sql.execution.schema_reading import read_index, read_structure
from mulligan_nl2sql.failures import Code, QueryFailed, Stage
from mulligan_nl2sql.policy import Policy
from mulligan_nl2sql.schema import Schema

FOLDER = "nl2sql-index"
SECONDS_MAX = 3600.0
_VERSION = 2
_FILE_BYTES_MAX = 256 << 20
_DIGEST_CHARS = 32
# The logs of files: what they hold is in the database already.
_LOGS = {"sqlite": "-wal", "duckdb": ".wal"}


class KeptIndex(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was read, when, and what the database was like then."""

    version: int = _VERSION
    database: str
    # Without its password.
    url: str
    read_at: datetime
    # Digests: of the policy, and of the state of a file or the structure of a server.
    policy: str
    state: str
    schema: Schema


def keep_index(folder: Path, database: Database, policy: Policy, now: datetime) -> KeptIndex:
    """Read a database, and keep that in the folder. QueryFailed if it cannot be read, or the file not be written."""
    # Before it is read: what is written meanwhile must not go unnoticed.
    state = state_of_file(database)
    schema = read_index(database, policy)
    # A policy with a name that the database does not have is an error now, and not at the next question.
    policy.apply(schema)
    kept = KeptIndex(
        database=database.name,
        url=url_to_keep(database)[0],
        read_at=now,
        policy=digest_of_policy(policy),
        state=state or digest_of_structure(schema),
        schema=schema,
    )
    _write(folder, _file(folder, database), msgspec.json.encode(kept))
    return kept


def find_index(folder: Path, database: Database) -> KeptIndex | None:
    """The kept index of a database; None if there is none that can be read."""
    try:
        with _file(folder, database).open("rb") as opened:
            data = opened.read(_FILE_BYTES_MAX + 1)
        kept = msgspec.json.decode(data, type=KeptIndex)
    except (OSError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    is_its_own = (kept.version, kept.database, kept.url) == (_VERSION, database.name, url_to_keep(database)[0])
    return kept if is_its_own else None


def why_file_does_not_fit(kept: KeptIndex, database: Database, policy: Policy) -> str:
    """Why the index of a file is not used; empty if it fits. The database is not asked."""
    if kept.policy != digest_of_policy(policy):
        return "the policy is another one"
    return "" if kept.state == state_of_file(database) else "the file has changed"


def why_server_does_not_fit(kept: KeptIndex, database: Database, policy: Policy, now: datetime) -> str:
    """Why the index of a server is not used; empty if it fits. The server is asked for its structure."""
    if kept.policy != digest_of_policy(policy):
        return "the policy is another one"
    if not 0 <= (now - kept.read_at).total_seconds() <= SECONDS_MAX:
        return "it is more than an hour old"
    is_same = kept.state == digest_of_structure(read_structure(database, policy))
    return "" if is_same else "the structure has changed"


def state_of_file(database: Database) -> str:
    """What changes whenever something is written to the file; empty for a server."""
    if database.dialect not in _LOGS:
        return ""
    found = []
    for path in (database.location, database.location + _LOGS[database.dialect]):
        try:
            status = os.stat(path)
        except OSError:
            continue
        if status.st_size:
            found.append([path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns])
    return _digest(msgspec.json.encode(found))


def digest_of_structure(schema: Schema) -> str:
    """The tables and columns, without values and without estimates of their size."""
    bare = [
        msgspec.structs.replace(
            table, rows=-1, columns=tuple(msgspec.structs.replace(column, values=()) for column in table.columns)
        )
        for table in schema.tables
    ]
    return _digest(msgspec.json.encode(msgspec.structs.replace(schema, tables=tuple(bare))))


def digest_of_policy(policy: Policy) -> str:
    return _digest(msgspec.json.encode(policy, order="deterministic"))


def utc_now() -> datetime:
    return datetime.now(UTC)


def _file(folder: Path, database: Database) -> Path:
    digest = _digest(url_to_keep(database)[0].encode())[:12]
    return folder / f"{database.name}-{digest}.json"


def _write(folder: Path, file: Path, data: bytes) -> None:
    """Write the file as a whole: a question sees the old one or the new one. Others may not read it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(dir=folder, prefix=".", suffix=".partial")
        try:
            with os.fdopen(number, "wb") as opened:
                opened.write(data)
            os.replace(name, file)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise QueryFailed(Code.UNUSABLE, f"'{file}' cannot be written: {reason}", stage=Stage.SCHEMA) from None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGEST_CHARS]

"""A store in which somebody has written by hand, or that somebody else has made: refused in words, and nothing more."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import apsw
import pytest
from tests.support.commands import mulligan, workflow

from mulligan.store import open_store

WAITS = """
name: waits
steps:
  - {step: large, shell: "head -c 200000 /dev/zero | tr '\\\\0' a"}
  - {step: asks, needs: [large], approve: {message: go on}}
outputs: {size: "${size(steps.large.output)}"}
"""
# What somebody has written, the verb that comes upon it, and how its refusal begins.
FORGERIES = [
    # -- events
    ("UPDATE events SET entry = x'ff00'", "events", "an event cannot be read: JSON is malformed"),
    ("UPDATE events SET entry = substr(entry, 1, 20)", "explain", "an event cannot be read: Input data was truncated"),
    ("UPDATE events SET entry = 'text'", "events", "an event cannot be read: it is str, not bytes"),
    ("UPDATE events SET entry = 5", "show", "an event cannot be read: it is int, not bytes"),
    (
        "UPDATE events SET entry = cast(replace(hex(zeroblob(50000)), '00', '[') AS blob)",
        "show",
        "an event cannot be read: it is nested too deep",
    ),
    (
        """UPDATE events SET entry = cast(replace(entry, '"v":1', '"v":7') AS blob)""",
        "events",
        "an event was written by a newer Mulligan (version 7, this one reads up to 1)",
    ),
    (
        "UPDATE events SET entry = cast(replace(entry, 'attempt.started', 'attempt.teleported') AS blob)",
        "explain",
        "an event cannot be read: Invalid value 'attempt.teleported'",
    ),
    # -- tables
    ("UPDATE rows SET data = x'ff00'", "show", "the tables of the run cannot be read: "),
    ("UPDATE rows SET data = substr(data, 1, 5)", "resume", "the tables of the run cannot be read: "),
    ("UPDATE workflows SET body = x'00'", "show", "a stored workflow cannot be read: "),
    ("UPDATE workflows SET body = cast('{}' AS blob)", "resume", "a stored workflow cannot be read: "),
    (
        "INSERT INTO workers VALUES ('eve', 'here', x'ff', 0)",
        "resume",
        "the record of a worker in the store cannot be read: ",
    ),
]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run in it that waits for somebody."""
    folder = tmp_path_factory.mktemp("good")
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert mulligan("run", workflow(WAITS)).code == 4
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def forged(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> apsw.Connection:
    """The database of a copy of that folder, in which one is now."""
    shutil.copytree(good, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return apsw.Connection(".mulligan/mulligan.db")


@pytest.mark.parametrize(("sql", "verb", "said"), FORGERIES, ids=[f"{verb}: {sql}"[:60] for sql, verb, _ in FORGERIES])
def test_what_was_written_by_hand_is_refused_in_words(forged: apsw.Connection, sql: str, verb: str, said: str) -> None:
    forged.execute(sql)
    forged.close()

    told = mulligan(verb, 1)

    assert told.code == 1
    # A record of a worker is no part of the run.
    refusal = "error[codec]: " if "INTO workers" in sql else "error[run.damaged]: run 1 is damaged: "
    assert f"{refusal}{said}" in told.err
    assert "bug" not in told.err


DAMAGED = [
    ("UPDATE runs SET created_at = 'yesterday'", "the row of a run in the store cannot be read: "),
    ("UPDATE runs SET created_at = 9223372036854775807", "a time in the store cannot be read: "),
]


@pytest.mark.parametrize(("sql", "said"), DAMAGED)
def test_a_row_that_was_written_by_hand_is_listed_as_damaged(forged: apsw.Connection, sql: str, said: str) -> None:
    forged.execute(sql)
    forged.close()

    told = mulligan("list")

    assert (told.code, "damaged" in told.out, said in told.out) == (0, True, True)


@pytest.mark.parametrize(
    "sql", ["INSERT INTO messages VALUES (7, 1, x'ff', 0, 'a', 1)", "INSERT INTO timers VALUES (1, 'zap', 'a', 1, 0)"]
)
def test_a_message_that_was_written_by_hand_is_refused_and_the_run_goes_on(forged: apsw.Connection, sql: str) -> None:
    forged.execute(sql)
    forged.close()

    told = mulligan("resume", 1)

    assert told.code == 4
    assert "refused a request that it could not process (Unreadable): a message in the store cannot be read" in told.err


# As long as the name that they stand for: it is written with its length.
@pytest.mark.parametrize(
    "name", ["../../../../etc/passwd", "/etc/xxxxxxxxxxxxxxxxx", "1/../../xxxxxxxxxxxxxx", ".half-1/xxxxxxxxxxxxxx"]
)
def test_an_artifact_whose_name_leads_elsewhere_is_not_fetched(forged: apsw.Connection, name: str) -> None:
    forged.execute("UPDATE rows SET data = cast(replace(data, '1/large/1/1/output.txt', ?) AS blob)", (name,))
    forged.execute("UPDATE events SET entry = cast(replace(entry, '1/large/1/1/output.txt', ?) AS blob)", (name,))
    forged.close()

    told = mulligan("show", 1, "--output", "large")

    assert told.code == 1
    assert f"'{name}' is not a name of an artifact" in told.err


def test_a_schema_that_calls_more_than_it_may_is_not_obeyed(forged: apsw.Connection, tmp_path: Path) -> None:
    forged.execute("CREATE TRIGGER evil AFTER INSERT ON counters BEGIN SELECT load_extension('/evil.so'); END")
    forged.close()
    store = open_store(str(tmp_path / ".mulligan/mulligan.db"))

    settings = store._file.connection.pragma("trusted_schema")  # type: ignore[attr-defined]

    store.close()
    assert settings == 0

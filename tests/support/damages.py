"""Every kind of damage to a stored run, made in the database itself, past everything that Mulligan does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import apsw
import psycopg

from mulligan.service.home import DATABASE, Home

FLOW = """
name: nightly
inputs: {day: {type: string, default: monday}}
steps:
  - step: fetch
    shell: test "$MULLIGAN_ATTEMPT" -gt 1
    retry: {exit_codes: [1], max_retries: 2, delay: 0}
  - {step: each, map: {over: [a, b]}, do: [{shell: 'test ${item} = a'}], continue_on_error: true}
  - {step: broken, shell: exit 3, continue_on_error: true}
"""
# By kind of damage: the statements that make it, where `:run` is the run, and `(:event n)` the key of its event n.
_NEWER = b'{"v":999,"seq":2,"at":"2026-01-01T00:00:00Z","fact":{"type":"OfANewerRelease"}}'
_UNKNOWN = b'{"v":1,"seq":2,"at":"2026-01-01T00:00:00Z","fact":{"type":"OfANewerRelease"}}'


@dataclass(frozen=True)
class Store:
    """Runs statements in the database of a home, past everything that Mulligan does."""

    home: Home

    def execute(self, statement: str, *values: Any) -> list[Any]:
        if self.home.store_url:
            with psycopg.connect(self.home.store_url, autocommit=True) as database:
                cursor = database.execute(statement.replace("?", "%s"), values)
                return cursor.fetchall() if cursor.description else []
        connection = apsw.Connection(str(self.home.folder / DATABASE))
        try:
            return list(connection.execute(statement, values))
        finally:
            connection.close()

    def set_state(self, run_id: int, data: bytes | None) -> None:
        if not self.home.store_url:
            self.execute("UPDATE runs SET state = ? WHERE run_id = ?", data, run_id)
        elif data is None:
            self.execute("DELETE FROM rows WHERE run_id = ? AND kind = 'run'", run_id)
        else:
            self.execute("UPDATE rows SET data = ? WHERE run_id = ? AND kind = 'run'", data, run_id)

    def set_event(self, run_id: int, seq: int, data: bytes) -> None:
        if self.home.store_url:
            self.execute("UPDATE events SET entry = ? WHERE run_id = ? AND seq = ?", data, run_id, seq)
        else:
            self.execute("UPDATE events SET entry = ? WHERE id = ?", data, (run_id << 32) + seq)

    def event(self, run_id: int, seq: int) -> bytes:
        is_server = bool(self.home.store_url)
        where, key = ("run_id = ? AND seq = ?", (run_id, seq)) if is_server else ("id = ?", ((run_id << 32) + seq,))
        return bytes(self.execute(f"SELECT entry FROM events WHERE {where}", *key)[0][0])

    def remove_events(self, run_id: int, behind: int) -> None:
        if self.home.store_url:
            self.execute("DELETE FROM events WHERE run_id = ? AND seq > ?", run_id, behind)
        else:
            base = run_id << 32
            self.execute("DELETE FROM events WHERE id > ? AND id < ?", base + behind, base + (1 << 32))


def _other_version(store: Store, run_id: int, version: str) -> None:
    store.execute("UPDATE runs SET version = ? WHERE run_id = ?", version, run_id)


def _wrong_definition(store: Store, run_id: int, body: bytes) -> None:
    store.execute("INSERT INTO workflows (version, body) VALUES (?, ?)", f"damaged-{run_id}", body)
    _other_version(store, run_id, f"damaged-{run_id}")


DAMAGES: dict[str, Callable[[Store, int], Any]] = {
    "an event of broken bytes": lambda store, run: store.set_event(run, 2, b"\xff\x00{"),
    "a first event of broken bytes": lambda store, run: store.set_event(run, 1, b"\xff\x00{"),
    "an event of a newer format": lambda store, run: store.set_event(run, 2, _NEWER),
    "an event that this release does not know": lambda store, run: store.set_event(run, 2, _UNKNOWN),
    "an event of another type": lambda store, run: store.set_event(run, 2, b"7"),
    "a log that ends too early": lambda store, run: store.remove_events(run, 2),
    "no log": lambda store, run: store.remove_events(run, 0),
    "no definition": lambda store, run: _other_version(store, run, "nowhere"),
    "a definition of broken bytes": lambda store, run: _wrong_definition(store, run, b"\xff{"),
    "a definition of other types": lambda store, run: _wrong_definition(store, run, b'{"name": 7, "steps": "none"}'),
    "the definition of something else": lambda store, run: _wrong_definition(
        store, run, b'{"name":"other","steps":[]}'
    ),
    "a state of broken bytes": lambda store, run: store.set_state(run, b"\xff{"),
    "no state": lambda store, run: store.set_state(run, None),
    "rows of broken bytes": lambda store, run: store.execute("UPDATE rows SET data = ? WHERE run_id = ?", b"{", run),
    "rows of other types": lambda store, run: store.execute(
        "UPDATE rows SET data = ? WHERE run_id = ?", b'[7,"x"]', run
    ),
    "no rows": lambda store, run: store.execute("DELETE FROM rows WHERE run_id = ?", run),
    "a status that there is not": lambda store, run: store.execute(
        "UPDATE runs SET status = ? WHERE run_id = ?", "exploded", run
    ),
    "a time that there is not": lambda store, run: store.execute(
        "UPDATE runs SET updated_at = ? WHERE run_id = ?", 2**62, run
    ),
}

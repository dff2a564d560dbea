"""Bare durable commits, the ceiling of every chain on SQLite: COUNT inserts of SIZE bytes, each its own transaction."""

from __future__ import annotations

import sys

import apsw

count, size = int(sys.argv[1]), int(sys.argv[2])
connection = apsw.Connection("commits.db")
connection.execute("PRAGMA journal_mode=WAL")
connection.execute("PRAGMA synchronous=FULL")
connection.execute("CREATE TABLE log (seq INTEGER PRIMARY KEY, body BLOB NOT NULL)")
body = b"x" * size
for _ in range(count):
    connection.execute("INSERT INTO log (body) VALUES (?)", (body,))
connection.close()

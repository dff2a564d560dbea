"""The world outside of the programs here: services that know the key of a request, so that two of it have one effect.

They keep what was asked of them in `services.db`, in the folder where a run works.
"""

import sqlite3

from mulligan import idempotency_key


def request(effect: str) -> str:
    """Ask a service to do something. Returns the id that it gives to the request."""
    with sqlite3.connect("services.db") as services:
        services.execute("CREATE TABLE IF NOT EXISTS requests (key TEXT PRIMARY KEY, effect TEXT)")
        services.execute("INSERT OR IGNORE INTO requests VALUES (?, ?)", (idempotency_key(), effect))
        (number,) = services.execute("SELECT rowid FROM requests WHERE key = ?", (idempotency_key(),)).fetchone()
    return f"{effect.split()[0]}-{number}"

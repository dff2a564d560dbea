"""A server that goes away, comes back, or is held up: the run waits, says so, and loses nothing."""

from __future__ import annotations

from mulligan.ports import WorkerRecord
from mulligan.store.postgres import PostgresStore


def test_a_worker_that_hangs_in_a_transaction_holds_up_nobody(schema_url: str) -> None:
    hung = PostgresStore(schema_url, lease_seconds=0.6)
    # What is missing here would make the test wait for ever.
    other = PostgresStore(f"{schema_url}%20-cstatement_timeout%3D60s", lease_seconds=0.6)
    hung.register(WorkerRecord("hung", "here", 1))
    hung._link.connected().execute("BEGIN")
    hung._link.ask("beat", "hung")

    is_buried = other.bury("hung", is_dead=True)

    assert is_buried
    hung.close()
    other.close()

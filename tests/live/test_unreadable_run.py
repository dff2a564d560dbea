"""A run that cannot be read, live: `cancel` with `now` ends it, it can be removed, and the others go on."""

from __future__ import annotations

import apsw
import psycopg
import pytest
from tests.support.runner import Live

from mulligan.errors import CodecError
from mulligan.language import load
from mulligan.service.home import DATABASE
from mulligan.service.runs.changes.prepared_runs import prepare

TEXT = "name: damaged\nsteps: [{step: one, shell: 'true'}]\n"


def damaged_run(live: Live) -> int:
    """A run whose row of its state was changed by another program."""
    [run_id] = live.service.changes.create(prepare(load(live.write("damaged.yaml", TEXT)), {}, live.folder))
    home = live.service.reader.home
    if home.store_url:
        with psycopg.connect(home.store_url) as connection:
            connection.execute("UPDATE runs SET seq = 7 WHERE run_id = %s", (run_id,))
    else:
        file = apsw.Connection(str(home.folder / DATABASE))
        file.execute("UPDATE runs SET seq = 7 WHERE run_id = ?", (run_id,))
        file.close()
    return run_id


def test_cancel_with_now_ends_a_run_that_cannot_be_read_and_it_can_be_removed(live: Live) -> None:
    run_id = damaged_run(live)
    with pytest.raises(CodecError):
        live.service.changes.cancel(run_id)

    live.service.changes.cancel(run_id, now=True, reason="it is damaged")

    record = live.service.reader.store.run(run_id)
    assert (record.status, record.holder) == ("cancelled", "")
    assert "it is damaged" in record.reason
    assert live.service.reader.store.remove([run_id]) == [run_id]

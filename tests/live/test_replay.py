"""`replay --verify`, live: what it finds where the tables and the log say different things, and nothing where not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import apsw
import pytest
from tests.support.runner import Live

from mulligan.core.model.events import Entry
from mulligan.service.home import Home
from mulligan.service.runs.stored.replay import verify
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.service import Service
from mulligan.store.sqlite.sqlite_file import admit

ASKING = """
name: asking
steps:
  - {step: first, shell: echo 1}
  - {step: ask, needs: [first], approve: {message: go on?}}
  - {step: last, needs: [ask], shell: echo 2}
"""


class SlowReader(RunReader):
    """Has read a run's tables, and is overtaken by the run before it reads the log."""

    def __init__(self, home: Home, overtake: Callable[[], object]) -> None:
        super().__init__(home)
        self.overtaking = [overtake]

    def events(self, run_id: int, after: int = 0) -> Iterator[Entry]:
        while self.overtaking:
            self.overtaking.pop()()
        return super().events(run_id, after)


def test_a_run_that_goes_on_while_it_is_replayed_does_not_differ(live: Live):
    ran = live.run(ASKING)

    def go_on() -> None:
        live.service.changes.approve(ran.run_id, "ask", is_approved=True, reason="fine")
        assert live.resume(ran.run_id).status == "completed"

    reader = SlowReader(live.home, go_on)
    found = verify(reader, ran.run_id)
    reader.close()

    assert (found.events, found.differing) == (ran.log[-1].seq, ())


@pytest.mark.parametrize(
    ("change", "differing"),
    [
        # A step that the tables have lost, and one of which they know something else.
        ("DELETE FROM rows WHERE kind = 'places' AND key = 'first'", ("places",)),
        (
            "UPDATE rows SET data = (SELECT data FROM rows WHERE kind = 'places' AND key = 'first')"
            " WHERE kind = 'places' AND key = 'last'",
            ("places",),
        ),
        # A log that has lost its end.
        ("DELETE FROM events WHERE id = (SELECT max(id) FROM events)", ("run", "places")),
        # A log that goes on where the tables do not know of it.
        (
            """INSERT INTO events SELECT id + 1, CAST(replace(entry, '"seq":' || seq, '"seq":' || (seq + 1)) AS BLOB)"""
            " FROM (SELECT id, CAST(entry AS TEXT) AS entry, id & 0xffffffff AS seq FROM events"
            " ORDER BY id DESC LIMIT 1)",
            ("run",),
        ),
        # The run's row, of which the list is made.
        ("UPDATE runs SET status = 'completed'", ("list.status",)),
        ("UPDATE runs SET degraded = 1", ("list.degraded",)),
        ("UPDATE runs SET round = 7", ("list.round",)),
        ("UPDATE runs SET seq = 3", ("list.seq",)),
        ("UPDATE runs SET reason = 'nobody knows'", ("list.reason",)),
        ("UPDATE runs SET workflow = 'another'", ("list.workflow",)),
        ("UPDATE runs SET updated_at = 0", ("list.updated_at",)),
        ("UPDATE runs SET parent_run_id = 1", ("list.parent_run_id",)),
    ],
)
def test_tables_that_are_not_what_the_log_says_are_found(live_file: Live, change: str, differing: tuple[str, ...]):
    ran = live_file.run(ASKING)
    live_file.service.close()
    database = apsw.Connection(str(live_file.home.folder / "mulligan.db"))
    admit(database)
    database.execute(change)
    database.close()

    found = Service(live_file.home).runs.replay(ran.run_id)

    assert found.differing == differing

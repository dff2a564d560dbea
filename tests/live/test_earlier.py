"""How long the steps of a workflow took before, as each store has it."""

from __future__ import annotations

import pytest
from tests.support.runner import Live

from mulligan.service.runs.statistics.forecast import typical_durations

TEXT = """
name: timed
steps:
  - {step: short, shell: 'true'}
  - {step: long, shell: sleep 0.2}
"""


@pytest.mark.postgres
def test_the_completed_runs_of_the_same_workflow_say_what_its_steps_take(live: Live):
    live.run(TEXT)
    live.run(TEXT.replace("timed", "other").replace("long", "odd"))
    live.run(TEXT.replace("sleep 0.2", "exit 1").replace("long", "broken"))
    last = live.run(TEXT)

    found = typical_durations(live.service.reader.store, live.service.reader.state(last.run_id))

    assert found.keys() >= {"short", "long"} and not found.keys() & {"odd", "broken"}
    assert found["long"].seconds >= 0.2


def test_a_first_run_knows_of_nothing_before_it(live_file: Live):
    ran = live_file.run(TEXT)

    assert typical_durations(live_file.service.reader.store, live_file.service.reader.state(ran.run_id)) == {}

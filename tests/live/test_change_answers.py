"""What a change of a run answers: with `dry_run` what would follow, and without it only to whom does not see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.runner import Live

from mulligan.service.runs.changes.changes import Changes

GATE = """
name: gated
steps:
  - {step: build, shell: 'true'}
  - {step: gate, needs: [build], approve: {message: go?}}
  - {step: deploy, needs: [gate], shell: 'true'}
"""
PARKED = "{name: parked, steps: [{step: load, shell: 'false', triage: {timeout: 1d}}]}"

Verb = Callable[[Changes, int], Any]
VERBS: dict[str, Verb] = {
    "cancel": lambda changes, run_id: changes.cancel(run_id, dry_run=True),
    "pause": lambda changes, run_id: changes.pause(run_id, dry_run=True),
    "pause a step": lambda changes, run_id: changes.pause(run_id, step="deploy", dry_run=True),
    "resume": lambda changes, run_id: changes.resume(run_id, steps=1, dry_run=True),
    "approve": lambda changes, run_id: changes.approve(run_id, "gate", is_approved=True, reason="fine", dry_run=True),
    "fork": lambda changes, run_id: changes.fork(run_id, "build", {}, dry_run=True),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_dry_run_of_a_verb_writes_nothing_whoever_asks(live_file: Live, verb: Verb) -> None:
    ran = live_file.run(GATE)

    answers = [verb(changes, ran.run_id) for changes in both(live_file)]

    assert live_file.look(ran.run_id).log == ran.log
    assert len(live_file.service.reader.runs()) == 1
    assert answers[0] == answers[1] and answers[0].dry_run


def test_who_drives_runs_sees_what_follows_and_the_answer_says_it_to_everybody_else(live_file: Live) -> None:
    driving, other = both(live_file)
    runs = [live_file.run(GATE).run_id for _ in range(2)]

    plain = driving.approve(runs[0], "gate", is_approved=True, reason="fine")
    answered = other.approve(runs[1], "gate", is_approved=True, reason="fine")

    assert (plain.dry_run, plain.status, plain.follows, plain.starts) == (False, "running", [], [])
    assert (answered.dry_run, answered.status, answered.starts) == (False, "running", ["deploy: attempt 1"])
    assert answered.follows


def test_a_decision_about_a_parked_step_is_answered_in_the_same_way(live_file: Live) -> None:
    driving, other = both(live_file)
    ran = live_file.run(PARKED)

    tried = [one.classify(ran.run_id, "load", "retry", "the disk is back", dry_run=True) for one in (driving, other)]
    recorded = driving.classify(ran.run_id, "load", "retry", "the disk is back")

    assert tried[0] == tried[1] and not tried[0].is_recorded and tried[0].starts == ["load: attempt 2"]
    assert (recorded.is_recorded, recorded.follows, recorded.starts) == (True, [], [])


def both(live: Live) -> tuple[Changes, Changes]:
    """The changes of a caller who drives runs, and those of a client of a server, whose workers take them."""
    reader = live.service.reader
    return Changes(reader, "ada"), Changes(reader, "ada", drives=False, is_for_others=True)

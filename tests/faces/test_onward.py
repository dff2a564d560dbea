"""Verbs that change a run drive it on where somebody looks on, and record only where nobody does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .commands import mulligan, process, ran

pytestmark = pytest.mark.usefixtures("folder")

PARKED = "name: parked\nsteps:\n  - {step: a, shell: 'test -e go', triage: true}\n"
ASKING = """\
name: asking
steps:
  - {step: a, approve: {message: 'ship it?'}}
  - {step: b, needs: [a], shell: 'true'}
"""
FAILED = "name: failed\nsteps:\n  - {step: a, shell: 'test -e go'}\n"


def on_a_terminal(*words: object) -> int:
    """The exit code of a command whose answer is read by a person."""
    ours, theirs = os.openpty()
    child = process(*words, stdout=theirs)
    child.communicate(timeout=60)
    os.close(theirs)
    os.close(ours)
    return child.returncode


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PARKED, ("classify", 1, "a", "retry", "--reason", "it may go")),
        (ASKING, ("approve", 1, "a", "--reason", "it may go")),
        (FAILED, ("retry", 1)),
    ],
    ids=["classify", "approve", "retry"],
)
def test_a_verb_drives_the_run_on_only_where_somebody_looks_on(text: str, words: tuple[object, ...]):
    ran(text)
    ran(text)
    Path("go").touch()

    assert mulligan(*words).code == 0
    assert mulligan("show", 1, "--json").json["status"] == "running"
    assert on_a_terminal(words[0], 2, *words[2:]) == 0
    assert mulligan("show", 2, "--json").json["status"] == "completed"

"""Words of a command line that are no text: refused in words, whichever command they are given to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.commands import mulligan, workflow

NO_TEXT = os.fsdecode(b"\xff\x1b[2J")
WAITS = """
name: waits
inputs: {who: {type: string, default: you}}
steps:
  - {step: parked, shell: "exit 1", triage: true}
  - {step: asks, approve: {message: "shall ${inputs.who}?"}, next: end}
"""
NOT_KEPT = "error[input.invalid]: the text is not valid UTF-8, so it cannot be stored\n"


@pytest.fixture(autouse=True)
def _waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mulligan("run", workflow(WAITS))


@pytest.mark.parametrize(
    "words",
    [
        ("classify", 1, "parked", "fail", "--reason", NO_TEXT),
        ("approve", 1, "asks", "--reason", NO_TEXT),
        ("cancel", 1, "--reason", NO_TEXT),
        ("pause", 1, "--reason", NO_TEXT),
    ],
    ids=lambda words: words[0],
)
def test_what_is_said_to_a_run_is_text(words: tuple[object, ...]) -> None:
    said = mulligan(*words)

    assert (said.code, said.err) == (2, NOT_KEPT)


def test_an_input_is_text() -> None:
    said = mulligan("run", "flow.yaml", "-i", f"who={NO_TEXT}")

    assert (said.code, said.err) == (
        2,
        "error[input.invalid]: input 'who' cannot be stored as JSON\n"
        "  numbers have at most 64 bits, texts are Unicode\n",
    )


def test_a_home_has_a_name_that_is_text(tmp_path: Path) -> None:
    said = mulligan("run", "flow.yaml", "--home", NO_TEXT)

    assert said.code != 0
    assert said.err == (
        f"error[store.refused]: '{tmp_path}/\\udcff\\u001b[2J/mulligan.db' cannot be opened: "
        "its name is not valid Unicode\n"
        "  name a folder that you can write to, with --home or $MULLIGAN_HOME\n"
    )


@pytest.mark.parametrize(
    "words", [("logs", 1, NO_TEXT), ("show", 1, "--output", NO_TEXT), ("run", NO_TEXT), (NO_TEXT,)]
)
def test_a_name_of_nothing_is_told_without_commanding_a_terminal(words: tuple[object, ...]) -> None:
    said = mulligan(*words)

    assert said.code in (1, 2)
    assert "\x1b" not in said.err
    assert "bug" not in said.err

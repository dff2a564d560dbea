"""Whatever steps say: nothing of it commands a terminal, hides, or looks like a line of ours."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.support.commands import Said, mulligan, workflow
from tests.support.pipes import read_terminal

from mulligan.cli.output.terminal import show_written

# Sets the title, clears the screen, moves up, writes over the line, turns the direction of writing, ends a line.
EVIL = "\x1b]0;title\x07\x1b[2J\x1b[A\rover\u202ewritten\u200b\x9b31m\x7f\nrun 9 completed"
UNSEEN = {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\u202e", "\u200b", "\u2028"} - {"\n", "\t"}
COMMANDS: list[tuple[object, ...]] = [
    ("list",),
    ("show", 1),
    ("show", 1, "--attempts"),
    ("show", 1, "--json"),
    ("explain", 1),
    ("explain", 1, "--json"),
    ("pending",),
    ("events", 1),
    ("events", 1, "--json"),
    ("events", 1, "--as", "noetl"),
    ("items", 1, "each"),
    ("items", 1, "each", "--json"),
    ("stats",),
    ("usage", 1),
    ("report", 1, "--json"),
]


def evil_workflow() -> str:
    reported = json.dumps({"code": f"OWN{EVIL}", "message": EVIL, "details": {EVIL: EVIL}})
    warned = json.dumps({"code": f"OWN{EVIL}", "message": EVIL, "severity": "warning"})
    steps = [
        {"step": "writes", "shell": 'printf %s "$EVIL" >&2; exit 3', "env": {"EVIL": EVIL}},
        {"step": "reports", "shell": 'printf %s "$EVIL" > $MULLIGAN_ERROR', "env": {"EVIL": reported}},
        {"step": "warns", "shell": 'printf %s "$EVIL" > $MULLIGAN_ERROR', "env": {"EVIL": warned}},
        {"step": "raises", "python": "def main(evil): raise ValueError(evil)", "args": {"evil": EVIL}},
        {"step": "gives", "shell": 'printf %s "$EVIL"', "env": {"EVIL": EVIL}},
        {"step": "each", "map": {"over": [EVIL], "as": "evil"}, "do": [{"shell": "exit 1"}]},
        {"step": "asks", "needs": ["gives"], "approve": {"message": "deploy ${steps.gives.output}?"}, "next": "end"},
        {"step": "parks", "shell": 'printf %s "$EVIL" >&2; exit 3', "env": {"EVIL": EVIL}, "triage": True},
    ]
    return json.dumps({"name": "evil", "steps": steps, "outputs": {"evil": "${steps.gives.output}"}})


@pytest.fixture(scope="module")
def evil_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Said]:
    """A run that has said all that, and what was said while it ran."""
    folder = tmp_path_factory.mktemp("evil")
    before = Path.cwd()
    os.chdir(folder)
    try:
        return folder, mulligan("run", workflow(evil_workflow(), "evil.json"))
    finally:
        os.chdir(before)


def unseen_in(said: Said) -> set[str]:
    return UNSEEN & {*said.out, *said.err}


def forged_in(said: Said) -> list[str]:
    return [line for line in f"{said.out}\n{said.err}".splitlines() if line.startswith("run 9")]


def test_a_run_shows_nothing_that_commands_a_terminal(evil_run: tuple[Path, Said]) -> None:
    _, said = evil_run

    assert said.code == 4
    assert "OWN" in said.err and "written" in said.err
    assert unseen_in(said) == set()
    assert forged_in(said) == []


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(map(str, words)))
def test_no_command_shows_anything_that_commands_a_terminal(
    evil_run: tuple[Path, Said], words: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(evil_run[0])

    said = mulligan(*words)

    assert said.code == 0
    assert unseen_in(said) == set()
    assert forged_in(said) == []


def test_what_is_json_is_the_same_json(evil_run: tuple[Path, Said], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(evil_run[0])

    shown = mulligan("show", 1, "--json").json["outputs"]
    kept = [json.loads(line)["fact"] for line in mulligan("events", 1, "--json").out.splitlines()]

    assert shown == {}
    assert EVIL in [fact.get("output") for fact in kept]


def test_an_error_about_a_file_shows_nothing_that_commands_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x\x1b[2J\n.yaml").write_text('steps: [{step: a, shel\u202e: "\u200b"}]', encoding="utf-8")

    said = mulligan("validate", "x\x1b[2J\n.yaml")

    assert said.code == 2
    assert unseen_in(said) == set()


# -- logs ------------------------------------------------------------------------------------------------------------


def shown_at_a_terminal(data: bytes) -> bytes:
    """What a terminal gets of what a program has written, as it gets it."""
    ours, theirs = os.openpty()
    with open(theirs, "w", encoding="utf-8") as stream:
        show_written(data, stream)
    return read_terminal(ours).replace(b"\r\n", b"\n")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"plain\n", b"plain\n"),
        # Colours are what most programs mean well with; they end with the log.
        (b"\x1b[1;31mred\n", b"\x1b[1;31mred\n\x1b[0m"),
        (b"\x1b]0;title\x07", b"\\u001b]0;title\\u0007"),
        (b"\x1b[2J\x1b[A", b"\\u001b[2J\\u001b[A\x1b[0m"),
        # What would be written over stands in a line of its own.
        (b"rm -rf /\rls", b"rm -rf /\nls"),
        (b"a\r\nb\r\n", b"a\nb\n"),
        ("\u202egpj.exe".encode(), b"\\u202egpj.exe"),
        (b"\xff\x9b", "\ufffd\ufffd".encode()),
    ],
)
def test_at_a_terminal_a_log_has_its_colours_and_nothing_else_that_commands_it(written: bytes, shown: bytes) -> None:
    assert shown_at_a_terminal(written) == shown


@pytest.mark.parametrize("words", [("logs", 1, "gives"), ("show", 1, "--output", "gives")], ids=["logs", "show"])
def test_elsewhere_what_was_written_comes_out_byte_for_byte(
    evil_run: tuple[Path, Said], words: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(evil_run[0])

    assert mulligan(*words).out.removesuffix("\n") == EVIL

"""What the fuzzers do for hours, shortly: every target takes some inputs, and all that ever broke something."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from tests.support.nightly import examples

from mulligan.core.effects.tasks import Task
from mulligan.worker.folders import Folders
from proof.fuzz import paths
from proof.fuzz.bombs import BOMBS, Bomb, judged
from proof.fuzz.large_values import CPU_SECONDS_MAX, SECONDS_MAX, Heartbeat, LoopHeld, driven
from proof.fuzz.mutation import mutated
from proof.fuzz.sentences import Wrong
from proof.fuzz.session import Current, noted, work
from proof.fuzz.shrinking import shrunk
from proof.fuzz.targets import TARGETS, Target
from proof.fuzz.watching import Watch

FOUND = sorted((Path(__file__).parent / "found").iterdir())
# Of each target, at night: what is dear to try is tried less.
INPUTS = {
    "shell": 12,
    "playbook_shell": 12,
    "playbook_sql": 12,
    "template": 20,
    "expression": 25,
    "pattern": 25,
    "includes": 15,
    "command_line": 25,
    "path": 40,
    "request": 60,
    "tool_call": 40,
    "statement": 20,
    "question": 25,
    "notice_target": 25,
    "cron": 40,
}
INPUTS_MAX = 80
# By day the first of them.
SHARE_BY_DAY = 4


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.name)
def test_what_was_found_once_is_mended(path: Path) -> None:
    target = TARGETS[path.name.partition(".")[0]]

    Watch(target, seconds_max=None)(path.read_bytes())


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_whatever_comes_is_taken_or_refused_in_words(target: Target) -> None:
    watch = Watch(target, seconds_max=None)

    at_night = INPUTS.get(target.name, INPUTS_MAX)
    for number in range(examples(at_night // SHARE_BY_DAY, at_night)):
        watch(mutated(target.seeds, target.words, Random(number)))


def test_an_input_that_breaks_something_is_found_and_made_small() -> None:
    def breaks(data: bytes) -> None:
        if b"needle" in data:
            raise KeyError(data)

    target = Target("broken", breaks, lambda: [b"hay needle hay"])

    went = work(target, seconds=60, seed=1, note=lambda data: None)

    assert went.found is not None
    assert went.found.data == b"needle"
    assert went.found.signature == "KeyError"


def test_an_input_that_takes_too_long_is_found() -> None:
    def hangs(data: bytes) -> None:
        while True:
            pass

    with pytest.raises(Wrong, match="it takes too long"):
        Watch(Target("hanging", hangs, list), seconds_max=0.01)(b"")


def bare_links(told: Task, folders: Folders) -> None:
    """Links to logs wherever a value leads, in the place of any other link."""
    for path in told.logs.values():
        place = os.path.join(told.home, path)
        with suppress(OSError, ValueError):
            os.makedirs(os.path.dirname(place), exist_ok=True)
            if os.path.islink(place):
                os.unlink(place)
            os.symlink(folders.logs(1, "a", 1).out, place)


@pytest.mark.parametrize(
    "value",
    [
        b"\x00../x",
        b"\x01/outside/new",
        b"\x00planted/new",
        b"\x00planted",
        b"\x01../../new",
        b"\x05planted",
        b"\x05../..",
        b"\x05/outside/sub",
    ],
)
def test_a_value_that_leads_out_of_its_folder_is_found_where_nobody_guards_it(value: bytes) -> None:
    with pytest.raises(Wrong):
        paths.path(value, check=lambda told, folders: None, link=bare_links)

    paths.path(value)


def test_an_input_that_is_executed_is_found() -> None:
    def executes(data: bytes) -> None:
        os.system("true")

    with pytest.raises(Wrong, match=r"an input has led to os\.system"):
        Watch(Target("executing", executes, list))(b"")


def test_a_shrunk_input_has_nothing_that_could_go() -> None:
    data = shrunk(b"aaaaXbbbbYcccc", lambda data: b"X" in data and b"Y" in data)

    assert data == b"XY"


# The others are large, or made of many files: `make fuzz` sets them off, each in a process of its own.
SMALL_BOMBS = ["billion-laughs", "an-alias-of-itself", "deep-flow", "deep-json", "deep-kdl", "a-matrix-of-billions"]
SMALL_BOMBS += ["an-expression-in-parentheses", "a-pattern-that-backtracks", "a-circle-of-files", "a-link-to-itself"]
SMALL_BOMBS += ["a-link-back", "files-that-double", "files-without-end", "a-pattern-of-a-million-parts"]
SMALL_BOMBS += ["an-expression-that-doubles", "a-pattern-that-looks-everywhere"]


@pytest.mark.parametrize("bomb", [bomb for bomb in BOMBS if bomb.name in SMALL_BOMBS], ids=lambda bomb: bomb.name)
def test_a_bomb_does_not_go_off(bomb: Bomb) -> None:
    assert judged(bomb) == ""


def test_a_bomb_that_goes_off_is_found() -> None:
    def explode() -> None:
        raise RecursionError("too deep")

    assert judged(Bomb("loud", explode, "")) == "RecursionError: too deep"
    assert judged(Bomb("silent", lambda: None, "no")) == "it is taken, and should be refused: no"


def test_a_process_that_dies_of_an_input_has_found_it(tmp_path: Path) -> None:
    current = Current(tmp_path / "current")

    current.note(b"a longer one")
    current.note(b"the last")

    assert noted(tmp_path / "current") == b"the last"


def test_a_loop_that_turns_too_seldom_is_found() -> None:
    heartbeat = Heartbeat()
    heartbeat.tick()
    heartbeat.judge()

    heartbeat.seconds = SECONDS_MAX + 1

    with pytest.raises(LoopHeld):
        heartbeat.judge()


def test_a_loop_that_computes_too_long_is_found() -> None:
    heartbeat = Heartbeat()

    heartbeat.cpu_seconds = CPU_SECONDS_MAX + 0.1

    with pytest.raises(LoopHeld):
        heartbeat.judge()


def test_a_run_is_driven_and_its_loop_is_watched() -> None:
    assert driven({"step": "one", "shell": "true"})() == "completed"
    with pytest.raises(AssertionError, match="the run has failed"):
        driven({"step": "one", "shell": "false"})()

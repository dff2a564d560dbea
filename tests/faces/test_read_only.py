"""A home that can be read and not written: everything that reads says the same, everything that writes says why not."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from tests.support.commands import mulligan, ran, steady, workflow
from tests.support.nightly import sample

from mulligan.cli.words.commands import COMMANDS
from mulligan.service.home import find_home
from mulligan.service.service import Service

from .read_only import said_read_only

pytestmark = pytest.mark.usefixtures("folder")

FAILED = """\
name: failed
steps:
  - {step: a, shell: 'echo hello'}
  - {step: b, needs: [a], map: {over: [1, 2], as: n}, do: [{shell: 'test ${n} = 1'}]}
"""
ASKING = "name: asking\nsteps:\n  - {step: gate, approve: 'deploy?'}\n"
PARKED = "name: parked\nsteps:\n  - {step: a, shell: exit 3, triage: true}\n"

READING: dict[str, tuple[object, ...]] = {
    "list": (),
    "show": (1,),
    "explain": (1,),
    "logs": (1, "a"),
    "events": (1, "--json"),
    "items": (1, "b"),
    "report": (1, "-o", "report.html"),
    "replay": (1, "--verify"),
    "wait": (1,),
    "workers": (),
    "pending": (),
    "stats": (),
    "usage": (1,),
    "suggest": (),
    "whatif": ("flow.yaml",),
    "breakers": (),
    "notices": (),
    "workflows": (),
    "schedule": ("list",),
    "webhook": ("list",),
    "token": ("list",),
    "graph": ("--run", 1),
}
WRITING: dict[str, tuple[object, ...]] = {
    "run": ("flow.yaml",),
    "resume": (2,),
    "retry": (1,),
    "fork": (1, "--from", "b"),
    "cancel": (2,),
    "pause": (2,),
    "classify": (3, "a", "retry", "--reason", "x"),
    "approve": (2, "gate", "--reason", "x"),
    "send": (2, "paid"),
    "worker": (),
    "server": (),
    "dashboard": ("--no-browser",),
    "publish": ("flow.yaml",),
    "gc": ("--keep", 0),
    "remove": (1,),
}
# They read no home, or another one; `doctor` has a test of its own, and agents ask with `mcp` what is asked here.
OTHERS = set(
    "data traces step debug deploy rehearse validate coverage convert schema login logout postgres slurm doctor demo "
    "mcp".split()
)
# How the files of a database are left.
WAYS = ["closed", "killed", "copied without the index of the log"]


def three_runs() -> None:
    ran(FAILED)
    ran(ASKING)
    ran(PARKED)
    workflow(FAILED)


def left(way: str) -> Path:
    """A home with three runs, whose database was closed, or was open when its process was killed."""
    three_runs()
    home = Path("left").absolute()
    with Service(find_home()) as service:
        # Something that is only in the log of the database.
        service.changes.pause(2, reason="lunch")
        service.changes.resume(2)
        if way != "closed":
            shutil.copytree(".mulligan", home)
    if way == "closed":
        shutil.copytree(".mulligan", home)
    if way == WAYS[2]:
        (home / "mulligan.db-shm").unlink()
    assert (home / "mulligan.db-wal").exists() == (way != "closed")
    return home


def test_every_command_reads_writes_or_uses_no_home():
    assert {*READING, *WRITING, *OTHERS} == {*COMMANDS}


@pytest.mark.parametrize("way", sample(WAYS, 2))
def test_what_reads_says_the_same_as_in_a_home_that_can_be_written(way: str):
    home = left(way)
    copy = shutil.copytree(home, Path("copy").absolute())
    commands = [(name, *words, "--home", home) for name, words in READING.items()]

    found = said_read_only(home, commands)

    for name, said in zip(READING, found, strict=True):
        expected = mulligan(name, *READING[name], "--home", copy)
        assert _plain(said.out) == _plain(expected.out), name
        assert (said.code, _plain(said.err)) == (expected.code, _plain(expected.err)), name


def _plain(text: str) -> str:
    """Without times, also those that are a minute for the one and less for the other, and without the home's name."""
    return re.sub(r"[^' ]*/(left|copy)\b", "HOME", re.sub(r"\b(?:\d+[smhd])+\b|\bNs\b", "N", steady(text)))


@pytest.mark.parametrize("way", [WAYS[0], *(pytest.param(way, marks=pytest.mark.nightly) for way in WAYS[1:])])
def test_what_writes_says_that_the_home_is_read_only(way: str):
    home = left(way)
    commands = [(name, *words, "--home", home) for name, words in WRITING.items()]

    found = said_read_only(home, commands)

    assert {name: said.code for name, said in zip(WRITING, found, strict=True)} == dict.fromkeys(WRITING, 1)
    for name, said in zip(WRITING, found, strict=True):
        assert f"error[home.read_only]: the home '{home}' is read-only\n" in said.err, name
        assert "Traceback" not in said.err


def test_doctor_says_that_the_home_is_read_only():
    home = left("closed")

    (said,) = said_read_only(home, [("doctor", "--home", home, "--json")])

    check = next(one for one in said.json["checks"] if one["name"] == "store")
    assert check["health"] == "problem"
    assert "is read-only: its runs can be looked at, and not continued" in check["found"]

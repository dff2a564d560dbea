"""`mulligan wait`: until runs have ended that others drive, or until a person is needed."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from mulligan.errors import StoreUnavailable
from mulligan.ports import RunRecord, Store
from mulligan.service import Service
from mulligan.service.home import find_home

from .commands import mulligan, process, ran

pytestmark = pytest.mark.usefixtures("folder")

HELLO = "name: hello\nsteps:\n  - {step: greet, shell: echo hello}\n"
BROKEN = "name: broken\nsteps:\n  - {step: fetch, shell: 'echo no route >&2; exit 7'}\n"
ASKING = "name: asking\nsteps:\n  - {step: gate, approve: 'deploy?'}\n"


def test_a_run_that_has_ended_is_not_waited_for_and_its_exit_code_is_that_of_run():
    ran(HELLO)
    ran(BROKEN)

    assert mulligan("wait", 1).plain == (0, "", "run 1 completed in Ns\n")
    assert mulligan("wait").plain == (1, "", "run 2 failed in Ns: 'fetch' failed with EXIT_NONZERO 7: no route\n")


def test_of_several_runs_the_exit_code_is_the_worst():
    ran(HELLO)
    ran(ASKING)
    mulligan("cancel", 2)
    ran(BROKEN)

    assert mulligan("wait", 1, 2).code == 3
    assert mulligan("wait", 1, 2, 3, 3).code == 1
    assert [run["status"] for run in mulligan("wait", 1, 3, "--json").json] == ["completed", "failed"]


def test_a_run_that_does_not_end_in_time_has_an_exit_code_of_its_own_and_is_left_alone():
    ran(ASKING)

    said = mulligan("wait", "--timeout", "0s")

    assert said.plain == (
        124,
        "",
        "run 1: 'gate' waits for an approval: mulligan approve 1 gate --reason TEXT\n"
        "run 1 has not ended after Ns, and may continue\n",
    )
    assert mulligan("list", "--json").json[0]["status"] == "running"


def test_who_waits_for_a_person_to_be_needed_is_told_what_to_type():
    ran(ASKING)
    ran(HELLO)

    said = mulligan("wait", 1, 2, "--until", "person")

    assert said.code == 4
    assert "run 1: 'gate' waits for an approval: mulligan approve 1 gate --reason TEXT\n" in said.err
    assert mulligan("wait", 2, "--until", "person").code == 0


def test_a_paused_run_waits_for_a_person():
    ran(ASKING)
    mulligan("pause", 1, "--reason", "lunch")

    said = mulligan("wait", "--until", "person")

    assert said.code == 4
    assert said.err.endswith(": lunch: mulligan resume 1\n")


def test_a_run_with_nothing_left_but_a_paused_step_waits_for_a_person():
    ran("name: held\nsteps:\n  - {step: gate, approve: 'go?'}\n  - {step: load, needs: gate, shell: echo loaded}\n")
    mulligan("pause", 1, "load")
    mulligan("approve", 1, "gate", "--reason", "fine", "--follow")

    said = mulligan("wait", "--until", "person", "--timeout", "30s")

    assert (said.code, said.err) == (4, "run 1: 'load' is paused: mulligan resume 1 load\n")


def test_of_many_failures_the_first_is_told_and_how_many_there_are():
    ran("name: broken\nsteps:\n  - {step: 'fetch_{n}', matrix: {n: 1..3}, shell: 'echo no route >&2; exit 7'}\n")

    told = re.compile(r"'fetch_[123]' failed with EXIT_NONZERO 7: no route \(and 2 more\)$", re.MULTILINE)

    assert told.search(mulligan("wait").err)
    assert told.search(mulligan("list").out)


@pytest.mark.parametrize("is_shared", [False, True], ids=["sqlite", "postgres"])
def test_the_end_that_another_process_writes_is_noticed(
    is_shared: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
):
    if is_shared:
        monkeypatch.setenv("MULLIGAN_STORE", request.getfixturevalue("store_schema_url"))
    ran(ASKING)
    service = Service(find_home())
    events = service.wait_for_runs([1])

    asked = next(events)
    mulligan("approve", 1, "gate", "--reason", "fine", "--follow")
    (ended,) = events

    assert asked.hold_up is not None
    assert (asked.kind, asked.hold_up.kind) == ("held_up", "approval")
    assert (ended.kind, ended.exit_code) == ("ended", 0)
    service.close()


class _Away:
    """A store that does not answer the first question about a run."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_away = True

    def run(self, run_id: int) -> RunRecord:
        if self._is_away:
            self._is_away = False
            raise StoreUnavailable("the server does not answer")
        return self._store.run(run_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_a_store_that_goes_away_for_a_while_is_waited_for():
    ran(HELLO)
    service = Service(find_home())
    service.reader.store = _Away(service.reader.store)

    trouble, ended = service.wait_for_runs([1])

    assert (trouble.kind, trouble.text) == ("trouble", "the server does not answer; waiting for it")
    assert (ended.kind, ended.exit_code) == ("ended", 0)
    service.close()


def test_an_interrupt_leaves_the_run_as_it_is():
    ran(ASKING)
    waiting = process("wait", "1")
    assert waiting.stderr is not None
    waiting.stderr.readline()

    os.kill(waiting.pid, signal.SIGINT)

    assert waiting.wait() == 130
    assert waiting.stderr.read() == b"interrupted; the runs continue\n"
    waiting.stderr.close()
    assert waiting.stdout is not None
    waiting.stdout.close()
    assert mulligan("list", "--json").json[0]["status"] == "running"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--until", "tomorrow"), "error[usage]"),
        (("--timeout", "soon"), "error[input.invalid]"),
        (("7",), "error[run.unknown]"),
    ],
)
def test_a_wait_that_makes_no_sense_is_refused(folder: Path, words: tuple[str, ...], code: str):
    said = mulligan("wait", *words)

    assert said.code == 2
    assert said.err.startswith(code)
    assert not (folder / ".mulligan").exists()

"""`mulligan wait`: until runs have ended that others drive, or until a person is needed."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import mulligan, process, ran, workflow

from mulligan.errors import StoreUnavailable
from mulligan.ports import RunRecord, Store, WorkerRecord
from mulligan.service.authoring.area import Workflows
from mulligan.service.driving.waiting import Until, Waiter
from mulligan.service.home import find_home
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.service import Service

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
    events = service.driving.wait_for_runs([1])

    asked = next(events)
    mulligan("approve", 1, "gate", "--reason", "fine", "--follow")
    (ended,) = events

    assert asked.hold_up is not None
    assert (asked.kind, asked.hold_up.kind) == ("held_up", "approval")
    assert (ended.kind, ended.exit_code) == ("ended", 0)
    service.close()


# -- a run that nothing drives ---------------------------------------------------------------------------------------


def left_alone(text: str = HELLO) -> None:
    """Run 1, which no process has ever driven."""
    with Service(find_home()) as service:
        service.changes.create(prepare(Workflows.load_workflow(Path(workflow(text))), {}, Path.cwd()))


class _Watch:
    """A clock that is ten seconds later each time it is looked at."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += 10
        return self._now


def seen(*, until: Until = "ended", timeout: float | None = None, is_forever: bool = False) -> list[tuple[str, str]]:
    """The events of a wait for run 1, each with what holds it up."""
    with Service(find_home()) as service:
        waiter = Waiter(
            service.reader, [1], until=until, timeout_seconds=timeout, is_forever=is_forever, monotonic=_Watch()
        )
        return [(event.kind, event.hold_up.kind if event.hold_up is not None else "") for event in waiter.events()]


def test_a_run_that_nothing_drives_is_said_and_has_an_exit_code_of_its_own():
    left_alone()

    assert mulligan("wait").plain == (5, "", "run 1: nothing is running it: mulligan resume 1\n")


def test_a_run_that_nothing_drives_is_waited_for_with_forever():
    left_alone()

    assert seen() == [("undriven", "driver")]
    assert seen(is_forever=True, timeout=60) == [("held_up", "driver"), ("timeout", "")]


def test_of_a_run_that_a_person_has_to_continue_the_exit_code_is_that_of_run():
    ran(ASKING)

    assert seen() == [("held_up", "approval"), ("person", "approval")]
    assert seen(is_forever=True, timeout=60) == [("held_up", "approval"), ("timeout", "")]
    assert seen(until="person") == [("person", "approval")]


def test_a_paused_run_that_nothing_drives_waits_for_a_person():
    left_alone()
    mulligan("pause", 1)

    assert seen() == [("held_up", "pause"), ("person", "pause")]


def test_a_run_whose_process_is_killed_while_it_is_waited_for_is_driven_by_nothing():
    os.mkfifo("up")
    Path("flow.yaml").write_text("name: held\nsteps:\n  - {step: hold, shell: 'echo up > up; sleep 60'}\n")
    child = process("run", "flow.yaml")
    assert Path("up").read_text() == "up\n"
    with Service(find_home()) as service:
        events = Waiter(service.reader, [1], timeout_seconds=10**6, monotonic=_Watch()).events()

        child.kill()
        child.communicate()

        assert [event.kind for event in events] == ["undriven"]


def test_a_run_between_two_drivers_is_waited_for():
    """The clock stands still, so that the moment of grace is not over before the second driver comes."""
    left_alone()
    with Service(find_home()) as service:
        events = Waiter(service.reader, [1], monotonic=lambda: 0.0).events()

        child = process("resume", 1)

        assert [(event.kind, event.exit_code) for event in events] == [("ended", 0)]
        child.communicate(timeout=60)


@pytest.mark.parametrize("serves", [True, False, None])
def test_the_workers_of_a_store_that_hosts_share_take_up_its_runs(
    serves: bool | None, store_schema_url: str, monkeypatch: pytest.MonkeyPatch
):
    """A process that drives a run of its own takes up no other; of an older worker that is not known."""
    monkeypatch.setenv("MULLIGAN_STORE", store_schema_url)
    left_alone()
    with Service(find_home()) as service:
        record = WorkerRecord("elsewhere.1.abc", "elsewhere", 1, cpus=1.0, serves=serves)
        service.reader.store.register(record)

    found = seen(until="person", timeout=60)

    assert found == ([("undriven", "driver")] if serves is False else [("timeout", "")])


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

    trouble, ended = service.driving.wait_for_runs([1])

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

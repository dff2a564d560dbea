"""Programs from the documentation of other systems, killed at every commit: the same outcome, each effect once."""

from __future__ import annotations

import importlib
import itertools
import json
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.programs.in_process import Run
from tests.support.nightly import sample

from mulligan.core.state.transitions import RUN_ENDED
from mulligan.ports import fault_listeners
from mulligan.testing.faults import Crash, faults
from proof.crashes.command_runner import CommandRunner, command_runner
from proof.crashes.faults import Fault
from proof.stage import Stage

# How often a run that was killed once is taken up at most.
RESUMES_MAX = 6
FOLDER = Path(__file__).parents[2] / "examples" / "programs"


class Case(NamedTuple):
    """How a program is run, what it is answered, what it comes to, and what it does outside."""

    name: str
    inputs: dict[str, Any]
    # By the name of an event its value, or how `approve` is answered.
    answers: dict[str, Any]
    result: Any
    effects: str
    status: str = "completed"


CASES = (
    Case(
        "transfer",
        {},
        {},
        {"transferred": 100, "withdrawal": "withdraw-1", "deposit": "deposit-2"},
        "withdraw 100 from alice, deposit 100 to bob",
    ),
    Case(
        "transfer",
        {"target": "closed"},
        {},
        {"transferred": 0, "why": "INVALID_ACCOUNT", "refund": "refund-2"},
        "withdraw 100 from alice, refund 100 to alice",
    ),
    Case(
        "trip",
        {},
        {},
        {"hotel": "book-1", "car": "book-2", "flight": "book-3"},
        "book a hotel in Lisbon, book a car in Lisbon, book a flight to Lisbon",
    ),
    Case(
        "trip",
        {"flight": "full"},
        {},
        None,
        "book a hotel in Lisbon, book a car in Lisbon, cancel car book-2, cancel hotel book-1",
        status="failed",
    ),
    Case("polling", {}, {}, {"looks": 3, "result": "fetch-2"}, "start training, fetch the result of start-1"),
    Case("expense", {"amount": 20}, {}, {"paid": 20}, "register 20 of ann, pay 20 for register-1"),
    Case("expense", {}, {"approve": True}, {"paid": 120}, "register 120 of ann, pay 120 for register-1"),
    Case(
        "expense",
        {},
        {"approve": False},
        {"paid": 0},
        "register 120 of ann, write to ann: register-1 is not paid: APPROVAL_REFUSED",
    ),
    Case(
        "checkout",
        {},
        {"payment": "paid"},
        {"status": "dispatched"},
        "reserve a widget, mark the order as pending, mark the order as paid, mark the order as dispatched",
    ),
    Case(
        "checkout",
        {},
        {},
        {"status": "cancelled"},
        "reserve a widget, mark the order as pending, return the widget, mark the order as cancelled",
    ),
    Case(
        "fan_out",
        {},
        {},
        {"documents": 6, "pages": 72},
        ", ".join(f"index report-{number}.pdf" for number in range(1, 7)),
    ),
    Case("stars", {}, {}, {"fetched": 2, "failed": 1, "page": "publish-1"}, "publish busy/bee 8 and calm/sea 8"),
    Case(
        "payment",
        {},
        {"confirmed": {"ok": True}},
        {"status": "paid"},
        "charge 40 to 4242, send the receipt of charge-1",
    ),
    Case("payment", {}, {"cancelled": None}, {"status": "cancelled"}, "charge 40 to 4242, take charge-1 back"),
    Case(
        "essay",
        {},
        {},
        {"drafts": 3, "essay": "The Little Prince is a book. It has an example. It has an end."},
        "",
    ),
    Case(
        "assistant",
        {},
        {},
        {"answer": "It is -4 °C in Oslo. Ann knows. I found no Atlantis.", "turns": 3},
        "write to ann: It is cold in Oslo.",
    ),
)


def named(case: Case) -> str:
    given = {**case.inputs, **case.answers}
    return "-".join([case.name, *given, *(str(value) for value in given.values() if isinstance(value, str | bool))])


each_case = pytest.mark.parametrize("case", CASES, ids=named)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The programs, where a user has copied them."""
    known = set(sys.modules)
    for path in FOLDER.glob("*.py"):
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in {path.stem for path in FOLDER.glob("*.py")} - known:
        sys.modules.pop(name, None)


def effects(folder: Path) -> str:
    path = folder / "services.db"
    if not path.exists():
        return ""
    with sqlite3.connect(path) as services:
        return ", ".join(effect for (effect,) in services.execute("SELECT effect FROM requests ORDER BY rowid"))


def come_to(case: Case, folder: Path) -> tuple[str, Any, list[str]]:
    """What a run comes to, and what it does outside: calls beside each other in any order."""
    (folder / "services.db").unlink(missing_ok=True)
    program = getattr(importlib.import_module(case.name), case.name)
    state = Run(program, case.inputs, case.answers).drive()
    return state.run.status, state.run.outputs["result"], sorted(effects(folder).split(", "))


def expected(case: Case) -> tuple[str, Any, list[str]]:
    return case.status, case.result, sorted(case.effects.split(", "))


@each_case
def test_a_program_that_is_killed_at_any_of_its_commits_comes_to_the_same(case: Case, folder: Path) -> None:
    with faults() as points:
        undisturbed = come_to(case, folder)

    assert undisturbed == expected(case)
    for nth in range(1, points.passes["after_commit"] + 1):
        with faults() as points:
            points.arm("after_commit", nth)
            assert come_to(case, folder) == undisturbed, f"killed at commit {nth}"


def die_at_every_second(point: str) -> Callable[[str], None]:
    """Each task is carried out, its worker is killed, and it is carried out again."""
    passes = itertools.count(1)

    def listener(name: str) -> None:
        if name == point and next(passes) % 2:
            raise Crash(point)

    return listener


@pytest.mark.parametrize("case", sample(CASES, 5), ids=named)
def test_a_program_whose_worker_is_killed_after_each_step_comes_to_the_same(case: Case, folder: Path) -> None:
    listener = die_at_every_second("before_report")
    fault_listeners.append(listener)
    try:
        assert come_to(case, folder) == expected(case)
    finally:
        fault_listeners.remove(listener)


# -- with real processes and kill -9 -----------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("case", [case for case in CASES if case.answers or case.name != "checkout"], ids=named)
def test_a_program_whose_processes_are_killed_at_any_commit_comes_to_the_same(case: Case, tmp_path: Path) -> None:
    with command_runner(Stage(tmp_path), tmp_path) as processes:
        commands = 2 if case.answers else 1
        for command in range(commands):
            for nth in itertools.count(1):
                folder = tmp_path / f"{command}-{nth}"
                folder.mkdir()
                played = Played(processes, case, folder, command, Fault("kill", "after_commit", nth))

                assert played.come_to() == expected(case), f"killed at commit {nth} of command {command}"
                if not played.has_happened:
                    break


class Played:
    """A run by real processes, one of whose commands is killed."""

    def __init__(self, processes: CommandRunner, case: Case, folder: Path, command: int, fault: Fault) -> None:
        self._processes = processes
        self._case = case
        self._folder = folder
        self._stage = Stage(folder)
        self._faults = {command: fault}
        self.has_happened = False
        for path in FOLDER.glob("*.py"):
            shutil.copy(path, folder)

    def come_to(self) -> tuple[str, Any, list[str]]:
        shown = self._run(0, *self._start)
        for _ in range(RESUMES_MAX):
            if shown.get("status") in RUN_ENDED:
                break
            shown = self._run(1, *self._answer) if shown.get("waiting_for") else self._go_on()
        return shown["status"], shown["outputs"]["result"], sorted(effects(self._folder).split(", "))

    def _go_on(self) -> dict[str, Any]:
        with self._stage.service() as service:
            runs = service.reader.runs(limit=1)
        if not runs:
            return self._run(0, *self._start)
        return self._run(0, "show" if runs[0].status in RUN_ENDED else "resume", "1", "--json")

    @property
    def _start(self) -> list[str]:
        inputs = [f"{name}={value}" for name, value in self._case.inputs.items()]
        return ["run", f"{self._case.name}.py", *(word for one in inputs for word in ("-i", one)), "--json"]

    @property
    def _answer(self) -> list[str]:
        ((name, value),) = self._case.answers.items()
        if name == "approve":
            words = ["approve", "1", "approve", *([] if value else ["--no"]), "--reason", "because"]
        else:
            words = ["send", "1", name, json.dumps(value), "--once", "this"]
        return [*words, "--json"]

    def _run(self, command: int, *words: str) -> dict[str, Any]:
        ended = self._processes.run(self._stage, *words, fault=self._faults.pop(command, None))
        self.has_happened |= ended.has_happened
        return ended.shown

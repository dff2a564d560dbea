"""What a Python step imports before it is called: its time limit begins with the call, and imports have their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.support.work import Work

from mulligan.core.deciding.classify import classify, exceeded_limit
from mulligan.core.effects.tasks import Task
from mulligan.core.model.reports import TaskEnded
from mulligan.ports import Lease
from mulligan.worker.child.warm_child import (
    IMPORT_SAID_AFTER_SECONDS,
    IMPORT_SECONDS_MAX,
    CallRequest,
    ChildProtocolError,
    ChildTask,
    ChildUse,
    WarmChild,
)

LEASE = Lease(Task(1, "a", 1, "python", {}, "w", "v", "a", 1), "worker", 1)
# The code waits for a line in a pipe before `main` is there.
IMPORTS = """
with open({pipe!r}) as pipe:
    said = pipe.read()
def main(): return said
"""


@pytest.fixture
def pipe(tmp_path: Path) -> str:
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    return path


def test_the_time_of_the_call_begins_when_the_import_is_over() -> None:
    task = ChildTask(LEASE, 0.0, timeout=2.0)

    task.begins_import("sales", now=100.0)
    while_importing = task.due
    task.begins_call(now=107.0)

    assert (while_importing, task.due) == (100.0 + IMPORT_SECONDS_MAX, 109.0)
    assert (task.importing, task.import_seconds, task.say_at) == (None, 7.0, None)


def test_a_step_with_more_time_than_an_import_may_take_may_also_import_for_so_long() -> None:
    task = ChildTask(LEASE, 0.0, timeout=3600.0)

    task.begins_import("sales", now=0.0)

    assert task.due == 3600.0


def test_the_deadline_of_a_visit_counts_imports_and_a_step_without_a_limit_has_none() -> None:
    late, free = ChildTask(LEASE, 0.0, timeout=2.0, visit_due=105.0), ChildTask(LEASE, 0.0)

    for task in (late, free):
        task.begins_import("sales", now=100.0)
    assert (late.due, free.due) == (105.0, None)

    for task in (late, free):
        task.begins_call(now=104.0)
    assert (late.due, free.due) == (105.0, None)


def frame(**said: object) -> bytes:
    body = msgspec.json.encode({"number": 1, "cpu": 0, "peak": 0, "out": 0, "err": 0, **said})
    return len(body).to_bytes(4, "little") + body


@pytest.fixture
def child(tmp_path: Path) -> Iterator[WarmChild]:
    found = WarmChild(1, ChildUse("group", "python"), str(tmp_path))
    found.start_task(ChildTask(LEASE, 0.0, timeout=2.0), CallRequest())
    found.sock.setblocking(False)
    yield found
    found.sock.close()
    found._theirs.close()


@pytest.mark.parametrize("pieces", [1, 3, 7, 1000])
def test_what_a_child_says_before_it_answers_is_noted_however_it_arrives(child: WarmChild, pieces: int) -> None:
    data = frame(phase="importing", module="sales") + frame(phase="called") + frame(output=7)
    size = max(1, len(data) // pieces)
    answers = []

    for at in range(0, len(data), size):
        child._theirs.sendall(data[at : at + size])
        answers.append(child.receive())

    assert [one.output for one in answers if one is not None] == [7]
    assert child.task is not None and child.task.import_seconds > 0


def test_what_comes_after_an_answer_is_no_answer(child: WarmChild) -> None:
    child._theirs.sendall(frame(output=7) + frame(output=8))

    with pytest.raises(ChildProtocolError):
        child.receive()


def test_a_step_that_still_imports_says_so_and_has_its_whole_time_afterwards(work: Work, pipe: str) -> None:
    lease = work.python(IMPORTS.format(pipe=pipe), timeout=60.0)
    work.start(lease)
    [task] = work.wait_for(lambda: [one for _, one in work.executor._children.busy_children() if one.importing == ""])
    began, due = task.import_began, task.due

    task.say_at = began
    work.executor._wake_up.at(began)
    progress = Path(work.executor._folders.progress(7, lease.task.place, 1))
    said = work.wait_for(lambda: progress.exists() and progress.read_text())
    with open(pipe, "w") as file:
        file.write("ready")
    [report] = work.reports()

    assert due == began + IMPORT_SECONDS_MAX
    assert "still importing what its code imports after 0s" in said
    assert isinstance(report, TaskEnded)
    assert report.output == "ready"
    assert task.due is not None and task.due < began + IMPORT_SECONDS_MAX
    assert task.say_at is None and task.import_seconds > 0
    assert began + IMPORT_SAID_AFTER_SECONDS < due


def test_an_import_that_does_not_end_is_a_timeout_which_names_the_module(work: Work, pipe: str, tmp_path: Path) -> None:
    (work.folder / "endless.py").write_text(IMPORTS.format(pipe=pipe))
    lease = work.lease("python", {"call": "endless:main"}, timeout=2.0)
    work.start(lease)
    work.wait_for(lambda: [one for _, one in work.executor._children.busy_children() if one.importing == "endless"])

    work.time_is_up(lease, 0.0)

    [report] = work.reports()
    assert isinstance(report, TaskEnded)
    found, _ = classify(report.outcome)
    assert found is not None
    assert (found.code, found.message) == ("TIMEOUT", "it was still importing 'endless'")
    assert (exceeded_limit(found), found.details["limit_seconds"]) == ("import", IMPORT_SECONDS_MAX)

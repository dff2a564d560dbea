"""`mulligan breakers`: what it shows, what it closes, what it says no to."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.commands import mulligan, process, ran, steady, workflow
from tests.support.runner import wait_until

from mulligan.history.obstacles import Obstacle
from mulligan.ports import BreakerRecord
from mulligan.service.home import Home
from mulligan.service.host.breakers import describe_breaker_wait, find_breaker_waits
from mulligan.service.service import Service

# The breaker opens for an hour; who asks it then fails at once, so that the run ends.
OPENS = """
name: opens
breakers: {llm: {failures: 2, reset: 1h, when_open: fail}}
steps: [{step: ask, shell: exit 1, breaker: llm, retry: {max_retries: 5, delay: 0s}}]
"""
WAITS = """
name: waits
breakers: {llm: {failures: 2, reset: 1h}}
steps:
  - {step: approve, approve: {message: go on?}}
  - {step: ask, needs: [approve], shell: echo asked, breaker: llm}
"""


@pytest.fixture
def opened(folder: Path) -> None:
    """A store whose breaker is open."""
    assert ran(OPENS).code == 1


def test_without_a_home_or_a_guarded_task_there_are_none(folder: Path):
    assert tuple(mulligan("breakers")) == (0, "", "no task has asked a breaker yet\n")
    assert mulligan("breakers", "--json").json == []
    assert not list(folder.iterdir())

    ran("name: plain\nsteps: [{step: a, shell: 'true'}]")
    assert mulligan("breakers").err == "no task has asked a breaker yet\n"


def test_one_that_is_open_is_shown_with_when_it_may_be_tried(opened: None):
    code, out, err = mulligan("breakers")

    assert (code, err) == (0, "")
    heads, line = out.splitlines()
    assert heads == "BREAKER  STATUS  FAILURES  RUNNING  WAITING"
    assert (
        line.startswith("llm      open           2        0        0  one task may test it in 59m") or "1h00m" in line
    )


def test_as_json_each_is_an_object(opened: None):
    (found,) = mulligan("breakers", "--json").json

    assert found.pop("retry_at") is not None
    assert found == {"name": "llm", "status": "open", "failures": 2, "waiting": 0, "running": 0, "max_running": None}


def test_closing_one_says_what_it_was(opened: None):
    assert tuple(mulligan("breakers", "--reset", "llm")) == (
        0,
        "",
        "breaker 'llm' is closed; it was open after 2 failures in a row\n",
    )
    assert mulligan("breakers").out.splitlines()[1] == "llm      closed         0        0        0"


def test_closing_one_that_is_closed_changes_nothing(opened: None):
    mulligan("breakers", "--reset", "llm")

    said = mulligan("breakers", "--reset", "llm", "--json")

    assert said.err == "breaker 'llm' was already closed\n"
    assert said.json == [
        {
            "name": "llm",
            "status": "closed",
            "failures": 0,
            "retry_at": None,
            "waiting": 0,
            "running": 0,
            "max_running": None,
        }
    ]


def test_one_that_is_not_there_is_refused_with_the_one_that_was_meant(opened: None):
    assert tuple(mulligan("breakers", "--reset", "lllm")) == (
        2,
        "",
        "error[breaker.unknown]: there is no breaker 'lllm'\n  did you mean 'llm'?\n",
    )


def test_in_a_store_without_any_a_reset_says_when_one_is_known(folder: Path):
    assert tuple(mulligan("breakers", "--reset", "llm")) == (
        2,
        "",
        "error[breaker.unknown]: there is no breaker 'llm'\n"
        "  a breaker appears when a task first asks it: mulligan breakers\n",
    )


def test_the_failure_of_a_step_that_would_not_wait_says_until_when(opened: None):
    failure = mulligan("show", "1", "--json").json["steps"]["ask"]["failure"]

    assert (failure["code"], failure["retryable"]) == ("CIRCUIT_OPEN", False)
    assert steady(failure["message"]).startswith("breaker 'llm' is open until ")


def test_a_place_that_waits_for_a_breaker_is_told_with_its_time(opened: None, folder: Path):
    ran(WAITS)
    service = Service(Home(folder / ".mulligan"))
    (record,) = service.reader.store.breakers()
    assert record.retry_at is not None
    before = service.reader.state(2)
    service.changes.approve(2, "approve", is_approved=True, reason="yes")

    after = service.reader.state(2)

    told = f"breaker 'llm' is open until {record.retry_at:%Y-%m-%d %H:%M:%S} UTC"
    assert find_breaker_waits(service.reader.store, before) == {}
    assert find_breaker_waits(service.reader.store, after) == {
        "ask": Obstacle("breaker", told, breaker="llm", until=record.retry_at)
    }
    # from then on it waits for a worker, as any other
    assert describe_breaker_wait(record, record.retry_at) == ""
    service.close()


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (BreakerRecord("llm", "closed", running=9), ""),
        (BreakerRecord("llm", "closed", running=2, max_running=3), ""),
        (
            BreakerRecord("llm", "closed", running=3, max_running=3),
            "breaker 'llm' lets no more tasks run at once: 3 are running",
        ),
        (
            BreakerRecord("llm", "closed", 4, running=1, max_running=1),
            "breaker 'llm' lets no more tasks run at once: 1 is running, after 4 failures in a row",
        ),
    ],
)
def test_one_that_lets_no_more_run_says_how_many_do(record: BreakerRecord, text: str):
    assert describe_breaker_wait(record, datetime.now(UTC)) == text


BOTH = """
name: both
breakers: {llm: {failures: 2, reset: 1h}}
steps: [{step: decide, approve: {message: go on?}, next: end}, {step: ask, shell: echo asked, breaker: llm}]
"""


def test_a_breakers_time_is_a_timer_beside_a_person_who_is_waited_for(opened: None):
    said = ran(BOTH)

    assert said.code == 4
    assert mulligan("show", "2", "--json").json["steps"]["ask"]["status"] == "ready"
    assert mulligan("breakers", "--json").json[0]["waiting"] == 1


def test_a_run_that_waits_for_a_breaker_alone_is_no_persons_business(opened: None, folder: Path):
    text = BOTH.replace("{step: decide, approve: {message: go on?}, next: end}, ", "")
    with process("run", workflow(text)) as running:
        try:
            wait_until(lambda: mulligan("breakers", "--json").json[0]["waiting"] == 1)
            still_runs = running.poll() is None
            mulligan("breakers", "--reset", "llm")
            code = running.wait(60)
        finally:
            running.kill()

    assert (still_runs, code) == (True, 0)

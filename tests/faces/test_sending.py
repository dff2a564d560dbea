"""`mulligan send`: an event for a run that waits for one, or will."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.commands import mulligan, ran, ran_before, workflow

import mulligan as package

pytestmark = pytest.mark.usefixtures("folder")

ORDER = """\
name: order
steps:
  - step: pay
    wait: {event: paid, timeout: 3d, schema: {type: object, required: [amount]}}
  - {step: ship, needs: [pay], shell: "echo ships for ${steps.pay.output.amount}"}
"""
ENDED = "name: ended\nsteps:\n  - {step: a, shell: 'true'}\n"


def test_a_run_that_waits_for_an_event_says_so_and_how_to_send_it():
    said = ran(ORDER)

    assert said.code == 4
    assert "run 1 waits for an event" in said.err and "mulligan send 1 paid" in said.err
    # As it begins to wait, too: a shorter wait is waited for here.
    assert re.search(r"\? pay\s+waits for the event 'paid'\n\s+mulligan send 1 paid\n\n", said.err)
    assert "'pay' waits for an event" in mulligan("list").out
    assert "waits for the event 'paid', until" in mulligan("show").out
    assert mulligan("pending").err == "nothing waits for a person\n"


def test_an_event_is_the_output_of_its_step_and_the_run_goes_on():
    ran_before(ORDER)

    said = mulligan("send", 1, "paid", '{"amount": 40}')

    assert said.code == 0 and "run 1: 'paid' was sent" in said.err
    assert mulligan("show", 1, "--output", "ship").out == "ships for 40\n"
    story = mulligan("explain", 1).out
    assert "got the event 'paid'" in story and "took the event 'paid'" in story


def test_an_event_that_the_step_cannot_use_is_refused():
    ran_before(ORDER)

    said = mulligan("send", 1, "paid", "40")

    assert said.code == 2
    assert "'pay' waits for 'paid', and cannot use this event: " in said.err
    assert mulligan("show", "--json").json["status"] == "running"


def test_an_event_goes_to_the_run_with_a_key():
    assert mulligan("run", workflow(ORDER), "--key", "order-7").code == 4

    assert mulligan("send", "--key", "order-7", "paid", '{"amount": 1}').code == 0

    assert mulligan("show", "--json").json["status"] == "completed"


def test_an_event_goes_to_all_open_runs_with_a_label():
    for _ in range(2):
        mulligan("run", workflow(ORDER), "--label", "team=ops")
    mulligan("run", workflow(ENDED), "--label", "team=ops")

    said = mulligan("send", "--label", "team=ops", "paid", '{"amount": 1}', "--json")

    assert said.code == 0 and said.json == {"run_ids": [1, 2], "refused": []}
    assert [run["status"] for run in mulligan("list", "--json").json] == ["completed"] * 3


def test_one_run_that_refuses_an_event_stops_no_other():
    for _ in range(2):
        mulligan("run", workflow(ORDER), "--label", "team=ops")
    mulligan("send", 1, "later", 1, "--once", "a", "--no-follow")

    said = mulligan("send", "--label", "team=ops", "later", 2, "--once", "a", "--no-follow")

    assert said.code == 1
    assert "run 1: 'later' was refused: another event was sent to run 1 with this key" in said.err
    assert "'later' was sent to 1 run" in said.err


def test_an_event_with_an_id_counts_once():
    ran_before("name: twice\nsteps:\n  - {step: a, wait: {event: e}}\n  - {step: b, needs: [a], wait: {event: e}}\n")

    for _ in range(2):
        assert mulligan("send", 1, "e", "one", "--once", "x").code == 4
    assert mulligan("send", 1, "e", "two", "--once", "y").code == 0

    steps = mulligan("show", "--json").json["steps"]
    assert (steps["a"]["output"], steps["b"]["output"]) == ("one", "two")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("1",), "error[usage]: name the event"),
        (("1", "a b"), "'a b' is not the name of an event"),
        (("7", "paid"), "there is no run 7"),
        (("--key", "nobody", "paid"), "no run was started under the key 'nobody'"),
        (("--label", "a=b", "paid"), "no open run has the label a=b"),
        (("--key", "k", "1", "paid", "3"), "--key and --label say which run it is"),
        (("--key", "k", "--label", "a=b", "paid"), "an event is for the run with a key, or for all runs with labels"),
        (("1", "paid", "1", "--once", ""), "'' is not a key"),
        (("1", "later", '"\\ud800"'), "the value of the event cannot be kept: it cannot be written as JSON"),
        (("1", "paid", '"' + "x" * 66_000 + '"'), "the value of the event cannot be kept"),
    ],
)
def test_what_makes_no_sense_is_refused(words: tuple[str, ...], message: str):
    ran_before(ORDER)

    said = mulligan("send", *words)

    assert said.code == 2 and message in said.err


def test_a_value_that_looks_like_json_and_is_not_is_named():
    ran_before(ORDER)

    assert "note: the value is not JSON, so it is sent as a text" in mulligan("send", 1, "x", "{amount: 40}").err
    assert "note" not in mulligan("send", 1, "x", "{amount: 40}", "--text").err


def test_a_wait_for_an_event_until_a_time_is_refused():
    file = workflow('name: w\nsteps:\n  - {step: a, wait: {event: e, until: "2030-01-01T00:00:00Z"}}\n')

    assert "'wait' has 'until' and 'event'" in mulligan("validate", file).err


def test_a_run_that_has_ended_gets_no_event():
    ran_before(ENDED)

    said = mulligan("send", 1, "paid")

    assert "run 1 completed, so nothing in it waits for an event" in said.err


def test_python_sends_events_too():
    ran_before(ORDER)
    home = package.Home(".mulligan")

    run = home.get(1).send("paid", {"amount": 2}, drive=True)

    assert run.status == "completed"
    with pytest.raises(package.errors.MulliganError, match="no open run has the label"):
        home.send(None, "paid", labels={"team": "nobody"})


PROGRAM = """\
from mulligan import StepFailed, program, publish_state, wait_event


@program
def order():
    publish_state(phase="waits")
    try:
        paid = wait_event("paid", timeout="1s")
    except StepFailed as failed:
        return {"failed": failed.code}
    return {"paid": paid}
"""


def test_a_program_gets_an_event_that_came_early_and_fails_without_one():
    Path("order.py").write_text(PROGRAM, encoding="utf-8")

    assert mulligan("run", "order.py:order", "--wait", "5s", "--json").json["outputs"] == {
        "result": {"failed": "TIMEOUT"}
    }
    assert mulligan("show", "--json").json["state"] == {"phase": "waits"}
    assert 'state: phase="waits"' in mulligan("show").out
    assert package.Home(".mulligan").get(1).state == {"phase": "waits"}


def test_more_time_is_not_offered_for_an_event_that_did_not_come():
    said = ran("name: late\nsteps:\n  - {step: pay, wait: {event: paid, timeout: 10ms}}\n")

    assert said.code == 1
    assert "TIMEOUT: no event 'paid' came in time" in said.err
    assert "mulligan retry 1 " in said.err and "--adjust" not in said.err

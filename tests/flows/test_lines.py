"""Approvals and waits in a flow stand in the order of its lines: nothing below one runs before it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.flows.functions import clean, fetch, load, report

import mulligan
from mulligan import flow
from mulligan.testing.history import History


def needs_of(made: Any) -> dict[str, list[str]]:
    """The needs of each step; those that a skipped step meets have a question mark."""
    marks = {"success": "", "success_or_skipped": "?", "always": "!"}
    steps = made.workflow().check().steps
    return {one.name: [f"{need.of}{marks[need.on]}" for need in one.needs] for one in steps}


def played(made: Any, conditions: Any = None) -> History:
    return History(made.workflow().check(), conditions).start({})


@flow
def gated():  # type: ignore[no-untyped-def]
    rows = fetch("a")
    count = load(rows)
    mulligan.approve("gate", "publish it?")
    report(count)
    mulligan.shell("mail", "true")


def test_an_approval_waits_for_the_lines_above_it_and_holds_up_those_below() -> None:
    assert needs_of(gated) == {
        "fetch": [],
        "load": ["fetch"],
        "gate": ["fetch?", "load?"],
        "report": ["load", "gate"],
        "mail": ["gate"],
    }


def test_nothing_below_a_refused_approval_runs() -> None:
    run = played(gated).ok("fetch").ok("load").approve("gate", False)

    assert (run["gate"].status, run["report"].status, run["mail"].status) == ("failed", "skipped", "skipped")


def test_nobody_is_asked_once_a_line_above_has_failed() -> None:
    run = played(gated).fail("fetch")

    assert {run[name].status for name in ("load", "gate", "report", "mail")} == {"skipped"}


def test_lines_between_two_gates_run_side_by_side_and_wait_once() -> None:
    @flow
    def regions():  # type: ignore[no-untyped-def]
        mulligan.wait("night", "1h")
        for region in ("east", "west"):
            rows = fetch.options(name=f"fetch_{region}")(region)
            load.options(name=f"load_{region}")(rows)
        mulligan.approve("gate", "go on?")
        report(1)

    assert needs_of(regions) == {
        "night": [],
        "fetch_east": ["night"],
        "load_east": ["fetch_east"],
        "fetch_west": ["night"],
        "load_west": ["fetch_west"],
        # Lines that were skipped with the first gate do not open the second.
        "gate": ["night", "fetch_east?", "load_east?", "fetch_west?", "load_west?"],
        "report": ["gate"],
    }


@pytest.mark.parametrize("order", ["data", "graph"])
def test_order_by_data_leaves_the_lines_alone(order: Any) -> None:
    @flow(order=order)
    def loose():  # type: ignore[no-untyped-def]
        rows = fetch("a")
        agreed = mulligan.approve("gate", "publish it?")
        report(rows)
        return {"agreed": agreed.approved}

    assert needs_of(loose) == {"fetch": [], "gate": [], "report": ["fetch"]}


def conditional() -> Any:
    @flow
    def sometimes(big: bool):  # type: ignore[no-untyped-def]
        first = fetch("a")
        mulligan.approve("gate", "so many?", when=big)
        report(first)

    return sometimes


def test_a_gate_that_is_skipped_lets_pass() -> None:
    run = played(conditional(), {"bool(inputs.big)": False, "inputs.big": False}).ok("fetch")

    assert (run["gate"].status, run["report"].status) == ("skipped", "ready")


def test_a_gate_that_is_skipped_lets_nothing_pass_that_failed_before_it() -> None:
    run = played(conditional(), {"inputs.big": False})
    assert needs_of(conditional())["report"] == ["fetch", "gate?"]

    run.fail("fetch")

    assert (run["gate"].status, run["report"].status) == ("skipped", "skipped")


def test_a_line_does_not_need_again_what_its_data_needs() -> None:
    @flow
    def reading():  # type: ignore[no-untyped-def]
        count = load(fetch("a"))
        mulligan.shell("other", "true")
        mulligan.approve("gate", f"publish {count} rows?")
        report(count)

    assert needs_of(reading)["gate"] == ["load", "other?"]
    run = played(reading).ok("other").fail("fetch")
    assert {run[name].status for name in ("load", "gate", "report")} == {"skipped"}


def test_a_conditional_gate_below_another_one_does_not_lead_round_it() -> None:
    @flow
    def twice(big: bool):  # type: ignore[no-untyped-def]
        fetch("a")
        mulligan.approve("first", "go on?")
        mulligan.approve("second", "so many?", when=big)
        report(1)

    assert needs_of(twice)["report"] == ["first", "second?"]
    run = played(twice, {"inputs.big": False}).ok("fetch").approve("first", False)
    assert (run["second"].status, run["report"].status) == ("skipped", "skipped")


def test_a_step_that_reads_what_may_be_skipped_waits_for_the_gate_itself() -> None:
    @flow
    def optional():  # type: ignore[no-untyped-def]
        mulligan.approve("gate", "go on?")
        rows = fetch("a")
        report(mulligan.optional(load(rows)))

    assert needs_of(optional) == {"gate": [], "fetch": ["gate"], "load": ["fetch"], "report": ["load?", "gate"]}


def test_a_group_with_an_approval_is_a_gate_and_has_lines_of_its_own() -> None:
    @flow
    def grouped():  # type: ignore[no-untyped-def]
        rows = fetch("a")
        with mulligan.group("publish"):
            staged = load(rows)
            mulligan.approve("gate", "publish it?")
            report(staged)
        clean({"n": 1})

    made = grouped.workflow().check()
    assert needs_of(grouped) == {"fetch": [], "publish": ["fetch"], "clean": ["publish"]}
    [inner] = made.children.values()
    assert {one.name: [need.of for need in one.needs] for one in inner.steps} == {
        "load": [],
        "gate": ["load"],
        "report": ["load", "gate"],
    }


def test_what_a_route_leads_to_stands_in_no_line() -> None:
    @flow
    def repaired():  # type: ignore[no-untyped-def]
        rows = fetch("a")
        mulligan.approve("gate", "go on?")
        mulligan.route(rows, report(2), on="failure")

    assert needs_of(repaired)["report"] == []


def test_a_step_to_which_lines_below_lead_back_waits_for_the_gate_above_it() -> None:
    @flow
    def repeated():  # type: ignore[no-untyped-def]
        rows = fetch("a")
        mulligan.approve("gate", "publish it?")
        count = load(rows)
        said = report(count)
        mulligan.route(said, count, when=mulligan.outcome(said).visits < 3)
        clean({"n": 1})

    assert needs_of(repeated)["load"] == ["fetch", "gate"]
    run = played(repeated).ok("fetch")
    assert {run[name].status for name in ("load", "report", "clean")} == {"waiting"}
    run.approve("gate", False)
    assert {run[name].status for name in ("load", "report", "clean")} == {"skipped"}


def test_an_approval_to_which_lines_below_lead_back_holds_them_up() -> None:
    @flow
    def asked_again():  # type: ignore[no-untyped-def]
        fetch("a")
        agreed = mulligan.approve("gate", "publish it?")
        again = load(agreed)
        mulligan.route(again, agreed, when=mulligan.outcome(again).visits < 3)
        report(1)

    assert needs_of(asked_again) == {"fetch": [], "gate": ["fetch?"], "load": ["gate"], "report": ["gate"]}


def test_the_loop_of_a_sequential_flow_waits_for_the_line_above_it() -> None:
    @flow(order="sequential")
    def repeated():  # type: ignore[no-untyped-def]
        mulligan.approve("gate", "publish it?")
        count = load(1)
        said = report(2)
        mulligan.route(said, count, when=mulligan.outcome(said).visits < 3)

    assert needs_of(repeated)["load"] == ["gate"]


def test_an_approval_to_which_a_route_leads_holds_up_the_lines_below_unless_it_is_skipped() -> None:
    @flow
    def risky(big: bool):  # type: ignore[no-untyped-def]
        rows = fetch("a")
        agreed = mulligan.approve("gate", "so many?")
        mulligan.route(rows, agreed, when=big)
        report(agreed)
        clean({"n": 1})

    assert needs_of(risky)["clean"] == ["gate?"]
    run = played(risky, {"inputs.big": True, "bool(inputs.big)": True}).ok("fetch")
    assert run["clean"].status == "waiting"
    assert run.approve("gate", False)["clean"].status == "skipped"
    run = played(risky, {"inputs.big": False, "bool(inputs.big)": False}).ok("fetch")
    assert (run["gate"].status, run["clean"].status) == ("skipped", "ready")

"""The definition as data: the retries its rules can grant, the commands below a command, its bytes."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from mulligan.core.model import workflow as w
from mulligan.core.model.actions import ENGINE_ACTIONS
from mulligan.core.model.workflow import Command, Expression, Handler, Map, Rule, Step, Template, Workflow
from mulligan.errors import CodecError
from mulligan.testing.history import command, expression, step, workflow


@pytest.mark.parametrize(
    ("rules", "max_attempts", "granted"),
    [
        ((), None, 0),
        ((Rule(any=True, max_retries=2),), None, 2),
        ((Rule(codes=("TIMEOUT",), max_retries=2), Rule(any=True, max_retries=3)), None, 5),
        # All rules together are bounded by the step's attempts: the first of them is no retry.
        ((Rule(any=True, max_retries=9),), 4, 3),
        ((Rule(any=True, max_retries=2),), 4, 2),
        ((Rule(any=True, max_retries=2),), 1, 0),
        # A rule that stops early grants most when it is asked first.
        ((Rule(any=True, max_retries=9, max_attempts=3),), None, 2),
        ((Rule(any=True, max_retries=9, max_attempts=3), Rule(codes=("TIMEOUT",), max_retries=4)), None, 6),
        ((Rule(codes=("TIMEOUT",), max_retries=4), Rule(any=True, max_retries=9, max_attempts=3)), None, 6),
        ((Rule(any=True, max_retries=5, max_attempts=9), Rule(codes=("A",), max_retries=9, max_attempts=3)), None, 7),
        # It grants nothing after the other, and takes nothing back.
        ((Rule(any=True, max_retries=4, max_attempts=9), Rule(codes=("A",), max_retries=1, max_attempts=9)), None, 5),
        ((Rule(any=True, max_attempts=1),), None, 0),
    ],
)
def test_the_most_retries_that_the_rules_of_a_visit_can_grant(
    rules: tuple[Rule, ...], max_attempts: int | None, granted: int
) -> None:
    assert Command(rules=rules, max_attempts=max_attempts).retries_max == granted


def test_everything_below_a_command_is_found_in_the_order_in_which_it_stands() -> None:
    full = Step(
        name="a",
        on_success=(command("told"),),
        validator=command("checked"),
        rules=(Rule(any=True, recovery_script=command("mended")), Rule(any=True)),
        on_failure=Handler((command("handled", on_failure=Handler((command("nested"),))),)),
        do=(command("done"),),
        undo=command("undone"),
        map=Map(lister=command("listed")),
    )

    found = [one.action.params["text"] for one in w.all_commands((full, None, command("last"))) if one.action]

    assert found == ["told", "checked", "mended", "handled", "nested", "done", "undone", "listed", "last"]
    assert next(iter(w.all_commands((full,)))) is full


def test_a_plain_step_has_nothing_below_it() -> None:
    assert list(w.all_commands([step("a")])) == [step("a")]


@pytest.mark.parametrize(
    ("parts", "reads"),
    [
        (("text",), ()),
        ((expression("x", "inputs", "run"),), ("inputs", "run")),
        (("a", expression("x", "inputs"), "b", expression("y", "run")), ("inputs", "run")),
        ((), ()),
    ],
)
def test_a_text_reads_what_its_expressions_read(parts: tuple[str | Expression, ...], reads: tuple[str, ...]) -> None:
    assert Template(parts).reads == reads


# -- bytes -----------------------------------------------------------------------------------------------------------


def test_equal_workflows_have_equal_bytes_whatever_the_order_in_which_they_were_made() -> None:
    one = workflow(step("a"), files={"x": "1", "y": "2"})
    other = workflow(step("a"), files={"y": "2", "x": "1"})

    assert w.encode(one) == w.encode(other)
    assert w.decode(w.encode(one)) == one
    assert w.version(w.encode(one)) == hashlib.sha256(w.encode(one)).hexdigest()[:16]
    assert len(w.version(b"")) == 16


def test_what_is_as_it_would_be_anyway_is_not_written() -> None:
    assert msgspec.json.decode(w.encode(Workflow("w", (), Step(name="end")))) == {
        "name": "w",
        "steps": [],
        "end": {"name": "end"},
    }


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "Input data was truncated"),
        (b"{}", "Object missing required field `name`"),
        (
            b'{"name": "w", "steps": [], "end": {"name": "end"}, "dreams": 1}',
            "Object contains unknown field `dreams`",
        ),
        (b'{"name": "\xff"}', "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (
            b'{"name": "w", "steps": [], "end": {}, "inputs": {"x": {"default": ' + b"[" * 100_000,
            "it is nested too deeply",
        ),
    ],
    ids=["cut", "empty", "newer", "text", "deep"],
)
def test_bytes_that_are_no_workflow_are_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(CodecError) as refused:
        w.decode(data)

    assert refused.value.message == f"a stored workflow cannot be read: {reason}"


# -- what holds where nothing is said --------------------------------------------------------------------------------


def test_what_holds_where_the_file_says_nothing() -> None:
    """These are promises of the language: a change of one changes every workflow that says nothing of it."""
    assert (Rule().max_retries, Rule().backoff, Rule().any) == (3, w.Backoff(), False)
    assert (w.Backoff().delay, w.Backoff().factor, w.Backoff().jitter) == (0.0, 1.0, 0.0)
    assert (w.Breaker().failures, w.Breaker().reset, w.Breaker().when_open) == (5, 60.0, "wait")
    assert (w.Triage().when, w.Triage().default, w.Triage().timeout) == ("unmatched", "fail", None)
    assert (w.Need("a").on, w.Need("a").is_group) == ("success", False)
    one = w.Edge("a", 0)
    assert (one.on, one.handles, one.then, one.priority, one.backoff) == ("success", True, None, None, w.Backoff())
    assert (Handler(()).strategy, Handler(()).rerun, Handler(()).timeout) == ("recovery", 0, None)


def test_what_holds_of_steps_where_the_file_says_nothing() -> None:
    plain = Step()
    assert (plain.name, plain.take, plain.no_match, plain.join) == ("", "all", "record", "any")
    assert (plain.max_visits, plain.is_start, plain.sweep) == (10, False, "")
    assert (plain.on_lost, plain.affinity, plain.capture) == ("rerun", "host", "text")
    assert (plain.continue_on_error, plain.handler_failure_fatal) == (False, False)
    items = Map()
    assert (items.name, items.on_item_failure, items.offset, items.sort_descending) == ("item", "fail", 0, False)
    assert (w.Input().type, w.Input().has_default, w.Input().description) == ("string", False, "")


def test_what_holds_of_runs_where_the_file_says_nothing() -> None:
    plain = Workflow("w", (), Step(name="end"))
    assert (plain.fail_fast, plain.cancel_grace, plain.description, plain.origin) == ("on_critical", 10.0, "", "")
    assert (w.END, w.RERUNS_AFTER_LOSS_MAX, w.MAX_PARALLEL_STEPS) == ("end", 3, 1000)
    assert (w.END_TIMEOUT_SECONDS, w.SCRIPT_TIMEOUT_SECONDS) == (300.0, 300.0)
    assert sorted(ENGINE_ACTIONS) == ["approve", "wait", "wait_for_event", "workflow"]

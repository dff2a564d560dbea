"""What a call of a step is in a program."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import mulligan
from mulligan import Rejected, StepError, StepFailed, approve, gather, program, publish_state, sleep, step
from mulligan.errors import LanguageError
from mulligan.programs import messages as m
from mulligan.programs.errors import ProgramError
from mulligan.programs.machine import Machine
from mulligan.programs.memory_engine import MemoryEngine, after
from mulligan.programs.running import run_function

from .rehearsed import rehearse
from .steps_of_programs import add, count, double, fail


def test_a_program_runs_as_it_is_written():
    @program
    def sums(numbers: list):
        total = 0
        for number in numbers:
            if number % 2:
                total = add(total, double(number))
        return {"total": total}

    found = rehearse(sums, [1, 2, 3])

    assert found.result == {"total": 8}
    assert found.names() == ["double", "add", "double#2", "add#2"]


def test_a_failure_of_a_call_is_an_exception():
    @program
    def careful():
        try:
            fail("QUOTA")
        except StepFailed as failed:
            return [failed.code, failed.message, failed.step, str(failed)]

    found = rehearse(careful)

    assert found.result == ["QUOTA", "as it was told to", "fail", "fail: QUOTA: as it was told to"]


def test_what_nothing_catches_is_the_failure_of_the_program():
    @program
    def careless():
        fail("QUOTA")

    failure = rehearse(careless).failure

    assert failure is not None
    assert (failure.code, failure.step) == ("QUOTA", "fail")


def test_an_exception_of_the_program_has_its_trace_and_no_frame_of_ours():
    @program
    def broken():
        return {}["rows"]

    failure = rehearse(broken).failure

    assert failure is not None
    assert (failure.code, failure.message) == ("EXCEPTION", "KeyError: 'rows'")
    assert 'return {}["rows"]' in failure.trace
    assert "mulligan/programs" not in failure.trace


def test_a_step_error_of_the_program_keeps_its_code():
    @program
    def strict():
        raise StepError("EMPTY", "no rows", details={"day": "monday"}, retryable=False)

    failure = rehearse(strict).failure

    assert failure is not None
    assert failure.exceptions == ("mulligan.StepError", "Exception")
    expected = m.CallFailure("EMPTY", "no rows", details={"day": "monday"}, retryable=False)
    assert [frame["function"] for frame in failure.traceback][-1].endswith("strict")
    assert msgspec.structs.replace(failure, trace="", exceptions=(), traceback=()) == expected


def test_arguments_are_stored_by_parameter_with_defaults():
    @program
    def one():
        return add(1)

    [call] = rehearse(one).calls

    assert call.arguments == {"one": 1, "other": 0}


def test_arguments_that_do_not_fit_are_refused():
    @program
    def wrong():
        add(two=2)

    failure = rehearse(wrong).failure

    assert failure is not None
    assert "step 'add' has no parameter 'two'" in failure.message


@dataclass
class Order:
    number: int
    wait: timedelta


@step
def newest(orders: list[Order]) -> Order:
    return max(orders, key=lambda order: order.number)


def test_results_are_what_the_step_is_annotated_with():
    @program
    def orders():
        found = newest([Order(1, timedelta(seconds=1)), Order(2, timedelta(hours=2))])
        return [type(found).__name__, found.wait.total_seconds()]

    assert rehearse(orders).result == ["Order", 7200.0]


def test_an_argument_that_cannot_be_stored_is_named():
    @program
    def wrong():
        double(number=object())  # type: ignore[arg-type]

    failure = rehearse(wrong).failure

    assert failure is not None
    assert failure.message.startswith("the argument 'number' of 'double' is of type 'object', which cannot be stored")


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (2**70, "is a number of more than 64 bits"),
        ([-(2**63) - 1], "is a number of more than 64 bits"),
        (float("nan"), "is nan, which is not JSON"),
        ("\ud800", "contains a lone surrogate"),
        ({"\ud800": 1}, "contains a lone surrogate"),
        (_nested(150), "is nested too deep"),
        ({(1, 2): 3}, "has a key of type 'tuple'"),
        ({1: "a", "1": "b"}, "has two keys that are '1' as JSON"),
    ],
    ids=["number", "in_list", "nan", "surrogate", "key", "deep", "tuple_key", "two_keys"],
)
def test_what_no_log_can_hold_is_refused_wherever_a_program_says_it(value: Any, problem: str):
    made = step(inline=True)(lambda: value)

    @program
    def says() -> Any:
        for call in (lambda: double(value), made):
            try:
                call()
            except (StepFailed, ProgramError) as refusal:
                assert problem in str(refusal)
                assert "argument 'number'" in str(refusal) or refusal.code == "OUTPUT_INVALID"
            else:
                raise AssertionError
        return value

    @program
    def raises() -> None:
        raise StepFailed("\ud800", "\ud800", details={"value": value, "kept": 1}, exit_code=2**70)

    refused, raised = rehearse(says).failure, rehearse(raises).failure

    assert refused is not None and (refused.code, problem in refused.message) == ("OUTPUT_INVALID", True)
    assert raised is not None and (raised.code, raised.details["kept"]) == ("?", 1)
    assert problem in raised.details["value"]


def test_numbers_of_64_bits_and_nul_characters_are_stored():
    values = [2**64 - 1, -(2**63), "a\0b", _nested(90)]

    @program
    def says() -> Any:
        same = step(inline=True)(lambda values: values)
        return same(values)

    assert rehearse(says).result == values


def test_a_run_that_a_program_starts_itself_is_refused():
    @program
    def starts():
        inner.run()

    @program
    def inner():
        return 1

    failure = rehearse(starts).failure

    assert failure is not None and "call it: inner(…), which is a child run" in failure.message


def test_a_result_of_the_program_that_cannot_be_stored_is_refused():
    @program
    def wrong():
        return {"lock": object()}

    failure = rehearse(wrong).failure

    assert failure is not None
    assert failure.code == "OUTPUT_INVALID"
    assert "the result['lock']" in failure.message


def test_a_sleep_takes_no_time_here():
    @program
    def patient():
        sleep("30s")
        sleep(timedelta(hours=1))

    assert rehearse(patient).seconds == 3630


@pytest.mark.parametrize("duration", ["soon", None, -1])
def test_a_sleep_needs_a_duration(duration: Any):
    @program
    def wrong():
        sleep(duration)

    failure = rehearse(wrong).failure

    assert failure is not None
    assert "sleep needs a duration" in failure.message


def test_a_person_approves_or_refuses_or_is_silent():
    @program
    def publish():
        try:
            approve("publish it?", timeout="8h")
        except Rejected as rejected:
            return rejected.code
        return "published"

    assert rehearse(publish, fakes={"approve": True}).result == "published"
    assert rehearse(publish, fakes={"approve": False}).result == "APPROVAL_REFUSED"
    silent = rehearse(publish, fakes={"approve": None})
    assert (silent.result, silent.seconds) == ("APPROVAL_EXPIRED", 8 * 3600)


def test_approve_in_a_program_takes_one_text():
    @program
    def wrong():
        approve("name", "publish it?")

    failure = rehearse(wrong).failure

    assert failure is not None
    assert "approve in a program takes one text" in failure.message


def test_the_evidence_of_an_approval_has_names():
    @program
    def wrong():
        approve("publish it?", evidence=["row"])  # type: ignore[call-overload]

    failure = rehearse(wrong).failure

    assert failure is not None
    assert "'evidence' of approve has names" in failure.message


def test_a_gather_returns_results_in_the_order_of_its_calls():
    @program
    def parts():
        return gather(double.call(number) for number in (3, 2, 1))

    found = rehearse(parts, fakes={"double": lambda number: number}, inputs={})

    assert found.result == [3, 2, 1]


@pytest.mark.parametrize(
    ("calls", "result"),
    [
        (lambda: gather(double.call(1), add.call(2, 3)), [2, 5]),
        (lambda: gather(double.call(1)), [2]),
        (lambda: gather([double.call(1)]), [2]),
        (lambda: gather({"a": double.call(1)}.values()), [2]),
        (lambda: gather(), []),
        (lambda: gather([]), []),
    ],
    ids=["several", "one", "list", "values", "none", "empty"],
)
def test_a_gather_takes_calls_one_by_one_or_all_in_one(calls: Any, result: list[int]):
    @program
    def plain():
        return calls()

    @program
    async def waits():
        return await calls()

    assert rehearse(plain).result == rehearse(waits).result == result


@pytest.mark.parametrize(
    ("calls", "problem"),
    [
        (lambda: gather(3), "gather takes calls, and this is of type 'int'"),
        (lambda: gather(double(1), double(2)), "not clean(row), which has run already"),
        (lambda: gather(double.call(1), return_exceptions=True), 'failures="return" puts failures into the list'),
    ],
    ids=["number", "results", "word_of_asyncio"],
)
def test_what_a_gather_does_not_take_is_said(calls: Any, problem: str):
    @program
    def wrong():
        return calls()

    failure = rehearse(wrong).failure

    assert failure is not None and problem in failure.message


def test_a_gather_waits_for_all_and_raises_the_first_failure_in_the_order_of_its_calls():
    slow = after("1h", StepFailed("LATE"))

    @program
    def parts():
        try:
            gather([add.call(1), add.call(2), add.call(3)])
        except StepFailed as failed:
            return [failed.code, [other.code for other in failed.failures]]

    found = rehearse(parts, fakes={"add": iter([slow, StepFailed("EARLY"), 3])})

    assert (found.result, found.seconds) == (["LATE", ["EARLY"]], 3600)


def test_a_gather_returns_failures_to_who_wants_them():
    @program
    def parts():
        found = gather([add.call(1), fail.call("X")], failures="return")
        return [found[0], found[1].code]

    assert rehearse(parts).result == [1, "X"]


def test_a_gather_of_results_is_refused():
    @program
    def wrong():
        gather(double(number) for number in (1, 2))

    failure = rehearse(wrong).failure

    assert failure is not None
    assert "gather takes calls, and this is of type 'int'" in failure.message


def test_a_generator_that_never_ends_is_refused():
    @program(calls=20)
    def endless():
        def numbers():
            number = 0
            while True:
                yield double.call(number)
                number += 1

        gather(numbers())

    failure = rehearse(endless).failure

    assert failure is not None
    assert failure.code == "LOOP_LIMIT"
    assert "gather is given more than 20 calls" in failure.message


def test_a_program_that_never_ends_reaches_its_limit_and_learns_the_cure():
    @program(calls=20)
    def endless():
        while True:
            double(1)

    failure = rehearse(endless).failure

    assert failure is not None
    assert failure.code == "LOOP_LIMIT"
    assert "a program of its own" in failure.message


def test_more_calls_than_a_program_may_have_are_refused():
    with pytest.raises(LanguageError, match="1 to 25000"):
        program(calls=30_000)(lambda: None)


def test_a_call_that_was_never_started_is_an_error():
    @program
    def forgotten():
        double.call(1)
        return "done"

    failure = rehearse(forgotten).failure

    assert failure is not None
    assert failure.code == "UNAWAITED"
    assert "the call of 'double' (test_calls.py:" in failure.message


def test_a_call_that_nobody_can_await_any_more_is_an_error_before_the_next_one_starts():
    @program
    async def forgets():
        try:
            approve("publish it?")
            await double(1)
        except Exception:
            return "published"

    found = rehearse(forgets, fakes={"approve": True})

    assert found.failure is not None
    assert (found.failure.code, found.names()) == ("UNAWAITED", [])
    assert "the call of 'approve' (test_calls.py:" in found.failure.message
    assert "write await before it" in found.failure.message


@pytest.mark.parametrize(
    "use",
    [lambda call: call + 1, lambda call: call[0], bool, list, str, lambda call: call.rows, add],
    ids=["add", "index", "bool", "list", "str", "attribute", "argument"],
)
def test_a_call_that_is_used_as_its_result_says_that_await_is_missing(use: Any):
    @program
    async def forgets():
        return use(double(1))

    failure = rehearse(forgets).failure

    assert failure is not None and "write await before" in failure.message


def test_a_gather_that_is_refused_leaves_no_call_behind():
    @program
    def careful():
        try:
            gather(double.call(one) for one in [1, object()])
        except ProgramError:
            return gather(double.call(one) for one in [1, 2])

    assert rehearse(careful).result == [2, 4]


def test_a_call_starts_once():
    @program
    def twice():
        call = double.call(1)
        gather([call])
        gather([call])

    failure = rehearse(twice).failure

    assert failure is not None
    assert "the call of 'double' is used twice" in failure.message


# -- identity ----------------------------------------------------------------------------------------------------------


def identities(found: Any) -> list[tuple[str, int, str]]:
    return [(call.id.branch, call.id.ordinal, call.label) for call in found.program_history().history.calls]


def test_a_call_is_known_by_its_branch_and_its_ordinal_over_all_steps():
    @program
    def several():
        double(1)
        gather([double.call(2), add.call(3)])
        add(4)

    assert identities(rehearse(several)) == [
        ("", 0, "double"),
        ("0", 0, "double#2"),
        ("1", 0, "add"),
        ("", 1, "add#2"),
    ]


def test_a_call_with_a_key_takes_no_number():
    @program
    def regions():
        for region in ("eu", "us"):
            double.options(key=region)(1)
        double(2)

    assert identities(rehearse(regions)) == [
        ("/double=eu", 0, "double#eu"),
        ("/double=us", 0, "double#us"),
        ("", 0, "double#3"),
    ]


def test_a_key_may_be_an_order_number():
    @program
    def numbered():
        return [double.options(key=4711)(1), double.options(key="4712")(2)]

    found = rehearse(numbered)

    assert found.result == [2, 4]
    assert found.names() == ["double#4711", "double#4712"]


def test_a_key_that_no_label_can_have_is_an_exception_that_says_so():
    @program
    def careful():
        try:
            return double.options(key="a/b")(1)
        except ProgramError as refusal:
            return str(refusal)

    problem = "the key 'a/b' of 'double' has other characters than letters, digits, '_' and '-', or more than 80"
    assert rehearse(careful).result == f"{problem}; write key=key.replace('/', '-')"


def test_a_key_names_one_call():
    @program
    def regions():
        for _ in range(2):
            double.options(key="eu")(1)

    failure = rehearse(regions).failure

    assert failure is not None
    assert "'double' is called twice with the key 'eu'" in failure.message


# -- inline steps and values -------------------------------------------------------------------------------------------


def test_an_inline_step_runs_in_the_process_of_the_program_and_is_recorded():
    seen = []

    @step(inline=True)
    def note(text: str) -> tuple[str, int]:
        seen.append(text)
        return text, len(text)

    @program
    def notes():
        return note("a") and note("bc")

    found = rehearse(notes)

    assert (found.result, seen, found.names()) == (["bc", 2], ["a", "bc"], ["note", "note#2"])


def test_what_an_inline_step_changes_of_its_arguments_the_program_does_not_see():
    """In a replay it does not run, so nothing would be changed."""

    @step(inline=True)
    def push(rows: list[int]) -> int:
        rows.append(1)
        return len(rows)

    @program
    def pushing():
        rows: list[int] = []
        return [push(rows), push(rows), rows]

    assert rehearse(pushing).result == [1, 1, []]


@dataclass
class Price:
    cents: int


def test_what_an_inline_step_changes_around_it_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for name, value in (("MULLIGAN_IDEMPOTENCY_KEY", "7:p:1"), ("A", "1"), ("B", "1"), ("MULLIGAN_RETRY", "1")):
        monkeypatch.setenv(name, value)
    around: ContextVar[str] = ContextVar("around")

    @step(inline=True)
    def change() -> list[str | None]:
        os.environ["A"], os.environ["C"] = "2", "2"
        del os.environ["B"]
        os.chdir("/")
        around.set("2")
        return [os.environ.get("MULLIGAN_STEP"), os.environ.get("MULLIGAN_RETRY")]

    @program
    def changing():
        names = change()
        here = os.getcwd() == str(tmp_path), around.get("1") == "1"
        return [names, [os.environ.get(name) for name in ("A", "B", "C", "MULLIGAN_RETRY")], *here]

    assert rehearse(changing).result == [["change", None], ["1", "1", None, "1"], True, True]


def test_an_inline_step_gets_what_a_worker_would_give_it():
    @step(inline=True)
    def kinds(one: Any, other: Any, price: Price) -> list[str]:
        return [type(value).__name__ for value in (one, other, price)]

    @program
    def typed():
        return kinds((1, 2), {1: 2}, {"cents": 3})

    @program
    def misfit():
        return kinds(1, 2, {"cents": "three"})

    failure = rehearse(misfit).failure

    assert rehearse(typed).result == ["list", "dict", "Price"]
    assert failure is not None and (failure.code, failure.retryable) == ("INPUT_INVALID", False)


def ended(error: BaseException | None) -> Callable[[], None]:
    def end() -> None:
        if error is not None:
            raise error

    return end


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (SystemExit(), None),
        (StepError("LATE", "a little", severity="warning"), None),
        (SystemExit(3), ("EXIT_NONZERO", 3)),
        (asyncio.CancelledError("no"), ("EXCEPTION", None)),
        (GeneratorExit(), ("EXCEPTION", None)),
        (BaseException("of the user"), ("EXCEPTION", None)),
    ],
    ids=lambda found: type(found).__name__,
)
@pytest.mark.parametrize("is_async", [False, True])
def test_an_inline_step_that_exits_or_is_cancelled_has_ended_and_its_program_has_not(
    error: BaseException, end: Any, is_async: bool
):
    ends = step(inline=True)(ended(error))

    @program
    def plain():
        try:
            return ends()
        except StepFailed as failed:
            return [failed.code, failed.exit_code]

    @program
    async def asynchronous():
        try:
            return await ends()
        except StepFailed as failed:
            return [failed.code, failed.exit_code]

    assert rehearse(asynchronous if is_async else plain).result == (None if end is None else list(end))


@pytest.mark.parametrize("value", [1, {"name": "x"}, {"name": "x", "format": "csv"}])
def test_an_inline_step_makes_no_file(value: Any):
    """A reference in the log would be followed by whoever looks at the run."""
    same = step(inline=True)(lambda x: x)
    make = step(inline=True)(lambda: [{"$artifact": value}])

    @program
    def given():
        return same([{"$artifact": value}])

    @program
    def made():
        return make()

    refused = rehearse(made).failure
    assert rehearse(given).failure is not None
    assert refused is not None and refused.code == "OUTPUT_INVALID"
    assert "reserved for files" in refused.message


def test_a_failure_of_an_inline_step_is_that_of_a_call():
    @step(inline=True)
    def wrong() -> None:
        raise StepError("NO", "never")

    @program
    def notes():
        try:
            wrong()
        except StepFailed as failed:
            return failed.code

    assert rehearse(notes).result == "NO"


def test_an_inline_step_may_be_a_coroutine():
    @step(inline=True)
    async def later() -> int:
        import asyncio

        await asyncio.sleep(0)
        return 5

    @program
    def plain():
        return later()

    @program
    async def asynchronous():
        return await later()

    assert (rehearse(plain).result, rehearse(asynchronous).result) == (5, 5)


@pytest.mark.parametrize("is_process", [False, True])
def test_what_an_inline_step_yields_is_its_progress(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_process: bool
):
    if is_process:
        monkeypatch.setenv("MULLIGAN_PROGRAM", "1")

    @step(inline=True)
    def counting():
        yield 1, 2, "halfway"
        return 2

    @step(inline=True)
    async def counting_later():
        yield 0.5

    @program
    def counts():
        return [counting(), counting_later()]

    assert rehearse(counts).result == [2, None]
    shown = [] if is_process else ["progress: 1/2 halfway", "progress: 0.5/1"]
    assert capsys.readouterr().err.splitlines() == shown


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda: (one for one in "ab"), "it returned a generator expression"),
        (lambda: (yield [1]), "it yielded [1] (list)"),
    ],
)
def test_what_is_no_progress_of_an_inline_step_is_refused(returned: Any, message: str):
    made = step(inline=True)(returned)

    @program
    def wrong():
        return made()

    failure = rehearse(wrong).failure

    assert failure is not None
    assert failure.code == "OUTPUT_INVALID"
    assert failure.message.startswith(message)


def test_an_inline_step_calls_no_step():
    @step(inline=True)
    def outer() -> int:
        return double(1)

    @program
    def wrong():
        return outer()

    failure = rehearse(wrong).failure

    assert failure is not None
    assert "'double' is called inside an inline step" in failure.message


@pytest.mark.parametrize(
    "key",
    [
        {"timeout": "1m"},
        {"resources": {"memory": "1GiB"}},
        {"requirements": ["httpx"]},
        {"env": {"A": "b"}},
        {"cwd": "/tmp"},
        {"logs": {"stdout": "./log"}},
        {"cache": True},
        {"breaker": "b"},
        {"validate": "output > 1"},
        {"on_success": "echo"},
        {"writes": ["./x"]},
        {"on": {"dask": True}},
    ],
)
def test_an_inline_step_has_no_key_that_its_program_would_ignore(key: Any):
    with pytest.raises(LanguageError, match="the inline step 'tiny' has"):

        @step(inline=True, **key)
        def tiny() -> None: ...


def test_values_are_recorded_and_jump_with_the_clock():
    @program
    def values():
        begin = mulligan.now()
        sleep("1h")
        seconds = (mulligan.now() - begin).total_seconds()
        return [seconds, 0 <= mulligan.random() < 1, mulligan.uuid4().version]

    found = rehearse(values)

    assert found.result == [3600, True, 4]
    assert [call.name for call in found.program_history().history.calls] == ["now", "sleep", "now", "random", "uuid4"]


def test_what_is_called_before_an_inline_step_is_recorded_before_it_runs():
    seen: list[tuple[str, ...]] = []

    class Engine(MemoryEngine):
        def exchange(self, message: m.Idle) -> m.Deliver:
            seen.append(tuple(call.name for call in message.calls))
            return super().exchange(message)

    @program
    def charge():
        return count(len(str(mulligan.uuid4())))

    run_function(Machine(Engine()), charge.fn, {})

    assert seen == [("uuid4",), ("count",)]


# -- where programs cannot be ------------------------------------------------------------------------------------------


def test_a_program_calls_a_program():
    @program
    def inner(number: int):
        return double(number)

    @program
    def outer():
        return gather([inner.call(1), inner.call(2)])

    found = rehearse(outer)

    assert (found.result, found.names()) == ([2, 4], ["inner", "inner#2"])


def test_a_program_is_not_called_like_a_function():
    @program
    def alone(): ...

    with pytest.raises(LanguageError, match="the program 'alone' is called like a function"):
        alone()


def test_a_program_inside_a_step_is_refused(monkeypatch: pytest.MonkeyPatch):
    @program
    def alone(): ...

    monkeypatch.setenv("MULLIGAN_ATTEMPT", "1")

    with pytest.raises(RuntimeError, match="the program 'alone' is called inside a step"):
        alone()


@pytest.mark.parametrize("name", ["now", "random", "uuid4"])
def test_a_value_outside_of_a_program_is_refused(name: str):
    with pytest.raises(LanguageError, match=f"mulligan.{name} is called outside a program"):
        getattr(mulligan, name)()


def test_a_step_outside_of_a_program_and_a_flow_is_refused():
    with pytest.raises(LanguageError, match="outside a program or a flow"):
        double(1)
    with pytest.raises(LanguageError, match=r"double\.call is called outside a program"):
        double.call(1)


def test_what_belongs_to_a_flow_is_refused_in_a_program():
    @program
    def wrong():
        double.map([1])

    failure = rehearse(wrong).failure

    assert failure is not None
    assert failure.message.endswith(
        "step 'double' is called inside a program; write gather(double.call(one) for one in …)"
    )


def test_a_generator_is_no_program():
    with pytest.raises(LanguageError, match="is a generator"):

        @program
        def wrong():
            yield 1


# -- what a program publishes ------------------------------------------------------------------------------------------


def published(program: Any, **given: Any) -> list[Any]:
    """What the messages of a program say that it has published."""
    found: list[Any] = []

    class Engine(MemoryEngine):
        def take(self, message: m.Idle | m.Ended) -> None:
            found.append(message.published)
            super().take(message)

    engine = Engine()
    machine = Machine(engine, at=engine.now)
    engine.take(run_function(machine, program.fn, given))
    return found


def test_what_a_program_publishes_goes_with_its_next_message_if_it_has_changed():
    @program
    def loading():
        publish_state(done=0, of=2)
        double(1)
        publish_state(done=1)
        publish_state(done=1)
        double(2)
        double(3)
        publish_state(phase="ended")

    first, *others = published(loading)

    assert first == {"done": 0, "of": 2}
    assert others == [{"done": 1, "of": 2}, None, {"done": 1, "of": 2, "phase": "ended"}]


def test_between_inline_steps_it_goes_once_a_second():
    @program
    def counting():
        for number in range(3):
            publish_state(done=number)
            count(number)

    assert published(counting) == [{"done": 0}, None, None, {"done": 2}]


@pytest.mark.parametrize("values", [{"text": "x" * 5000}, {"thing": object()}, {"v": {"$artifact": "x"}}])
def test_what_cannot_be_published_is_refused(values: dict[str, Any]):
    @program
    def publishing():
        publish_state(**values)

    failed = rehearse(publishing).failure

    assert failed is not None and "publish_state" in failed.message


def test_outside_of_a_program_nothing_is_published():
    with pytest.raises(LanguageError, match="publish_state"):
        publish_state(done=1)


@pytest.mark.parametrize(
    ("value", "stored"), [({True: 1}, {"true": 1}), (range(2), [0, 1]), ({1: b"a"}, {"1": "YQ=="})]
)
def test_what_is_published_is_stored_as_json(value: Any, stored: Any):
    machine = Machine(MemoryEngine())

    machine.publish({"value": value})

    assert machine.ended("returned").published == {"value": stored}

"""What a flow cannot say is refused when it is built, at the user's line, with what to write instead."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.flows.functions import clean, deploy, fetch, improve, load, repair, report

import mulligan
from mulligan import Retry, flow, program, step
from mulligan.errors import LanguageError, Problem


def refusal(function: Callable[..., Any]) -> Problem:
    """The only problem of the flow that this function is."""
    with pytest.raises(LanguageError) as caught:
        flow(function).workflow().check()
    [problem] = caught.value.problems
    assert problem.file == __file__
    return problem


def marked_line(function: Callable[..., Any]) -> int:
    """The line with the comment `# here`."""
    lines, first = inspect.getsourcelines(function)
    [found] = [first + number for number, line in enumerate(lines) if "# here" in line]
    return found


def no_step() -> None:
    pass


def decides(url: str) -> None:
    if fetch(url):  # here
        load([])


def iterates(url: str) -> None:
    for row in fetch(url):  # here
        clean(row)


def too_many(url: str) -> None:
    fetch(url, 1, 2)  # type: ignore[call-arg]  # here


def unknown_argument(url: str) -> None:
    fetch(ulr=url)  # type: ignore[call-arg]  # here


def missing_argument() -> None:
    load()  # type: ignore[call-arg]  # here


def given_twice(url: str) -> None:
    fetch(url, url=url)  # type: ignore[misc]  # here


def two_of_one_name(url: str) -> None:
    fetch.options(name="get")(url)
    fetch.options(name="get")(url)  # here


def called_end() -> None:
    mulligan.shell("end", "true")  # here


def no_value(url: str) -> None:
    load([object()])  # type: ignore[list-item]  # here


def reference_as_a_key(url: str) -> None:
    load([{url: 1}])  # here


def looks_a_reference_up(url: str) -> None:
    load([{"a": 1}.get(url, 0)])  # here


def shows_a_reference(url: str) -> None:
    load([f"{[url]}"])  # here


def contains_itself(url: str) -> None:
    rows: list[Any] = []
    rows.append(rows)
    load(rows)  # here


def has_a_key_twice(url: str) -> None:
    load([{1: url, "1": url}])  # here


def reference_as_a_name(url: str) -> None:
    mulligan.shell(url, "true")  # here


def unknown_key(url: str) -> None:
    fetch.options(tiemout="3s")(url)  # type: ignore[call-arg]  # here


def unknown_key_of_retry(url: str) -> None:
    fetch.options(retry=Retry(max_retry=3))(url)  # type: ignore[call-arg]  # here


def key_of_retry_in_another_system(url: str) -> None:
    fetch.options(retry=Retry(attempts=3))(url)  # type: ignore[call-arg]  # here


def catches(url: str) -> None:
    try:
        rows = fetch(url)
    except ValueError:  # here
        rows = []
    load(rows)


def catches_by_options(url: str) -> None:
    try:
        mulligan.shell("a", "make")
    except mulligan.StepFailed as failed:  # here
        report(0, title=str(failed))


def cleans_up(url: str) -> None:
    try:
        fetch(url)
    finally:
        mulligan.shell("clean", "make clean")  # here


def input_is_none(url: str | None = None) -> None:
    if url is None:  # here
        url = "https://x.example"
    fetch(url)


def result_is_none(url: str) -> None:
    rows = fetch(url)
    first = rows[0]
    load(rows) if first["n"] is not None else repair(None, "x")  # type: ignore[arg-type]  # here


@flow
def inner(url: str) -> None:
    fetch(url)


def matrix_of_a_flow(url: str) -> None:
    inner.matrix([url])  # type: ignore[attr-defined]  # here


def class_among_codes(url: str) -> None:
    fetch.options(retry=Retry(codes=[ConnectionError]))(url)  # type: ignore[list-item]  # here


def exception_in_place_of_its_class(url: str) -> None:
    fetch.options(retry=Retry(exceptions=[KeyError("n")]))(url)  # type: ignore[list-item]  # here


def other_class_among_exceptions(url: str) -> None:
    fetch.options(retry=Retry(exceptions=[int]))(url)  # type: ignore[list-item]  # here


def misspelt_exception(url: str) -> None:
    fetch.options(retry=Retry(exceptions=["TimeotError"]))(url)  # here


def key_of_a_file(url: str) -> None:
    fetch.options(needs=["a"])(url)  # type: ignore[call-arg]  # here


def wrong_value(url: str) -> None:
    fetch.options(timeout="soon")(url)  # here


def after_nothing() -> None:
    report.options(after=[improve])(1)  # here


def unknown_step() -> None:
    mulligan.shell("a", "true", next="b")  # here


def condition_of_nothing() -> None:
    report.options(when=3)(1)  # here


def branch_that_was_called(url: str) -> None:
    rows = fetch(url)
    mulligan.branch(mulligan.size(rows) > 0, load(rows))  # type: ignore[call-overload]  # here


def branch_of_several_values(url: str) -> None:
    mulligan.branch(fetch(url)[0]["n"] > 0, lambda: [report(1), report(2)])  # here


def nested_groups() -> None:
    with mulligan.group("outer"), mulligan.group("inner"):  # here
        report(1)


def waits_for_nothing() -> None:
    mulligan.wait("pause")  # here


def declared_twice() -> None:
    mulligan.secret("token", env="A")
    mulligan.secret("token", env="B")  # here


def edge_without_target() -> None:
    mulligan.shell("a", "true", next={"on": "failure"})  # here


def unknown_secret() -> None:
    mulligan.shell("a", f"echo {mulligan.secret('token')}")  # here


def flow_as_a_handler(url: str) -> None:
    fetch.options(on_failure=recursive_flow)(url)  # here


@program
def nightly(failure: object) -> None: ...


def program_as_a_handler(url: str) -> None:
    fetch.options(on_failure=nightly)(url)  # here


def program_as_a_script(url: str) -> None:
    fetch.options(retry=Retry(max_retries=1, recovery_script=nightly))(url)  # here


def program_as_an_end(url: str) -> None:
    fetch(url)
    flow(no_step).end(nightly)  # here


def program_as_an_undo(url: str) -> None:
    step(fetch.fn).undo(nightly)  # here


def map_of_a_program(url: str) -> None:
    nightly.map(fetch(url))  # here


def latest_of_nothing() -> None:
    report(mulligan.latest(3))  # here


def recursive(url: str) -> None:
    recursive_flow(url)  # here


recursive_flow = flow(recursive)


@pytest.mark.parametrize(
    ("function", "code", "message", "hint"),
    [
        (
            decides,
            "reference",
            "'steps.fetch.output' has no value while the flow is built: Python cannot decide on it",
            "write step.options(when=condition)(…), or mulligan.branch(condition, lambda: …, lambda: …)",
        ),
        (
            iterates,
            "reference",
            "'steps.fetch.output' has no value while the flow is built: Python cannot iterate over it",
            "write step.map(rows) for one run of a step per item, or rows[0] for one of them",
        ),
        (too_many, "arguments", "step 'fetch' takes 1 argument (url), and 3 are given", ""),
        (unknown_argument, "arguments", "step 'fetch' has no parameter 'ulr'", "did you mean 'url'?"),
        (missing_argument, "arguments", "step 'load' is called without 'rows'", "it takes rows, table"),
        (given_twice, "arguments", "step 'fetch' gets 'url' twice", ""),
        (two_of_one_name, "duplicate_step", "there are two steps 'get': first in line ", "choose another name"),
        (called_end, "name", "a step cannot be called 'end', which runs last", "give it another name"),
        (
            no_value,
            "value",
            "a flow is built of plain values, and this value is of type 'object', which cannot be stored",
            "make it in a step: what a step returns may be of any type that can be stored",
        ),
        (
            reference_as_a_key,
            "reference",
            "'inputs.url' has no value while the flow is built: Python cannot use it as a key, or look it up",
            "make or read the mapping in a step; for several references use a list",
        ),
        (
            looks_a_reference_up,
            "reference",
            "'inputs.url' has no value while the flow is built: Python cannot use it as a key, or look it up",
            "make or read the mapping in a step; for several references use a list",
        ),
        (
            shows_a_reference,
            "reference",
            "a text contains the 'repr' of a reference, not its value",
            'write f"{rows}" for a text with it; a list or a mapping is a text in a step only',
        ),
        (contains_itself, "value", "a value is nested too deep, or contains itself", "make it in a step"),
        (
            has_a_key_twice,
            "value",
            "two keys of a mapping are the same text",
            "keys are texts: 1 and '1' are one key",
        ),
        (
            reference_as_a_name,
            "name",
            "the name of a step is a text that is known when the flow is built, not <reference to inputs.url>",
            "",
        ),
        (unknown_key, "unknown_key", "'tiemout' is not a key of step 'fetch'", "did you mean 'timeout'?"),
        *(
            (
                function,
                "meaningless",
                f"an 'except' in the flow '{function.__name__}' catches no failure: its steps run later",
                "write @STEP.handler or mulligan.route(…), or make it a @program, in which a failure is an exception",
            )
            for function in (catches, catches_by_options)
        ),
        (
            cleans_up,
            "meaningless",
            "a 'finally' in the flow 'cleans_up' runs before its steps",
            "write @cleans_up.end for what runs last, or make it a @program",
        ),
        (
            input_is_none,
            "meaningless",
            "'url' has no value while the flow 'input_is_none' is built, and is never None",
            "write step.options(when=url == None)(…), or make it a @program, which has the value",
        ),
        (
            result_is_none,
            "meaningless",
            "'first['n']' has no value while the flow 'result_is_none' is built, and is never None",
            "write step.options(when=first['n'] != None)(…), or make it a @program, which has the value",
        ),
        (
            matrix_of_a_flow,
            "flow",
            "the flow 'inner' has no 'matrix', which is for steps",
            "run it once for each item of a list: inner.map([…])",
        ),
        (
            class_among_codes,
            "type",
            "a code is a text such as 'CONNECTION', and this is the class 'ConnectionError'",
            "write exceptions=[ConnectionError]",
        ),
        (
            exception_in_place_of_its_class,
            "type",
            "'exceptions' takes classes of exceptions, and this is KeyError('n')",
            "write exceptions=[KeyError]",
        ),
        (
            other_class_among_exceptions,
            "type",
            "'exceptions' takes classes of exceptions, and this is <class 'int'>",
            "such as exceptions=[ConnectionError]",
        ),
        (
            misspelt_exception,
            "unknown_exception",
            "an entry of 'exceptions' is 'TimeotError', and Python has no exception of that name",
            "did you mean 'TimeoutError'?",
        ),
        (unknown_key_of_retry, "unknown_key", "'max_retry' is not a key of Retry", "did you mean 'max_retries'?"),
        (
            key_of_retry_in_another_system,
            "unknown_key",
            "'attempts' is not a key of Retry",
            "did you mean 'max_retries'?",
        ),
        (
            key_of_a_file,
            "unknown_key",
            "'needs' is not a key of a step in a flow",
            "write after=[…] with what other steps returned",
        ),
        (wrong_value, "type", "'timeout' is 'soon', a duration such as 30s is expected", ""),
        (
            after_nothing,
            "unknown_step",
            "'after' names a step of this flow, and 'improve' is not called before it",
            "name what a step returned",
        ),
        (unknown_step, "unknown_step", "step 'a' leads to 'b', which is not a step", ""),
        (
            condition_of_nothing,
            "type",
            "a condition is expected, and this is 3",
            "compare what a step returned: when=count > 0",
        ),
        (
            branch_that_was_called,
            "branch",
            "a branch is a function, and here a step is called already",
            "write mulligan.branch(condition, lambda: load(rows), lambda: alert())",
        ),
        (
            branch_of_several_values,
            "branch",
            "a branch returns several values",
            "let each branch return what one of its steps returned, or a plain value",
        ),
        (nested_groups, "group", "a group stands inside another one", "put the steps into one of them"),
        (waits_for_nothing, "arguments", "'pause' needs a duration, until= a time, or event= its name", ""),
        (declared_twice, "duplicate_key", "'token' is declared twice, in different ways", ""),
        (edge_without_target, "missing_key", "an edge has no target", "add 'to'"),
        (unknown_secret, "unknown_secret", "there is no secret 'token'", "declare it under 'secrets:'"),
        (
            flow_as_a_handler,
            "value",
            "a flow is built of plain values, and this value is of type 'mulligan.Flow', which cannot be stored",
            "make it in a step: what a step returns may be of any type that can be stored",
        ),
        *(
            (
                function,
                "function",
                f"{what} is a plain function, and 'nightly' is a whole workflow",
                "call it in the flow: nightly(…)",
            )
            for function, what in (
                (program_as_a_handler, "'on_failure'"),
                (program_as_a_script, "'recovery_script'"),
                (program_as_an_end, "a callback"),
                (program_as_an_undo, "a callback"),
            )
        ),
        (
            map_of_a_program,
            "program",
            "the program 'nightly' has no 'map', which is for steps",
            "call it in a program: gather(nightly.call(one) for one in …)",
        ),
        (latest_of_nothing, "reference", "mulligan.latest takes a step or its name, and this is 3", ""),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_mistake_is_refused_at_its_line(function: Any, code: str, message: str, hint: str) -> None:
    problem = refusal(function)

    assert problem.code == f"language.{code}"
    assert problem.message.startswith(message)
    assert problem.hint == hint
    assert problem.line == marked_line(function)
    assert problem.source_line.strip()


SETTING: str | None = None


def test_what_python_knows_while_a_flow_is_built_may_be_none_and_may_fail() -> None:
    @flow
    def plain(url: str):  # type: ignore[no-untyped-def]
        setting = os.environ.get("NO_SUCH_VARIABLE")
        try:
            limit = int(setting or "x")
        except ValueError:
            limit = 3
        rows = fetch(url)
        rows = None if setting is None else rows  # type: ignore[assignment]
        if SETTING is None and rows is None:
            report(limit)

    assert [step.name for step in plain.workflow().check().steps] == ["fetch", "report"]


def test_a_flow_without_steps_is_refused() -> None:
    problem = refusal(no_step)

    assert problem.message == "the flow 'no_step' calls no step"
    assert problem.hint == "call a step in it, or mulligan.shell(…)"


def test_a_flow_that_calls_itself_is_refused() -> None:
    with pytest.raises(LanguageError) as caught:
        recursive_flow.workflow()

    [problem] = caught.value.problems
    assert problem.message == "the flow 'recursive' calls itself: recursive → recursive"
    assert problem.line == marked_line(recursive)


def test_a_step_outside_a_flow_is_refused() -> None:
    with pytest.raises(LanguageError) as caught:
        fetch("x")

    [problem] = caught.value.problems
    assert problem.message == "step 'fetch' is called outside a program or a flow"
    assert problem.hint == "call it inside a @program or a @flow, or call the plain function: fetch.fn(…)"


def test_a_step_that_calls_another_step_is_told_in_one_line_what_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULLIGAN_ATTEMPT", "1")

    with pytest.raises(RuntimeError) as caught:
        fetch("x")

    assert str(caught.value) == "step 'fetch' is called inside a step; call the plain function: fetch.fn(…)"


@step(tiemout="1m")  # type: ignore[call-overload, untyped-decorator]  # here
def misspelled(url: str) -> str:
    return url


def calls_misspelled(url: str) -> None:
    misspelled(url)


def test_an_unknown_key_is_refused_where_it_is_written() -> None:
    problem = refusal(calls_misspelled)

    assert problem.message == "'tiemout' is not a key of step 'misspelled'"
    assert problem.line == marked_line(misspelled.fn)
    assert problem.source_line[problem.column - 1 :].startswith("tiemout")


@pytest.mark.parametrize(
    "call",
    [
        lambda: mulligan.shell("a", "true"),
        lambda: mulligan.branch(True, lambda: 1),
        lambda: mulligan.secret("a", env="A"),
        lambda: mulligan.group("a"),
        lambda: load.map([[{}]]),
        lambda: mulligan.latest(load),
        lambda: mulligan.route("a", "b"),
    ],
    ids=["shell", "branch", "secret", "group", "map", "latest", "route"],
)
def test_what_belongs_into_a_flow_is_refused_outside(call: Callable[[], Any]) -> None:
    with pytest.raises(LanguageError) as caught:
        call()

    [problem] = caught.value.problems
    assert problem.message.endswith("is called outside a flow")
    assert problem.hint == "call it inside a @flow"


def test_a_flow_that_is_called_like_a_function_is_refused() -> None:
    made = flow(no_step)

    with pytest.raises(LanguageError) as caught:
        made()

    [problem] = caught.value.problems
    assert problem.message == "the flow 'no_step' is called like a function"
    assert problem.hint == "write no_step.run(…), or call it inside a flow or a program"


async def asynchronous() -> None: ...


def generating() -> Any:
    yield 1


class Tool:
    def method(self, url: str) -> str:
        return url


@pytest.mark.parametrize(
    ("decorate", "message"),
    [
        (lambda: flow(asynchronous), "the flow 'asynchronous' is async or a generator"),
        (lambda: flow(generating), "the flow 'generating' is async or a generator"),
        (lambda: flow(3), "a flow is a function, and this is a int"),  # type: ignore[call-overload]
        (lambda: step(3), "a step is a function, and this is a int"),  # type: ignore[call-overload]
        (lambda: step(functools.partial(print, 1)), "a step is a function, and this is a partial"),
        (lambda: step(fetch), "'fetch' is a step already"),
    ],
    ids=["async", "generator", "no-flow", "no-step", "partial", "twice"],
)
def test_what_is_no_function_is_refused(decorate: Callable[[], Any], message: str) -> None:
    with pytest.raises(LanguageError) as caught:
        decorate()

    assert caught.value.problems[0].message == message


def build_with(made: Any, *args: Any) -> None:
    @flow
    def only() -> None:
        made(*args)

    only.workflow()


def takes_more(*urls: str) -> None: ...


def takes_position(url: str, /) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (takes_more, "step 'takes_more' has the parameter '*urls'"),
        (takes_position, "step 'takes_position' has the parameter 'url, /'"),
        (Tool.method, "step 'method' is a method, and no object travels to a worker"),
        (lambda: 3, "a lambda cannot be a step"),
    ],
    ids=["args", "positional", "method", "lambda"],
)
def test_a_function_that_no_worker_can_call_is_refused(function: Any, message: str) -> None:
    with pytest.raises(LanguageError) as caught:
        build_with(step(function))

    assert caught.value.problems[0].message == message


def test_a_function_inside_another_is_refused() -> None:
    @step
    def inside() -> None: ...

    with pytest.raises(LanguageError) as caught:
        build_with(inside)

    [problem] = caught.value.problems
    assert problem.message.startswith("workers cannot import 'test_a_function_inside_another_is_refused.")
    assert problem.hint.startswith("move it to the top of the module")


def wants_more(failure: Any, nobody: Any, else_: Any) -> None: ...


def test_a_handler_with_a_parameter_of_no_known_value_is_refused() -> None:
    guarded = step(report.fn)
    guarded.handler(wants_more)

    with pytest.raises(LanguageError) as caught:
        build_with(guarded, 1)

    [problem] = caught.value.problems
    assert problem.message == "'on_failure' 'wants_more' has the parameter 'nobody', and there is no value of that name"
    assert problem.hint == "there are count"


def test_two_handlers_of_a_step_are_refused() -> None:
    @step
    def guarded(url: str) -> None: ...

    guarded.handler(wants_more)

    with pytest.raises(LanguageError, match="step 'guarded' has two handlers: 'wants_more' and 'wants_more'"):
        guarded.handler(wants_more)
    guarded.undo(wants_more)
    with pytest.raises(LanguageError, match="step 'guarded' has two undos: 'wants_more' and 'wants_more'"):
        guarded.undo(wants_more)


def test_a_handler_beside_on_failure_is_refused() -> None:
    guarded = step(on_failure="./alert.sh")(report.fn)
    guarded.handler(repair.fn)

    with pytest.raises(LanguageError) as caught:
        build_with(guarded, 1)

    assert caught.value.problems[0].message == "step 'report' has 'on_failure' and the function 'repair'"


def test_two_ends_of_a_flow_are_refused() -> None:
    made = flow(no_step)
    made.end(shell="true")

    with pytest.raises(LanguageError, match="the flow 'no_step' has two ends"):
        made.end(shell="false")


def test_all_problems_of_a_flow_are_reported_at_once() -> None:
    @flow
    def several(url: str) -> None:
        fetch.options(tiemout="3s")(url)  # type: ignore[call-arg]
        mulligan.shell("a", "echo ${inputs.ulr}", retry=Retry(max_retries=-1))
        mulligan.shell("b", "true", next="c")

    with pytest.raises(LanguageError) as caught:
        several.workflow().check()

    codes = [problem.code.partition(".")[2] for problem in caught.value.problems]
    assert codes == ["unknown_key", "type", "unknown_input", "unknown_step"]


def test_a_mistake_in_a_child_flow_points_into_the_child() -> None:
    @flow
    def child() -> None:
        mulligan.shell("a", "true", next="b")  # here

    @flow
    def parent() -> None:
        child()

    with pytest.raises(LanguageError) as caught:
        parent.workflow().check()

    [problem] = caught.value.problems
    assert (problem.code, problem.line) == ("language.unknown_step", marked_line(child.fn))


def test_a_child_flow_gets_wrong_inputs() -> None:
    @flow
    def child(n: int) -> None:
        mulligan.shell("a", f"echo {n}")

    @flow
    def missing() -> None:
        child()  # type: ignore[call-arg]

    @flow
    def mistyped() -> None:
        child("three")  # type: ignore[arg-type]

    with pytest.raises(LanguageError, match="flow 'child' is called without 'n'"):
        missing.workflow()
    with pytest.raises(LanguageError, match="input 'n' of 'flow:child' is not of its type, integer"):
        mistyped.workflow().check()


def test_routes_in_a_circle_end_at_the_step_where_they_began() -> None:
    first, second = step(deploy.fn), step(repair.fn)
    first.on_failure(second, then="rerun")
    second.on_failure(first)

    @flow
    def circle(image: str) -> None:
        first(image)

    steps = circle.workflow().check().steps
    edges = [(one.name, [edge.to for edge in one.edges]) for one in steps]

    assert edges == [("deploy", ["repair"]), ("repair", ["deploy"])]


def test_a_reference_of_another_flow_is_refused() -> None:
    made: list[Any] = []

    @mulligan.flow
    def first(url: str) -> None:
        made.append(fetch(url))

    @mulligan.flow
    def second(url: str) -> None:
        fetch("other")
        load(made[0])

    first.workflow()
    with pytest.raises(LanguageError, match=r"'steps\.fetch\.output' belongs to the flow 'first'"):
        second.workflow()

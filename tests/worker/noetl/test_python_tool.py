"""Python code of a playbook: four ways to write it, what it finds, and how it fails."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from tests.support.work import Work

from .asking import python, reported, result

RETURNS_AMIDST = """
total = 0
for n in numbers:
    if n < 0:
        return 'negative'
    total = total + n
numbers = numbers + [total]
return numbers
"""


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("result = {'x': n + 1}", {"x": 2}),
        ("def main(n):\n    return n + 1", 2),
        ("async def main(n):\n    return n + 1", 2),
        ("return n + 1", 2),
        ("result = input_data['n'] + 1", 2),
        ("def main(input_data):\n    return input_data['n']", 1),
        # what it did not say is a word of success
        ("x = n", {"status": "success"}),
        # a function may have a return of its own
        ("def f():\n    return 3\nresult = f()", 3),
        # by name: of the input, of the context, by default, and the rest
        ("def main(n, name, size=3, **more):\n    return [n, name, size, more]", [1, "O'Brien", 3, {"extra": [5]}]),
        ("def main(context):\n    return context['workload']['name']", "O'Brien"),
        ("result = context['ctx']['name']", "O'Brien"),
        # a text that looks like a list is one
        ("result = extra", [5]),
        # what is no JSON is made one
        (
            "result = {'at': datetime.date(2026, 1, 2), 'set': {1}, 'bytes': b'a', 3: None}",
            {"at": "2026-01-02", "set": [1], "bytes": "YQ==", "3": None},
        ),
        ("result = deep_merge({'a': {'b': 1}}, {'a': {'c': 2}})", {"a": {"b": 1, "c": 2}}),
        ("result = get_val({'a': {'b': 1}}, 'a.b')", 1),
        ("import sys\nsys.exit()", {"status": "success"}),
    ],
)
def test_code_gives_a_result(code: str, value: Any) -> None:
    given = {"n": "{{ 0 + 1 }}", "extra": "[5]"}

    assert result(name="a", tool=python(code), input=given, workload={"name": "O'Brien"}) == value


@pytest.mark.parametrize(("numbers", "value"), [([1, 2], [1, 2, 3]), ([1, -2], "negative")])
def test_a_return_outside_of_functions_ends_the_code_wherever_it_stands(numbers: list[int], value: Any) -> None:
    assert result(tool=python(RETURNS_AMIDST, args={"numbers": numbers})) == value


def test_the_input_of_the_tool_wins_over_its_args_and_those_over_the_steps() -> None:
    tool = python("result = [a, b, c]", args={"b": 2, "c": 2}, input={"c": 3})

    assert result(tool=tool, input={"a": 1, "b": 1, "c": 1}) == [1, 2, 3]


def test_code_knows_nothing_of_steps_that_have_not_run() -> None:
    code = "def main(context, later='none'):\n    return [later, 'later' in context, 'later' in context['steps']]"

    assert result(tool=python(code), seen={"later": None}) == ["none", False, False]


def test_a_template_in_code_is_python() -> None:
    assert result(tool=python("x = 1\nresult = f'{{ {x} }}'")) == "{ 1 }"


def test_code_may_be_in_base64_or_in_a_file(tmp_path: Path) -> None:
    script = tmp_path / "code.py"
    script.write_text("result = 'é'")
    packed = base64.b64encode("result = 'é'".encode()).decode()

    assert result(tool={"kind": "python", "code_b64": packed}) == "é"
    assert result(tool={"kind": "python", "script": {"uri": "{{ file }}"}, "args": {"file": str(script)}}) == "é"
    assert result(tool={"kind": "python", "script": {"source": {"type": "inline", "code": "result = 1"}}}) == 1


def test_libraries_have_the_names_that_they_are_given() -> None:
    tool = python(
        "result = [m.floor(1.5), OD(a=1)]", libs={"m": "math", "OD": {"from": "collections", "import": "OrderedDict"}}
    )

    assert result(tool=tool) == [1, {"a": 1}]


def test_libraries_in_a_list_have_their_own_names() -> None:
    code = "result = [math.floor(1.5), os.path.basename('a/b'), m.ceil(1.5)]"

    assert result(tool=python(code, libs=["math", "os.path", {"m": "math"}])) == [1, "b", 2]
    assert result(tool=python("result = math.floor(1.5)", libs="math")) == 1


def invalid(message: str) -> dict[str, Any]:
    details = {"kind": "schema", "code": "INPUT_INVALID", "source": "python", "retryable": False}
    return {"code": "INPUT_INVALID", "message": message, "retryable": False, "details": details}


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        (python(""), "the tool 'python' has no code"),
        ({"kind": "python"}, "the tool 'python' has no code"),
        (python("x = 1\ndef f(:"), "the Python code is invalid in line 2: invalid syntax"),
        (python("\0"), "the Python code is invalid: source code string cannot contain null bytes"),
        ({"kind": "python", "code_b64": "?"}, "'code_b64' is not text in base64"),
        (
            {"kind": "python", "script": "/nowhere.py"},
            "the script '/nowhere.py' cannot be read: no such file or directory",
        ),
        (
            python("def main(who):\n    pass"),
            "main(…) has a parameter 'who' that is neither in its input nor in the context",
        ),
        (python("def main(*all):\n    pass"), "main(…) has '*all', but values are passed by name"),
        (python("1", libs={"x": "nowhere.x"}), "the code needs 'nowhere.x', which this worker does not have"),
        (python("1", libs=["nowhere"]), "the code needs 'nowhere', which this worker does not have"),
        (python("1", libs=[5]), "'libs' has 5, the name of a module is expected"),
        (python("1", auth="aws"), "there is no credential 'aws' for this step"),
    ],
)
def test_a_tool_that_cannot_run_is_refused(tool: dict[str, Any], message: str) -> None:
    report = reported(tool=tool)

    if "null bytes" in message:  # how Python says it differs between versions
        assert report["message"].startswith("the Python code is invalid")
    else:
        assert report == invalid(message)


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        ("raise ValueError('odd')", "ValueError: odd", "unknown"),
        ("raise KeyError('k')", "KeyError: 'k'", "transform"),
        ("[][1]", "IndexError: list index out of range", "transform"),
        ("json.loads('{')", "JSONDecodeError: Expecting property name", "parse"),
        ("open('/nowhere')", "FileNotFoundError: [Errno 2] No such file", "not_found"),
        ("raise ConnectionResetError('gone')", "ConnectionResetError: gone", "connection"),
        ("raise TimeoutError", "TimeoutError", "timeout"),
        ("raise PermissionError('no')", "PermissionError: no", "storage_access"),
        ("raise OSError(28, 'full')", "OSError: [Errno 28] full", "storage_quota"),
    ],
)
def test_what_code_raises_is_an_exception_of_a_kind(code: str, message: str, kind: str) -> None:
    report = reported(tool=python(code))

    assert report["code"] == "EXCEPTION"
    assert message in report["message"]
    assert (report["details"]["kind"], report["details"]["source"]) == (kind, "python")


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ({"status": "error", "error": "no such user"}, "no such user"),
        ({"status": "FAILED", "message": "too late"}, "too late"),
        ({"status": "failed", "error": {"n": 1}}, '{"n": 1}'),
        ({"status": "failed"}, "the code returned the status 'failed'"),
    ],
)
def test_a_status_that_says_so_is_a_failure(returned: dict[str, Any], message: str) -> None:
    report = reported(tool=python(f"result = {returned!r}"))

    assert (report["code"], report["message"], report["details"]["data"]) == ("EXCEPTION", message, returned)


def test_code_that_leaves_with_a_status_fails_with_it() -> None:
    report = reported(tool=python("import sys\nsys.exit(3)"))

    assert (report["code"], report["details"]["exit_code"]) == ("EXIT_NONZERO", 3)


def test_the_trace_of_a_failure_shows_the_lines_of_the_playbook_and_none_of_ours(work: Work) -> None:
    call = "mulligan.formats.noetl.runtime:run"
    args = {"name": "sum", "tool": python("def f():\n    return 1 / 0\n\nresult = f()")}

    report = work.run(work.lease("noetl", {"call": call, "package": "mulligan", "args": args}))

    lines = [line for line in report.outcome.trace.splitlines() if line.strip(" ^~")]
    assert lines == [
        "Traceback (most recent call last):",
        '  File "<step sum>", line 4, in <module>',
        "    result = f()",
        '  File "<step sum>", line 2, in f',
        "    return 1 / 0",
        "mulligan.StepError: ZeroDivisionError: division by zero",
    ]


def test_a_run_that_was_stored_with_the_former_name_of_the_function_still_runs(work: Work) -> None:
    call = "mulligan.worker.actions.noetl:run"

    report = work.run(
        work.lease("noetl", {"call": call, "package": "mulligan", "args": {"tool": python("result = 1")}})
    )

    assert report.output["result"] == 1


def test_a_credential_of_a_cloud_is_in_the_environment_of_the_code(work: Work) -> None:
    call = "mulligan.formats.noetl.runtime:run"
    auth = {"aws": '{"access_key_id": "AKIA", "secret_access_key": "s3cret"}'}
    args = {"tool": python("result = len(os.environ['AWS_SECRET_ACCESS_KEY'])", auth="aws"), "auth": auth}

    report = work.run(work.lease("noetl", {"call": call, "package": "mulligan", "args": args}))

    assert report.output["result"] == 6

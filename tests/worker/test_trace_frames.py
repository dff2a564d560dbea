"""The frames of an exception as data, and the local variables in them, whatever their classes do."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.work import Work

from mulligan.core.model.failure import FRAMES_MAX, bounded_traceback
from mulligan.step_context.trace_frames import HIDDEN, LOCAL_CHARS_MAX, Values, frames_of
from mulligan.worker.child.warm_child import Debugging

SECRET = "hunter2&co-never-told"


class Raises:
    def __repr__(self) -> str:
        raise SystemExit("no")


class Blocks:
    def __repr__(self) -> str:
        while True:
            try:
                while True:
                    pass
            except Exception:
                continue


class Lies:
    def __repr__(self) -> Any:
        return 7


class Long:
    def __repr__(self) -> str:
        return "x" * 1_000_000


def raised(function: Any, *values: Any) -> BaseException:
    with pytest.raises(BaseException) as caught:
        function(*values)
    return caught.value


def locals_of(**variables: Any) -> dict[str, str]:
    namespace: dict[str, Any] = dict(variables)
    code = f"def fail({', '.join(variables)}):\n  raise ValueError"
    exec(code, namespace)
    return frames_of(raised(namespace["fail"], *variables.values()), "", "", has_locals=True)[-1]["locals"]


def test_a_frame_has_file_line_function_and_text():
    def outer() -> None:
        raise ValueError("no")

    frame = frames_of(raised(outer), "", "")[-1]

    assert frame["file"] == __file__
    assert frame["text"] == 'raise ValueError("no")'
    assert frame["function"].endswith("outer")
    assert "locals" not in frame


def test_an_endless_recursion_keeps_its_outermost_and_innermost_frames():
    def again(number: int) -> None:
        again(number + 1)

    found = frames_of(raised(again, 0), "", "", has_locals=True)

    assert len(found) == FRAMES_MAX
    assert found[0]["function"].endswith("raised")


@pytest.mark.parametrize("kind", [Raises, Lies])
def test_a_class_that_cannot_show_itself_breaks_nothing(kind: type):
    assert locals_of(value=kind()) == {"value": f"<{kind.__name__}>: it cannot be shown"}


def test_a_class_that_never_ends_is_left_after_its_time():
    assert Values(seconds=0.01)._show(Blocks(), 0) == "<Blocks>: it cannot be shown"


def test_what_is_long_is_cut_at_its_end_and_never_within():
    found = locals_of(top="a" * 5000, inner=["a" * 5000], long=Long(), many=list(range(100_000)))

    assert found["top"] == f"'{'a' * (LOCAL_CHARS_MAX - 1)}…"
    assert found["inner"] == "[str of 5000]"
    assert found["long"] == f"{'x' * LOCAL_CHARS_MAX}…"
    assert found["many"] == "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, … 100000 in all]"


def test_a_value_that_holds_itself_ends():
    loop: list[Any] = []
    loop.append(loop)

    assert locals_of(loop=loop) == {"loop": "[[[[… 1 in all]]]]"}


def test_what_is_called_a_secret_is_hidden():
    found = locals_of(api_key="abc", given={"password": "abc", "user": "ada"})

    assert found == {"api_key": HIDDEN, "given": f"{{'password': {HIDDEN}, 'user': 'ada'}}"}


def test_a_process_that_says_anything_as_its_frames_is_bounded():
    said: list[Any] = [None, 7, {"file": 3, "line": -1, "locals": {"a": 1, "b": "x" * 10_000}}, *[{"text": "x"}] * 99]

    found = bounded_traceback(said)

    assert len(found) == FRAMES_MAX
    assert found[-1] == {"file": "", "line": 0, "function": "", "text": "x"}
    (alone,) = bounded_traceback(said[:3])
    assert alone["line"] == 0
    assert alone["locals"]["a"] == ""
    assert len(alone["locals"]["b"]) <= LOCAL_CHARS_MAX + 1


def test_a_secret_is_in_no_variable_that_a_failure_keeps(tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    from mulligan.core.model.workflow import Secret

    monkeypatch.setenv("DEPLOY_TOKEN", SECRET)
    work = Work(tmp_path, debugging=Debugging(locals=True))
    code = "import os\ndef main():\n  seen = os.environ['TOKEN']; padded = 'x' * 290 + seen; {}['rows']"
    late = {"env.TOKEN": [{"secret": "secrets.token"}]}
    lease = work.python(code, secrets={"token": Secret(env="DEPLOY_TOKEN")}, late=late)

    outcome = work.run(lease).outcome
    work.close()

    (frame,) = outcome.traceback
    assert (frame["file"], frame["line"], frame["function"]) == (f"<step {lease.task.step}>", 3, "main")
    assert frame["locals"]["seen"] == "'***'"
    assert "hunt" not in str(outcome)

"""A module with steps is imported by workers, also under an interpreter that has nothing of ours installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
_PROGRAM = """
import sys
sys.path[:0] = [{src!r}, {here!r}]
import plain_steps
heavy = {{"msgspec", "asyncio", "typing", "inspect", "dataclasses", "yaml"}} & set(sys.modules)
print(plain_steps.fetch.fn("x"), plain_steps.cached.__mulligan_function__(failure={{"code": "X"}}), sorted(heavy))
try:
    plain_steps.fetch("x")
except RuntimeError as error:
    print(error)
"""
_STEPS = """
from mulligan import Rejected, Retry, StepFailed, flow, gather, now, program, sleep, step

@step(retry=Retry(codes=["CONNECTION"]), timeout="1m")
def fetch(url: str) -> str:
    return url

@fetch.handler
def cached(failure):
    return failure["code"]

@program(deadline="1h")
def daily(url: str):
    try:
        return gather(fetch.call(one) for one in [url])
    except StepFailed:
        sleep("1h")

@flow(timeout="1h")
def nightly(url: str):
    return fetch(url)
"""


def test_a_module_with_steps_needs_the_standard_library_alone_and_little_of_it(tmp_path: Path) -> None:
    (tmp_path / "plain_steps.py").write_text(_STEPS, encoding="utf-8")

    program = _PROGRAM.format(src=str(SRC), here=str(tmp_path))
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)

    # `inspect` and the language are loaded when a flow is built, and a step builds none.
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "x X []",
        "step 'fetch' is called outside a program or a flow; "
        "call it inside a @program or a @flow, or call the plain function: fetch.fn(…)",
    ]


def test_the_process_that_forks_programs_imports_nothing_that_most_programs_do_not_need() -> None:
    program = f"""import sys
sys.path[:0] = [{str(SRC)!r}, *sys.argv[1:]]
import mulligan.programs.host
heavy = ("inspect", "ast", "dis", "traceback", "asyncio", "typing_extensions", "platform", "mulligan.language")
print([name for name in heavy if name in sys.modules])"""
    found = [path for path in sys.path if path.endswith("site-packages")]

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, *found], capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_completion_and_help_see_every_public_name_before_its_first_use() -> None:
    program = "import mulligan, sys; print({*mulligan.__all__} < {*dir(mulligan)}, 'mulligan.flows' in sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env={"PYTHONPATH": str(SRC)}
    )

    assert done.stdout.split() == ["True", "False"]

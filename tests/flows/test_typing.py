"""Types flow through a program: mypy is strict with one that uses the whole face, and refuses wrong ones."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("typed_program.py")
# Each line with a comment has exactly the errors that it names.
WRONG = """
from mulligan import Retry, flow, shell, step

@step
def fetch(url: str) -> list[dict[str, int]]:
    return []

@step
def load(count: int) -> int:
    return count

@step
async def later(url: str) -> str:
    return url

@step(timeot="1m")  # error: call-overload untyped-decorator
def typo() -> None: ...

Retry(max_retry=3)  # error: call-arg

@flow(order="random")  # error: call-overload untyped-decorator
def ordered() -> None: ...

@flow
def nightly(url: str) -> None:
    rows = fetch(url)
    load(rows)  # error: arg-type
    load(rows[0]["n"])
    fetch(3)  # error: arg-type
    fetch()  # error: call-arg
    fetch(url, 1)  # error: call-arg
    load(later(url))  # error: arg-type
    load.map(3)  # error: arg-type
    load.map(rows, on_item_failure="ignore")  # error: arg-type
    load.options(retries=3)(1)  # error: call-arg
    shell("a", "true", capture="yaml")  # error: arg-type

nightly.run(3)  # error: arg-type
nightly.run(url="u").statsu  # error: attr-defined
fetch.fn(url=3)  # error: arg-type
"""


@pytest.mark.nightly
def test_types_flow_through_a_program_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong_program.py"
    wrong.write_text(WRONG, encoding="utf-8")

    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context"]
    done = subprocess.run([*command, str(PROGRAM), str(wrong)], cwd=ROOT, capture_output=True, text=True, check=False)

    found = re.findall(r"^(.*?):(\d+): error: .*?\[([\w-]+)\]$", done.stdout, re.MULTILINE)
    # With a cache, mypy names the folder in which it saw the same file first.
    assert [one for one in found if Path(one[0]).name != wrong.name] == [], done.stdout
    expected = [
        (number, code)
        for number, line in enumerate(WRONG.split("\n"), 1)
        for code in line.partition("# error: ")[2].split()
    ]
    assert [(int(line), code) for _, line, code in found] == expected, done.stdout
    assert done.stderr == ""

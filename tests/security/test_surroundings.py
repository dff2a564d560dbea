"""What a step finds around it is what it was given: nothing of the engine's, nothing of whoever started that."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.web import response, serving
from tests.support.work import Work

from .outside import Outside

# The descriptors of a process: what each of them is.
DESCRIPTORS = """
import os
def main():
    found = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return [os.readlink(path) for path in found if os.path.lexists(path)]
"""
LISTED = "for fd in /proc/$$/fd/*; do readlink $fd || true; done"
# Modules that ours need, some at once, some when a step of that kind comes, some when something fails.
WANTED = (
    "apsw asyncio httpx2 idna json msgspec select signal socket sqlite3 ssl tokenize traceback typing urllib".split()
)


ENVIRONMENTS = "import os, subprocess\ndef main(): return [str(os.environ), subprocess.getoutput('env')]"


def kinds(descriptors: list[str]) -> set[str]:
    """Of each what it is: its logs may have been given their names meanwhile."""
    return {re.sub(r".*/|.*\.(?=(?:out|err)$)|\d+", "", path) for path in descriptors}


@pytest.fixture
def _store_with_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULLIGAN_STORE", "postgresql://mulligan:very-secret@db.example/runs")


@pytest.fixture
def _handed_on() -> Iterator[None]:
    """Whoever starts us has a descriptor open, and hands it on."""
    fd = os.open("/", os.O_RDONLY)
    os.set_inheritable(fd, True)
    yield
    os.close(fd)


@pytest.fixture
def work(_handed_on: None, tmp_path: Path) -> Iterator[Work]:
    found = Work(tmp_path)
    yield found
    found.close()


def test_a_command_has_no_descriptor_but_its_three(work: Work) -> None:
    done = work.run_shell(LISTED, capture="lines")

    assert done.outcome.exit_code == 0
    assert kinds(done.output) == {"null", "out", "err"}


def test_a_python_step_has_none_of_the_engines_but_the_one_over_which_it_was_told_what_to_do(work: Work) -> None:
    done = work.run_python(DESCRIPTORS)

    assert kinds(done.output) == {"null", "out", "err", "socket:[]", "clear_refs"}


def test_what_a_python_step_starts_has_no_descriptor_but_its_three(work: Work) -> None:
    code = f"import subprocess\ndef main(): return subprocess.getoutput({LISTED!r}).split()"

    done = work.run_python(code)

    assert kinds(done.output) == {"null", "pipe:[]"}


def test_no_step_is_told_where_the_store_is(_store_with_a_password: None, work: Work) -> None:
    told = [work.run_shell("env").output, work.run_python(ENVIRONMENTS).output]

    assert "PATH=" in told[0]
    assert "very-secret" not in str(told)


def test_a_step_may_be_given_the_store_by_who_wants_that(work: Work) -> None:
    done = work.run_shell("echo $MULLIGAN_STORE", env={"MULLIGAN_STORE": "runs.db"})

    assert done.output == "runs.db"


def test_nothing_of_ours_is_imported_from_the_folder_of_the_run(outside: Outside) -> None:
    for name in WANTED:
        outside.write(f"{name}.py", f"open({str(outside.folder)!r} + '/hijacked', 'a').write('{name} ')")

    with serving(response()) as web:
        ran = outside.ran(
            f"""
            name: hijack
            steps:
              - {{step: command, shell: "true"}}
              - {{step: asks, http: {{url: "{web.url}/"}}}}
              - {{step: looks_up, sql: {{connection: "sqlite:///own.db", query: select 1 as one}}}}
              - {{step: waits, python: "async def main(): return 1"}}
              - {{step: raises, python: "def main(): return 1 / 0", continue_on_error: true}}
            """
        )

    assert {name: step["status"] for name, step in ran["steps"].items()} == {
        **dict.fromkeys(("command", "asks", "looks_up", "waits"), "completed"),
        "raises": "failed",
    }
    assert not (outside.folder / "hijacked").exists()


def test_a_python_step_imports_its_own_modules_from_there_all_the_same(outside: Outside) -> None:
    outside.write("ours.py", "ANSWER = 42")

    ran = outside.ran("steps: [{step: one, python: 'import ours\n\n\ndef main(): return ours.ANSWER'}]")

    assert ran["steps"]["one"]["output"] == 42


def test_no_secret_is_a_word_of_a_command_line(outside: Outside) -> None:
    # No other process of this machine knows it, and each command line is a line of its own in what is found.
    token = uuid.uuid4().hex
    ran = outside.ran(
        """
        name: words
        secrets: {token: {env: TOKEN}}
        steps:
          - step: looks
            shell: |
              for file in /proc/[0-9]*/cmdline; do { tr '\\0' ' ' < $file; echo; } >> words 2> /dev/null || true; done
              test "$MINE" = "${secrets.token}"
            env: {MINE: "${secrets.token}"}
          - step: warm
            python: |
              import glob, pathlib
              def main(mine):
                  for path in glob.glob("/proc/[0-9]*/cmdline"):
                      try:
                          words = pathlib.Path(path).read_bytes()
                      except OSError:
                          continue
                      with open("words", "ab") as file:
                          file.write(words + b"\\n")
                  return len(mine)
            args: {mine: "${secrets.token}"}
            needs: [looks]
        """,
        TOKEN=token,
    )

    words = (outside.folder / "words").read_text(encoding="utf-8", errors="replace")
    assert (ran["status"], ran["steps"]["warm"]["output"]) == ("completed", len(token))
    assert "mulligan.worker.supervisor.supervisor" in words
    assert [line for line in words.splitlines() if token in line] == []

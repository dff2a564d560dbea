"""`mulligan coverage`: what a workflow does about failures, before any of them has happened."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.commands import mulligan, workflow

pytestmark = pytest.mark.usefixtures("folder")

NIGHTLY = """\
name: nightly
steps:
  - step: fetch
    shell: touch ran; ./fetch.sh
    timeout: 1m
    retry: {max_retries: 2, delay: 30s}
  - step: load
    needs: [fetch]
    shell: ./load.sh
    triage: true
"""
TORC = "name: two\njobs:\n  - name: first\n    command: touch ran\n"


def test_the_table_says_what_happens_to_each_step_and_nothing_is_run():
    said = mulligan("coverage", workflow(NIGHTLY))

    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("nightly: 4 of 11 failures are dealt with; 3 wait for a person; 4 fail the run\n")
    assert "\nfetch  ✓✗ ✓✗ ✓✗ ✓✗ " in said.out or "\nfetch  ✓✗ fails" in said.out
    assert re.search(r"worst case: \dm\d\ds of delays and timeouts, if 'fetch' fails with WORKER_LOST every", said.out)
    assert said.out.endswith("coverage: 36%\n")
    assert not Path("ran").exists()
    assert not Path(".mulligan").exists()


def test_ci_is_stopped_below_a_percentage():
    file = workflow(NIGHTLY)

    assert mulligan("coverage", file, "--min", 36).code == 0
    below = mulligan("coverage", file, "--min", 37)

    assert below.code == 1
    assert below.err == "36% of the failures are dealt with or accepted, and --min asks for 37%\n"


def test_a_failure_that_the_file_accepts_counts():
    accepted = NIGHTLY.replace(
        "  - step: load", "  # coverage: accept any because a person looks at it\n  - step: load"
    )

    assert mulligan("coverage", workflow(accepted), "--min", 63).code == 0
    assert "3 wait for a person; 4 fail the run (3 of these 7 are accepted)" in mulligan("coverage", "flow.yaml").out


def test_one_step_and_one_failure_are_a_story():
    file = workflow(NIGHTLY)

    always = mulligan("coverage", file, "--step", "fetch", "--failure", "TIMEOUT")
    once = mulligan("coverage", file, "--step", "fetch", "--failure", "TIMEOUT", "--times", "once")

    assert always.out.splitlines()[0] == "'fetch' fails with TIMEOUT every time"
    assert "  +60s  fetch  attempt 1 failed with TIMEOUT after 60s" in always.out
    assert always.out.splitlines()[-1] == "the run failed: nothing dealt with it; 3 attempts, up to 4m00s"
    assert once.out.splitlines()[-1] == "the run completed: a retry dealt with it; 2 attempts, up to 90s"


def test_one_step_alone_or_one_failure_alone_narrows_the_table():
    file = workflow(NIGHTLY)

    assert "load" not in mulligan("coverage", file, "--step", "fetch").out.partition("\n\n")[2]
    assert mulligan("coverage", file, "--failure", "TIMEOUT").out.startswith("nightly: 0 of 1 failure is dealt with")


def test_json_has_the_figures_and_every_case():
    found = mulligan("coverage", workflow(NIGHTLY), "--json").json
    story = mulligan("coverage", "flow.yaml", "--step", "load", "--failure", "EXIT_NONZERO", "--json").json

    assert (found["figures"]["percent"], found["figures"]["total"]) == (36, len(found["cells"]))
    assert {case["times"] for cell in found["cells"] for case in cell["cases"]} == {"once", "twice", "always"}
    assert (story["case"]["verdict"], story["kind"]["name"]) == ("parked", "EXIT_NONZERO")
    assert story["story"][-1]["text"]


def test_html_is_written_as_one_file_and_the_table_is_still_shown():
    said = mulligan("coverage", workflow(NIGHTLY), "--html", "out.html")
    piped = mulligan("coverage", "flow.yaml", "--html", "-")

    page = Path("out.html").read_text(encoding="utf-8")
    assert said.err == "wrote out.html\n"
    assert "coverage: 36%" in said.out
    assert piped.out == page
    assert "attempt 3 failed with TIMEOUT after 60s" in page


def test_a_file_of_another_system_is_played_as_it_is():
    said = mulligan("coverage", workflow(TORC, "two.yaml"))

    assert said.code == 0
    assert said.out.startswith("two: 2 of 5 failures are dealt with; 3 fail the run")
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["--step", "fetc"], "'fetc' is not a step of workflow 'nightly'", "did you mean 'fetch'?"),
        (["--step", "fetc", "--failure", "TIMEOUT"], "'fetc' is not a step", "did you mean 'fetch'?"),
        (["--step", "load", "--failure", "TIMEOUT"], "step 'load' cannot fail with 'TIMEOUT'", "EXIT_NONZERO, "),
        (["--failure", "FLOOD"], "no step can fail with 'FLOOD'", "TIMEOUT"),
        (["--min", "200"], "--min must be a percentage, not 200", "from 0 to 100"),
        (["--min", "many"], "--min must be a whole number, not 'many'", "--help"),
        (["--times", "once"], "--times needs one step and one failure", "--step and --failure"),
        (["--step", "load", "--failure", "kill", "--times", "often"], "'often' is not known", "once, twice or always"),
        (["--step", "load", "--min", "9"], "--min is about the whole workflow", "leave --step"),
        (["--step", "load", "--html", "x"], "--html writes the whole workflow", "leave --step"),
        (["--html", "no/such/folder.html"], "'no/such/folder.html' cannot be written", ""),
        (["-i", "day=1"], "'day'", ""),
    ],
)
def test_what_cannot_be_answered_is_refused_with_what_to_do(words: list[str], message: str, hint: str):
    said = mulligan("coverage", workflow(NIGHTLY), *words)

    assert (said.code, said.out) == (2, "")
    assert message in said.err
    assert hint in said.err
    assert "Traceback" not in said.err


def test_a_file_that_is_missing_or_wrong_is_refused():
    assert mulligan("coverage", "no.yaml").err == "error[language.unreadable]: no.yaml: there is no such file\n"
    assert "error[language.unknown_key]" in mulligan("coverage", workflow("steps: [{step: a, shel: b}]")).err


PROGRAM = """\
from mulligan import StepFailed, program, step


@step
def load(part: int) -> int: ...


@step
def page(text: str) -> str: ...


@program
def nightly():
    try:
        return load(1)
    except StepFailed as failed:
        return page(failed.code)
"""


def test_a_program_is_rehearsed_and_what_has_no_fake_is_unknown():
    Path("nightly.py").write_text(PROGRAM)
    Path("fakes.yaml").write_text("load: {output: 1}\n")
    command = ("coverage", "nightly.py", "--rehearse", "fakes.yaml")

    said, found = mulligan(*command), mulligan(*command, "--json").json

    assert said.out.startswith("nightly: 2 of 5 failures are dealt with; 3 are unknown\n")
    assert "'page' (nightly.py:17) has no fake; add to fakes.yaml: page: {output: …}" in said.out
    assert "mulligan coverage nightly.py --rehearse fakes.yaml --step load --failure EXCEPTION\n" in said.out
    assert (found["called_at"], found["cells"][0]["verdict"]) == ({"load": "nightly.py:15"}, "unknown")
    assert mulligan(*command, "--min", "41").code == 1

    Path("fakes.yaml").write_text("load: {output: 1}\npage: {output: ok}\n")
    story = mulligan(*command, "--step", "load", "--failure", "EXCEPTION")
    page = mulligan(*command, "--html", "-")

    assert story.out.endswith("the run completed: the program caught it at nightly.py:16; 1 attempt\n")
    assert mulligan(*command, "--min", "41").code == 0
    assert "caught it at nightly.py:16" in page.out


def test_without_a_rehearsal_it_is_said_what_to_give():
    Path("nightly.py").write_text(PROGRAM)

    said = mulligan("coverage", "nightly.py")

    assert "to play it, say how its calls end: --rehearse FAKES" in said.out
    assert "kill\nnightly" in said.out and "✓  recovered" in said.out


def test_a_file_that_is_no_program_is_not_rehearsed():
    Path("fakes.yaml").write_text("load: {output: 1}\n")

    said = mulligan("coverage", workflow(NIGHTLY), "--rehearse", "fakes.yaml")

    assert (said.code, said.out) == (2, "")
    assert "'nightly' is no program" in said.err and "leave --rehearse out" in said.err

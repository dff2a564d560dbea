"""`mulligan suggest`: proposals on a terminal, as JSON, and written into a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import mulligan
from tests.support.histories import decided
from tests.support.stored_histories import store_runs

from mulligan.formats import examine
from mulligan.service.home import Home
from mulligan.service.service import Service

pytestmark = pytest.mark.usefixtures("folder")

TEXT = """\
name: nightly
steps:
  # the slow one
  - step: fetch
    shell: ./fetch.sh  # may fail
    triage: true
"""


@pytest.fixture
def file(folder: Path) -> Path:
    """A workflow file, and a store with runs of it that people have retried."""
    path = Path("nightly.yaml")
    path.write_text(TEXT)
    definition = examine(path).workflow
    with Service(Home(Path(".mulligan")), "ada") as service:
        store_runs(service, definition, [decided(definition, number) for number in range(12)])
    return path


def test_a_proposal_is_shown_with_its_evidence_and_as_it_is_written(file: Path):
    said = mulligan("suggest")

    identity = said.out.split()[0]
    assert (said.code, said.err) == (0, "looked at 12 runs of 'nightly', with 12 failed attempts and 12 decisions\n")
    assert said.out == (
        f"{identity}  a retry rule, step 'fetch'\n"
        "  'fetch' failed 12 times in 12 runs with exit code 11; people said retry 12 times, 12 of these worked, after "
        "a median of 4m00s\n"
        "  proposal: retry exit code 11 once, 4m after a failure\n"
        "  would have saved: 12 decisions\n"
        "  what if: 12 of 12 runs would have completed, as before; 12 decisions fewer; 12 by facts alone\n"
        "\n"
        "      - step: fetch\n"
        "        retry: {exit_codes: [11], max_retries: 1, delay: 4m}\n"
    )


def test_a_proposal_is_written_into_the_file_and_is_then_no_longer_made(file: Path):
    said = mulligan("suggest", file, "--write")

    assert said.code == 0
    assert said.err.endswith("wrote 1 proposal into nightly.yaml\n")
    assert "+    retry: {exit_codes: [11], max_retries: 1, delay: 4m}" in said.out.splitlines()
    assert file.read_text() == TEXT + "    retry: {exit_codes: [11], max_retries: 1, delay: 4m}\n"
    again = mulligan("suggest", file)
    assert (again.code, again.out) == (0, "")
    assert again.err.startswith("nothing to propose: looked at 12 runs of 'nightly'")


def test_as_json_it_is_one_object(file: Path):
    found = mulligan("suggest", "nightly", "--step", "fetch", "--json").json

    (proposal,) = found["proposals"]
    assert proposal["change"]["exit_codes"] == [11]
    assert proposal["counted"]["retried"] == 12
    assert found["looked_at"]["runs"] == 12
    written = mulligan("suggest", file, "--write", "--json", "--pick", proposal["id"]).json["written"]
    assert (written["written"], written["left_out"]) == ([proposal["id"]], [])


def test_for_a_python_file_the_proposal_is_shown_and_it_is_said_why_nothing_is_written(file: Path):
    text = (
        "import mulligan\n\nflow = mulligan.Workflow('nightly')\nflow.step('fetch', shell='./fetch.sh', triage=True)\n"
    )
    Path("flow.py").write_text(text)

    said = mulligan("suggest", "flow.py", "--write")

    assert said.code == 1
    assert "retry: {exit_codes: [11]" in said.out
    assert "was not written: 'flow.py' is a Python file" in said.err
    assert Path("flow.py").read_text() == text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--write",), "--write needs a workflow file"),
        (("nightly", "--write"), "--write needs a workflow file"),
        (("nightly.yaml", "--draft"), "--draft needs the name of a published workflow"),
        (("nightly.yaml", "--draft", "--write"), "--write and --draft cannot be combined"),
        (("nothing",), "there is no run of 'nothing'"),
        (("gone.yaml",), "gone.yaml"),
        (("--since", "soon"), "'soon' is not a time"),
        (("--step", "fetsch"), "there is no step 'fetsch'"),
        (("--pick", "1"), "there is no proposal '1'"),
        (("nightly", "--draft"), "no workflow 'nightly' is published"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(file: Path, words: tuple[str, ...], message: str):
    said = mulligan("suggest", *words)

    assert (said.code, said.out) == (2, "")
    assert message in said.err


def test_what_cannot_be_written_in_place_is_said_and_the_exit_code_is_one(file: Path):
    file.write_text("defaults: {retry: {exit_codes: [3]}}\n" + TEXT)

    said = mulligan("suggest", file, "--write")

    assert said.code == 1
    assert "was not written: the step takes it from 'defaults', or shares it with others" in said.err


def test_without_evidence_it_is_said_how_much_was_looked_at_and_what_is_needed(folder: Path):
    path = Path("nightly.yaml")
    path.write_text(TEXT)
    assert mulligan("suggest").err.startswith("nothing to propose: looked at 0 runs, with 0 failed attempts")
    definition = examine(path).workflow
    with Service(Home(Path(".mulligan")), "ada") as service:
        store_runs(service, definition, [decided(definition, number) for number in range(3)])

    said = mulligan("suggest")

    assert (said.code, said.out) == (0, "")
    assert said.err.splitlines()[1:] == [
        "too little evidence yet:",
        "  'fetch' with exit code 11: retried 3 times in 3 runs, 3 of these worked; needed: a retry that works each "
        "time, in 6 runs; more runs if it works less often",
    ]

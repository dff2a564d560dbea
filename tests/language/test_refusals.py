"""Every refusal, its whole text. The tables are in `refusals/`: what it is for, the file, and what is said about it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mulligan.errors import LanguageError
from mulligan.language import load, load_text

FOLDER = Path(__file__).parent / "refusals"
SOURCES = Path(__file__).parents[2] / "src" / "mulligan" / "language"


def rows(file: Path) -> list[tuple[str, str, str]]:
    """The rows of a table: `=== what it is for`, the file, `--- refused`, the text."""
    blocks = re.split(r"^=== ", file.read_text("utf-8"), flags=re.MULTILINE)[1:]
    return [(purpose, text, said.strip("\n")) for purpose, text, said in map(_parts, blocks)]


def _parts(block: str) -> tuple[str, str, str]:
    purpose, _, rest = block.partition("\n")
    text, _, said = rest.partition("--- refused\n")
    return purpose, text, said


ROWS = [pytest.param(*row, id=f"{file.stem}: {row[0]}") for file in sorted(FOLDER.glob("*.txt")) for row in rows(file)]


@pytest.mark.parametrize(("purpose", "text", "said"), ROWS)
def test_a_refusal_says_where_what_and_what_to_do(purpose: str, text: str, said: str) -> None:
    with pytest.raises(LanguageError) as caught:
        load_text(text, "w.yaml")

    assert caught.value.render() == said, purpose


def test_every_code_of_the_language_has_a_row_or_a_test_of_its_own() -> None:
    of_their_own = {"not_utf8", "character", "unreadable", "too_large", "include_cycle", "include_depth", "plugin"}
    in_rows = {code for row in ROWS for code in re.findall(r"^error\[language\.(\w+)\]", row.values[2], re.MULTILINE)}
    written = {
        code
        for file in SOURCES.glob("*.py")
        for code in re.findall(r"\brefuse(?:_at|_in)?\(\s*\"(\w+)\"|\"language\.(\w+)\"", file.read_text("utf-8"))
        for code in code
        if code
    }

    assert written - in_rows - of_their_own == set()


def test_a_file_that_is_not_utf8_is_refused_at_its_first_bad_byte() -> None:
    with pytest.raises(LanguageError) as caught:
        load_text("name: é".encode() + b"\nsteps: \xff\n", "w.yaml")

    assert caught.value.render() == (
        "error[language.not_utf8]: w.yaml:2:8: byte 0xff is not UTF-8\n"
        "  2 | steps: \ufffd\n"
        "    |        ^ save the file as UTF-8"
    )


def test_a_nul_is_refused_at_its_place() -> None:
    with pytest.raises(LanguageError) as caught:
        load_text("name: x\nsteps: a\0b\n", "w.yaml")

    assert caught.value.render() == (
        "error[language.character]: w.yaml:2:9: the character U+0000 is not allowed in a text file\n"
        "  2 | steps: a\ufffdb\n"
        "    |         ^ remove it"
    )


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(LanguageError) as caught:
        load(tmp_path / "none.yaml")

    assert caught.value.render() == f"error[language.unreadable]: {tmp_path}/none.yaml: there is no such file"


def test_a_folder_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(LanguageError) as caught:
        load(tmp_path)

    assert caught.value.render() == f"error[language.unreadable]: {tmp_path}: this is a folder, not a file"


def test_more_than_twenty_problems_are_counted_and_not_shown() -> None:
    steps = "".join(f"  - {{step: s{i}, shell: make, needs: [nobody]}}\n" for i in range(25))

    with pytest.raises(LanguageError) as caught:
        load_text("steps:\n" + steps, "w.yaml")

    lines = caught.value.render().splitlines()
    assert len(caught.value.problems) == 25
    assert lines[-1] == "and 5 more"
    assert lines[-4] == "error[language.unknown_step]: w.yaml:21:38: step 's19' needs 'nobody', which is not a step"


def test_a_problem_of_a_matrix_is_told_once() -> None:
    with pytest.raises(LanguageError) as caught:
        load_text("steps:\n  - {step: s, shell: make, needs: [nobody], matrix: {i: 1..100}}\n", "w.yaml")

    assert len(caught.value.problems) == 1


def test_the_exception_carries_its_problems_as_data() -> None:
    with pytest.raises(LanguageError) as caught:
        load_text("steps:\n  - {step: fetch, shell: make, tiemout: 3s}\n", "w.yaml")

    problem = caught.value.problems[0]
    assert (problem.code, problem.file, problem.line, problem.column, problem.length) == (
        "language.unknown_key",
        "w.yaml",
        2,
        32,
        7,
    )
    assert problem.hint == "did you mean 'timeout'?"
    assert caught.value.exit_code == 2
